"""Tests how tools/diagnoses compares answers with what is expected; and, with the label soak, that cp-pool names enough
of the mistakes of the adapter that is wrong on purpose."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("diagnoses", str(ROOT / "tools/diagnoses"))
    spec = importlib.util.spec_from_loader("diagnoses", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["diagnoses"] = module
    loader.exec_module(module)
    return module


diagnoses = tool()


def mistake(expected: str, *answers: tuple[str, ...], also: str = "") -> Any:
    """A mistake with these answers, each of which is a certainty, an id and other ids."""
    entry: dict[str, Any] = {"id": expected}
    if also:
        entry["or"] = [{"id": also, "why": "no data can tell"}]
    given = [diagnoses.Answer("case", certainty, id, tuple(others)) for certainty, id, *others in answers]
    return diagnoses.Mistake("fault", "name", entry, given)


@pytest.mark.parametrize(
    ("made", "right"),
    [
        (mistake("a", ("certain", "a")), True),
        (mistake("a", ("certain", "b")), False),
        (mistake("a", ("likely", "b", "a")), True),
        (mistake("a", ("certain", "b", "a")), False),
        (mistake("a", ("certain", "b"), also="b"), True),
        (mistake("a", ("unknown", "unknown")), False),
        (mistake("a", ("certain", "a"), ("unknown", "unknown")), False),
        (mistake("none", ("unknown", "unknown")), True),
        (mistake("none", ("likely", "a")), False),
        (mistake("none"), True),
        (mistake("a"), False),
    ],
)
def test_what_is_right(made: Any, right: bool) -> None:
    assert made.right == right


def test_a_wrong_answer_that_is_certain_is_told_and_fails_all() -> None:
    made = [mistake("a", ("certain", "a"))] * 99
    assert diagnoses.passes(made)
    wrong = mistake("a", ("certain", "b"))
    assert not diagnoses.passes([*made, wrong])
    assert diagnoses.row(wrong) == "| `name` | `a` | `b` | certain | **no, and certain** |"
    assert "1 certain and wrong" in diagnoses.summary([*made, wrong])


def test_fewer_than_85_percent_fail() -> None:
    right, unsure = mistake("a", ("certain", "a")), mistake("a", ("likely", "b", "c"))
    assert diagnoses.passes([right] * 17 + [unsure] * 3)
    assert not diagnoses.passes([right] * 16 + [unsure] * 4)


def test_a_row_says_each_answer_once() -> None:
    made = mistake("a", ("certain", "a"), ("certain", "a"), ("likely", "b", "a"))
    assert diagnoses.row(made) == "| `name` | `a` | `a`; `b` or `a` | certain (2); likely | yes |"


def test_answers_of_mutants_are_read(tmp_path: Path) -> None:
    file = tmp_path / "mutants.tsv"
    file.write_text("name\tcase 1\tlikely\ta\tb,c\nname\tcase 2\tunknown\tunknown\t\nother\tcase\tcertain\ta\t\n")
    made = mistake("a")
    diagnoses.read_mutants([made], file)
    assert made.answers == [
        diagnoses.Answer("case 1", "likely", "a", ("b", "c")),
        diagnoses.Answer("case 2", "unknown", "unknown"),
    ]


def test_the_table_stands_between_two_lines_of_the_page() -> None:
    page = f"before\n{diagnoses.BEGIN}old\n{diagnoses.END}after\n"
    assert diagnoses.with_section(page, "new\n") == f"before\n{diagnoses.BEGIN}\nnew\n\n{diagnoses.END}after\n"
    assert diagnoses.with_section(diagnoses.PAGE.read_text(encoding="utf-8"), "new\n")


def test_every_expected_id_is_described_and_every_mutant_expected() -> None:
    page = diagnoses.PAGE.read_text(encoding="utf-8")
    described = set(re.findall(r"`(\w+)`", page[page.index("## The ids") : page.index("## How often it is right")]))
    everything = diagnoses.mistakes()
    assert {id for made in everything for id in made.accepted} - described == {"none"}
    assert sum(made.expected["id"] == "none" for made in everything) <= 10
    assert all(made.expected.get("why") for made in everything if made.expected["id"] == "none")
    mutants = re.findall(r"^CP_MUTANT\((\w+), (?:both|cpu),", (ROOT / "cp_core/mutants.def").read_text(), re.MULTILINE)
    assert [made.name for made in everything if made.kind == "mutant"] == mutants


@pytest.mark.soak
def test_the_faults_of_an_adapter_are_named(binary: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools/diagnoses"), "--kind", "fault", "--keep", str(tmp_path)]
    command += ["--bin", str(binary.parent), "--python", sys.executable]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("| `") >= len(json.loads((diagnoses.FOLDER / "expected.json").read_text())["faults"])

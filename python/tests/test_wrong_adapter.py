"""Tests that the adapter which is wrong on purpose (tests/diagnosis) passes without a fault and fails with each
fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adapter_runs import environment

FOLDER = Path(__file__).resolve().parents[2] / "tests/diagnosis"
sys.path.insert(0, str(FOLDER))

FAULTS: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))["faults"]


def judge(binary: Path, folder: Path, fault: str, *selection: str) -> dict[str, dict[str, Any]]:
    """Runs the selected cases with a fault. Returns the case_finished events by ID."""
    command = [str(binary), "run", "--device", "cpu", "--size", "small", *selection]
    command += ["--adapter", str(FOLDER / "wrong_adapter.py"), "--python", sys.executable]
    command += ["--events", str(folder / "events.jsonl")]
    env = {**environment(), "CP_POOL_WRONG": fault}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    finished = {event["id"]: event for event in events if event["type"] == "case_finished"}
    assert finished, run.stdout + run.stderr
    return finished


def selected(cases: list[str]) -> list[str]:
    return ["--matrix", str(FOLDER / "cases.json"), *(word for case in cases for word in ("--filter", case))]


def assert_right(finished: dict[str, dict[str, Any]]) -> None:
    judged = {case: event for case, event in finished.items() if event["outcome"] != "skip"}
    assert judged
    assert {case: event["reason"] for case, event in judged.items() if event["outcome"] != "pass"} == {}


def assert_wrong(fault: str, finished: dict[str, dict[str, Any]]) -> None:
    """A fault of kept state only shows from the second case on; all other faults show in each case."""
    cases = FAULTS[fault]["cases"]
    assert list(finished) == cases
    assert all(event["outcome"] in ("pass", "fail") for event in finished.values())
    fails = [case for case in cases if finished[case]["outcome"] == "fail"]
    assert fails == (cases[1:] if fault == "stale_gradients" else cases)


def test_every_fault_is_expected_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import wrong_adapter

    assert set(wrong_adapter.FAULTS) == set(FAULTS)
    assert len(FAULTS) == 40
    monkeypatch.setenv("CP_POOL_WRONG", "everything")
    with pytest.raises(ValueError, match="CP_POOL_WRONG=everything is none of a2a_reshape, "):
        wrong_adapter.chosen()


@pytest.mark.long
def test_the_adapter_is_right_without_a_fault(binary: Path, tmp_path: Path) -> None:
    some = [
        "model=causal",
        "model=bias & dtype=fp32",
        "model=sink & comm=a2a",
        "model=few_keys",
        "model=pad & dtype=fp32",
    ]
    assert_right(judge(binary, tmp_path, "", *selected(some)))


@pytest.mark.long
def test_the_adapter_is_right_in_all_that_it_declares(binary: Path, tmp_path: Path) -> None:
    assert_right(judge(binary, tmp_path, "", "--matrix", "quick", str(FOLDER / "cases.json")))


@pytest.mark.long
@pytest.mark.parametrize("fault", list(FAULTS))
def test_every_fault_fails(binary: Path, tmp_path: Path, fault: str) -> None:
    assert_wrong(fault, judge(binary, tmp_path, fault, *selected(FAULTS[fault]["cases"])))

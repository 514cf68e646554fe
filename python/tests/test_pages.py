"""Runs every command of README and of the first six pages of its index, in a folder that has what the pages name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ["README.md", *re.findall(r"^\| \[(docs/\w+\.md)\]", README, re.MULTILINE)[:6]]
# What a page's commands need beside its own code, by the name of the page. The scripted worker answers them.
BEFORE = {
    "ci": [
        "cp-pool run --matrix te-flash --events times.jsonl",
        *(
            f"cp-pool run --matrix te-flash --shard {k}/4 --shard-times times.jsonl --events events-{k}.jsonl"
            for k in (1, 3, 4)
        ),
    ],
    "command_line": [
        "cp-pool run --matrix te-flash --events e.jsonl",
        "cp-pool run",
        "cp-pool run --mode perf",
    ],
}
SUMS = "def all_reduce(ranks, n, dtype='fp32', seed=0):\n    return n\n"
FINE = (0, 1, 4, 100)  # 1: pytest, whose tests include a failure; 4: there is no failure to rerun; 100: a case failed
STAYS = re.compile(r"cp-pool (serve|shell)\b")  # tests/service and driver/cli/shell test these


def blocks(page: str, *languages: str) -> list[str]:
    """The blocks of code in one of these languages; "" has none, and "indented" is what four blanks indent."""
    found: dict[int, tuple[str, str]] = {}
    language, number = "", 0
    for line in page.splitlines():
        if line.lstrip().startswith("```"):
            inside = number % 2 == 1
            number += 1
            language = "" if inside else line.strip().removeprefix("```")
        elif number % 2 == 1 or line.startswith("    "):
            kind = language if number % 2 == 1 else "indented"
            found[number] = (kind, found.get(number, ("", ""))[1] + line + "\n")
    return [text for kind, text in found.values() if kind in languages]


def commands(page: str) -> list[str]:
    """The lines of code that call cp-pool, pytest or export, without the prompt."""
    lines = [
        line.strip().removeprefix("$ ") for text in blocks(page, "", "sh", "indented") for line in text.split("\n")
    ]
    is_command = re.compile(r"export CP_POOL|pytest |gdb |ls .*\| entr|CP_POOL_\w+='|cp-pool [a-z]+\b")
    return [line for line in lines if is_command.match(line)]


def as_run_here(line: str) -> str:
    """The same on CPU ranks, without the tools around it; options of a run on a service are only parsed. README's
    adapter has no ring."""
    if "--adapter mine.py" in line:
        line = line.replace("p2p/cp2/bshd/fp32", "all_gather/cp2/bshd/bf16")
    line = line.replace("--device cuda", "--device cpu").removeprefix("gdb --args ")
    line = re.sub(r"^ls .*\| entr -c cp-pool run", "cp-pool config", line)
    return re.sub(r"^pytest", f"{sys.executable} -m pytest -p cp_pool.pytest_plugin -p no:cacheprovider", line)


def fill(folder: Path, page: str) -> None:
    """Writes the files that the page has, and those that pages name."""
    (folder / "mine.py").write_text(blocks(README, "python")[0])
    (folder / "cp-pool.toml").write_text("".join(blocks(page, "toml")))
    for text in blocks(page, "json"):
        (folder / "mine.json").write_text(text)
    (folder / "tests").mkdir()
    (folder / "tests/sums.py").write_text(SUMS)
    for path in (ROOT / "docs/examples").glob("*.py"):
        shutil.copy(path, folder)
    (folder / "minimal_worker.py").rename(folder / "my_worker.py")


@pytest.mark.parametrize("name", PAGES)
def test_every_command_runs(name: str, tmp_path: Path, binary: Path, scripted: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    fill(tmp_path, page)
    environment = {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(tmp_path)}
    environment["XDG_STATE_HOME"] = str(tmp_path)

    def run(line: str) -> str:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", as_run_here(line)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode in FINE, f"{line}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    stem = Path(name).stem
    if stem in ("ci", "command_line", "configuration"):
        environment |= {"CP_POOL_OPT_WORKER": scripted, "CP_POOL_TEST_STEP_MS": "1"}
    if stem != "README":
        environment["CP_POOL_OPT_NO_DIAGNOSIS"] = "true"
    for line in BEFORE.get(stem, []):
        run(line)
    found = list(dict.fromkeys(line for line in commands(page) if not STAYS.match(line)))
    assert found
    for line in found:
        if line.startswith("export "):
            for word in line.split()[1:]:
                variable, _, value = word.partition("=")
                environment[variable] = value
            continue
        said = run(re.sub(r" +#.*", "", line))
        if stem == "README":  # its output stands below the command, without what differs from run to run
            for wanted in blocks(page, "")[0].splitlines()[1:]:
                part = re.split(r"; \.\.| after |, [\d.]+ s$", wanted)[0].strip()
                assert part == ".." or part in said, f"not in the output: {part}"

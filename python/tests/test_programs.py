"""The commands of a wheel, and the exit codes of the programs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cp_pool import programs
from cp_pool.exit_codes import ExitCode, WorkerExit

ROOT = Path(__file__).resolve().parents[2]


def help_text(binary: Path) -> str:
    return subprocess.run([binary, "--help"], capture_output=True, text=True, check=True).stdout


def test_exit_codes_are_those_of_cp_pool(binary: Path) -> None:
    header = (ROOT / "driver/core/exit_code.h").read_text(encoding="utf-8")
    body = header.split("enum class ExitCode {")[1].split("}")[0]
    assert {name: int(code) for name, code in re.findall(r"(\w+) = (\d+),", body)} == ExitCode.__members__
    shown = help_text(binary).split("Exit codes, the first that applies:\n")[1]
    assert [int(code) for code in re.findall(r"^ {2,4}(\d+) {2}\S", shown, re.MULTILINE)] == list(ExitCode)


def test_exit_codes_of_a_worker_are_those_of_the_protocol() -> None:
    constants = ""
    for header in ("worker/worker_main.h", "worker/protocol/messages.h"):
        constants += (ROOT / header).read_text(encoding="utf-8")
    known = {name: int(code) for name, code in re.findall(r"constexpr int kExit(\w+) = (\d+);", constants)}
    assert (WorkerExit.usage, WorkerExit.no_device) == (known["Usage"], known["NoDevice"])


def test_commands_without_ranks_are_commands_of_cp_pool(binary: Path) -> None:
    commands = set(re.findall(r"^  ([a-z]+) {2,}\S", help_text(binary).split("Subcommands:")[1], re.MULTILINE))
    assert commands > programs.COMMANDS_WITHOUT_RANKS


@pytest.mark.parametrize("command", ["run", "submit", "search", "replay", "serve", "shell", "doctor"])
def test_commands_that_start_ranks_need_the_torch_of_the_shipped_worker(command: str) -> None:
    assert programs.starts_shipped_worker([command, "--device", "cpu"])
    for other in (["--worker", "mine"], ["--adapter=mine.py"], ["--help"]):
        assert not programs.starts_shipped_worker([command, *other])


@pytest.mark.parametrize("words", [[], ["--version"], ["--man"], ["list", "--count"], ["explain", "x"], ["status"]])
def test_other_commands_need_no_torch(words: list[str]) -> None:
    assert not programs.starts_shipped_worker(words)

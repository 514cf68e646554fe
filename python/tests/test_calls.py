"""Calls on real ranks: what a function gets, what it may do wrong, and what the next one finds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adapter_runs import environment

from cp_pool.call_stream import CallStream, PooledFunction
from cp_pool.result import CaseRefused, Result

FUNCTIONS = Path(__file__).parent / "calls/functions.py"
HANGS = Path(__file__).parent / "calls/hangs.py"


@pytest.fixture(scope="module")
def stream() -> Iterator[CallStream]:
    made = CallStream(device="cpu", arguments=["--slots", "2"])
    yield made
    made.close()


def call(stream: CallStream, function: str, arguments: dict[str, Any] | None = None, **options: Any) -> Result:
    world_size = options.pop("world_size", 2)
    return stream.submit(f"{FUNCTIONS}:{function}", arguments or {}, world_size, **options).result()


def test_a_function_runs_on_every_rank_and_returns_what_json_has(stream: CallStream) -> None:
    result = call(stream, "total", {"n": 1, "text": "é"})
    assert result.outcome == "pass"
    assert result.value == {"sum": 3, "ranks": 2, "text": "é"}
    assert result.raw["unverified_by_figures"] is False
    assert result.raw["call"] == {
        "function": f"{FUNCTIONS}:total", "arguments": {"n": 1, "text": "é"}, "cp_size": 2
    }  # fmt: skip
    assert "case" not in result.raw
    assert call(stream, "total", world_size=1).value["ranks"] == 1


def test_a_function_gets_groups_a_store_a_folder_and_a_log(stream: CallStream) -> None:
    result = call(stream, "uses_everything")
    assert result.outcome == "pass", result.failure_text()
    scratch, *files = result.value
    assert files == ["0", "1"]
    again = call(stream, "uses_everything")
    assert again.outcome == "pass", again.failure_text()
    assert again.value[0] != scratch
    assert not os.path.exists(scratch)
    assert again.raw["backend_note"] == ""


def test_an_assertion_is_a_fail_with_the_traceback_of_its_rank(stream: CallStream) -> None:
    result = call(stream, "asserts", {"rank": 1})
    assert (result.outcome, result.reason) == ("fail", "rank 1: AssertionError: rank 1 is wrong")
    assert 'assert ranks.rank != rank, f"rank {rank} is wrong"' in result.ranks[0].error
    assert [rank.rank for rank in result.ranks] == [1, 0]
    assert call(stream, "total").ok


def test_another_exception_is_an_error_and_a_skip_is_a_skip(stream: CallStream) -> None:
    result = call(stream, "raises", {"rank": 0})
    assert (result.outcome, result.reason) == ("error", "rank 0: ValueError: broken")
    result = call(stream, "skips")
    assert (result.outcome, result.reason) == ("skip", "not here")
    assert call(stream, "total").ok


@pytest.mark.parametrize(
    ("function", "outcome", "reason"),
    [
        ("exits", "crash", "rank 1 died: exit 3"),
        ("segfaults", "crash", "signal 11 (SIGSEGV)"),
        ("hangs", "timeout", "still in"),
        pytest.param("leaves_a_collective", "timeout", "all_reduce", marks=pytest.mark.long),
    ],
)
def test_a_broken_rank_costs_one_call(stream: CallStream, function: str, outcome: str, reason: str) -> None:
    result = call(stream, function, timeout=3)
    assert result.outcome == outcome, result.failure_text()
    assert any(reason in text for text in (result.reason, *(rank.error for rank in result.ranks)))
    assert call(stream, "total").ok


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("skips_a_collective", "rank 2 left without entering all_gather #2; the others wait in it"),
        # rank 0 may still be waiting for its message to rank 2 to leave
        ("sends_to_the_wrong_rank", "rank 0 (has not sent|left without sending) message #1 to rank 1, which waits"),
    ],
)
def test_a_call_that_hangs_names_the_first_difference_of_its_ranks(
    stream: CallStream, function: str, reason: str
) -> None:
    result = stream.submit(f"{HANGS}:{function}", {}, 3, timeout=3).result()
    assert result.outcome == "timeout", result.failure_text()
    assert re.search(reason, result.reason), [result.reason, *(rank.error for rank in result.ranks)]


def test_a_call_finds_the_state_of_a_fresh_process(stream: CallStream) -> None:
    fresh = call(stream, "finds_state", fresh=True).value
    assert fresh["groups"] == 1
    for function in ("changes_state", "leaves_groups", "destroys_the_group"):
        assert call(stream, function).ok
        assert call(stream, "finds_state").value == fresh, function
    assert call(stream, "destroys_the_group", {"on": 1}).ok
    assert call(stream, "finds_state").value == fresh
    assert call(stream, "total").ok


@pytest.mark.long
def test_what_cannot_be_restored_is_named(stream: CallStream, tmp_path: Path) -> None:
    notes = [
        call(stream, "leaves_a_thread", fresh=True).raw["backend_note"],
        call(stream, "leaves_a_child", fresh=True).raw["backend_note"],
        call(stream, "leaves_a_file", {"path": str(tmp_path / "left")}, fresh=True).raw["backend_note"],
    ]
    assert notes[0] == "the call left the thread 'left over'"
    assert notes[1].startswith("the call left the child process ")
    assert notes[2] == f"the call left {tmp_path / 'left'} open"


@pytest.mark.long
def test_fresh_ranks_have_run_nothing_before(stream: CallStream) -> None:
    assert call(stream, "remembers", fresh=True).ok
    assert call(stream, "remembers", fresh=True).ok
    assert call(stream, "remembers").ok
    assert call(stream, "remembers").outcome == "fail"


@pytest.mark.parametrize(
    ("function", "reason"),
    [("missing", "it has no 'missing'"), ("LEFT", "not a function"), ("returns_a_tensor", "what JSON does not have")],
)
def test_what_is_no_such_function_is_an_error(stream: CallStream, function: str, reason: str) -> None:
    result = call(stream, function)
    assert result.outcome == "error"
    assert reason in result.reason


def test_what_is_no_call_is_refused(stream: CallStream) -> None:
    with pytest.raises(CaseRefused, match="neither package"):
        stream.submit("functions", {}, 2).result()
    with pytest.raises(CaseRefused, match="0 is no number of ranks"):
        stream.submit("a:b", {}, 0).result()
    assert call(stream, "total").ok


def test_a_function_of_keyword_arguments_alone(stream: CallStream) -> None:
    pooled = PooledFunction("builtins:str")
    pooled._stream = stream  # which is warm; test_torch_testing.py has one with ranks of its own
    for world_size in (1, 2):
        ranks = pooled.on_ranks(world_size)
        ranks.submit({"object": "1"})
        ranks.shutdown()
    with pytest.raises(AssertionError, match="'x' is an invalid keyword argument"):
        pooled.on_ranks(1).submit({"x": "1"})


def test_a_matrix_may_hold_calls(binary: Path, tmp_path: Path) -> None:
    matrix = {
        "suite": "calls",
        "models": {
            "total": {"call": f"{FUNCTIONS}:total", "axes": {"n": [1, 2], "cp_size": [1, 2]}, "tags": ["sums"]},
            "skips": {"call": f"{FUNCTIONS}:skips"},
            "wrong": {"call": f"{FUNCTIONS}:asserts", "arguments": {"rank": 1}},
        },
    }
    (tmp_path / "calls.json").write_text(json.dumps(matrix))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(binary), *words, "--matrix", "./calls.json"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    listed = run("list").stdout.splitlines()
    assert listed == [*(f"calls/total/n={n}/cp{size}" for n in (1, 2) for size in (1, 2)), "calls/skips", "calls/wrong"]
    reports = ["--events", "events.jsonl", "--junit", "junit.xml", "--html", "page.html", "--summary", "summary.md"]
    done = run("run", "--device", "cpu", "--verbose", "--timings", *reports)
    assert "6 expanded = 4 pass + 1 fail + 1 skip" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 100
    assert "4 checked by itself: " in done.stdout
    assert done.stdout.count("(checked by itself)") == 4
    assert re.search(r"^ +2  call +3 ", done.stdout, re.MULTILINE), done.stdout
    for path in reports[1::2]:
        assert re.search("checked.by.itself", (tmp_path / path).read_text()), path
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    finished = {event["id"]: event for event in events if event["type"] == "case_finished"}
    assert finished["calls/total/n=2/cp2"]["value"]["sum"] == 5
    assert finished["calls/total/n=2/cp2"]["call"]["arguments"] == {"n": 2}
    assert run("list", "-k", "sums and arg.n>1 and cp_size=2").stdout == "calls/total/n=2/cp2\n"
    rerun = run("run", "--device", "cpu", "--rerun-failed", "events.jsonl")
    assert "1 expanded = 0 pass + 1 fail" in rerun.stdout
    report = subprocess.run([str(binary), "report", "events.jsonl"], cwd=tmp_path, capture_output=True, text=True)
    assert "6 expanded = 4 pass + 1 fail + 1 skip" in report.stdout


@pytest.mark.long
def test_triage_names_the_call_that_left_something_behind(binary: Path, tmp_path: Path) -> None:
    models = {
        "before": {"call": f"{FUNCTIONS}:total"},
        "leaves": {"call": f"{FUNCTIONS}:leaves_a_file", "arguments": {"path": str(tmp_path / "left")}},
        "finds": {"call": f"{FUNCTIONS}:remembers"},
    }
    (tmp_path / "calls.json").write_text(json.dumps({"suite": "calls", "models": models}))
    command = [str(binary), "run", "--matrix", "./calls.json", "--device", "cpu", "--triage", "--slots", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "STATE_LEAK" in done.stdout, done.stdout
    assert "calls/leaves" in done.stdout.split("STATE_LEAK", 1)[1]


def test_a_service_runs_calls_on_warm_ranks_until_their_file_changes(
    binary: Path, tmp_path: Path, service: dict[str, str]
) -> None:
    file = tmp_path / "mine.py"

    def answer(value: int) -> tuple[int, int]:
        file.write_text(f"def answer(ranks):\n    return {value}\n")
        words = [str(binary), "submit", json.dumps({"call": {"function": f"{file}:answer"}}), "--json"]
        done = subprocess.run(words, env={**environment(), **service}, capture_output=True, text=True, check=False)
        told = json.loads(done.stdout)
        return told["value"], told["pool"]["generation"]

    first, same, changed = answer(1), answer(1), answer(2)
    assert [first[0], same[0], changed[0]] == [1, 1, 2]


@pytest.mark.long
def test_a_launcher_starts_the_ranks_of_calls(binary: Path) -> None:
    words = ["submit", json.dumps({"call": {"function": f"{FUNCTIONS}:total", "arguments": {"n": 1}}}), "--json"]
    words += [
        "--launcher",
        f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node={{world_size}} "
        "--no-python {worker}",
        "--device",
        "cpu",
    ]
    done = subprocess.run([str(binary), *words], env=environment(), capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["value"] == {"sum": 3, "ranks": 2, "text": ""}, done.stderr


def test_a_worker_without_calls_skips_them(binary: Path, scripted: str) -> None:
    done = subprocess.run(
        [str(binary), "submit", '{"call": {"function": "a:b", "cp_size": 1}}', "--json", "--worker", scripted],
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["outcome"] == "skip"
    assert answer["reason"] == 'the worker runs no calls: its capabilities have no "calls":true'

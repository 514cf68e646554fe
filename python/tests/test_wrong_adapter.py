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


# The faults of rare_faults.py, and cases of quick in which at least three show each of them.
RARE = {
    "padding_keys_kept_in_ring": "comm=p2p & pad_between_seqs=true & causal=false",
    "idle_rank_exchanges_nothing": "cp_size=4 & seqlens=2,1,2 & !comm=a2a+p2p",
    "diagonal_of_padded_lengths": "model=more_keys | model=rows_without_keys",
    "window_of_one_neighbour": "cp_size>3 & cp_size<8 & !window=-1,-1 & !model=pairs_*",
    "heads_lost_over_four_ranks": "cp_size=4 & !model=pairs_*",
    "bias_of_first_heads": "comm=a2a & (bias=1hss | bias=bhss)",
    "sink_of_every_rank": "comm=p2p & !softmax=vanilla",
    **{f"{result}_of_an_earlier_call": "model=sink" for result in ("lse", "max_logit", "dbias", "dsink")},
}
# In these cases ranks wait for one that does not come.
LONGEST_WAIT = "6s"


def judge(
    binary: Path, folder: Path, fault: str, *selection: str, adapter: Path = FOLDER / "wrong_adapter.py"
) -> dict[str, dict[str, Any]]:
    """Runs the selected cases with a fault. Returns the case_finished events by ID."""
    command = [str(binary), "run", "--device", "cpu", "--size", "small", *selection]
    command += ["--adapter", str(adapter), "--python", sys.executable]
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
    """Every fault shows in each case."""
    cases = FAULTS[fault]["cases"]
    assert list(finished) == cases
    assert all(event["outcome"] in ("pass", "fail") for event in finished.values())
    fails = [case for case in cases if finished[case]["outcome"] == "fail"]
    assert fails == cases


def test_every_fault_is_expected_and_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import wrong_adapter

    assert set(wrong_adapter.FAULTS) == set(FAULTS) | set(RARE)
    assert len(FAULTS) == 64
    monkeypatch.setenv("CP_POOL_WRONG", "everything")
    with pytest.raises(ValueError, match="CP_POOL_WRONG=everything is none of a2a_reshape, "):
        wrong_adapter.chosen()


def test_a_mistake_that_is_found_is_confirmed_on_the_other_failures(binary: Path, tmp_path: Path) -> None:
    fault = "lse_in_base_2"
    cases = FAULTS[fault]["cases"]
    finished = judge(binary, tmp_path, fault, *selected(cases), "--slots", "2", "--diagnosis-time", "60s")
    answers = [finished[case]["diagnosis"] for case in cases]
    first = next(case for case in cases if finished[case]["diagnosis"]["certainty"] == "certain")
    assert [answer["id"] for answer in answers] == [FAULTS[fault]["id"]] * len(cases)
    for case in cases:
        referred = any(
            text.startswith(f"this mistake was found in {first}.") for text in finished[case]["diagnosis"]["evidence"]
        )
        assert referred == (case != first)


def test_a_mistake_that_is_found_is_confirmed_on_other_pools(binary: Path, tmp_path: Path) -> None:
    cases = ("--matrix", "quick", "--filter", "dtype=fp32 & comm=p2p & (model=causal | model=five_ranks)")
    # Five slots let one pool run at a time.
    finished = judge(binary, tmp_path, "lse_in_base_2", *cases, "--slots", "5", "--diagnosis-time", "60s")
    answers = [event["diagnosis"] for event in finished.values()]
    own = [answer for answer in answers if not any("was found in" in text for text in answer["evidence"])]
    assert {answer["id"] for answer in answers} == {"lse_base_2"}
    assert {event["pool"]["key"] for event in finished.values()} == {"cpu/2", "cpu/5"}
    assert len(own) == 1


def test_an_adapter_that_skips_fp32_in_its_own_words_is_diagnosed_in_16_bits(binary: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "sixteen.py"
    adapter.write_text(
        f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import wrong_adapter
from cp_pool import Skip, adapter, shard

@adapter(comm=["p2p"], shard=shard.dual_chunk, features=["causal", "gqa"], padding_results=True)
class Sixteen(wrong_adapter.Wrong):
    def forward(self, q, k, v, case, ctx):
        if case.dtype == "fp32":
            raise Skip("no kernel for fp32")
        return super().forward(q, k, v, case, ctx)
""",
        encoding="utf-8",
    )
    cases = ("--matrix", str(FOLDER / "cases.json"), "--filter", "model=causal & comm=p2p & dtype=bf16")
    finished = judge(binary, tmp_path, "lse_in_base_2", *cases, "--diagnosis-time", "60s", adapter=adapter)
    assert {event["diagnosis"]["id"] for event in finished.values()} == {"lse_base_2"}
    assert {event["pool"]["key"] for event in finished.values()} == {"cpu/2"}


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


@pytest.mark.long
@pytest.mark.parametrize("fault", list(RARE))
def test_three_cases_of_quick_fail_with_every_rare_fault(binary: Path, tmp_path: Path, fault: str) -> None:
    wait = ["--timeout", LONGEST_WAIT] if fault == "idle_rank_exchanges_nothing" else []
    one_pool = ["--slots", "2"]  # of each world size, so that all cases of a shape meet what is kept
    finished = judge(binary, tmp_path, fault, "--filter", RARE[fault], "--no-diagnosis", *one_pool, *wait)
    caught = {"timeout", "error"} if wait else {"fail"}
    outcomes = {case: event["outcome"] for case, event in finished.items() if event["outcome"] != "skip"}
    assert set(outcomes.values()) <= {"pass"} | caught
    if wait:
        assert any(", which has no tokens, left without " in event["reason"] for event in finished.values())
    assert sum(outcome in caught for outcome in outcomes.values()) >= 3, outcomes

"""Tests of what ranks that share a GPU send to single ranks (cp_pool/staging.py), on CPU ranks."""

from __future__ import annotations

from adapter_runs import case, run_cases


def test_messages_arrive_when_they_are_waited_for() -> None:
    run = run_cases("staged.py:passes_on", [case("three", cp_size=3, seqlen_q=18, seqlen_kv=18)])
    assert run.outcomes() == ["pass"], run.output

"""Tests of the process group of ranks that share a GPU, and of what they send to single ranks (cp_pool/staging.py)."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import torch.distributed as dist
from adapter_runs import case, run_cases
from torch._C._distributed_c10d import HashStore

from cp_pool import adapter, runner


@pytest.mark.parametrize("name", ["passes_on", "sends_to_itself"])
def test_messages_arrive_when_they_are_waited_for(name: str) -> None:
    run = run_cases(f"staged.py:{name}", [case("three", cp_size=3, seqlen_q=18, seqlen_kv=18)])
    assert run.outcomes() == ["pass"], run.output


@pytest.mark.parametrize(
    ("device", "shares", "asked"),
    [("cuda:0", False, ["nccl"]), ("cuda:0", True, ["staged", "gloo"]), ("cpu", False, ["gloo"])],
)
def test_ranks_use_nccl_if_each_rank_of_the_pool_has_a_gpu(
    device: str, shares: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def init(backend: str, **_: Any) -> None:
        done.append(backend)
        raise InterruptedError

    monkeypatch.setattr(dist, "init_process_group", init)
    monkeypatch.setattr(runner, "TCPStore", lambda *_, **__: HashStore())
    monkeypatch.setattr(runner, "stage_messages", lambda: done.append("staged"))
    one: Any = runner.Runner(adapter(lambda q, k, v, case, ctx: q), None, signal.SIGUSR1)  # type: ignore[arg-type]
    with pytest.raises(InterruptedError):
        one.connect(0, 2, device, shares, "127.0.0.1", 1, "", 0, 1000)
    assert done == asked

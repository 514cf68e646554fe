"""Tests of --delays (cp_pool/delays.py): what is delayed, and that a run finds a result that depends on time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from adapter_runs import case, run_cases
from torch._C._distributed_c10d import HashStore

from cp_pool.delays import Delays


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds of each sleep, while a process group of one rank exists."""
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield seconds
    dist.destroy_process_group()


def step(delays: Delays, *what: object) -> None:
    x = torch.ones(2, requires_grad=True)
    with delays.begin(*what):
        dist.all_reduce(x.detach() * 2)
        torch.autograd.grad((x * 2).sum(), [x])
        dist.all_gather([torch.empty(2)], torch.ones(2))


def test_collectives_are_delayed_by_times_that_follow_from_the_seed(slept: list[float]) -> None:
    step(Delays(7, 50, 0, torch.device("cpu")), "case", 1)
    assert len(slept) == 2
    assert all(0 <= seconds <= 0.05 for seconds in slept)
    step(Delays(7, 50, 0, torch.device("cpu")), "case", 1)
    assert slept[2:] == slept[:2]
    for other in (Delays(8, 50, 0, torch.device("cpu")), Delays(7, 50, 1, torch.device("cpu"))):
        step(other, "case", 1)
    step(Delays(7, 50, 0, torch.device("cpu")), "case", 2)
    assert len(set(slept)) == 8


def test_nothing_is_delayed_outside_of_a_step(slept: list[float]) -> None:
    Delays(7, 2, 0, torch.device("cpu"))
    dist.all_reduce(torch.ones(2))
    assert slept == []


def test_a_result_that_depends_on_time_fails_with_delays_alone() -> None:
    right = run_cases("hasty.py", [case("a")])
    assert right.outcomes() == ["pass"]
    delayed = run_cases("hasty.py", [case("a")], "--fork", "auto", "--delays", "1", "--no-diagnosis")
    assert delayed.outcomes() == ["fail"]


def test_a_delayed_operation_counts_once() -> None:
    options = ("--fork", "auto", "--delays", "1", "--timeout", "6s", "--no-diagnosis")
    run = run_cases("faults.py:surviving", [case("leaves.1")], *options)
    assert "; rank 1 left without entering all_gather #1; rank 0 waits in it" in run.cases[0].reason

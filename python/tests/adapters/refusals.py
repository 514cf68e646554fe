"""An adapter that refuses a case in the way that the case's model names: HOW.RANK, or HOW for all ranks. The model
`where` skips, and says how often the process groups have been made; any other case is computed as in plain.py."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from plain import attention  # type: ignore[import-not-found,unused-ignore]

from cp_pool import Skip, adapter, shard
from cp_pool.adapter import FEATURES
from cp_pool.context import CaseView, Ctx

WORDS = "No dot product attention backend is available"

_own_group: list[dist.ProcessGroup] = []


def setup(ctx: Ctx) -> None:
    _own_group[:] = [dist.new_group(list(range(dist.get_world_size())))]


def refuse() -> None:
    raise ValueError(f"{WORDS} for the provided inputs.\nRun with DEBUG=1 to see why.")


class RefusesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> None:
        refuse()


def swap(ctx: Ctx) -> None:
    mine, theirs, peer = torch.ones(4), torch.empty(4), ctx.global_ranks[1 - ctx.rank]
    work = [dist.P2POp(dist.isend, mine, peer, ctx.group), dist.P2POp(dist.irecv, theirs, peer, ctx.group)]
    for one in dist.batch_isend_irecv(work):
        one.wait()


def send(ctx: Ctx) -> None:
    x = torch.ones(4)
    if ctx.rank == 0:
        dist.send(x, ctx.global_ranks[1], ctx.group)
    else:
        dist.recv(x, ctx.global_ranks[0], ctx.group)


def in_a_thread(ctx: Ctx) -> None:
    thread = threading.Thread(target=dist.all_reduce, args=(torch.ones(4),), kwargs={"group": ctx.group})
    thread.start()
    thread.join()


#: What ranks do with groups before they refuse.
OPERATIONS: dict[str, Callable[[Ctx], Any]] = {
    "all_reduce": lambda ctx: dist.all_reduce(torch.ones(4), group=ctx.group),
    "of_world": lambda ctx: dist.all_reduce(torch.ones(4)),
    "of_own_group": lambda ctx: dist.all_reduce(torch.ones(4), group=_own_group[0]),
    "asynchronous": lambda ctx: dist.all_reduce(torch.ones(4), group=ctx.group, async_op=True),
    "swap": swap,
    "send": send,
    "barrier": lambda ctx: dist.barrier(ctx.group),
    "objects": lambda ctx: dist.all_gather_object([None] * ctx.world_size, "x", group=ctx.group),
    "functional": lambda ctx: functional.all_gather_tensor(torch.ones(4), 0, ctx.group).sum(),
    "in_cpp": lambda ctx: torch.ops._c10d_functional.all_reduce(torch.ones(4), "sum", ctx.group.group_name),
    "in_a_thread": in_a_thread,
}


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Any:
    how, _, rank = case.model.partition(".")
    here = not rank or int(rank) == ctx.global_rank
    if how == "where":
        raise Skip(f"generation {ctx.generation}")
    if here and how in OPERATIONS:
        OPERATIONS[how](ctx)
        refuse()
    if here and how == "refuse":
        refuse()
    if here and how == "pattern":
        raise RuntimeError("head_dim 8 is not supported")
    if here and how == "other_text":
        raise ValueError("the ring is broken")
    if here and how == "other_type":
        raise TypeError(WORDS)
    if how == "late":
        time.sleep(ctx.rank)  # longer than a step takes, and shorter than the other rank waits
        refuse()
    if how == "new_group":  # on one rank only
        if here:
            dist.new_group([ctx.global_rank])
        refuse()
    if how == "throw_or_refuse":
        if here:
            raise KeyError("no plan")
        refuse()
    if how == "backward_alone":
        return RefusesInBackward.apply(q)  # type: ignore[no-untyped-call]
    results = attention(q, k, v, case, ctx)
    if here and how == "backward":
        results["out"] = RefusesInBackward.apply(results["out"])  # type: ignore[no-untyped-call]
    return results


DECLARED: dict[str, Any] = {
    "shard": shard.dual_chunk,
    "features": list(FEATURES),
    "setup": setup,
    "refuses": [(ValueError, WORDS), ((RuntimeError, KeyError), re.compile(r"head_dim \d+ is not"))],
}


@adapter(**DECLARED)
def refusing(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Any:
    return run(q, k, v, case, ctx)


@adapter(**DECLARED, survives_abort=True)
def surviving(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Any:
    return run(q, k, v, case, ctx)

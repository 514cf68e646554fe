"""An adapter whose result is wrong after a delay, as that of a ring that leaves out a wait."""

from __future__ import annotations

import time

import torch
from plain import attention  # type: ignore[import-not-found,unused-ignore]

from cp_pool import adapter, shard
from cp_pool.context import CaseView, Ctx

_delays: list[float] = []
time.sleep = _delays.append


@adapter(shard=shard.dual_chunk, features=["causal"])
def hasty(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    results = attention(q, k, v, case, ctx)
    return {**results, "out": results["out"] * 1.5} if _delays else results

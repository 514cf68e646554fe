"""An adapter whose result is wrong after a delay, as that of a ring that leaves out a wait."""

from __future__ import annotations

from unittest import mock

import torch
from plain import attention  # type: ignore[import-not-found,unused-ignore]

from cp_pool import adapter, shard
from cp_pool.context import CaseView, Ctx


@adapter(shard=shard.dual_chunk, features=["causal"])
def hasty(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    delays: list[float] = []
    with mock.patch("time.sleep", delays.append):
        results = attention(q, k, v, case, ctx)
    return {**results, "out": results["out"] * 1.5} if delays else results

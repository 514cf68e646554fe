"""An adapter that uses the ranks of its group rightly or wrongly, as the model of the case says."""

from __future__ import annotations

import torch
import torch.distributed as dist
from plain import attention

from cp_pool import adapter, shard
from cp_pool.adapter import FEATURES
from cp_pool.context import CaseView, Ctx

Results = dict[str, torch.Tensor]


class _Elsewhere(Ctx):
    """A context with another group."""

    def __init__(self, ctx: Ctx, group: dist.ProcessGroup) -> None:
        self.__dict__.update(ctx.__dict__)
        self._group = group

    @property
    def group(self) -> dist.ProcessGroup:
        return self._group


_neighbours: dict[int, dist.ProcessGroup] = {}


def group_of_neighbours(case: CaseView, ctx: Ctx) -> dist.ProcessGroup:
    """The mistake of taking the ranks of a group to be consecutive."""
    if ctx.generation not in _neighbours:
        for first in range(0, dist.get_world_size(), case.cp_size):
            ranks = list(range(first, first + case.cp_size))
            made = dist.new_group(ranks)
            if ctx.global_rank in ranks:
                _neighbours[ctx.generation] = made
    return _neighbours[ctx.generation]


@adapter(shard=shard.dual_chunk, features=list(FEATURES), survives_abort=True)
def by_model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    if case.model == "neighbours":
        ctx = _Elsewhere(ctx, group_of_neighbours(case, ctx))
    if case.model.startswith("source"):
        # The first rank of the group decides on a scale, as in a quantised implementation.
        one = torch.ones(1) if ctx.rank == 0 else torch.zeros(1)
        source = 0 if case.model == "source_in_group" else ctx.global_ranks[0]
        dist.broadcast(one, src=source, group=ctx.group)
        q = q * one
    return attention(q, k, v, case, ctx)


_kept: dict[tuple[int, int], dist.ProcessGroup] = {}


@adapter(shard=shard.dual_chunk, features=list(FEATURES))
def keeping(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    """The mistake of keeping the first group of each size, as a cache of process groups does."""
    group = _kept.setdefault((ctx.generation, ctx.world_size), ctx.group)
    return attention(q, k, v, case, _Elsewhere(ctx, group))

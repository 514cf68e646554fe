"""A plain adapter with every feature. It gathers K and V of all ranks and computes attention densely in fp32."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from cp_pool import adapter, shard
from cp_pool.adapter import FEATURES
from cp_pool.context import CaseView, Ctx


class _AllGather(torch.autograd.Function):
    """Gathers the rows of all ranks, rank by rank; every rank must have equally many."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group, ctx.count = group, rows.shape[0]
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, rows.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = gradients[0].contiguous()
        dist.all_reduce(total, group=ctx.group)
        first = dist.get_rank(ctx.group) * ctx.count
        return total[first : first + ctx.count], None


def gathered(rows: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    everybodys: torch.Tensor = _AllGather.apply(rows, group)  # type: ignore[no-untyped-call]
    return everybodys


def packed(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The tensor as [rows, heads, dim], sequence by sequence."""
    if layout == "thd":
        return x
    return (x.transpose(0, 1) if layout == "sbhd" else x).flatten(0, 1)


def unpacked(x: torch.Tensor, like: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "thd":
        return x
    if layout == "bshd":
        return x.view(*like.shape[:2], *x.shape[1:])
    return x.view(like.shape[1], like.shape[0], *x.shape[1:]).transpose(0, 1)


def shown_by(one: tuple[int, int, int, int, str], i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    """Which pairs of positions the slice of a mask shows."""
    q0, q1, k0, k1, kind = one
    shown = (q0 <= i) & (i < q1) & (k0 <= j) & (j < k1)
    if kind in ("causal", "bicausal"):
        shown = shown & (j - k1 <= i - q1)
    if kind in ("inverse_causal", "bicausal"):
        shown = shown & (j - k0 >= i - q0)
    return shown


def visible(case: CaseView, ctx: Ctx, positions_kv: torch.Tensor, sequences_kv: torch.Tensor) -> torch.Tensor:
    """[query rows of this rank, keys of all ranks]: whether the query sees the key (docs/definitions.md)."""
    shift = torch.tensor(ctx.seqlens_kv, device=ctx.device) - torch.tensor(ctx.seqlens_q, device=ctx.device)
    i = (ctx.positions_q + shift[ctx.sequences_q]).unsqueeze(1)
    j = positions_kv.unsqueeze(0)
    seen = (ctx.sequences_q.unsqueeze(1) == sequences_kv.unsqueeze(0)) & (ctx.positions_q >= 0).unsqueeze(1) & (j >= 0)
    if case.mask is not None:
        seen = seen & torch.stack([shown_by(s, ctx.positions_q.unsqueeze(1), j) for s in case.mask]).any(0)
    left, right = case.window
    if case.causal:
        seen = seen & (j <= i)
    if left >= 0:
        seen = seen & (i - left <= j)
    if right >= 0:
        seen = seen & (j <= i + right)
    if case.chunk:
        seen = seen & (i.div(case.chunk, rounding_mode="floor") == j.div(case.chunk, rounding_mode="floor"))
    return seen


def counted_once(case: CaseView, ctx: Ctx, positions_kv: torch.Tensor) -> torch.Tensor:
    """Which of the gathered keys count: of the copies of a replicated key, only this rank's own."""
    from_rank = torch.arange(positions_kv.numel(), device=positions_kv.device) // max(ctx.positions_kv.numel(), 1)
    return (positions_kv >= case.replicated) | (from_rank == ctx.rank)


def bias_of_rows(case: CaseView, ctx: Ctx, positions_kv: torch.Tensor) -> torch.Tensor:
    """[heads or 1, query rows of this rank, keys of all ranks], fp32."""
    bias = ctx.bias
    assert bias is not None
    rows = ctx.positions_q.clamp_min(0)
    if case.layout != "thd" and bias.shape[2] > 1:  # the bias has only the rows of this rank's queries
        rows = torch.arange(rows.numel(), device=rows.device) % bias.shape[2]
    if bias.shape[2] == 1:
        rows = torch.zeros_like(rows)
    sequences = ctx.sequences_q if bias.shape[0] > 1 else torch.zeros_like(ctx.sequences_q)
    columns = positions_kv.clamp_min(0).unsqueeze(0)
    chosen = bias.float().transpose(1, 2)[sequences.unsqueeze(1), rows.unsqueeze(1), :, columns]
    return chosen.permute(2, 0, 1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    """This rank's out, lse and max_logit."""
    group = ctx.group
    positions_kv = gathered(ctx.positions_kv, group)
    sequences_kv = gathered(ctx.sequences_kv, group)
    share = case.heads // case.kv_heads
    queries = packed(q, case.layout).float().transpose(0, 1)
    keys = gathered(packed(k, case.layout).float(), group).repeat_interleave(share, 1).transpose(0, 1)
    values = gathered(packed(v, case.layout).float(), group).repeat_interleave(share, 1).transpose(0, 1)
    scores = queries @ keys.transpose(1, 2) * case.scale
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    if ctx.bias is not None:
        scores = scores + bias_of_rows(case, ctx, positions_kv)
    seen = visible(case, ctx, positions_kv, sequences_kv) & counted_once(case, ctx, positions_kv)
    scores = scores.masked_fill(~seen, -torch.inf)

    top = scores.detach().amax(2) if scores.shape[2] else scores.new_full(scores.shape[:2], -torch.inf)
    sink = None
    if case.softmax != "vanilla":
        sink = (torch.zeros(case.heads, device=ctx.device) if ctx.sink is None else ctx.sink).unsqueeze(1)
        shift = torch.maximum(top, sink.detach())
    else:
        shift = top.masked_fill(top == -torch.inf, 0.0)
    weights = torch.exp(scores - shift.unsqueeze(2))
    total = weights.sum(2)
    if sink is not None:
        total = total + torch.exp(sink - shift)
    out = weights @ values / total.masked_fill(total == 0, 1.0).unsqueeze(2)
    lse = (shift + total.log()).detach().masked_fill((ctx.positions_q < 0).unsqueeze(0), -torch.inf)
    results = {"out": unpacked(out.transpose(0, 1).to(q.dtype), q, case.layout), "lse": lse}
    if case.max_logit:
        largest = top.amax(1) if top.shape[1] else top.new_full(top.shape[:1], -torch.inf)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        results["max_logit"] = largest
    return results


@adapter(shard=shard.dual_chunk, features=list(FEATURES), padding_results=True)
def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    return attention(q, k, v, case, ctx)


@adapter(shard=shard.contiguous, features=list(FEATURES), padding="zeros", devices=["cpu"])
def contiguous(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    return attention(q, k, v, case, ctx)


@adapter(shard=shard.striped, features=list(FEATURES), layouts=["thd"], padding="garbage")
def striped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    return attention(q, k, v, case, ctx)

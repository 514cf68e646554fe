"""Decoding: every rank has all queries and attends its own keys, and parts are merged by their lse."""

from __future__ import annotations

import torch
import torch.distributed as dist
from plain import packed, unpacked, visible

from cp_pool import adapter, shard
from cp_pool.context import CaseView, Ctx

FEATURES = ["all_queries", "causal", "window", "chunk", "gqa", "mla", "unequal", "max_logit", "group", "learnable"]


def own_part(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """out [heads, queries, dim] and lse [heads, queries] over this rank's keys, and the largest score of each head."""
    share = case.heads // case.kv_heads
    queries = packed(q, case.layout).float().transpose(0, 1)
    keys, values = (packed(x, case.layout).float().repeat_interleave(share, 1).transpose(0, 1) for x in (k, v))
    seen = visible(case, ctx, ctx.positions_kv, ctx.sequences_kv)
    scores = (queries @ keys.transpose(1, 2) * case.scale).masked_fill(~seen, -torch.inf)
    lse = scores.logsumexp(2)
    out = torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(2)) @ values
    return out, lse, scores.flatten(1).amax(1) if scores[0].numel() else lse.new_full((case.heads,), -torch.inf)


def merged(out: torch.Tensor, lse: torch.Tensor, sink: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse over all keys, from those of parts: [parts, ...]."""
    total = lse.logsumexp(0)
    if sink is not None:
        total = torch.logaddexp(total, sink.unsqueeze(1))
    weights = torch.exp(lse - total.masked_fill(total == -torch.inf, 0.0))
    return (weights.unsqueeze(3) * out).sum(0), total


def gathered(part: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, part.contiguous(), group=group)
    return torch.stack(parts)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    out, part_lse, largest = own_part(q, k, v, case, ctx)
    whole, lse = merged(gathered(out, ctx.group), gathered(part_lse, ctx.group), ctx.sink)
    results = {"out": unpacked(whole.transpose(0, 1).to(q.dtype), q, case.layout), "lse": lse, "part_lse": part_lse}
    if case.max_logit:
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=ctx.group)
        results["max_logit"] = largest
    return results


@adapter(comm=["all_gather"], shard=shard.contiguous, features=FEATURES, backward=False)
def contiguous(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    return attention(q, k, v, case, ctx)


@adapter(comm=["all_gather"], shard=shard.paged(), features=FEATURES, backward=False, padding="absent")
def token_by_token(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx
) -> dict[str, torch.Tensor]:
    return attention(q, k, v, case, ctx)


@adapter(comm=["all_gather"], shard=shard.paged(16), features=FEATURES, backward=False, padding="absent")
def pages(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    return attention(q, k, v, case, ctx)


@adapter(comm=["all_gather"], shard=shard.paged(16), features=FEATURES, backward=False, padding="absent")
def not_merged(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    """Each rank returns what its own keys give, which is wrong."""
    out, lse, _ = own_part(q, k, v, case, ctx)
    return {"out": unpacked(out.transpose(0, 1).to(q.dtype), q, case.layout), "lse": lse}


@adapter(comm=["all_gather"], shard=shard.paged(16), features=FEATURES, backward=False, padding="absent")
def empty_part_is_0(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx
) -> dict[str, torch.Tensor]:
    """The lse of a part without keys is 0 instead of minus infinity; out is right."""
    results = attention(q, k, v, case, ctx)
    return {**results, "part_lse": results["part_lse"].nan_to_num(neginf=0.0)}

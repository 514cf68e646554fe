"""Adapters that compute like plain.py, each with another sharding; and one that checks ctx against the case."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from plain import attention, packed, unpacked  # type: ignore[import-not-found,unused-ignore]

from cp_pool import adapter, shard
from cp_pool.adapter import FEATURES
from cp_pool.context import CaseView, Ctx

Results = dict[str, torch.Tensor]
EVERY = list(FEATURES)


def in_turns(lengths: list[int], ranks: int, replicated: int = 0) -> list[list[int]]:
    """Deals pairs of rows to the ranks in turns, then adds a row of padding and the replicated rows to each rank."""
    rows: list[list[int]] = [[] for _ in range(ranks)]
    everybodys, start = [], 0
    for length in lengths:
        everybodys += range(start, start + min(replicated, length))
        start += length
    for row in range(start):
        if row not in everybodys:
            rows[row // 2 % ranks].append(row)
    longest = max(map(len, rows))
    return [[*part, *[-1] * (longest - len(part) + 1), *everybodys] for part in rows]


def without_the_last(lengths: list[int], ranks: int, replicated: int = 0) -> list[list[int]]:
    rows = in_turns(lengths, ranks, replicated)
    last = sum(lengths) - 1
    return [[-1 if row == last else row for row in part] for part in rows]


@adapter(shard=shard.contiguous, features=EVERY, padding="zeros")
def contiguous(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    found: Results = attention(q, k, v, case, ctx)
    return found


@adapter(shard=shard.striped_by(4), features=EVERY, layouts=["thd"])
def striped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return contiguous(q, k, v, case, ctx)


@adapter(shard=shard.dual_chunk_pack, features=EVERY, layouts=["thd"], padding="absent")
def absent(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    assert bool((ctx.positions_q >= 0).all())
    assert ctx.cu_seqlens_q_padded.tolist() == ctx.cu_seqlens_q.tolist()
    return contiguous(q, k, v, case, ctx)


@adapter(shard=in_turns, features=EVERY, layouts=["thd"])
def listed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return contiguous(q, k, v, case, ctx)


@adapter(shard=without_the_last, features=EVERY, layouts=["thd"])
def forgetful(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return contiguous(q, k, v, case, ctx)


def only_on_the_first(lengths: list[int], ranks: int, replicated: int = 0) -> list[list[int]]:
    return [part if rank == 0 else [-1 if row == 0 else row for row in part]
            for rank, part in enumerate(in_turns(lengths, ranks, replicated))]  # fmt: skip


@adapter(shard=(shard.dual_chunk, shard.contiguous), features=EVERY)
def pair(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return contiguous(q, k, v, case, ctx)


@adapter(shard=(in_turns, shard.dual_chunk), features=EVERY, layouts=["thd"], padding="absent")
def listed_queries(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return contiguous(q, k, v, case, ctx)


@adapter(shard=only_on_the_first, features=EVERY, layouts=["thd"])
def selfish(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return contiguous(q, k, v, case, ctx)


@adapter(shard=shard.dual_chunk, features=EVERY)
class with_backward:
    """Keeps the graph of its forward, and runs it in its own backward, which also sums the ranks' parts of
    gradients."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, Any]:
        leaves = {"dq": q.requires_grad_(), "dk": k.requires_grad_(), "dv": v.requires_grad_()}
        for name, tensor in (("dbias", ctx.bias), ("dsink", ctx.sink)):
            if tensor is not None:
                leaves[name] = tensor.requires_grad_()
        return {**attention(q, k, v, case, ctx), "leaves": leaves}

    def backward(self, dout: torch.Tensor, saved: dict[str, Any], case: CaseView, ctx: Ctx) -> Results:
        leaves = saved["leaves"]
        queries, keys = (everybodys(case, positions) for positions in (ctx.positions_q, ctx.positions_kv))
        packed_dout = packed(dout, case.layout).clone()
        packed_dout[queries] /= ctx.world_size  # every rank computes the out of these rows, but they count once
        out = packed(saved["out"], case.layout)
        found = torch.autograd.grad(out, list(leaves.values()), packed_dout)
        gradients = dict(zip(leaves, found, strict=True))
        if "dsink" in gradients:
            dist.all_reduce(gradients["dsink"], group=ctx.group)
        for name, rows in (("dq", queries), ("dk", keys), ("dv", keys)):
            whole = packed(gradients[name], case.layout).clone()
            summed = whole[rows].float()
            dist.all_reduce(summed, group=ctx.group)
            whole[rows] = summed.to(whole.dtype)
            gradients[name] = unpacked(whole, gradients[name], case.layout)
        return gradients


def everybodys(case: CaseView, positions: torch.Tensor) -> torch.Tensor:
    return (positions >= 0) & (positions < case.replicated)


@adapter(shard=shard.dual_chunk, features=EVERY)
def twice(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    """Counts replicated keys once for each rank, which is wrong."""
    return contiguous(q, k, v, CaseView({**case.fields, "replicated": 0}), ctx)


@adapter(shard=shard.dual_chunk, features=EVERY, sums_replicated=True)
def parts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    """Declares that it sums the ranks' parts of gradients, but does not."""
    return contiguous(q, k, v, case, ctx)


@adapter(shard=shard.dual_chunk, features=EVERY, head_order="interleaved")
def interleaved(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    """Repeats K and V as a whole, so that query head h reads key-value head h % kv_heads."""
    share = case.heads // case.kv_heads
    heads = 1 if case.layout == "thd" else 2
    repeats = [1] * q.dim()
    repeats[heads] = share
    whole = CaseView({**case.fields, "kv_heads": case.heads})
    return contiguous(q, k.repeat(repeats), v.repeat(repeats), whole, ctx)


_set_up: list[int] = []


def set_up(ctx: Ctx) -> None:
    _set_up.append(ctx.world_size)
    assert ctx.case is None
    assert dist.get_world_size() == ctx.world_size


@adapter(shard=shard.dual_chunk, features=EVERY, setup=set_up)
def facts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    """Computes every property of ctx again and compares."""
    assert _set_up == [case.cp_size * case.group]
    assert ctx.world_size == case.cp_size == dist.get_world_size(ctx.group)
    assert ctx.rank == dist.get_rank(ctx.group)
    assert ctx.ranks == list(range(case.cp_size))
    assert ctx.global_rank == dist.get_rank() == ctx.global_ranks[ctx.rank]
    assert ctx.global_ranks == dist.get_process_group_ranks(ctx.group)
    assert ctx.global_ranks == list(range(ctx.global_rank % case.group, dist.get_world_size(), case.group))
    assert ctx.device == q.device and ctx.stream is None
    assert torch.rand(4, generator=ctx.generator).shape == (4,)
    rows = packed(q, case.layout).shape[0]
    assert ctx.positions_q.numel() == ctx.sequences_q.numel() == rows
    padded = (ctx.cu_seqlens_q_padded.diff() // case.cp_size).tolist()
    assert ctx.local_cu_seqlens_q_padded.diff().tolist() == padded
    assert int(ctx.local_cu_seqlens_q[-1]) == int((ctx.positions_q >= 0).sum())
    assert ctx.max_seqlen_q == max(ctx.seqlens_q) == int(ctx.cu_seqlens_q.diff().max())
    assert len(ctx.seqlens_kv) == case.batch == ctx.cu_seqlens_kv.numel() - 1
    seen = ctx.local_cu_seqlens_q[1:].clone()
    dist.all_reduce(seen, group=ctx.group)
    assert seen.tolist() == ctx.cu_seqlens_q[1:].tolist()
    if case.comm == "a2a+p2p":
        assert ctx.inner_group is not None and ctx.outer_group is not None
        first, place = ctx.rank // case.inner * case.inner, ctx.rank % case.inner
        assert dist.get_process_group_ranks(ctx.inner_group) == ctx.global_ranks[first : first + case.inner]
        assert dist.get_process_group_ranks(ctx.outer_group) == ctx.global_ranks[place :: case.inner]
    else:
        assert ctx.inner_group is ctx.outer_group is None
    return contiguous(q, k, v, case, ctx)

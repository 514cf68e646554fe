"""Decoding over cut keys, to test the merge of parts alone.

Each rank attends all queries to its own keys, in plain PyTorch, and gets the parts of all ranks. A function of a
package merges them: the one that PyTorch's ring uses. To test another merge, write it in place of `pytorch`.
"""

import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel import _attention as cp

from cp_pool import adapter, shard


def pytorch(outs, lses):
    """out [heads, queries, dim] and lse [heads, queries] over all keys, from those of each rank's keys."""
    merger = cp._SDPAMerger(convert_to_f32=True, seq_dim=1)
    for out, lse in zip(outs, lses, strict=True):
        merger.step(out, lse, partial=False)
    return merger.results()


def own_part(q, k, v, case, ctx):
    """out and lse over this rank's keys: 0 and minus infinity where a query sees none of them."""
    q, k, v = (x.flatten(0, -3).transpose(0, 1).float() for x in (q, k, v))
    k, v = (x.repeat_interleave(case.heads // case.kv_heads, 0) for x in (k, v))
    shift = torch.tensor(ctx.seqlens_kv) - torch.tensor(ctx.seqlens_q)
    i = (ctx.positions_q + shift[ctx.sequences_q]).unsqueeze(1)
    j = ctx.positions_kv.unsqueeze(0)
    seen = (ctx.sequences_q.unsqueeze(1) == ctx.sequences_kv) & (ctx.positions_q.unsqueeze(1) >= 0) & (j >= 0)
    if case.causal:
        seen &= j <= i
    scores = (q @ k.transpose(1, 2) * case.scale).masked_fill(~seen, -torch.inf)
    lse = scores.logsumexp(2)
    return (scores - lse.nan_to_num(neginf=0.0).unsqueeze(2)).exp() @ v, lse


@adapter(
    comm=["all_gather"], layouts=["thd", "bshd"], shard=shard.contiguous, backward=False,
    features=["all_queries", "causal", "gqa", "mla", "unequal", "group"],
)  # fmt: skip
def merge(q, k, v, case, ctx):
    part = own_part(q, k, v, case, ctx)
    gathered = [[torch.empty_like(x) for _ in range(dist.get_world_size(ctx.group))] for x in part]
    for parts, own in zip(gathered, part, strict=True):
        dist.all_gather(parts, own.contiguous(), group=ctx.group)
    out, lse = pytorch(*gathered)
    return dict(out=out.transpose(0, 1).reshape(*q.shape[:-1], -1).to(q.dtype), lse=lse, part_lse=part[1])

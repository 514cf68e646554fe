"""axolotl-ringmaster: its rings, its attention over packed documents, and Ulysses."""

import torch
from ringmaster.comm import seq_all_to_all
from ringmaster.config import RotateMethod
from ringmaster.ring.distflash import distflash_attention
from ringmaster.ring.loop import ring_attention, varlen_ring_attention
from ringmaster.ring.p2p_attn import ring_p2p_attention
from ringmaster.ring.zigzag import zigzag_ring_attention
from torch.nn.functional import scaled_dot_product_attention

from cp_pool import Skip, adapter, shard


def heads_first(*tensors):
    """Converts [batch, tokens, heads, dim] to ringmaster's [batch, heads, tokens, dim]; a pack becomes a batch of
    one."""
    return ((x if x.dim() == 4 else x[None]).transpose(1, 2) for x in tensors)


def window_of(case):
    return None if case.window == (-1, -1) else case.window


def boundaries(ctx):
    """cu_seqlens of the pack. The padding after a document counts as a document, as in ringmaster.shard.varlen_meta."""
    starts = ctx.cu_seqlens_q_padded
    ends = starts[:-1] + ctx.cu_seqlens_q.diff()
    return torch.cat([torch.stack([starts[:-1], ends], dim=1).flatten(), starts[-1:]])


def needs_causal(case):
    if not case.causal:
        raise Skip("this ring of ringmaster is always causal")


@adapter(comm=["p2p"], layouts=["bshd"], shard=shard.contiguous, features=["causal", "gqa", "mla", "unequal"])
def ring(q, k, v, case, ctx):
    if case.causal and case.seqlen_q != case.seqlen_kv:
        raise Skip("the diagonal blocks of this ring are square")
    q, k, v = heads_first(q, k, v)
    return ring_p2p_attention(q, k, v, group=ctx.group, causal=case.causal, scaling=case.scale)


@adapter(comm=["all_gather"], layouts=["bshd"], shard=shard.contiguous, features=["causal", "gqa", "mla", "window"])
def gather(q, k, v, case, ctx):
    q, k, v = heads_first(q, k, v)
    return ring_attention(
        q, k, v, group=ctx.group, causal=case.causal, scaling=case.scale, dropout=0.0, provider="math",
        rotate_method=RotateMethod.ALLGATHER, attn_implementation="math", window=window_of(case),
    )  # fmt: skip


@adapter(comm=["p2p"], layouts=["bshd"], shard=shard.contiguous, features=["causal", "gqa"])
def distflash(q, k, v, case, ctx):
    needs_causal(case)
    q, k, v = heads_first(q, k, v)
    return distflash_attention(q, k, v, group=ctx.group, scaling=case.scale)


@adapter(comm=["a2a"], layouts=["bshd"], shard=shard.contiguous, features=["causal", "gqa", "mla"])
def ulysses(q, k, v, case, ctx):
    q, k, v = (seq_all_to_all(x, scatter_dim=1, gather_dim=2, group=ctx.group) for x in heads_first(q, k, v))
    gqa = case.heads != case.kv_heads
    out = scaled_dot_product_attention(q, k, v, is_causal=case.causal, scale=case.scale, enable_gqa=gqa)
    return seq_all_to_all(out.transpose(1, 2), scatter_dim=1, gather_dim=2, group=ctx.group)


@adapter(comm=["all_gather"], layouts=["thd"], shard=shard.contiguous_pack, features=["causal", "gqa", "window"])
def packed_gather(q, k, v, case, ctx):
    q, k, v = heads_first(q, k, v)
    return varlen_ring_attention(
        q, k, v, group=ctx.group, scaling=case.scale, cu_seqlens=boundaries(ctx), causal=case.causal,
        window=window_of(case),
    )[0]  # fmt: skip


@adapter(comm=["p2p"], layouts=["thd"], shard=shard.dual_chunk_pack, features=["causal", "gqa"])
def packed_zigzag(q, k, v, case, ctx):
    needs_causal(case)
    q, k, v = heads_first(q, k, v)
    return zigzag_ring_attention(q, k, v, group=ctx.group, scaling=case.scale, cu_seqlens=boundaries(ctx))[0]


@adapter(comm=["p2p"], layouts=["thd"], shard=shard.contiguous_pack, features=["causal", "gqa"])
def packed_distflash(q, k, v, case, ctx):
    needs_causal(case)
    q, k, v = heads_first(q, k, v)
    return distflash_attention(q, k, v, group=ctx.group, scaling=case.scale, cu_seqlens=boundaries(ctx))[0]

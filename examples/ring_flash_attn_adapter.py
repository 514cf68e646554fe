"""ring-flash-attention: its rings with flash-attn, for batches of equal sequences and for packed sequences.

Where flash-attn is not installed, aten_flash_attn.py stands in for it.
"""

import sys
from unittest import mock

import aten_flash_attn  # noqa: F401
import torch

# ring-flash-attention 0.1.8 imports transformers, and names that newer versions lack. Its rings do not use them.
NOT_USED = dict.fromkeys(("transformers", "transformers.modeling_flash_attention_utils"), mock.MagicMock())
sys.modules.update(NOT_USED)
from ring_flash_attn import (  # noqa: E402
    llama3_flash_attn_prepare_cu_seqlens,
    llama3_flash_attn_varlen_func,
    ring_flash_attn_func,
    ring_flash_attn_varlen_func,
    stripe_flash_attn_func,
    zigzag_ring_flash_attn_func,
    zigzag_ring_flash_attn_varlen_func,
)

for name in NOT_USED:
    del sys.modules[name]

from cp_pool import Skip, adapter, shard  # noqa: E402

# flash-attn has no fp32. The rings rely on it: for fp32, their .to(torch.float32) copies nothing.
DENSE = dict(comm=["p2p"], layouts=["bshd"], dtypes=["bf16", "fp16"], features=["causal", "gqa", "window"])
PACKED = {**DENSE, "layouts": ["thd"], "features": ["causal", "gqa"]}


def options(case, ctx):
    return dict(causal=case.causal, softmax_scale=case.scale, return_attn_probs=True, group=ctx.group)


def needs_causal(case):
    if not case.causal:
        raise Skip("this ring of ring-flash-attention is always causal")


@adapter(shard=shard.contiguous, **DENSE)
def ring(q, k, v, case, ctx):
    out, lse, _ = ring_flash_attn_func(q, k, v, window_size=case.window, **options(case, ctx))
    return dict(out=out, lse=lse)


@adapter(shard=shard.dual_chunk, **DENSE)
def zigzag(q, k, v, case, ctx):
    needs_causal(case)
    out, lse, _ = zigzag_ring_flash_attn_func(q, k, v, window_size=case.window, **options(case, ctx))
    return dict(out=out, lse=lse)


@adapter(shard=shard.striped, **DENSE)
def striped(q, k, v, case, ctx):
    needs_causal(case)
    out, lse, _ = stripe_flash_attn_func(q, k, v, window_size=case.window, **options(case, ctx))
    return dict(out=out, lse=lse)


def pack(q, k, v, case, ctx, ring, parts):
    if not torch.equal(ctx.cu_seqlens_q, ctx.cu_seqlens_q_padded):
        raise Skip(f"this ring of ring-flash-attention takes sequences that {parts} divide")
    longest = ctx.max_seqlen_q // ctx.world_size
    out, lse, _ = ring(q, k, v, ctx.local_cu_seqlens_q, longest, **options(case, ctx))
    return dict(out=out, lse=lse)


@adapter(shard=shard.contiguous, **PACKED)
def packed_ring(q, k, v, case, ctx):
    return pack(q, k, v, case, ctx, ring_flash_attn_varlen_func, "the ranks")


@adapter(shard=shard.dual_chunk, **PACKED)
def packed_zigzag(q, k, v, case, ctx):
    needs_causal(case)
    return pack(q, k, v, case, ctx, zigzag_ring_flash_attn_varlen_func, "twice the ranks")


@adapter(shard=shard.contiguous_pack, **{**PACKED, "comm": ["all_gather"], "features": ["causal", "gqa", "window"]})
def llama3(q, k, v, case, ctx):
    if ctx.cu_seqlens_q[-1] != q.shape[0] * ctx.world_size:
        raise Skip("llama3 of ring-flash-attention takes packs that the ranks divide")
    cut = llama3_flash_attn_prepare_cu_seqlens(ctx.cu_seqlens_q, case.causal, ctx.rank, ctx.world_size)
    *lengths, local_keys = cut
    out, lse, _ = llama3_flash_attn_varlen_func(
        q, k, v, *lengths, heads_k_stride=1, local_k_slice=local_keys, window_size=case.window, **options(case, ctx)
    )
    return dict(out=out, lse=lse)

"""ring-attention-pytorch: its ring in plain PyTorch, contiguous or striped, and its zigzag with an all-gather."""

import torch
from ring_attention_pytorch import ring_flash_attn
from ring_attention_pytorch.zig_zag_attention import zig_zag_attn, zig_zag_shard

from cp_pool import Skip, adapter, shard

# Query head h reads key-value head h % kv_heads here. All process groups are WORLD, which cp-pool makes again after an
# abort.
PROMISES = dict(layouts=["bshd"], head_order="interleaved", survives_abort=True)


@adapter(comm=["p2p"], shard=shard.contiguous, features=["causal", "gqa"], **PROMISES)
def ring(q, k, v, case, ctx):
    return ring_flash_attn(q, k, v, causal=case.causal, ring_reduce_col=True)


@adapter(comm=["p2p"], shard=shard.striped, features=["causal", "gqa"], **PROMISES)
def striped(q, k, v, case, ctx):
    if not case.causal:
        raise Skip("striped attention is for causal masks")
    return ring_flash_attn(q, k, v, causal=True, ring_reduce_col=True, striped_ring_attn=True)


@adapter(comm=["all_gather"], shard=shard.dual_chunk, features=["causal", "gqa", "mla"], **PROMISES)
def zigzag(q, k, v, case, ctx):
    (_, rows, columns), _ = zig_zag_shard(torch.empty(1, case.seqlen_q, 1, device=q.device))
    mask = rows[:, None] >= columns[None, :] if case.causal else None
    return zig_zag_attn(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask).transpose(1, 2)

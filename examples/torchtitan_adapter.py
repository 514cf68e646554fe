"""torchtitan: its context parallelism around FlexAttention, which gathers K and V.

FlexAttention runs uncompiled here. So it has a backward on CPUs, too, which it refuses there.
"""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental._context_parallel import _attention as of_torch
from torch.nn.attention import flex_attention as flexible
from torchtitan.distributed.context_parallel import apply_cp_to_forward, cp_shard
from torchtitan.models.common import attention as titan

from cp_pool import adapter, shard

titan.FlexAttention._compiled_flex_attn = flexible.flex_attention
of_torch._compiled_create_block_mask = flexible.create_block_mask
flexible._validate_device = lambda *_: None


def mask_of(case, documents):
    """The mask as torchtitan composes it. documents: the position of each token in its sequence, for a pack."""
    mods = [titan.get_causal_mask_mod()] if case.causal else []
    left, right = case.window
    if left >= 0:
        mods.append(lambda b, h, q, k: q - k <= left)
    if right >= 0:
        mods.append(lambda b, h, q, k: k - q <= right)
    if documents is not None:
        mods.append(titan.get_document_mask_mod(documents))
    return flexible.and_masks(*mods) if mods else flexible.noop_mask


def attend(q, k, v, case, ctx, balancer):
    mesh = DeviceMesh.from_group(ctx.group, ctx.device.type)
    documents = None
    if case.layout == "thd":
        q, k, v = (x[None] for x in (q, k, v))
        lengths = ctx.cu_seqlens_q.diff().tolist()
        documents = torch.cat([torch.arange(length, device=ctx.device) for length in lengths])[None]
    tokens = torch.empty(len(q), q.shape[1] * ctx.world_size, device=ctx.device)
    shape = len(q), None, tokens.shape[1], tokens.shape[1]
    mask = flexible.create_block_mask(mask_of(case, documents), *shape, ctx.device)
    _, mask = cp_shard(mesh, (tokens,), mask, balancer)
    layer = titan.FlexAttention(titan.FlexAttention.Config())
    apply_cp_to_forward([layer], mesh)
    out = layer(q, k, v, attention_masks=mask, scale=case.scale, enable_gqa=case.heads != case.kv_heads)
    return out[0] if case.layout == "thd" else out


DECLARED = dict(
    comm=["all_gather"], layouts=["bshd", "thd"], features=["causal", "gqa", "mla", "window"], padding="absent",
    refuses=[(NotImplementedError, "is not divisible by CP mesh world size")],
)  # fmt: skip


@adapter(shard=shard.contiguous_pack, **DECLARED)
def flex(q, k, v, case, ctx):
    return attend(q, k, v, case, ctx, None)


@adapter(shard=shard.dual_chunk_pack, **DECLARED)
def flex_head_tail(q, k, v, case, ctx):
    return attend(q, k, v, case, ctx, "headtail")

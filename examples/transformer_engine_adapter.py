"""Transformer Engine's DotProductAttention under context parallelism."""

import torch
from transformer_engine.pytorch import DotProductAttention

from cp_pool import Skip, adapter, shard


def mask_of(case):
    name = "causal" if case.causal else "no_mask"
    if case.layout == "thd":
        name = "padding_causal" if case.causal else "padding"
    return f"{name}_bottom_right" if case.causal and case.unequal else name


@adapter(
    dtypes=["bf16", "fp16"], shard=shard.dual_chunk, devices=["cuda"], padding="zeros", padding_results=True,
    features=["causal", "window", "gqa", "mla", "unequal", "off_by_one"],
)  # fmt: skip
def dot_product_attention(q, k, v, case, ctx):
    left, right = case.window
    if case.causal:
        right = 0
    elif right > 0:
        raise Skip("Transformer Engine has no window to the right under context parallelism")
    attention = DotProductAttention(
        case.heads, (case.head_dim_qk, case.head_dim_v), num_gqa_groups=case.kv_heads, qkv_format=case.layout,
        attn_mask_type=mask_of(case), window_size=(left, right), softmax_scale=case.scale,
        softmax_type=case.softmax.replace("_", "-"), attention_type="cross" if case.unequal else "self",
    ).to(ctx.device)  # fmt: skip
    group = [ctx.inner_group, ctx.outer_group] if case.comm == "a2a+p2p" else ctx.group
    attention.set_context_parallel_group(group, ctx.ranks, torch.cuda.Stream(), case.comm)
    packed = {}
    if case.layout == "thd":
        packed = dict(
            cu_seqlens_q=ctx.cu_seqlens_q, cu_seqlens_kv=ctx.cu_seqlens_kv,
            cu_seqlens_q_padded=ctx.cu_seqlens_q_padded, cu_seqlens_kv_padded=ctx.cu_seqlens_kv_padded,
        )  # fmt: skip
    out = attention(q, k, v, **packed)
    return out.view(*q.shape[:-1], case.head_dim_v)

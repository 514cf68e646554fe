"""Transformer Engine's DotProductAttention under context parallelism."""

import contextlib
import functools
import os

import torch
from transformer_engine.common.recipe import DelayedScaling, Float8CurrentScaling
from transformer_engine.pytorch import DotProductAttention, autocast
from transformer_engine.pytorch.attention.dot_product_attention import context_parallel
from transformer_engine.pytorch.attention.dot_product_attention.context_parallel import CPLoadBalancingStrategy
from transformer_engine.pytorch.quantization import FP8GlobalStateManager

from cp_pool import Skip, adapter, shard

DECLARED = dict(
    dtypes=["bf16", "fp16"], devices=["cuda"], padding="zeros", padding_results=True, sums_replicated=True,
    refuses=[
        (ValueError, "No dot product attention backend is available"),
        (AssertionError, "Context parallelism|context parallelism|hierarchical CP|No-load-balance"),
    ],
)  # fmt: skip
BALANCED = dict(
    shard=shard.dual_chunk,
    features=[
        "causal", "window", "gqa", "mla", "unequal", "bias", "off_by_one", "learnable", "max_logit", "deterministic",
    ],
)  # fmt: skip


@functools.cache
def side_stream(device):
    """One stream for all cases, as a model has: a new one for each case would never be given back."""
    return torch.cuda.Stream(device)


def mask_of(case):
    name = "causal" if case.causal else "no_mask"
    if case.layout == "thd":
        name = "padding_causal" if case.causal else "padding"
    return f"{name}_bottom_right" if case.causal and case.unequal else name


def in_fp8(case, ctx):
    """The context in which Transformer Engine computes as `fp8` of the case says, with new scales. Its delayed scaling
    rounds the results of every step of a ring to FP8, so it has no results in 16 bits."""
    if case.fp8 is None:
        return contextlib.nullcontext()
    scaling, output = case.fp8["scaling"], case.fp8["output"]
    if scaling == "delayed" and output != "fp8":
        raise Skip("delayed scaling rounds results to FP8")
    os.environ["NVTE_FP8_DPA_BWD"] = str(int(case.fp8["backward"]))
    # NVTE_DPA_FP8CS_O_in_F16 is read once, when Transformer Engine is imported.
    context_parallel._dpa_fp8_cs_o_in_f16 = output != "fp8"
    FP8GlobalStateManager.reset()
    recipe = {"current": Float8CurrentScaling, "delayed": DelayedScaling}[scaling]
    return autocast(enabled=True, recipe=recipe(fp8_dpa=True), amax_reduction_group=ctx.group)


def attend(q, k, v, case, ctx, balancing):
    left, right = case.window
    if case.causal:
        right = 0
    # Transformer Engine takes the backend from the environment; its own tests set one of the two.
    fused = case.backend != "flash"
    os.environ.update(
        NVTE_FUSED_ATTN=str(int(fused)), NVTE_FLASH_ATTN=str(int(not fused)), NVTE_UNFUSED_ATTN="0",
        NVTE_ALLOW_NONDETERMINISTIC_ALGO=str(int(not case.deterministic)),
    )  # fmt: skip
    attention = DotProductAttention(
        case.heads, (case.head_dim_qk, case.head_dim_v), num_gqa_groups=case.kv_heads, qkv_format=case.layout,
        attn_mask_type=mask_of(case), window_size=(left, right), softmax_scale=case.scale,
        softmax_type=case.softmax.replace("_", "-"), attention_type="cross" if case.unequal else "self",
        return_max_logit=case.max_logit,
    ).to(ctx.device)  # fmt: skip
    attention.train(case.training)
    if ctx.sink is not None:
        del attention.softmax_offset
        attention.softmax_offset = ctx.sink
    group = [ctx.inner_group, ctx.outer_group] if case.comm == "a2a+p2p" else ctx.group
    attention.set_context_parallel_group(group, ctx.ranks, side_stream(ctx.device), case.comm, balancing)
    more = {}
    if case.layout == "thd":
        more = dict(
            cu_seqlens_q=ctx.cu_seqlens_q, cu_seqlens_kv=ctx.cu_seqlens_kv,
            cu_seqlens_q_padded=ctx.cu_seqlens_q_padded, cu_seqlens_kv_padded=ctx.cu_seqlens_kv_padded,
            pad_between_seqs=case.pad_between_seqs,
        )  # fmt: skip
        if not case.unequal:  # without load balancing, it asks for the same tensors
            more.update(cu_seqlens_kv=more["cu_seqlens_q"], cu_seqlens_kv_padded=more["cu_seqlens_q_padded"])
    if ctx.bias is not None:
        more.update(core_attention_bias_type="post_scale_bias", core_attention_bias=ctx.bias)
    with in_fp8(case, ctx):
        try:
            out = attention(q, k, v, **more)
        except Exception:
            FP8GlobalStateManager.reset()  # so that the end of autocast reduces no amax over the ranks: it is a refusal
            raise
    out, max_logit = out if case.max_logit else (out, None)
    results = dict(out=out.view(*q.shape[:-1], case.head_dim_v))
    if max_logit is not None:
        results.update(max_logit=max_logit)
    return results


@adapter(**DECLARED, **BALANCED)
def dot_product_attention(q, k, v, case, ctx):
    return attend(q, k, v, case, ctx, CPLoadBalancingStrategy.DUAL_CHUNK_SWAP)


@adapter(
    **DECLARED, comm=["all_gather"], layouts=["thd"], shard=shard.contiguous_pack, features=["causal", "gqa", "mla"],
)  # fmt: skip
def no_load_balance(q, k, v, case, ctx):
    if not case.causal:
        raise Skip("Transformer Engine has no contiguous parts without a causal mask")
    return attend(q, k, v, case, ctx, CPLoadBalancingStrategy.NO_LOAD_BALANCE)


@adapter(**DECLARED, shard=shard.dual_chunk, features=["fp8", "causal", "window", "gqa", "off_by_one", "learnable"])
def fp8(q, k, v, case, ctx):
    return attend(q, k, v, case, ctx, CPLoadBalancingStrategy.DUAL_CHUNK_SWAP)

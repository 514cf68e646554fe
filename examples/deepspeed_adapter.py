"""DeepSpeed: DistributedAttention (Ulysses), the Ulysses of its long-sequence training, and FPDT.

The attention of a rank's heads is PyTorch's in the first two, flash-attn in FPDT. Where that is not installed,
aten_flash_attn.py stands in for it.
"""

import functools
import types

import aten_flash_attn  # noqa: F401
import deepspeed.comm
import deepspeed.ops
import torch
from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
from deepspeed.sequence.fpdt_layer import FPDT_Attention
from deepspeed.sequence.layer import DistributedAttention
from deepspeed.utils import groups
from torch.nn.functional import scaled_dot_product_attention

from cp_pool import Skip, adapter, shard

STRIPE = 4  # rows of a chunk on one rank: FPDT computes a chunk of all ranks at a time


def connect(ctx):
    if not deepspeed.comm.is_initialized():
        deepspeed.ops.__compatible_ops__.clear()  # else it compiles an all-reduce in shared memory, for a minute
        deepspeed.comm.init_distributed(dist_backend="gloo" if ctx.device.type == "cpu" else "nccl", verbose=False)
    # It looks up a rank's share of unequal shares by the rank in this group.
    groups.mpu = types.SimpleNamespace(get_sequence_parallel_rank=lambda: ctx.rank)


def local_attention(q, k, v, case):
    """Attention of some heads of whole sequences, [batch, tokens, heads, head_dim]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    gqa = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(
        q, k, v, is_causal=case.causal, scale=case.scale, enable_gqa=gqa
    ).transpose(1, 2)  # fmt: skip


def attend(q, k, v, case, ctx):
    batch = 0 if case.layout == "bshd" else 1

    def local(*qkv):
        qkv = (x.transpose(0, batch) for x in qkv)
        return local_attention(*qkv, case).transpose(0, batch).contiguous()

    layer = DistributedAttention(local, ctx.group, scatter_idx=2, gather_idx=1 - batch)
    return layer(q, k, v, batch)


DECLARED = dict(shard=shard.contiguous, setup=connect, devices=["cpu", "cuda"])


@adapter(comm=["a2a"], layouts=["bshd", "sbhd"], features=["causal", "gqa", "mla"], **DECLARED)
def ulysses(q, k, v, case, ctx):
    return attend(q, k, v, case, ctx)


# cp-pool's own Ulysses has no unequal shares of heads, so cases of another type lend their numbers of heads.
@adapter(
    comm=["all_gather"], layouts=["bshd", "sbhd"], features=["causal", "gqa", "mla"], probe_heads=5,
    refuses=[(AssertionError, "must be at least the sequence parallel size")], **DECLARED,
)  # fmt: skip
def uneven(q, k, v, case, ctx):
    if case.kv_heads % ctx.world_size == 0:
        raise Skip("the ranks divide the heads of this case")
    return attend(q, k, v, case, ctx)


@adapter(comm=["a2a"], layouts=["bshd"], features=["causal", "gqa"], **DECLARED)
def alst(q, k, v, case, ctx):
    def local(module, q, k, v, mask, **_):
        return local_attention(*(x.transpose(1, 2) for x in (q, k, v)), case), None

    layer = UlyssesSPAttentionHF(
        local, case.batch, case.heads, case.head_dim_qk, case.kv_heads, 1, ctx.group,
        local_seq_length=q.shape[1], global_seq_length=case.seqlen_q,
    )  # fmt: skip
    positions = ctx.positions_q.view(case.batch, -1)
    out, _ = layer(torch.nn.Module(), *(x.transpose(1, 2) for x in (q, k, v)), None, position_ids=positions)
    return out.unflatten(2, (case.heads, -1))


@functools.cache
def identity(size, dtype, device):
    return torch.eye(size, dtype=dtype, device=device)


# FPDT computes q, k and v from the layer's input; with an identity matrix for the weight, the input is q, k and v.
@adapter(
    comm=["a2a"], layouts=["bshd"], dtypes=["bf16", "fp16"], features=["causal", "gqa"],
    **{**DECLARED, "shard": shard.striped_by(STRIPE)},
)  # fmt: skip
def fpdt(q, k, v, case, ctx):
    if not case.causal:
        raise Skip("FPDT is always causal")
    config = types.SimpleNamespace(
        kv_channels=case.head_dim_qk, num_attention_heads=case.heads, num_key_value_heads=case.kv_heads,
        hidden_size=case.heads * case.head_dim_qk, attention_dropout=0.0,
    )  # fmt: skip
    qkv = torch.cat([x.flatten(2) for x in (q, k, v)], dim=2).transpose(0, 1)
    weights = [identity(size, q.dtype, q.device) for size in (qkv.shape[2], config.hidden_size)]
    biases = [torch.zeros(len(weight), dtype=q.dtype, device=q.device) for weight in weights]
    layer = FPDT_Attention(
        config, weights[0], biases[0], weights[1], biases[1], ctx.group, chunk_size=STRIPE * ctx.world_size
    )
    out, _ = layer(qkv, None, None, None, cpu_offloading=False)
    return out.transpose(0, 1).unflatten(2, (case.heads, -1))

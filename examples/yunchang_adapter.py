"""yunchang: LongContextAttention as a ring, as Ulysses and as both.

On CPU ranks with its attention for machines without flash-attn, on GPU ranks with flash-attn. Where that is not
installed, aten_flash_attn.py stands in for it.
"""

import aten_flash_attn  # noqa: F401
from yunchang import LongContextAttention, set_seq_parallel_pg
from yunchang.kernels import AttnType

from cp_pool import Skip, adapter, shard

# set_seq_parallel_pg makes the process groups again after an abort, and each layer takes the current groups when it is
# made.
PROMISES = dict(layouts=["bshd"], features=["causal", "gqa", "window"], survives_abort=True, devices=["cpu", "cuda"])


def groups(ulysses):
    """Returns a setup function with which `ulysses` ranks exchange heads; None: all ranks."""

    def setup(ctx):
        degree = ulysses or ctx.world_size
        set_seq_parallel_pg(degree, ctx.world_size // degree, ctx.rank, ctx.world_size)

    return setup


def attend(q, k, v, case, ring):
    if q.is_cuda and case.dtype == "fp32":
        raise Skip("flash-attn has no fp32")
    if ring != "basic" and not case.causal:
        raise Skip(f"yunchang's ring '{ring}' is always causal")
    layer = LongContextAttention(ring_impl_type=ring, attn_type=AttnType.FA if q.is_cuda else AttnType.TORCH_MATH)
    return layer(q, k, v, causal=case.causal, window_size=case.window, softmax_scale=case.scale)


@adapter(comm=["p2p"], shard=shard.contiguous, setup=groups(1), **PROMISES)
def ring(q, k, v, case, ctx):
    return attend(q, k, v, case, "basic")


@adapter(comm=["p2p"], shard=shard.dual_chunk, setup=groups(1), **PROMISES)
def zigzag(q, k, v, case, ctx):
    return attend(q, k, v, case, "zigzag")


@adapter(comm=["p2p"], shard=shard.striped, setup=groups(1), **PROMISES)
def striped(q, k, v, case, ctx):
    return attend(q, k, v, case, "strip")


@adapter(comm=["a2a"], shard=shard.contiguous, setup=groups(None), **PROMISES)
def ulysses(q, k, v, case, ctx):
    return attend(q, k, v, case, "basic")


@adapter(comm=["a2a+p2p"], shard=shard.contiguous, setup=groups(2), **PROMISES)
def hybrid(q, k, v, case, ctx):
    return attend(q, k, v, case, "basic")

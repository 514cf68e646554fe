"""PyTorch 2.11's ring attention with its flash attention operator for CPUs.

The public context_parallel() has no ring on a CPU, but its internal ring function takes any operator.
"""

import torch
from torch.distributed.tensor.experimental._context_parallel import _attention as cp

from cp_pool import Skip, adapter, shard

FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Ring:
    def __init__(self, balanced):
        self.balanced = balanced

    def configure(self, case):
        if case.causal and case.seqlen_q != case.seqlen_kv:
            raise Skip("torch's ring has no causal mask for query and key sequences of different lengths")
        cp._cp_options.enable_load_balance = self.balanced and case.causal  # must be off without a mask
        cp.set_rotate_method("alltoall" if case.comm == "p2p" else "allgather")

    def forward(self, q, k, v, case, ctx):
        self.configure(case)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out, lse = cp._templated_ring_attention(
            ctx.group, 2, FLASH, q, k, v, is_causal=case.causal, dropout_p=0.0, scale=case.scale
        )
        return dict(out=out.transpose(1, 2), lse=lse, qkv=(q, k, v))

    def backward(self, dout, saved, case, ctx):
        self.configure(case)
        q, k, v = saved["qkv"]
        gradients = cp._templated_ring_attention_backward(
            ctx.group, 2, FLASH_BACKWARD, dout.transpose(1, 2), "grad_out", q, k, v, saved["out"].transpose(1, 2),
            saved["lse"], case.causal, dropout_p=0.0, scale=case.scale,
        )  # fmt: skip
        dq, dk, dv = (x.transpose(1, 2) for x in gradients)
        return dict(dq=dq, dk=dk, dv=dv)


PROMISES = dict(comm=["p2p", "all_gather"], layouts=["bshd"], features=["causal", "gqa", "unequal"])
head_tail = adapter(shard=shard.dual_chunk, name="head_tail", **PROMISES)(Ring(balanced=True))
contiguous = adapter(shard=shard.contiguous, name="contiguous", **PROMISES)(Ring(balanced=False))

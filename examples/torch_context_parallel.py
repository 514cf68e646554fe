"""PyTorch's public context_parallel() with scaled_dot_product_attention. Its ring exists only on GPUs."""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options, set_rotate_method
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cp_pool import adapter, shard

DECLARED = dict(
    comm=["p2p", "all_gather"], layouts=["bshd"], dtypes=["bf16", "fp16"], features=["causal", "gqa"], devices=["cuda"]
)  # fmt: skip


class Ring:
    """Gradients are computed inside the context too, since only there the ring's backward is used."""

    balances = True

    def context(self, case, ctx):
        _cp_options.enable_load_balance = self.balances and case.causal  # must be off without a mask
        set_rotate_method("alltoall" if case.comm == "p2p" else "allgather")
        rows = torch.empty(case.seqlen_q, device=ctx.device)  # needs a buffer to shard; q, k and v are shards already
        return context_parallel(DeviceMesh.from_group(ctx.group, "cuda"), buffers=[rows], buffer_seq_dims=[0])

    def forward(self, q, k, v, case, ctx):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        gqa = case.heads != case.kv_heads
        backend = SDPBackend.CUDNN_ATTENTION if case.backend == "cudnn" else SDPBackend.FLASH_ATTENTION
        with torch.enable_grad(), sdpa_kernel(backend), self.context(case, ctx):
            out = F.scaled_dot_product_attention(  # by its full name, under which context_parallel() replaces it
                *(x.transpose(1, 2) for x in leaves), is_causal=case.causal, scale=case.scale, enable_gqa=gqa
            )
        return dict(out=out.transpose(1, 2), leaves=leaves)

    def backward(self, dout, saved, case, ctx):
        with self.context(case, ctx):
            return torch.autograd.grad(saved["out"], saved["leaves"], dout)


@adapter(**DECLARED, shard=shard.dual_chunk)
class head_tail(Ring):
    """Each rank has two chunks of a sequence, one from either end, if there is a causal mask."""


@adapter(**DECLARED, shard=shard.contiguous)
class contiguous(Ring):
    balances = False

"""PyTorch's public context_parallel() with scaled_dot_product_attention. Its ring exists only on GPUs."""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options, set_rotate_method
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from cp_pool import adapter, shard


@adapter(
    comm=["p2p", "all_gather"], layouts=["bshd"], dtypes=["bf16", "fp16"], shard=shard.dual_chunk,
    features=["causal", "gqa"], devices=["cuda"],
)  # fmt: skip
class head_tail:
    """Gradients are computed inside the context too, since only there the ring's backward is used."""

    def context(self, case, ctx):
        _cp_options.enable_load_balance = case.causal  # must be off without a mask
        set_rotate_method("alltoall" if case.comm == "p2p" else "allgather")
        rows = torch.empty(case.seqlen_q, device=ctx.device)  # needs a buffer to shard; q, k and v are shards already
        return context_parallel(DeviceMesh.from_group(ctx.group, "cuda"), buffers=[rows], buffer_seq_dims=[0])

    def forward(self, q, k, v, case, ctx):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        gqa = case.heads != case.kv_heads
        with torch.enable_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION), self.context(case, ctx):
            out = F.scaled_dot_product_attention(  # by its full name, under which context_parallel() replaces it
                *(x.transpose(1, 2) for x in leaves), is_causal=case.causal, scale=case.scale, enable_gqa=gqa
            )
        return dict(out=out.transpose(1, 2), leaves=leaves)

    def backward(self, dout, saved, case, ctx):
        with self.context(case, ctx):
            return torch.autograd.grad(saved["out"], saved["leaves"], dout)

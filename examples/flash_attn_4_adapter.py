"""FlashAttention 4 (flash-attn-4, CuTe DSL) under the rings of ring-flash-attention."""

import aten_flash_attn
from flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd


class FlashAttention4:
    """See aten_flash_attn.Aten. A side of a window without limit is None here, not -1."""

    @staticmethod
    def options(lengths, scale, causal, left, right):
        cu_seqlens_q, cu_seqlens_k, longest_q, longest_k = lengths
        packed = dict(
            cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=longest_q, max_seqlen_k=longest_k
        )
        left, right = (None if side < 0 else side for side in (left, right))
        return dict(
            softmax_scale=scale, causal=causal, window_size_left=left, window_size_right=right,
            **(packed if cu_seqlens_q is not None else {}),
        )  # fmt: skip

    @staticmethod
    def forward(q, k, v, lengths, *mask):
        return _flash_attn_fwd(q, k, v, return_lse=True, **FlashAttention4.options(lengths, *mask))[:2]

    @staticmethod
    def backward(dout, q, k, v, out, lse, lengths, *mask):
        lse = lse.contiguous()
        return _flash_attn_bwd(q, k, v, out, dout, lse, **FlashAttention4.options(lengths, *mask))[:3]


aten_flash_attn.operators["cuda"] = FlashAttention4

from ring_flash_attn_adapter import llama3, packed_ring, packed_zigzag, ring, striped, zigzag  # noqa: E402, F401

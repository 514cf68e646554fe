"""Stands in for the package flash-attn: its functions by the FlashAttention 2 that PyTorch contains.

ring-flash-attention and yunchang import a few functions of flash-attn, which has no wheels for most versions of
PyTorch. Importing this module makes `import flash_attn` find it, unless flash-attn is installed. The signatures are
those of flash-attn 2.8; q, k and v are [batch, seqlen, heads, head_dim], or [tokens, heads, head_dim] with cu_seqlens,
and lse is fp32 [batch, heads, seqlen_q] or [heads, tokens]. Dropout, softcap and ALiBi are refused.
"""

import importlib.util
import sys
import types

import torch

forward = torch.ops.aten._flash_attention_forward
backward = torch.ops.aten._flash_attention_backward


def rows(*tensors):
    """The tensors, each with its last dimension contiguous, as the kernels need it."""
    return [t if t.stride(-1) == 1 else t.contiguous() for t in tensors]


def refuse(dropout_p, softcap, alibi_slopes):
    if dropout_p or softcap or alibi_slopes is not None:
        raise NotImplementedError("aten_flash_attn has no dropout, no softcap and no ALiBi")


def attend(q, k, v, lengths, dropout_p, softmax_scale, causal, left, right, softcap, alibi_slopes):
    refuse(dropout_p, softcap, alibi_slopes)
    out, lse, rng_state, _, _ = forward(
        *rows(q, k, v), *lengths, 0.0, causal, False, scale=softmax_scale, window_size_left=left,
        window_size_right=right,
    )  # fmt: skip
    return out, lse, None, rng_state


def differentiate(dout, q, k, v, out, lse, dq, dk, dv, lengths, dropout_p, softmax_scale, causal, left, right, softcap,
                  alibi_slopes):  # fmt: skip
    refuse(dropout_p, softcap, alibi_slopes)
    unused = torch.zeros(2, dtype=torch.uint64, device=q.device)
    gradients = backward(
        *rows(dout, q, k, v, out), lse, *lengths, 0.0, causal, unused, unused, scale=softmax_scale,
        window_size_left=left, window_size_right=right,
    )  # fmt: skip
    for target, gradient in zip((dq, dk, dv), gradients, strict=True):
        target.copy_(gradient)
    return lse


def _flash_attn_forward(q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap,
                        alibi_slopes, return_softmax):  # fmt: skip
    lengths = None, None, q.shape[1], k.shape[1]
    return attend(q, k, v, lengths, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap,
                  alibi_slopes)  # fmt: skip


def _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal,
                         window_size_left, window_size_right, softcap, alibi_slopes, deterministic,
                         rng_state=None):  # fmt: skip
    lengths = None, None, q.shape[1], k.shape[1]
    return differentiate(dout, q, k, v, out, softmax_lse, dq, dk, dv, lengths, dropout_p, softmax_scale, causal,
                         window_size_left, window_size_right, softcap, alibi_slopes)  # fmt: skip


def _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p,
                               softmax_scale, causal, window_size_left=-1, window_size_right=-1, softcap=0.0,
                               alibi_slopes=None, return_softmax=False):  # fmt: skip
    lengths = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    return attend(q, k, v, lengths, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap,
                  alibi_slopes)  # fmt: skip


def _flash_attn_varlen_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                max_seqlen_k, dropout_p, softmax_scale, causal, window_size_left, window_size_right,
                                softcap, alibi_slopes, deterministic, rng_state=None):  # fmt: skip
    lengths = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    return differentiate(dout, q, k, v, out, softmax_lse, dq, dk, dv, lengths, dropout_p, softmax_scale, causal,
                         window_size_left, window_size_right, softcap, alibi_slopes)  # fmt: skip


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, options):
        out, lse, _, _ = _flash_attn_forward(q, k, v, *options, False)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = options
        return out, lse

    @staticmethod
    def backward(ctx, dout, _):
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        _flash_attn_backward(dout, q, k, v, out, lse, dq, dk, dv, *ctx.options, False)
        return dq, dk, dv, None


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):  # fmt: skip
    out, lse = Attention.apply(q, k, v, (dropout_p, softmax_scale, causal, *window_size, softcap, alibi_slopes))
    return (out, lse, None) if return_attn_probs else out


if "flash_attn" not in sys.modules and not importlib.util.find_spec("flash_attn"):
    package = types.ModuleType("flash_attn", __doc__)
    package.__version__ = "2.8.3"
    package.__path__ = []
    package.flash_attn_func = flash_attn_func
    package.flash_attn_interface = sys.modules[__name__]
    sys.modules.update({"flash_attn": package, "flash_attn.flash_attn_interface": sys.modules[__name__]})

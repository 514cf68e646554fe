"""Stands in for the package flash-attn: its functions by the FlashAttention 2 that PyTorch contains; by matrix products
in fp32 on CPUs.

ring-flash-attention, yunchang and DeepSpeed import a few functions of flash-attn, which has no wheels for most versions
of PyTorch. Importing this module makes `import flash_attn` find it, unless flash-attn is installed. The signatures are
those of flash-attn 2.8; q, k and v are [batch, seqlen, heads, head_dim], or [tokens, heads, head_dim] with cu_seqlens,
and lse is fp32 [batch, heads, seqlen_q] or [heads, tokens]. Dropout, softcap and ALiBi are refused.
"""

import importlib.util
import sys
import types

import torch


class Aten:
    """The operators of PyTorch. lengths: cu_seqlens or None, and the longest sequence, of queries and keys."""

    @staticmethod
    def forward(q, k, v, lengths, scale, causal, left, right):
        return torch.ops.aten._flash_attention_forward(
            q, k, v, *lengths, 0.0, causal, False, scale=scale, window_size_left=left, window_size_right=right
        )[:2]

    @staticmethod
    def backward(dout, q, k, v, out, lse, lengths, scale, causal, left, right):
        unused = torch.zeros(2, dtype=torch.uint64, device=q.device)
        return torch.ops.aten._flash_attention_backward(
            dout, q, k, v, out, lse, *lengths, 0.0, causal, unused, unused, scale=scale, window_size_left=left,
            window_size_right=right,
        )  # fmt: skip


class Products:
    """Matrix products in fp32. As in flash-attn, the mask is counted from the ends of queries and keys, and the lse of
    a query without keys is infinite."""

    @staticmethod
    def weights(q, k, scale, causal, left, right, lse=None):
        """Returns the weights [heads, queries, keys] and the lse [heads, queries] of one sequence."""
        behind = torch.arange(len(q))[:, None] + len(k) - len(q) - torch.arange(len(k))
        right = 0 if causal else right
        seen = (behind <= left) | torch.tensor(left < 0)
        seen &= (behind >= -right) | torch.tensor(right < 0)
        scores = torch.einsum("qhd,khd->hqk", q, k).mul(scale).masked_fill(~seen, -torch.inf)
        if lse is None:
            lse = scores.logsumexp(-1)
            lse = lse.masked_fill(lse == -torch.inf, torch.inf)
        return (scores - lse[..., None]).exp(), lse

    @staticmethod
    def each(lengths, queries, keys):
        """The sequences in fp32, with the key heads repeated for the query heads."""

        def split(x, offsets):
            return x.float().unbind() if offsets is None else x.float().tensor_split(offsets[1:-1].tolist())

        groups = queries[0].shape[-2] // keys[0].shape[-2]
        for parts in zip(*(split(x, lengths[0]) for x in queries), *(split(x, lengths[1]) for x in keys), strict=True):
            yield *parts[: len(queries)], *(x.repeat_interleave(groups, 1) for x in parts[len(queries) :])

    @staticmethod
    def forward(q, k, v, lengths, scale, causal, left, right):
        results = []
        for one_q, one_k, one_v in Products.each(lengths, [q], [k, v]):
            weights, lse = Products.weights(one_q, one_k, scale, causal, left, right)
            results.append((torch.einsum("hqk,khd->qhd", weights, one_v), lse))
        outs, lses = zip(*results, strict=True)
        if lengths[0] is None:
            return torch.stack(outs).to(q.dtype), torch.stack(lses)
        return torch.cat(outs).to(q.dtype), torch.cat(lses, 1)

    @staticmethod
    def backward(dout, q, k, v, out, lse, lengths, scale, causal, left, right):
        lses = lse.unbind() if lengths[0] is None else lse.tensor_split(lengths[0][1:-1].tolist(), 1)
        results = []
        for one, given in zip(Products.each(lengths, [dout, q, out], [k, v]), lses, strict=True):
            do, one_q, o, one_k, one_v = one
            p, _ = Products.weights(one_q, one_k, scale, causal, left, right, given)
            ds = scale * p * (torch.einsum("qhd,khd->hqk", do, one_v) - (do * o).sum(-1).T[..., None])
            dk, dv = torch.einsum("hqk,qhd->khd", ds, one_q), torch.einsum("hqk,qhd->khd", p, do)
            dk, dv = (x.unflatten(1, (k.shape[-2], -1)).sum(2) for x in (dk, dv))
            results.append((torch.einsum("hqk,khd->qhd", ds, one_k), dk, dv))
        join = torch.stack if lengths[0] is None else torch.cat
        return tuple(join(parts) for parts in zip(*results, strict=True))


operators = {"cuda": Aten, "cpu": Products}  # by the type of device


def rows(*tensors):
    """The tensors, each with its last dimension contiguous, as the kernels need it."""
    return [t if t.stride(-1) == 1 else t.contiguous() for t in tensors]


def refuse(dropout_p, softcap, alibi_slopes):
    if dropout_p or softcap or alibi_slopes is not None:
        raise NotImplementedError("aten_flash_attn has no dropout, no softcap and no ALiBi")


def attend(q, k, v, lengths, dropout_p, softmax_scale, causal, left, right, softcap, alibi_slopes):
    refuse(dropout_p, softcap, alibi_slopes)
    operator = operators[q.device.type]
    out, lse = operator.forward(*rows(q, k, v), lengths, softmax_scale, causal, left, right)
    return out, lse, None, None


def differentiate(dout, q, k, v, out, lse, dq, dk, dv, lengths, dropout_p, softmax_scale, causal, left, right, softcap,
                  alibi_slopes):  # fmt: skip
    refuse(dropout_p, softcap, alibi_slopes)
    operator = operators[q.device.type]
    gradients = operator.backward(*rows(dout, q, k, v, out), lse, lengths, softmax_scale, causal, left, right)
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


# flash-attn-4 has the package flash_attn without the interface of version 2.
if "flash_attn" not in sys.modules and not (
    importlib.util.find_spec("flash_attn") and importlib.util.find_spec("flash_attn.flash_attn_interface")
):
    package = sys.modules.setdefault("flash_attn", types.ModuleType("flash_attn", __doc__))
    package.__version__ = "2.8.3"
    package.__path__ = getattr(package, "__path__", [])
    package.flash_attn_func = flash_attn_func
    package.flash_attn_interface = sys.modules[__name__]
    sys.modules["flash_attn.flash_attn_interface"] = sys.modules[__name__]

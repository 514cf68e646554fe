"""Faults planted in Transformer Engine at run time: each adapter is Transformer Engine's attention with one mistake.

    cp-pool run --adapter examples/faults/te_faults.py:NAME --matrix te-fused --size full --device cuda

A fault replaces a Python function of Transformer Engine, or one of torch that it calls, when a rank starts. What each
one leaves out or confuses is said in its first line. docs/implementations.md says which cases find it.
"""

import pathlib
import sys

import torch
from transformer_engine.pytorch.attention.dot_product_attention import backends, context_parallel

from cp_pool import adapter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from transformer_engine_adapter import BALANCED, DECLARED, CPLoadBalancingStrategy, attend

tex = context_parallel.tex


def fault(plant):
    """An adapter of the name of `plant`, which is called once in each rank, before its first case."""
    planted = []

    def setup(ctx):
        if not planted:
            plant()
            planted.append(True)

    @adapter(**DECLARED, **BALANCED, setup=setup, name=plant.__name__)
    def run(q, k, v, case, ctx):
        return attend(q, k, v, case, ctx, CPLoadBalancingStrategy.DUAL_CHUNK_SWAP)

    return run


def replace(owner, name, make):
    """Replaces owner.name by make(the original)."""
    setattr(owner, name, make(getattr(owner, name)))


def nothing(*args, **kwargs):
    """Does nothing."""


class Extension:
    """Transformer Engine's extension module with other functions in place of some of its own."""

    def __init__(self, **functions):
        self.__dict__.update(functions)

    def __getattr__(self, name):
        return getattr(tex, name)


class NotWaitedFor:
    """A request of torch.distributed whose wait() does nothing. It keeps the request, and so its tensors, alive."""

    def __init__(self, request):
        self.request = request

    def wait(self):
        return True


# Waits that are left out


@fault
def stream_not_waited_for():
    """No stream waits for the work of another stream: results are read, and inputs overwritten, too early."""
    torch.cuda.Stream.wait_stream = nothing


@fault
def correction_not_waited_for():
    """A step of the ring merges its result before that of the step before it is merged."""
    torch.cuda.Stream.wait_event = nothing


@fault
def keys_not_waited_for():
    """The ring computes with K and V that may not have arrived, and adds to dK and dV that may not have."""
    replace(
        context_parallel, "flash_attn_p2p_communicate",
        lambda original: lambda *args: [NotWaitedFor(request) for request in original(*args)],
    )  # fmt: skip


@fault
def exchange_not_waited_for():
    """The all-to-all of heads and tokens is used before it has ended."""
    replace(
        torch.distributed, "all_to_all_single",
        lambda original: lambda *args, **kwargs: NotWaitedFor(original(*args, **kwargs)),
    )  # fmt: skip


# Keys and values of the wrong step or rank


def use_of_an_earlier_step(keys):
    """The ring of the forward computes with the V of the first step, or with K and V of the step before (`keys`)."""

    def make(original):
        kept = []

        def prepare(q_part, k_part, v_part, *args):
            first = args[9] == 0  # the step
            given = k_part.clone(), v_part.clone()
            k, v = given if first else kept
            if first or keys:
                kept[:] = given
            return original(q_part, k if keys else k_part, v, *args)

        return prepare

    replace(context_parallel, "cp_p2p_fwd_prepare_qkv", make)


@fault
def keys_of_the_step_before():
    """The ring computes each step after the first with the K and V of the step before it."""
    use_of_an_earlier_step(keys=True)


@fault
def values_not_passed_on():
    """The ring of the forward passes on K, and every rank computes with its own V."""
    use_of_an_earlier_step(keys=False)


@fault
def chunk_order_not_restored():
    """Gathered keys stay in the order of the ranks, while the mask is that of the sequence."""

    def in_order(cp_size, device):
        return torch.arange(2 * cp_size, dtype=torch.int32, device=device)

    context_parallel.get_seq_chunk_ids_for_reordering_before_attn = in_order


@fault
def packed_order_not_restored():
    """Gathered keys of packed sequences stay in the order of the ranks."""
    context_parallel.restore_thd_gathered_kv = lambda x, *args: x


# Parts that are not merged, or twice


@fault
def softmax_not_corrected():
    """The ring merges outputs as if the softmax of each step had seen all keys."""
    for name in ("flash_attn_fwd_softmax_lse_correction", "flash_attn_fwd_second_half_softmax_lse_correction"):
        setattr(context_parallel, name, nothing)


@fault
def packed_output_not_corrected():
    """With packed sequences, the output of the first step is returned as the whole output."""
    context_parallel.tex = Extension(thd_out_correction=nothing)


@fault
def second_half_not_corrected():
    """Steps that only the second chunk of a rank takes part in are not merged into its output."""
    context_parallel.flash_attn_fwd_incremental_second_half_out_correction = nothing


@fault
def keys_gradient_of_the_last_step_lost():
    """The last step of the backward ring gives no dK."""

    def make(original):
        def backward(*args):
            dq, dk, dv, *rest = original(*args)
            step, cp_size = args[13], args[14]
            return (dq, torch.zeros_like(dk) if step == cp_size - 1 else dk, dv, *rest)

        return backward

    replace(context_parallel, "cp_p2p_bwd_fused_attn", make)


@fault
def gradients_of_gathered_keys_not_summed():
    """After an all-gather, each rank keeps its own part of dK and dV instead of the sum over the ranks."""

    def own_part(x, group, *args, **kwargs):
        ranks, rank = torch.distributed.get_world_size(group), torch.distributed.get_rank(group)
        return x.chunk(ranks)[rank].clone(), None

    context_parallel.reduce_scatter_along_first_dim = own_part


# Masks, windows, biases, sinks


@fault
def window_dropped():
    """After an all-gather, every query sees the keys to the left of its window too."""
    replace(
        context_parallel, "get_kv_seq_info_after_all_gather",
        lambda original: lambda chunk, cp_size, q, kv, window, causal: original(chunk, cp_size, q, kv, None, causal),
    )  # fmt: skip


@fault
def window_one_key_wider():
    """After an all-gather, a window to the left has one key more."""

    def wider(window):
        return window if window is None or window[0] < 0 else (window[0] + 1, window[1])

    replace(
        context_parallel, "get_kv_seq_info_after_all_gather",
        lambda original: lambda chunk, cp_size, q, kv, window, causal: original(
            chunk, cp_size, q, kv, wider(window), causal
        ),
    )  # fmt: skip


@fault
def bias_of_own_keys():
    """The ring adds in every step the bias of the rank's own keys."""

    def make(original):
        def forward(*args):
            args = list(args)
            args[24] = 0  # the step, from which the columns of the bias follow
            return original(*args)

        return forward

    replace(context_parallel, "cp_p2p_fwd_fused_attn", make)


@fault
def sink_of_the_first_heads():
    """Every rank takes the sinks of the first heads after heads have been exchanged for tokens."""

    def make(original):
        def communicate(tensor, h_dim, cp_size, cp_group, cp_stream, before_attn):
            if before_attn and tensor is not None:
                return tensor.narrow(h_dim, 0, tensor.shape[h_dim] // cp_size).contiguous()
            return original(tensor, h_dim, cp_size, cp_group, cp_stream, before_attn)

        return communicate

    replace(context_parallel, "flash_attn_a2a_communicate_softmax_offset", make)


# Packed sequences with padding


@fault
def valid_tokens_not_copied():
    """After an all-gather, the output of the second chunk of each packed sequence is not copied to the result."""

    def make(original):
        calls = [0]

        def copy(*args):
            calls[0] += 1
            if calls[0] % 2 == 1:
                original(*args)

        return copy

    context_parallel.tex = Extension(
        thd_copy_valid_tokens_from_per_split_to_rank_local=make(tex.thd_copy_valid_tokens_from_per_split_to_rank_local)
    )


@fault
def padding_not_counted():
    """Offsets without padding stand where those with padding belong."""

    def make(original):
        def forward(*args, **kwargs):
            args = list(args)
            args[8], args[9] = args[4], args[5]  # cu_seqlens_q_padded, cu_seqlens_kv_padded
            return original(*args, **kwargs)

        return forward

    replace(backends, "attn_forward_func_with_cp", make)


@fault
def padding_gradients_not_cleared():
    """The ring leaves in the gradients of padding rows what its kernels wrote there."""
    context_parallel._zero_thd_padding = nothing


# State of earlier calls


@fault
def gradients_of_the_call_before():
    """The backward of the ring returns dK of its previous call with tensors of the same shape."""

    def make(original):
        kept = {}

        def backward(ctx, *args):
            gradients = list(original(ctx, *args))
            dk = gradients[2]
            gradients[2] = kept.get(dk.shape, dk)
            kept[dk.shape] = dk
            return tuple(gradients)

        return staticmethod(backward)

    replace(context_parallel.AttnFuncWithCPAndKVP2P, "backward", make)


@fault
def offsets_of_the_case_before():
    """The offsets of a rank's sequences are kept for a number of sequences, whatever their lengths."""
    kept = {}
    replace(
        context_parallel, "_get_cu_seqlens_info_with_cp",
        lambda original: lambda batch, longest, cp_size, offsets: kept.setdefault(
            (batch, cp_size), original(batch, longest, cp_size, offsets)
        ),
    )  # fmt: skip

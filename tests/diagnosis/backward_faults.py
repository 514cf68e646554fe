"""Faults of the backward alone: the forward is right. expected.json says what the diagnosis of each must be."""

from __future__ import annotations

import dataclasses
import itertools

import torch
from fault_list import FaultList
from right_attention import Attention, Held, StepGradients, rowwise
from torch import Tensor

FAULTS = FaultList()


@FAULTS.named("backward_with_own_kv")
class BackwardWithOwnKv(Attention):
    def step_gradients(self, held: Held, dout: Tensor) -> StepGradients:
        k, v = (self.k, self.v) if self.in_ring else (held.k, held.v)
        return super().step_gradients(Held(held.step, k, v, held.places), dout)


@FAULTS.named("backward_per_part")
class BackwardPerPart(Attention):
    def lse_of_step(self, held: Held) -> Tensor:
        return self.own_parts[held.step].lse if self.in_ring else super().lse_of_step(held)

    def out_of_step(self, held: Held) -> Tensor:
        return self.own_parts[held.step].out if self.in_ring else super().out_of_step(held)


@FAULTS.named("kv_transposed_twice")
class KvTransposedTwice(Attention):
    """The memory of [tokens, heads, dim] is read as [heads, tokens, dim], and then transposed."""

    def backward(self, dout: Tensor) -> StepGradients:
        self.k, self.v = (x.transpose(0, 1).reshape(x.shape) for x in (self.k, self.v))
        return super().backward(dout)


@FAULTS.named("dkv_not_reduced")
class DkvNotReduced(Attention):
    def step_gradients(self, held: Held, dout: Tensor) -> StepGradients:
        step = super().step_gradients(held, dout)
        if held.step == 0:
            return step
        return StepGradients(step.dq, torch.zeros_like(step.dk), torch.zeros_like(step.dv), step.dbias)

    def pass_gradients_on(self, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
        return dk, dv

    def share_of_owner(self, whole: Tensor) -> Tensor:
        return self.rows_of_whole(whole, "kv").chunk(self.size)[self.rank]


@FAULTS.named("dq_over_ranks")
class DqOverRanks(Attention):
    def finished_gradients(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**gradients, "dq": gradients["dq"] / self.size}


@FAULTS.named("dsink_zero")
class DsinkZero(Attention):
    def sink_gradient(self, sink: Tensor, out: Tensor, lse: Tensor, dout: Tensor) -> Tensor:
        return torch.zeros_like(sink)


_backwards = itertools.count()


@FAULTS.named("dk_nan_now_and_then")
class DkNanNowAndThen(Attention):
    """A NaN now and then, as from a race: here in every second backward of a rank, so that tests can rely on it."""

    def finished_gradients(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        if next(_backwards) % 2 == 1:
            gradients["dk"].flatten()[0] = torch.nan
        return gradients


_earlier: dict[torch.Size, dict[str, Tensor]] = {}


@FAULTS.named("stale_gradients")
class StaleGradients(Attention):
    """A cache whose key is the shape returns the gradients of the step before."""

    def finished_gradients(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        earlier = _earlier.get(gradients["dq"].shape, gradients)
        _earlier[gradients["dq"].shape] = gradients
        return earlier


@FAULTS.named("dk_heads_misgrouped")
class DkHeadsMisgrouped(Attention):
    """dk of a KV head is the sum over every second query head, dv over those that read it."""

    def step_gradients(self, held: Held, dout: Tensor) -> StepGradients:
        self.summed: list[Tensor] = []
        return super().step_gradients(held, dout)

    def for_kv_heads(self, of_heads: Tensor) -> Tensor:
        self.summed.append(of_heads)  # of dk, and then of dv
        if len(self.summed) > 1:
            return super().for_kv_heads(of_heads)
        return of_heads.reshape(-1, self.k.shape[1], *of_heads.shape[1:]).sum(0).transpose(0, 1)


@FAULTS.named("nan_hidden_by_where")
class NanHiddenByWhere(Attention):
    """The forward replaces the NaN of rows without keys, and the backward computes with it."""

    def step_gradients(self, held: Held, dout: Tensor) -> StepGradients:
        step = super().step_gradients(held, dout)
        empty = self.sums.lse.isinf()
        nan = torch.nan if empty.any() else 0.0
        dq = step.dq.masked_fill(rowwise(empty), torch.nan)
        return StepGradients(dq, step.dk + nan, step.dv + nan, step.dbias)


@FAULTS.named("dkv_never_sent")
class DkvNeverSent(Attention):
    """A ring sums the gradients of all keys that it has held as those of its own."""

    def pass_gradients_on(self, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
        return dk, dv


@FAULTS.named("dk_plus_dv")
class DkPlusDv(Attention):
    """Both gradients travel in one buffer, and autograd sums it to the shape of each."""

    def finished_gradients(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        both = gradients["dk"] + gradients["dv"]
        return {**gradients, "dk": both, "dv": both.clone()}


@FAULTS.named("dq_through_bf16")
class DqThroughBf16(Attention):
    def finished_gradients(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**gradients, "dq": gradients["dq"].bfloat16().to(gradients["dq"].dtype)}


@FAULTS.named("last_hop_left_out")
class LastHopLeftOut(Attention):
    """dk and dv stay at the rank that computed the last step."""

    def backward(self, dout: Tensor) -> StepGradients:
        self.hops = 0
        return super().backward(dout)

    def pass_gradients_on(self, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
        self.hops += 1
        return (dk, dv) if self.hops == self.size else super().pass_gradients_on(dk, dv)


@FAULTS.named("dq_negated")
class DqNegated(Attention):
    def finished_gradients(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**gradients, "dq": -gradients["dq"]}


@FAULTS.named("dkv_averaged_over_heads")
class DkvAveragedOverHeads(Attention):
    def for_kv_heads(self, of_heads: Tensor) -> Tensor:
        return super().for_kv_heads(of_heads) * self.k.shape[1] / self.q.shape[1]


@FAULTS.named("dv_with_lse_of_part")
class DvWithLseOfPart(Attention):
    def step_gradients(self, held: Held, dout: Tensor) -> StepGradients:
        scores = self.scores(held)
        p = self.weights(scores, scores.logsumexp(2))
        dv = self.for_kv_heads(p.transpose(1, 2) @ dout.transpose(0, 1))
        return dataclasses.replace(super().step_gradients(held, dout), dv=dv)

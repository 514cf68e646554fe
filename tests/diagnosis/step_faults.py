"""Faults of merging parts, of ring steps and of exchanges. expected.json says what the diagnosis of each must be."""

from __future__ import annotations

import math
from collections.abc import Iterator

import exchange
import torch
from fault_list import FaultList
from mask import Places
from right_attention import Attention, Held, Part, StepGradients, finite, rowwise
from torch import Tensor

FAULTS = FaultList()


def in_bf16(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().float()


# --- Merging ----------------------------------------------------------------------------------------------------------


@FAULTS.named("later_part_overwrites")
class LaterPartOverwrites(Attention):
    def merge(self, sums: Part, part: Part) -> Part:
        seen = part.lse > -torch.inf
        out = torch.where(rowwise(seen), part.out, sums.out)
        return Part(out, torch.where(seen, part.lse, sums.lse), torch.maximum(sums.top, part.top))


@FAULTS.named("weighed_by_the_first_lse")
class WeighedByTheFirstLse(Attention):
    """The merged lse stays that of the first part, and the parts are weighed by it."""

    def total_lse(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.where(a > -torch.inf, a, b)


@FAULTS.named("second_chunk_not_merged")
class SecondChunkNotMerged(Attention):
    """A step in which only the second chunk of a rank sees keys is counted in the lse, and its out is left out."""

    def forward(self) -> Part:
        self.step = 0
        return super().forward()

    def merge(self, sums: Part, part: Part) -> Part:
        self.step += 1
        only_second = self.case.causal and self.owner(self.step) > self.rank
        return super().merge(sums, Part(torch.zeros_like(part.out), part.lse, part.top) if only_second else part)


@FAULTS.named("lse_in_base_2")
class LseInBase2(Attention):
    """The lse of a part is in base 2, as from a kernel whose exponentials are powers of 2."""

    def attend(self, held: Held) -> Part:
        part = super().attend(held)
        return Part(part.out, part.lse * math.log2(math.e), part.top) if self.in_ring else part


@FAULTS.named("both_parts_empty_nan")
class BothPartsEmptyNan(Attention):
    def total_lse(self, a: Tensor, b: Tensor) -> Tensor:
        top = torch.maximum(a, b)
        return top + torch.log(torch.exp(a - top) + torch.exp(b - top))


@FAULTS.named("empty_part_lse_zero")
class EmptyPartLseZero(Attention):
    """A part in which a query sees no key has the lse 0."""

    def attend(self, held: Held) -> Part:
        part = super().attend(held)
        return Part(part.out, finite(part.lse), part.top) if self.in_ring else part


@FAULTS.named("lse_read_transposed")
class LseReadTransposed(Attention):
    """The lse is written by row and then by head, and read by head and then by row."""

    def finished(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        lse = results["lse"]
        return {**results, "lse": lse.t().contiguous().view(lse.shape)}


@FAULTS.named("lse_plus_infinity")
class LsePlusInfinity(Attention):
    def finished(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        results["lse"] = results["lse"].masked_fill(results["lse"].isinf(), torch.inf)
        return results


@FAULTS.named("merge_without_maximum")
class MergeWithoutMaximum(Attention):
    def merge(self, sums: Part, part: Part) -> Part:
        weight, added = torch.exp(sums.lse), torch.exp(part.lse)
        total = weight + added
        out = sums.out * rowwise(weight) + part.out * rowwise(added)
        out = out / rowwise(total.masked_fill(total == 0, 1.0))
        return Part(out, total.log(), torch.maximum(sums.top, part.top))


@FAULTS.named("sums_in_16_bits")
class SumsIn16Bits(Attention):
    def merge(self, sums: Part, part: Part) -> Part:
        merged = super().merge(sums, part)
        return Part(in_bf16(merged.out), merged.lse, merged.top)


@FAULTS.named("lse_in_16_bits")
class LseIn16Bits(Attention):
    def total_lse(self, a: Tensor, b: Tensor) -> Tensor:
        return in_bf16(super().total_lse(a, b))


@FAULTS.named("scores_in_16_bits")
class ScoresIn16Bits(Attention):
    def scores(self, held: Held) -> Tensor:
        return in_bf16(super().scores(held))

    def weights(self, scores: Tensor, lse: Tensor) -> Tensor:
        return in_bf16(super().weights(scores, lse))


# --- The steps of a ring ----------------------------------------------------------------------------------------------


@FAULTS.named("own_kv_in_forward")
class OwnKvInForward(Attention):
    """The forward computes each step with the rank's own K and V, under the mask of those whose turn it is."""

    def held_at_steps(self) -> Iterator[Held]:
        for held in super().held_at_steps():
            forward = self.in_ring and not hasattr(self, "sums")
            yield Held(held.step, self.k, self.v, held.places) if forward else held


@FAULTS.named("group_of_an_earlier_case")
class GroupOfAnEarlierCase(Attention):
    """A ring of four ranks is two rings of two, as if the group were that of an earlier case."""

    def scores(self, held: Held) -> Tensor:
        scores = super().scores(held)
        return scores.fill_(-torch.inf) if self.in_ring and self.owner(held.step) // 2 != self.rank // 2 else scores


@FAULTS.named("odd_ring_pairing")
class OddRingPairing(Attention):
    def owner(self, step: int) -> int:
        return (self.rank - step - self.size % 2) % self.size


@FAULTS.named("own_keys_counted_twice")
class OwnKeysCountedTwice(Attention):
    """The part of the own keys has twice its weight, as if they came both from the ring and from a cache."""

    def attend(self, held: Held) -> Part:
        part = super().attend(held)
        return Part(part.out, part.lse + math.log(2), part.top) if self.twice(held) else part

    def step_gradients(self, held: Held, dout: Tensor) -> StepGradients:
        step = super().step_gradients(held, dout)
        if not self.twice(held):
            return step
        return StepGradients(2 * step.dq, 2 * step.dk, 2 * step.dv, None if step.dbias is None else 2 * step.dbias)

    def twice(self, held: Held) -> bool:
        return self.in_ring and held.step == 0


@FAULTS.named("kv_read_before_arrival")
class KvReadBeforeArrival(Attention):
    """Computes with the receive buffers, which are zeros, before the keys of other ranks have arrived."""

    def held_at_steps(self) -> Iterator[Held]:
        for held in super().held_at_steps():
            arrived = held.step == 0
            k, v = (x if arrived else torch.zeros_like(x) for x in (held.k, held.v))
            yield Held(held.step, k, v, held.places)


@FAULTS.named("sink_dropped_in_ring")
class SinkDroppedInRing(Attention):
    def join_sink(self, sums: Part) -> Part:
        return sums if self.in_ring else super().join_sink(sums)


@FAULTS.named("bias_columns_of_own_rows")
class BiasColumnsOfOwnRows(Attention):
    def bias_columns(self, keys: Places) -> Tensor:
        return super().bias_columns(self.keys)


# --- Tokens for heads -------------------------------------------------------------------------------------------------


@FAULTS.named("a2a_reshape")
class A2aReshape(Attention):
    """Reshapes the received [blocks of heads, rows, heads of a block, dim] without transposing it first."""

    def heads_to_rows(self, heads: Tensor, side: str) -> Tensor:
        by_rank = self.rows_of_whole(heads, side).reshape(self.size, -1, *heads.shape[1:])
        return exchange.traded(by_rank, self.group).reshape(by_rank.shape[1], -1, heads.shape[2])


@FAULTS.named("group_ranks_reversed")
class GroupRanksReversed(Attention):
    """Sends the blocks of heads to the ranks of the group in reverse order."""

    def rows_to_heads(self, rows: Tensor, side: str) -> Tensor:
        blocks = exchange.blocks_of_heads(rows, self.size).flip(0)
        return exchange.traded(blocks, self.group).flatten(0, 1)[self.order(side)]


@FAULTS.named("v_not_passed_on")
class VNotPassedOn(Attention):
    """The ring passes K on, and every step computes with the rank's own V."""

    def held_at_steps(self) -> Iterator[Held]:
        for held in super().held_at_steps():
            yield Held(held.step, held.k, self.v, held.places) if self.in_ring else held

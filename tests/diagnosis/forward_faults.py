"""Faults of the mask, of the positions of rows, and of the heads that are read. expected.json says what the diagnosis
of each must be."""

from __future__ import annotations

import math

import torch
from fault_list import FaultList
from mask import Places
from right_attention import Attention, Held, StepGradients
from torch import Tensor

from cp_pool.context import CaseView, Ctx

FAULTS = FaultList()


def by_local_row(places: Places) -> Places:
    """Positions counted from 0 among these rows of the sequence."""
    counts = torch.bincount(places.sequences)
    rows = torch.arange(places.sequences.numel()) - (counts.cumsum(0) - counts)[places.sequences]
    return Places(places.sequences, rows, places.valid)


# --- Lengths and padding ----------------------------------------------------------------------------------------------


@FAULTS.named("lengths_divided")
class LengthsDivided(Attention):
    def valid_lengths(self, side: str) -> list[int]:
        return [length // self.size * self.size for length in super().valid_lengths(side)]


@FAULTS.named("padding_keys_kept")
class PaddingKeysKept(Attention):
    def keys_that_count(self, keys: Places) -> Tensor:
        return torch.ones_like(keys.valid)


@FAULTS.named("padding_rows_kept")
class PaddingRowsKept(Attention):
    def queries_that_count(self, queries: Places) -> Tensor:
        return torch.ones_like(queries.valid)


@FAULTS.named("padding_half_nan")
class PaddingHalfNan(Attention):
    """NaN in the rows of a chunk without a valid token, as a softmax over no key gives it."""

    def finished(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        places = self.places(self.rank, "q")
        results["out"] = results["out"].clone()  # the backward uses the right one
        for sequence in range(len(self.valid_lengths("q"))):
            rows = (places.sequences == sequence).nonzero().flatten()
            for chunk in rows.chunk(2):
                if not places.valid[chunk].any():
                    results["out"][chunk] = torch.nan
        return results


# --- The mask ---------------------------------------------------------------------------------------------------------


@FAULTS.named("documents_see_each_other")
class DocumentsSeeEachOther(Attention):
    """Applies one causal mask, or one window, to the whole pack instead of to each sequence."""

    def in_pack(self, places: Places, side: str) -> Places:
        lengths = torch.tensor(self.padded_lengths(side))
        begin = (lengths.cumsum(0) - lengths)[places.sequences]
        return Places(torch.zeros_like(places.sequences), places.positions + begin, places.valid)

    def diagonal(self, queries: Places) -> Tensor:
        shift = sum(self.padded_lengths("kv")) - sum(self.padded_lengths("q"))
        return (queries.positions + shift).unsqueeze(1)

    def visible(self, queries: Places, keys: Places) -> Tensor:
        return super().visible(self.in_pack(queries, "q"), self.in_pack(keys, "kv"))


@FAULTS.named("causal_dropped_in_ring")
class CausalDroppedInRing(Attention):
    def __init__(self, case: CaseView, ctx: Ctx) -> None:
        super().__init__(case, ctx)
        self.causal = case.causal and not self.in_ring


@FAULTS.named("window_dropped_in_all_gather")
class WindowDroppedInAllGather(Attention):
    def __init__(self, case: CaseView, ctx: Ctx) -> None:
        super().__init__(case, ctx)
        if case.comm == "all_gather":
            self.left = self.right = -1


@FAULTS.named("window_minus_one")
class WindowMinusOne(Attention):
    def in_window(self, queries: Places, keys: Places) -> Tensor:
        if self.case.window == (-1, -1):
            return super().in_window(queries, keys)
        distance = keys.positions.unsqueeze(0) - self.diagonal(queries)
        return super().in_window(queries, keys) & (distance >= -self.left)


@FAULTS.named("chunk_replaced_by_causal")
class ChunkReplacedByCausal(Attention):
    def __init__(self, case: CaseView, ctx: Ctx) -> None:
        super().__init__(case, ctx)
        self.chunk = 0


@FAULTS.named("window_of_local_rows")
class WindowOfLocalRows(Attention):
    """Applies the window to the local row numbers of queries and keys instead of to their positions."""

    def in_window(self, queries: Places, keys: Places) -> Tensor:
        return super().in_window(by_local_row(queries), by_local_row(keys))


# --- Positions of rows ------------------------------------------------------------------------------------------------


@FAULTS.named("attention_by_contiguous")
class AttentionByContiguous(Attention):
    """Takes the shards for contiguous ones, though the data is sharded in dual chunks."""

    def positions_of(self, rank: int, padded: int) -> Tensor:
        length = padded // self.size
        return torch.arange(rank * length, (rank + 1) * length)


@FAULTS.named("gathered_rows_in_rank_order")
class GatheredRowsInRankOrder(Attention):
    def order(self, side: str) -> Tensor:
        order = super().order(side)
        return order if self.in_a2a else torch.arange(order.numel())


@FAULTS.named("valid_offsets_in_padded_rows")
class ValidOffsetsInPaddedRows(Attention):
    """Finds the rows of a sequence with offsets of valid tokens, though the rows of a rank are padded."""

    def places(self, rank: int, side: str) -> Places:
        right = super().places(rank, side)
        if not self.in_ring:
            return right
        lengths = torch.tensor(self.valid_lengths(side))
        begin = (lengths.cumsum(0) - lengths) // self.size
        rows = torch.arange(right.positions.numel())
        sequences = torch.searchsorted(begin, rows, right=True) - 1
        local = rows - begin[sequences]
        held = [self.positions_of(rank, padded) for padded in self.padded_lengths(side)]
        positions = torch.zeros_like(rows)
        inside = torch.zeros_like(rows, dtype=torch.bool)
        for sequence, of_sequence in enumerate(held):
            its = (sequences == sequence) & (local < of_sequence.numel())
            positions[its] = of_sequence[local[its]]
            inside |= its
        return Places(sequences, positions, inside & (positions < lengths[sequences]))


@FAULTS.named("positions_from_zero")
class PositionsFromZero(Attention):
    """Every rank of a ring counts the positions of its own tokens from 0."""

    def visible(self, queries: Places, keys: Places) -> Tensor:
        if not self.in_ring:
            return super().visible(queries, keys)
        return super().visible(by_local_row(queries), by_local_row(keys))


@FAULTS.named("diagonal_from_own_first_row")
class DiagonalFromOwnFirstRow(Attention):
    """all_gather: the causal diagonal begins at the rank's first query and at the first key of a sequence."""

    def visible(self, queries: Places, keys: Places) -> Tensor:
        return super().visible(queries if self.in_ring or self.in_a2a else by_local_row(queries), keys)


# --- Heads ------------------------------------------------------------------------------------------------------------


@FAULTS.named("kv_heads_repeated_whole")
class KvHeadsRepeatedWhole(Attention):
    def for_query_heads(self, of_kv_heads: Tensor) -> Tensor:
        return of_kv_heads.repeat(1, self.q.shape[1] // of_kv_heads.shape[1], 1).transpose(0, 1)

    def for_kv_heads(self, of_heads: Tensor) -> Tensor:
        return of_heads.reshape(-1, self.k.shape[1], *of_heads.shape[1:]).sum(0).transpose(0, 1)


@FAULTS.named("kv_head_of_first")
class KvHeadOfFirst(Attention):
    def for_query_heads(self, of_kv_heads: Tensor) -> Tensor:
        return of_kv_heads[:, :1].expand(-1, self.q.shape[1], -1).transpose(0, 1)

    def for_kv_heads(self, of_heads: Tensor) -> Tensor:
        gradient = of_heads.new_zeros(of_heads.shape[1], self.k.shape[1], of_heads.shape[2])
        gradient[:, 0] = of_heads.sum(0)
        return gradient


@FAULTS.named("strides_ignored")
class StridesIgnored(Attention):
    def read(self, given: Tensor) -> Tensor:
        contiguous = torch.empty(given.shape, device="meta").stride()
        return given.as_strided(given.shape, contiguous, given.storage_offset())


@FAULTS.named("k_tiled_v_interleaved")
class KTiledVInterleaved(Attention):
    """K is repeated as a whole for the query heads, and V head by head."""

    def take(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sink: Tensor) -> None:
        self.share = q.shape[1] // k.shape[1]
        super().take(q, k.repeat(1, self.share, 1), v.repeat_interleave(self.share, 1), bias, sink)

    def backward(self, dout: Tensor) -> StepGradients:
        step = super().backward(dout)
        dk = step.dk.reshape(len(step.dk), self.share, -1, step.dk.shape[-1]).sum(1)
        dv = step.dv.reshape(len(step.dv), -1, self.share, step.dv.shape[-1]).sum(2)
        return StepGradients(step.dq, dk, dv, step.dbias)


@FAULTS.named("group_of_three_heads")
class GroupOfThreeHeads(Attention):
    """Three query heads read each KV head, as if query heads had been padded and KV heads had not."""

    def kv_head(self) -> Tensor:
        return torch.arange(self.q.shape[1]) // 3 % self.k.shape[1]

    def for_query_heads(self, of_kv_heads: Tensor) -> Tensor:
        return of_kv_heads[:, self.kv_head()].transpose(0, 1)

    def for_kv_heads(self, of_heads: Tensor) -> Tensor:
        gradient = of_heads.new_zeros(self.k.shape[1], *of_heads.shape[1:])
        return gradient.index_add_(0, self.kv_head(), of_heads).transpose(0, 1)


# --- Scores and lengths -----------------------------------------------------------------------------------------------


@FAULTS.named("scores_clipped")
class ScoresClipped(Attention):
    def scores(self, held: Held) -> Tensor:
        scores = super().scores(held)
        return torch.where(scores.isinf(), scores, scores.clamp(min=-20.0))


@FAULTS.named("lengths_of_longest")
class LengthsOfLongest(Attention):
    """The keys of every sequence end where those of the longest one do."""

    def keys_that_count(self, keys: Places) -> Tensor:
        return keys.positions < max(self.valid_lengths("kv"))


# --- The scale and the lse --------------------------------------------------------------------------------------------


@FAULTS.named("scale_of_padded_heads")
class ScaleOfPaddedHeads(Attention):
    def __init__(self, case: CaseView, ctx: Ctx) -> None:
        super().__init__(case, ctx)
        self.scale = (2 * case.head_dim_qk) ** -0.5


@FAULTS.named("lse_counts_ranks")
class LseCountsRanks(Attention):
    def finished(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**results, "lse": results["lse"] + math.log(self.size)}

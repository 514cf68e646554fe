"""The positions of the rows of a rank in their sequences, and the keys that each query sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cp_pool.context import CaseView, Ctx


@dataclass(frozen=True)
class Places:
    """For each row its sequence, its position in the padded sequence, and whether it is a valid token (no padding)."""

    sequences: Tensor
    positions: Tensor
    valid: Tensor

    def chosen(self, rows: Tensor) -> Places:
        return Places(self.sequences[rows], self.positions[rows], self.valid[rows])


def joined(parts: list[Places]) -> Places:
    return Places(
        torch.cat([part.sequences for part in parts]),
        torch.cat([part.positions for part in parts]),
        torch.cat([part.valid for part in parts]),
    )


class Mask:
    """The mask of a case for one rank. Sequences are sharded in dual chunks."""

    def __init__(self, case: CaseView, ctx: Ctx) -> None:
        self.case, self.ctx = case, ctx
        self.rank, self.size, self.group = ctx.rank, ctx.world_size, ctx.group
        self.in_ring, self.in_a2a = case.comm == "p2p", case.comm == "a2a"
        self.causal, self.chunk = case.causal, case.chunk
        self.left, self.right = case.window

    # --- Positions of rows --------------------------------------------------------------------------------------------

    def padded_lengths(self, side: str) -> list[int]:
        offsets = self.ctx.cu_seqlens_q_padded if side == "q" else self.ctx.cu_seqlens_kv_padded
        return [int(length) for length in offsets.diff()]

    def valid_lengths(self, side: str) -> list[int]:
        return self.ctx.seqlens_q if side == "q" else self.ctx.seqlens_kv

    def positions_of(self, rank: int, padded: int) -> Tensor:
        """The positions that a rank holds of a sequence of `padded` tokens."""
        length = padded // (2 * self.size)
        return torch.cat([torch.arange(c * length, (c + 1) * length) for c in (rank, 2 * self.size - 1 - rank)])

    def places(self, rank: int, side: str) -> Places:
        """The places of the query rows ("q") or the key rows ("kv") of a rank."""
        parts = []
        for sequence, (padded, valid) in enumerate(
            zip(self.padded_lengths(side), self.valid_lengths(side), strict=True)
        ):
            positions = self.positions_of(rank, padded)
            parts.append(Places(torch.full_like(positions, sequence), positions, positions < valid))
        return joined(parts)

    def gathered_places(self, side: str) -> Places:
        return joined([self.places(rank, side) for rank in range(self.size)])

    def order(self, side: str) -> Tensor:
        """Indices that put the rows of all ranks, one rank after the other, into the order of the sequences."""
        places = self.gathered_places(side)
        length = max(self.padded_lengths(side), default=0) + 1
        return (places.sequences * length + places.positions).argsort(stable=True)

    def rows_of_whole(self, whole: Tensor, side: str) -> Tensor:
        """The inverse: rows in the order of the sequences become rows of all ranks, one rank after the other."""
        return whole[self.order(side).argsort()]

    def whole_places(self, side: str) -> Places:
        places = self.gathered_places(side)
        length = max(self.padded_lengths(side), default=0) + 1
        return places.chosen((places.sequences * length + places.positions).argsort(stable=True))

    # --- Which keys a query sees --------------------------------------------------------------------------------------

    def diagonal(self, queries: Places) -> Tensor:
        """[rows, 1]: for each query the position of the key on its diagonal (the mask is aligned bottom-right)."""
        shift = torch.tensor(self.valid_lengths("kv")) - torch.tensor(self.valid_lengths("q"))
        return (queries.positions + shift[queries.sequences]).unsqueeze(1)

    def in_window(self, queries: Places, keys: Places) -> Tensor:
        i, j = self.diagonal(queries), keys.positions.unsqueeze(0)
        seen = torch.ones(i.shape[0], j.shape[1], dtype=torch.bool)
        if self.left >= 0:
            seen &= i - self.left <= j
        if self.right >= 0:
            seen &= j <= i + self.right
        return seen

    def in_one_sequence(self, queries: Places, keys: Places) -> Tensor:
        return queries.sequences.unsqueeze(1) == keys.sequences.unsqueeze(0)

    def keys_that_count(self, keys: Places) -> Tensor:
        return keys.valid

    def queries_that_count(self, queries: Places) -> Tensor:
        return queries.valid

    def visible(self, queries: Places, keys: Places) -> Tensor:
        """[rows, keys]: True where a query sees a key."""
        i, j = self.diagonal(queries), keys.positions.unsqueeze(0)
        seen = self.in_one_sequence(queries, keys) & self.in_window(queries, keys)
        seen &= self.queries_that_count(queries).unsqueeze(1) & self.keys_that_count(keys).unsqueeze(0)
        if self.causal:
            seen &= j <= i
        if self.chunk:
            seen &= i.div(self.chunk, rounding_mode="floor") == j.div(self.chunk, rounding_mode="floor")
        return seen

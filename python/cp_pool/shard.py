"""Conventions by which an implementation shards sequences over ranks, as frozen values for ``@adapter``.

A convention cuts packs. For a convention over the pack, thd has a single pack: all sequences, one after the other. In
bshd and sbhd, and for a convention per sequence, each sequence is a pack of its own. From the convention cp-pool
computes the rows of each rank, checks that every valid row has one owner, shards the inputs and judges the results.

A function ``(lengths, ranks) -> rows of each rank`` may take the place of a convention. ``lengths`` are the valid
lengths of the sequences. A row is the index of a valid token, counted over all sequences; -1 is a row of padding. The
function is called once for the queries and once for the keys of a case.

A pair cuts queries by its first rule, and keys and values by its second: ``(dual_chunk, contiguous)``.

Replicated tokens are the first tokens of each sequence, and every rank holds them. A convention cuts the other tokens,
and puts the replicated ones first in each sequence's rows of a rank. A function must list them for every rank, at any
place. For a case with replicated tokens it is called as ``(lengths, ranks, replicated)``, where ``replicated`` is their
number in each sequence; a shorter sequence is replicated as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "Convention",
    "RowsFunction",
    "Rule",
    "Shard",
    "contiguous",
    "contiguous_pack",
    "dual_chunk",
    "dual_chunk_pack",
    "dual_chunk_ulysses",
    "paged",
    "striped",
    "striped_by",
]


@dataclass(frozen=True)
class Convention:
    """A convention. ``name`` is what the extension module parses."""

    name: str

    def __str__(self) -> str:
        return self.name


RowsFunction: TypeAlias = Callable[..., Sequence[Sequence[int]]]
Rule: TypeAlias = Convention | RowsFunction
Shard: TypeAlias = Rule | tuple[Rule, Rule]

#: Each sequence is cut into 2 n chunks, and rank r has r and 2 n - 1 - r. Transformer Engine, ring-flash-attention.
dual_chunk = Convention("dual_chunk")
#: The same over the whole pack. Zigzag of axolotl-ringmaster.
dual_chunk_pack = Convention("dual_chunk_pack")
#: Each sequence is cut into n parts, and rank r has part r. Ulysses, plain rings, torch without a load balancer.
contiguous = Convention("contiguous")
#: The same over the whole pack. llama3 of ring-flash-attention.
contiguous_pack = Convention("contiguous_pack")


def striped_by(rows: int) -> Convention:
    """The pack is cut into stripes of ``rows`` rows; stripe i belongs to rank i mod n. Transformer Engine for JAX."""
    if rows < 1:
        raise ValueError(f"a stripe has at least one row, not {rows}")
    return Convention(f"striped:{rows}" if rows > 1 else "striped")


#: Row i of the pack belongs to rank i mod n. Striped attention.
striped = striped_by(1)


def paged(rows: int = 1) -> Convention:
    """Each sequence, of any length, is cut into pages of ``rows`` rows; page i belongs to rank i mod n. Keys in vLLM's
    decode context parallelism."""
    if rows < 1:
        raise ValueError(f"a page has at least one row, not {rows}")
    return Convention(f"paged:{rows}" if rows > 1 else "paged")


def dual_chunk_ulysses(ring: int, ulysses_inner: bool = True) -> Convention:
    """Each sequence is cut by dual chunks over a ring of ``ring`` ranks. The rows of each place in the ring are then
    cut, in order, over the ranks of a Ulysses group. Zigzag of long-context-attention (yunchang).

    ulysses_inner: neighbouring ranks are in the same Ulysses group; otherwise they are in the same ring.
    """
    if ring < 1:
        raise ValueError(f"a ring has at least one rank, not {ring}")
    return Convention(f"dual_chunk_ulysses:{ring}" + ("" if ulysses_inner else ":outer"))

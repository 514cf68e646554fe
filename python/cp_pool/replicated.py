"""Finds the replicated rows, which every rank has, in this rank's tensors, in an order that is the same on every
rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from cp_pool.context import CaseView, Ctx

__all__ = ["bias_rows", "in_turns", "key_rows", "places", "query_rows"]


def query_rows(case: CaseView, ctx: Ctx) -> torch.Tensor:
    """The indices of replicated rows among this rank's query rows in packed order, sorted by sequence and position."""
    return _rows(ctx.positions_q, ctx.sequences_q, case.replicated_queries)


def key_rows(case: CaseView, ctx: Ctx) -> torch.Tensor:
    return _rows(ctx.positions_kv, ctx.sequences_kv, case.replicated)


def bias_rows(case: CaseView, ctx: Ctx) -> torch.Tensor:
    """The same among the rows of a bias in bshd and sbhd, which are those of the queries of any one sequence."""
    first = ctx.sequences_q == 0
    return _rows(ctx.positions_q[first], ctx.sequences_q[first], case.replicated_queries)


def places(rows: torch.Tensor, tensor: torch.Tensor, layout: str) -> tuple[torch.Tensor, ...]:
    """Converts row indices in packed order to indices into a tensor of the layout."""
    if layout == "thd":
        return (rows,)
    of_a_sequence = tensor.shape[1 if layout == "bshd" else 0]
    sequence, row = rows // of_a_sequence, rows % of_a_sequence
    return (sequence, row) if layout == "bshd" else (row, sequence)


def in_turns(rows: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """The rows that other ranks count, if row i is counted only on rank i mod ranks."""
    turn = torch.arange(rows.numel(), device=rows.device) % ranks
    return rows[turn != rank]


def _rows(positions: torch.Tensor, sequences: torch.Tensor, replicated: int) -> torch.Tensor:
    rows = ((positions >= 0) & (positions < replicated)).nonzero().flatten()
    return rows[torch.argsort(sequences[rows] * replicated + positions[rows])]

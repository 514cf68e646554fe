"""Context-parallel attention of one rank, forward and backward written out in fp32: a ring, an all-gather and an a2a.
It is right. Every fault of this folder replaces one of its methods.

Inside, tensors are packed: [rows, heads, dim], sequence by sequence; scores are [heads, rows, keys].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import exchange
import torch
from torch import Tensor

from cp_pool.context import CaseView, Ctx


@dataclass(frozen=True)
class Places:
    """Where rows stand: of each its sequence, its position in the padded sequence, and whether it is no padding."""

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


@dataclass(frozen=True)
class Held:
    """The keys that a rank has at a step."""

    step: int
    k: Tensor
    v: Tensor
    places: Places


@dataclass(frozen=True)
class Part:
    """A result over some of the keys. lse: [heads, rows]; top: the largest score of each head."""

    out: Tensor
    lse: Tensor
    top: Tensor


@dataclass(frozen=True)
class StepGradients:
    """What one step adds. dbias: [heads of the bias, rows, keys], or None."""

    dq: Tensor
    dk: Tensor
    dv: Tensor
    dbias: Tensor | None


def rowwise(of_heads: Tensor) -> Tensor:
    """[heads, rows] as [rows, heads, 1]."""
    return of_heads.t().unsqueeze(2)


def finite(lse: Tensor) -> Tensor:
    """0 in place of an infinity: what a row without keys subtracts."""
    return lse.masked_fill(lse.isinf(), 0.0)


class Attention:
    def __init__(self, case: CaseView, ctx: Ctx) -> None:
        self.case, self.ctx = case, ctx
        self.rank, self.size, self.group = ctx.rank, ctx.world_size, ctx.group
        self.in_ring, self.in_a2a = case.comm == "p2p", case.comm == "a2a"
        self.causal, self.chunk, self.scale = case.causal, case.chunk, case.scale
        self.left, self.right = case.window
        self.own_parts: list[Part] = []

    # --- Where rows stand ---------------------------------------------------------------------------------------------

    def padded_lengths(self, side: str) -> list[int]:
        offsets = self.ctx.cu_seqlens_q_padded if side == "q" else self.ctx.cu_seqlens_kv_padded
        return [int(length) for length in offsets.diff()]

    def valid_lengths(self, side: str) -> list[int]:
        return self.ctx.seqlens_q if side == "q" else self.ctx.seqlens_kv

    def positions_of(self, rank: int, padded: int) -> Tensor:
        """The positions that a rank has of a sequence of so many tokens."""
        length = padded // (2 * self.size)
        return torch.cat([torch.arange(c * length, (c + 1) * length) for c in (rank, 2 * self.size - 1 - rank)])

    def places(self, rank: int, side: str) -> Places:
        """Those of a rank's rows of queries (q) or keys (kv)."""
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
        """Of the rows of all ranks, one rank after the other, those that stand first, second, .. in the sequences."""
        places = self.gathered_places(side)
        length = max(self.padded_lengths(side), default=0) + 1
        return (places.sequences * length + places.positions).argsort(stable=True)

    def rows_of_whole(self, whole: Tensor, side: str) -> Tensor:
        """Of rows in the order of sequences those of all ranks, one rank after the other."""
        return whole[self.order(side).argsort()]

    def whole_places(self, side: str) -> Places:
        places = self.gathered_places(side)
        length = max(self.padded_lengths(side), default=0) + 1
        return places.chosen((places.sequences * length + places.positions).argsort(stable=True))

    # --- Which keys a query sees --------------------------------------------------------------------------------------

    def diagonal(self, queries: Places) -> Tensor:
        """[rows, 1]: the position of the key at which each query stands."""
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
        """[rows, keys]"""
        i, j = self.diagonal(queries), keys.positions.unsqueeze(0)
        seen = self.in_one_sequence(queries, keys) & self.in_window(queries, keys)
        seen &= self.queries_that_count(queries).unsqueeze(1) & self.keys_that_count(keys).unsqueeze(0)
        if self.causal:
            seen &= j <= i
        if self.chunk:
            seen &= i.div(self.chunk, rounding_mode="floor") == j.div(self.chunk, rounding_mode="floor")
        return seen

    # --- One part -----------------------------------------------------------------------------------------------------

    def for_query_heads(self, of_kv_heads: Tensor) -> Tensor:
        """[keys, kv heads, dim] as [heads, keys, dim]: what each query head reads."""
        return of_kv_heads.repeat_interleave(self.q.shape[1] // of_kv_heads.shape[1], 1).transpose(0, 1)

    def for_kv_heads(self, of_heads: Tensor) -> Tensor:
        """The inverse for gradients: sums over the query heads that read the same."""
        return of_heads.reshape(self.k.shape[1], -1, *of_heads.shape[1:]).sum(1).transpose(0, 1)

    def bias_columns(self, keys: Places) -> Tensor:
        return keys.positions

    def scores(self, held: Held) -> Tensor:
        scores = self.q.transpose(0, 1) @ self.for_query_heads(held.k).transpose(1, 2) * self.scale
        if self.bias is not None:
            scores = scores + self.bias[:, :, self.bias_columns(held.places)]
        return scores.masked_fill(~self.visible(self.queries, held.places), -torch.inf)

    def weights(self, scores: Tensor, lse: Tensor) -> Tensor:
        return torch.exp(scores - finite(lse).unsqueeze(2))

    def attend(self, held: Held) -> Part:
        scores = self.scores(held)
        lse = scores.logsumexp(2)
        out = self.weights(scores, lse) @ self.for_query_heads(held.v)
        return Part(out.transpose(0, 1), lse, scores.amax((1, 2)))

    def total_lse(self, a: Tensor, b: Tensor) -> Tensor:
        top = torch.maximum(a, b)
        return top + torch.log(torch.exp(a - finite(top)) + torch.exp(b - finite(top)))

    def merge(self, sums: Part, part: Part) -> Part:
        lse = self.total_lse(sums.lse, part.lse)
        keep, add = torch.exp(sums.lse - finite(lse)), torch.exp(part.lse - finite(lse))
        out = sums.out * rowwise(keep) + part.out * rowwise(add)
        return Part(out, lse, torch.maximum(sums.top, part.top))

    def join_sink(self, sums: Part) -> Part:
        """The sink is a part whose out is 0."""
        sink = self.sink.unsqueeze(1).masked_fill(~self.queries_that_count(self.queries), -torch.inf)
        return Attention.merge(self, sums, Part(torch.zeros_like(sums.out), sink, sums.top))

    # --- Steps --------------------------------------------------------------------------------------------------------

    def owner(self, step: int) -> int:
        """The rank whose keys this rank has at a step of the ring."""
        return (self.rank - step) % self.size

    def held_at_steps(self) -> Iterator[Held]:
        if not self.in_ring:
            yield Held(0, self.k, self.v, self.keys)
            return
        k, v = self.k, self.v
        for step in range(self.size):
            yield Held(step, k, v, self.places(self.owner(step), "kv"))
            if step + 1 < self.size:
                k, v = exchange.around_ring([k, v], self.group)

    def rows_to_heads(self, rows: Tensor, side: str) -> Tensor:
        """The a2a: this rank's block of heads of all rows, in the order of the sequences."""
        return exchange.rows_to_heads(rows, self.group)[self.order(side)]

    def heads_to_rows(self, heads: Tensor, side: str) -> Tensor:
        return exchange.heads_to_rows(self.rows_of_whole(heads, side), self.group)

    def own_block(self, heads: Tensor) -> Tensor:
        """Of something with one value a head, that of this rank's heads."""
        return heads.chunk(self.size)[self.rank] if self.in_a2a else heads

    def take(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sink: Tensor) -> None:
        """Brings what this rank computes with: its own rows, with the keys of all, or all rows of its heads.
        bias: [heads or 1, rows, columns]."""
        self.q, self.k, self.v, self.bias, self.sink = q, k, v, bias, self.own_block(sink)
        self.queries, self.keys = self.places(self.rank, "q"), self.places(self.rank, "kv")
        if self.in_ring:
            return
        self.keys = self.whole_places("kv")
        if not self.in_a2a:
            self.k, self.v = (exchange.of_all_ranks(rows, self.group)[self.order("kv")] for rows in (k, v))
            return
        self.queries = self.whole_places("q")
        self.q = self.rows_to_heads(q, "q")
        self.k, self.v = self.rows_to_heads(k, "kv"), self.rows_to_heads(v, "kv")
        if bias is not None:
            rows = bias.transpose(0, 1)
            per_head = rows.shape[1] > 1
            rows = exchange.rows_to_heads(rows, self.group) if per_head else exchange.of_all_ranks(rows, self.group)
            self.bias = rows[self.order("q")].transpose(0, 1)

    def forward(self) -> Part:
        """Of this rank's rows and all heads."""
        sums: Part | None = None
        for held in self.held_at_steps():
            part = self.attend(held)
            self.own_parts.append(part)
            sums = part if sums is None else self.merge(sums, part)
        assert sums is not None
        if self.case.softmax != "vanilla":
            sums = self.join_sink(sums)
        self.sums = sums
        if not self.in_a2a:
            return sums
        lse = self.heads_to_rows(rowwise(sums.lse), "q").squeeze(2).t()
        return Part(self.heads_to_rows(sums.out, "q"), lse, sums.top)

    def max_logit(self, top: Tensor) -> Tensor:
        """top: of this rank's heads and queries."""
        heads = torch.full((self.case.heads,), -torch.inf)
        self.own_block(heads).copy_(top)
        return exchange.largest(heads, self.group)

    # --- Backward -----------------------------------------------------------------------------------------------------

    def lse_of_step(self, held: Held) -> Tensor:
        return self.sums.lse

    def out_of_step(self, held: Held) -> Tensor:
        return self.sums.out

    def step_gradients(self, held: Held, dout: Tensor) -> StepGradients:
        by_head = dout.transpose(0, 1)
        p = self.weights(self.scores(held), self.lse_of_step(held))
        delta = (dout * self.out_of_step(held)).sum(2).t().unsqueeze(2)
        dscores = p * (by_head @ self.for_query_heads(held.v).transpose(1, 2) - delta)
        dbias = None
        if self.bias is not None:
            dbias = dscores.sum(0, keepdim=True) if self.bias.shape[0] == 1 else dscores
        return StepGradients(
            (dscores @ self.for_query_heads(held.k) * self.scale).transpose(0, 1),
            self.for_kv_heads(dscores.transpose(1, 2) @ self.q.transpose(0, 1) * self.scale),
            self.for_kv_heads(p.transpose(1, 2) @ by_head),
            dbias,
        )

    def pass_gradients_on(self, dk: Tensor, dv: Tensor) -> tuple[Tensor, Tensor]:
        """In a ring the gradients of keys travel with them, and are home after the last step."""
        if self.in_ring:
            dk, dv = exchange.around_ring([dk, dv], self.group)
        return dk, dv

    def share_of_owner(self, whole: Tensor) -> Tensor:
        """All-gather: the gradient of this rank's keys, of what each rank has of all keys."""
        total = self.rows_of_whole(exchange.summed(whole, self.group), "kv")
        return total.chunk(self.size)[self.rank]

    def backward(self, dout: Tensor) -> StepGradients:
        """Of this rank's rows; dbias with all columns."""
        if self.in_a2a:
            dout = self.rows_to_heads(dout, "q")
        dq, dk, dv = torch.zeros_like(self.q), torch.zeros_like(self.k), torch.zeros_like(self.v)
        dbias = None if self.bias is None else torch.zeros_like(self.bias)
        for held in self.held_at_steps():
            step = self.step_gradients(held, dout)
            dq, dk, dv = dq + step.dq, dk + step.dk, dv + step.dv
            if dbias is not None and step.dbias is not None:
                dbias.index_add_(2, self.bias_columns(held.places), step.dbias)
            dk, dv = self.pass_gradients_on(dk, dv)
        if self.in_a2a:
            dq, dk, dv = (self.heads_to_rows(d, s) for d, s in ((dq, "q"), (dk, "kv"), (dv, "kv")))
            if dbias is not None:
                dbias = self.bias_rows_home(dbias.transpose(0, 1)).transpose(0, 1)
        elif not self.in_ring:
            dk, dv = self.share_of_owner(dk), self.share_of_owner(dv)
        return StepGradients(dq, dk, dv, dbias)

    def bias_rows_home(self, rows: Tensor) -> Tensor:
        """a2a: [rows of all ranks, heads or 1, columns] becomes that of this rank's rows and all heads."""
        if self.bias is not None and self.bias.shape[0] == 1 and self.case.bias in ("b1ss", "11ss"):
            return self.rows_of_whole(exchange.summed(rows, self.group), "q").chunk(self.size)[self.rank]
        return self.heads_to_rows(rows, "q")

    def sink_gradient(self, sink: Tensor, out: Tensor, lse: Tensor, dout: Tensor) -> Tensor:
        """Of this rank's rows and all heads, summed over the ranks."""
        delta = (dout * out).sum(2).t()
        weights = torch.exp(sink.unsqueeze(1) - finite(lse)).masked_fill(lse.isinf(), 0.0)
        return exchange.summed(-(weights * delta).sum(1), self.group)

    # --- What is given and returned, in the layout of the case --------------------------------------------------------

    def read(self, given: Tensor) -> Tensor:
        return given

    def finished(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        """out, lse and max_logit as they are returned."""
        return results

    def finished_gradients(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return gradients

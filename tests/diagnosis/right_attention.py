"""A correct context-parallel attention of one rank, forward and backward, written out in fp32 for p2p (a ring),
all_gather and a2a. Every fault of this folder replaces a method of this class or of its mask.

Inside, tensors are packed: [rows, heads, dim], sequence by sequence. Scores are [heads, rows, keys].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import exchange
import torch
from mask import Mask, Places
from torch import Tensor

from cp_pool.context import CaseView, Ctx


@dataclass(frozen=True)
class Held:
    """The keys and values that a rank holds at a ring step, and their places."""

    step: int
    k: Tensor
    v: Tensor
    places: Places


@dataclass(frozen=True)
class Part:
    """The attention over some of the keys. lse: [heads, rows]; top: the largest score of each head."""

    out: Tensor
    lse: Tensor
    top: Tensor


@dataclass(frozen=True)
class StepGradients:
    """The gradients that one ring step adds. dbias: [heads of the bias, rows, keys], or None."""

    dq: Tensor
    dk: Tensor
    dv: Tensor
    dbias: Tensor | None


def rowwise(of_heads: Tensor) -> Tensor:
    """[heads, rows] as [rows, heads, 1]."""
    return of_heads.t().unsqueeze(2)


def finite(lse: Tensor) -> Tensor:
    """lse with 0 in place of infinities, so that a row without keys subtracts 0."""
    return lse.masked_fill(lse.isinf(), 0.0)


class Attention(Mask):
    def __init__(self, case: CaseView, ctx: Ctx) -> None:
        super().__init__(case, ctx)
        self.scale = case.scale
        self.own_parts: list[Part] = []

    # --- One part -----------------------------------------------------------------------------------------------------

    def for_query_heads(self, of_kv_heads: Tensor) -> Tensor:
        """[keys, kv heads, dim] as [heads, keys, dim]: each KV head is repeated for its query heads."""
        return of_kv_heads.repeat_interleave(self.q.shape[1] // of_kv_heads.shape[1], 1).transpose(0, 1)

    def for_kv_heads(self, of_heads: Tensor) -> Tensor:
        """The inverse for gradients: sums over the query heads that read the same KV head."""
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
        """Merges the sink, which is a part whose out is 0 and whose lse is its logit."""
        sink = self.sink.unsqueeze(1).masked_fill(~self.queries_that_count(self.queries), -torch.inf)
        return Attention.merge(self, sums, Part(torch.zeros_like(sums.out), sink, sums.top))

    # --- Steps --------------------------------------------------------------------------------------------------------

    def owner(self, step: int) -> int:
        """The rank whose keys this rank holds at a ring step."""
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
        """The a2a: the rows of all ranks for this rank's block of heads, in the order of the sequences."""
        return exchange.rows_to_heads(rows, self.group)[self.order(side)]

    def heads_to_rows(self, heads: Tensor, side: str) -> Tensor:
        return exchange.heads_to_rows(self.rows_of_whole(heads, side), self.group)

    def own_block(self, heads: Tensor) -> Tensor:
        """From a tensor with one value per head, the values of the heads that this rank computes (a view)."""
        return heads.chunk(self.size)[self.rank] if self.in_a2a else heads

    def take(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sink: Tensor) -> None:
        """Takes the inputs and exchanges what this rank needs. p2p: nothing yet. all_gather: the keys of all ranks.
        a2a: all rows, of this rank's heads. bias: [heads or 1, rows, columns]."""
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
        """The results of this rank's rows, for all heads."""
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
        """The largest logit of each head over all ranks. top: of the heads and queries that this rank computes."""
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
        """In a ring the gradients of keys travel with the keys, and arrive at their owner after the last step."""
        if self.in_ring:
            dk, dv = exchange.around_ring([dk, dv], self.group)
        return dk, dv

    def share_of_owner(self, whole: Tensor) -> Tensor:
        """all_gather: sums the gradient of all keys over the ranks, and returns the share of this rank's keys."""
        total = self.rows_of_whole(exchange.summed(whole, self.group), "kv")
        return total.chunk(self.size)[self.rank]

    def backward(self, dout: Tensor) -> StepGradients:
        """The gradients of this rank's rows; dbias has all columns."""
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
        """a2a: the dbias [rows of all ranks, heads or 1, columns] becomes that of this rank's rows and all heads."""
        if self.bias is not None and self.bias.shape[0] == 1 and self.case.bias in ("b1ss", "11ss"):
            return self.rows_of_whole(exchange.summed(rows, self.group), "q").chunk(self.size)[self.rank]
        return self.heads_to_rows(rows, "q")

    def sink_gradient(self, sink: Tensor, out: Tensor, lse: Tensor, dout: Tensor) -> Tensor:
        """The gradient of the sink from this rank's rows and all heads, summed over the ranks."""
        delta = (dout * out).sum(2).t()
        weights = torch.exp(sink.unsqueeze(1) - finite(lse)).masked_fill(lse.isinf(), 0.0)
        return exchange.summed(-(weights * delta).sum(1), self.group)

    # --- Inputs and results in the layout of the case -----------------------------------------------------------------

    def read(self, given: Tensor) -> Tensor:
        return given

    def finished(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        """The results out, lse and max_logit before they are returned; faults change them here."""
        return results

    def finished_gradients(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return gradients

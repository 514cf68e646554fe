"""Faults that show on few cases: where padding, unequal lengths, heads, windows or sinks meet certain ranks. quick has
at least three cases that each of them fails (python/tests/test_wrong_adapter.py)."""

from __future__ import annotations

import exchange
import torch
from fault_list import FaultList
from mask import Places
from right_attention import Attention, Part, StepGradients
from torch import Tensor

FAULTS = FaultList()


@FAULTS.named("padding_keys_kept_in_ring")
class PaddingKeysKeptInRing(Attention):
    """Relies on a causal mask or a window to hide the padding that follows a sequence."""

    def keys_that_count(self, keys: Places) -> Tensor:
        masked = self.causal or self.left >= 0 or self.right >= 0 or self.chunk > 0
        return super().keys_that_count(keys) if masked or not self.in_ring else torch.ones_like(keys.valid)


@FAULTS.named("idle_rank_exchanges_nothing")
class IdleRankExchangesNothing(Attention):
    """A rank without a token returns at once, while the other ranks wait for it in an exchange."""

    def is_idle(self) -> bool:
        return not any(self.places(self.rank, side).valid.any() for side in ("q", "kv"))

    def take(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sink: Tensor) -> None:
        if self.is_idle():
            self.q, self.k, self.v = q, k, v
        else:
            super().take(q, k, v, bias, sink)

    def forward(self) -> Part:
        if not self.is_idle():
            return super().forward()
        rows, heads, _ = self.q.shape
        empty = self.q.new_full((heads, rows), -torch.inf)
        return Part(self.q.new_zeros(rows, heads, self.v.shape[2]), empty, empty.amax(1))

    def backward(self, dout: Tensor) -> StepGradients:
        if not self.is_idle():
            return super().backward(dout)
        return StepGradients(torch.zeros_like(self.q), torch.zeros_like(self.k), torch.zeros_like(self.v), None)


@FAULTS.named("diagonal_of_padded_lengths")
class DiagonalOfPaddedLengths(Attention):
    def diagonal(self, queries: Places) -> Tensor:
        shift = torch.tensor(self.padded_lengths("kv")) - torch.tensor(self.padded_lengths("q"))
        return (queries.positions + shift[queries.sequences]).unsqueeze(1)


@FAULTS.named("window_of_one_neighbour")
class WindowOfOneNeighbour(Attention):
    """A window reaches into the next part of the sequence on either side, as if no window were longer than a part."""

    def in_window(self, queries: Places, keys: Places) -> Tensor:
        seen = super().in_window(queries, keys)
        if self.left < 0 and self.right < 0:
            return seen
        part = (torch.tensor(self.padded_lengths("kv")) // self.size).clamp_min(1)
        of_query = self.diagonal(queries) // part[queries.sequences].unsqueeze(1)
        of_key = (keys.positions // part[keys.sequences]).unsqueeze(0)
        return seen & ((of_query - of_key).abs() <= 1)


@FAULTS.named("heads_lost_over_four_ranks")
class HeadsLostOverFourRanks(Attention):
    """Over four ranks, each KV head has the result of its first query head alone."""

    def finished(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.size == 4:
            share = self.case.heads // self.case.kv_heads
            first = torch.arange(self.case.heads) // share * share
            results["out"] = results["out"][..., first, :]
        return results


@FAULTS.named("bias_of_first_heads")
class BiasOfFirstHeads(Attention):
    """a2a: every rank adds the bias of the first block of heads."""

    def take(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, sink: Tensor) -> None:
        super().take(q, k, v, bias, sink)
        if self.in_a2a and bias is not None and bias.shape[0] > 1:
            of_first = bias.chunk(self.size)[0].transpose(0, 1)
            self.bias = exchange.of_all_ranks(of_first, self.group)[self.order("q")].transpose(0, 1)


@FAULTS.named("sink_of_every_rank")
class SinkOfEveryRank(Attention):
    """In a ring the sink joins at every step, and so as often as there are ranks."""

    def join_sink(self, sums: Part) -> Part:
        for _ in range(self.size if self.in_ring else 1):
            sums = super().join_sink(sums)
        return sums


_first: dict[tuple[str, str, torch.Size], Tensor] = {}


class KeepsAResult(Attention):
    """Returns one result of the first call in which that result had the same shape, over the same comm."""

    result: str

    def kept(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.result in results:
            key = (self.case.comm, self.result, results[self.result].shape)
            results[self.result] = _first.setdefault(key, results[self.result].clone())
        return results

    def finished(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.kept(results)

    def finished_gradients(self, gradients: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.kept(gradients)


for _result in ("lse", "max_logit", "dbias", "dsink"):
    FAULTS.named(f"{_result}_of_an_earlier_call")(type("KeepsAResult", (KeepsAResult,), {"result": _result}))

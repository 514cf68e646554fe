"""An adapter that is wrong on purpose: the variable CP_POOL_WRONG names a fault of forward_faults.py, step_faults.py,
backward_faults.py or rare_faults.py. Without the variable the adapter is right in every case that it declares.

    CP_POOL_WRONG=later_part_overwrites cp-pool run --adapter tests/diagnosis/wrong_adapter.py --matrix quick
"""

from __future__ import annotations

import os
from typing import Any

import backward_faults
import exchange
import forward_faults
import rare_faults
import step_faults
import torch
from right_attention import Attention
from torch import Tensor

from cp_pool import adapter, shard
from cp_pool.adapter import FEATURES
from cp_pool.context import CaseView, Ctx

FAULTS: dict[str, type[Attention]] = {
    **forward_faults.FAULTS,
    **step_faults.FAULTS,
    **backward_faults.FAULTS,
    **rare_faults.FAULTS,
}


def chosen() -> type[Attention]:
    # Called once, at import: cp-pool restores the environment before each case.
    name = os.environ.get("CP_POOL_WRONG", "")
    if name and name not in FAULTS:
        raise ValueError(f"CP_POOL_WRONG={name} is none of {', '.join(sorted(FAULTS))}")
    return FAULTS[name] if name else Attention


CHOSEN = chosen()


def packed(x: Tensor, layout: str) -> Tensor:
    """A tensor of the case as [rows, heads, dim] in fp32, sequence by sequence."""
    rows = x if layout == "thd" else (x.transpose(0, 1) if layout == "sbhd" else x).flatten(0, 1)
    return rows.float()


def unpacked(rows: Tensor, like: Tensor, layout: str) -> Tensor:
    """The inverse of packed: rows in the layout, the shape and the dtype of `like`."""
    rows = rows.to(like.dtype)
    if layout == "thd":
        return rows
    if layout == "bshd":
        return rows.reshape(*like.shape[:2], *rows.shape[1:])
    return rows.reshape(like.shape[1], like.shape[0], *rows.shape[1:]).transpose(0, 1)


def bias_row_of(attention: Attention, bias: Tensor) -> Tensor:
    """For each query row of this rank, the index of its bias row in the flattened [batch or 1, rows or 1]."""
    places = attention.places(attention.rank, "q")
    batch, _, rows, _ = bias.shape
    if rows == 1:
        row = torch.zeros_like(places.positions)
    elif attention.case.layout == "thd":  # a rank has the whole bias: the row is the position
        row = places.positions
    else:  # a rank has the bias rows of its own queries, sequence by sequence
        row = torch.arange(places.positions.numel()) % rows
    return row if batch == 1 else places.sequences * rows + row


def by_row(bias: Tensor) -> Tensor:
    """The bias as [batch x rows, heads, columns] in fp32."""
    return bias.float().transpose(1, 2).flatten(0, 1)


class Wrong:
    def forward(self, q: Tensor, k: Tensor, v: Tensor, case: CaseView, ctx: Ctx) -> dict[str, Any]:
        with q.device:  # tensors are made there unless another device is named
            return self.results(q, k, v, case, ctx)

    def results(self, q: Tensor, k: Tensor, v: Tensor, case: CaseView, ctx: Ctx) -> dict[str, Any]:
        attention = CHOSEN(case, ctx)
        rows_q, rows_k, rows_v = (packed(attention.read(x), case.layout) for x in (q, k, v))
        bias = None if ctx.bias is None else by_row(ctx.bias)[bias_row_of(attention, ctx.bias)].transpose(0, 1)
        sink = torch.zeros(case.heads) if ctx.sink is None else ctx.sink
        attention.take(rows_q, rows_k, rows_v, bias, sink)
        part = attention.forward()
        results = {"out": unpacked(part.out, q, case.layout), "lse": part.lse.contiguous()}
        if case.max_logit:
            results["max_logit"] = attention.max_logit(part.top)
        kept = {"attention": attention, "part": part, "sink": sink, "given": (q, k, v)}
        return {**attention.finished(results), **kept}

    def backward(self, dout: Tensor, saved: dict[str, Any], case: CaseView, ctx: Ctx) -> dict[str, Tensor]:
        with dout.device:
            return self.gradients(dout, saved, case, ctx)

    def gradients(self, dout: Tensor, saved: dict[str, Any], case: CaseView, ctx: Ctx) -> dict[str, Tensor]:
        attention: Attention = saved["attention"]
        rows = packed(attention.read(dout), case.layout)
        step = attention.backward(rows)
        q, k, v = saved["given"]
        gradients = {
            "dq": unpacked(step.dq, q, case.layout),
            "dk": unpacked(step.dk, k, case.layout),
            "dv": unpacked(step.dv, v, case.layout),
        }
        if ctx.bias is not None and case.bias != "111s" and step.dbias is not None:
            total = torch.zeros_like(by_row(ctx.bias))
            total.index_add_(0, bias_row_of(attention, ctx.bias), step.dbias.transpose(0, 1))
            if case.layout == "thd":
                total = exchange.summed(total, ctx.group)
            batch, heads, rows_of_bias, columns = ctx.bias.shape
            dbias = total.view(batch, rows_of_bias, heads, columns).transpose(1, 2)
            gradients["dbias"] = dbias.to(ctx.bias.dtype)
        if case.softmax == "learnable":
            gradients["dsink"] = attention.sink_gradient(saved["sink"], saved["part"].out, saved["part"].lse, rows)
        return attention.finished_gradients(gradients)


wrong = adapter(
    comm=["p2p", "all_gather", "a2a"],
    shard=shard.dual_chunk,
    # It uses the default process group, and cuts every token over the ranks.
    features=[
        name
        for name in FEATURES
        if name not in ("all_queries", "group", "mask", "replicated", "softcap", "uneven_heads")
    ],
    padding_results=True,
    name="wrong",
)(Wrong)

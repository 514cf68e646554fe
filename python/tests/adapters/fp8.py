"""Attention in FP8 on any device, as kernels compute it: products of FP8 numbers in fp32. K and V are gathered as FP8
numbers with one scale for all ranks. And variants that are wrong."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from plain import gathered, packed, unpacked, visible

from cp_pool import adapter, shard
from cp_pool.context import CaseView, Ctx

FEATURES = ["fp8", "causal", "window", "chunk", "gqa", "mla", "unequal", "off_by_one", "learnable", "mask"]
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def in_fp8(x: torch.Tensor, kind: torch.dtype, scale: float, case: CaseView) -> torch.Tensor:
    """The scaled FP8 numbers, in fp32; without FP8 the scaled numbers."""
    largest = torch.finfo(kind).max
    scaled = x.float() * scale
    return scaled if case.fp8 is None else scaled.clamp(-largest, largest).to(kind).float()


class Fp8Attention:
    """wrong: what is wrong about it."""

    def __init__(self, wrong: str = "") -> None:
        self.wrong = wrong
        self.first_scale: dict[str, float] = {}

    def scaled(self, name: str, x: torch.Tensor, case: CaseView, ctx: Ctx, kind: torch.dtype = E4M3) -> tuple[Any, ...]:
        """The FP8 numbers, their scale, and the largest magnitude that it was made from."""
        amax = x.abs().amax().float() if x.numel() else torch.zeros((), device=x.device)
        if self.wrong != "scale_of_each_rank":
            dist.all_reduce(amax, dist.ReduceOp.MAX, group=ctx.group)
        largest = float(amax)
        current = case.fp8 is not None and case.fp8["scaling"] == "current" and largest > 0
        scale = torch.finfo(kind).max / largest if current else 1.0
        if self.wrong == "scale_of_the_first_case":
            scale = self.first_scale.setdefault(f"{name} of {list(x.shape)}", scale)
        return in_fp8(x, kind, scale, case), scale, largest

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, Any]:
        group, share = ctx.group, case.heads // case.kv_heads
        numbers = {name: self.scaled(name, x, case, ctx) for name, x in (("q", q), ("k", k), ("v", v))}
        rows = {name: packed(one, case.layout) / scale for name, (one, scale, _) in numbers.items()}
        seen = visible(case, ctx, gathered(ctx.positions_kv, group), gathered(ctx.sequences_kv, group))
        heads = {name: rows[name] if name == "q" else gathered(rows[name], group) for name in rows}
        queries, keys, values = (
            (heads[name].repeat_interleave(1 if name == "q" else share, 1)).transpose(0, 1) for name in ("q", "k", "v")
        )
        scores = (queries @ keys.transpose(1, 2) * case.scale).masked_fill(~seen, -torch.inf)
        top = scores.amax(2, keepdim=True) if scores.shape[2] else scores.new_zeros(*scores.shape[:2], 1)
        top = top.masked_fill(top == -torch.inf, 0.0)
        weights = torch.exp(scores - top)
        total = weights.sum(2, keepdim=True)
        if case.softmax != "vanilla":
            sink = torch.zeros(case.heads, device=q.device) if ctx.sink is None else ctx.sink.detach()
            total = total + torch.exp(sink.view(-1, 1, 1) - top)
        factor = 2.0**-6 if self.wrong == "weights_underflow" else 256.0
        out = (in_fp8(weights, E4M3, factor, case) / factor) @ values / total.masked_fill(total == 0, 1.0)
        lse = (top + total.log()).squeeze(2).masked_fill((ctx.positions_q < 0).unsqueeze(0), -torch.inf)
        out = unpacked(out.transpose(0, 1).to(q.dtype), q, case.layout)
        if case.fp8 is not None and case.fp8["output"] == "fp8":
            one, scale, _ = self.scaled("out", out, case, ctx)
            out = (one / scale).to(q.dtype)
        amax, scale = ({name: given[i] for name, given in numbers.items()} for i in (2, 1))
        saved = {"dense": (queries, keys, values, scores), "inputs": {"dq": q, "dk": k, "dv": v}}
        return {"out": out, "lse": lse, "amax": amax, "scale": scale, **saved}

    def backward(self, dout: torch.Tensor, saved: dict[str, Any], case: CaseView, ctx: Ctx) -> dict[str, Any]:
        queries, keys, values, scores = saved["dense"]
        lse = saved["lse"]
        in_backward = case.fp8 is not None and case.fp8["backward"]
        found, scale, amax = self.scaled("dout", dout, case, ctx, E5M2) if in_backward else (dout.float(), 1.0, 0.0)
        gradient = (packed(found, case.layout) / scale).transpose(0, 1)
        p = torch.exp(scores - lse.unsqueeze(2)).nan_to_num(0.0)
        delta = (gradient * packed(saved["out"], case.layout).float().transpose(0, 1)).sum(2, keepdim=True)
        ds = p * (gradient @ values.transpose(1, 2) - delta)
        if in_backward:
            p = in_fp8(p, E4M3, 256.0, case) / 256.0
            of_ds = torch.finfo(E5M2).max / float(ds.abs().sum().clamp_min(1e-30))  # which is above the largest
            if self.wrong == "score_gradients_underflow":
                of_ds = 2.0**-14
            ds = in_fp8(ds, E5M2, of_ds, case) / of_ds
        results = {"dq": ds @ keys * case.scale}
        dk, dv = ds.transpose(1, 2) @ queries * case.scale, p.transpose(1, 2) @ gradient
        for name, all_heads in (("dk", dk), ("dv", dv)):
            whole = all_heads.unflatten(0, (case.kv_heads, -1)).sum(1).transpose(0, 1).contiguous()
            dist.all_reduce(whole, group=ctx.group)
            count = whole.shape[0] // ctx.world_size
            results[name] = whole[ctx.rank * count : (ctx.rank + 1) * count].transpose(0, 1)
        answer: dict[str, Any] = {}
        for name, like in saved["inputs"].items():
            one = unpacked(results[name].transpose(0, 1), like, case.layout).to(dout.dtype)
            if in_backward and case.fp8["output"] == "fp8":
                numbers, scale_of_one, _ = self.scaled(name, one, case, ctx, E5M2)
                one = (numbers / scale_of_one).to(dout.dtype)
            answer[name] = one
        if case.softmax == "learnable":
            assert ctx.sink is not None
            of_rows = torch.exp(ctx.sink.view(-1, 1, 1) - lse.unsqueeze(2)).masked_fill(lse.isinf().unsqueeze(2), 0.0)
            answer["dsink"] = -(of_rows * delta).sum((1, 2))
            dist.all_reduce(answer["dsink"], group=ctx.group)
        return {**answer, "amax": {"dout": amax}, "scale": {"dout": scale}} if in_backward else answer


def declared(wrong: str = "") -> Any:
    options: dict[str, Any] = {"shard": shard.contiguous, "features": FEATURES, "padding": "zeros"}
    return adapter(layouts=["thd", "bshd"], name=wrong or "fp8", **options)(Fp8Attention(wrong))


fp8 = declared()
scale_of_each_rank = declared("scale_of_each_rank")
scale_of_the_first_case = declared("scale_of_the_first_case")
weights_underflow = declared("weights_underflow")
score_gradients_underflow = declared("score_gradients_underflow")

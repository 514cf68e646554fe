"""One step of an adapter: its forward, its backward, and the checks of what they return."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from cp_pool.context import CaseView, Ctx
from cp_pool.errors import Failure
from cp_pool.replicated import bias_rows, in_turns, key_rows, places, query_rows

if TYPE_CHECKING:
    from cp_pool.runner import Runner

__all__ = ["Step", "copy_of"]

# Results that tell how FP8 numbers were scaled, each a dict with some of these tensors.
_SCALES = ("amax", "scale")
_SCALED = ("q", "k", "v", "dout")


class Step:
    """One step: the adapter's forward, and its backward."""

    def __init__(self, runner: Runner, case: CaseView, ctx: Ctx, inputs: dict[str, torch.Tensor | None]) -> None:
        self._runner, self._case, self._ctx = runner, case, ctx
        adapter = runner.adapter
        self._trains = case.training
        self._leaves = adapter.is_function and self._trains
        # Copies: an adapter may write into its inputs, and the next step reads the originals again.
        self._q = self._copy(inputs["q"])
        self._k = self._copy(inputs["k"])
        self._v = self._copy(inputs["v"])
        self._bias = self._copy(inputs["bias"], leaf=case.bias != "111s")
        self._sink = self._copy(inputs["sink"])
        self._dout = None if inputs["dout"] is None else copy_of(inputs["dout"])
        if self._dout is not None and case.replicated_queries and not adapter.sums_replicated:
            # The loss counts each row once. For an adapter that does not sum the ranks' parts of gradients, each
            # replicated query has a dout on only one rank.
            others = in_turns(query_rows(case, ctx), ctx.rank, ctx.world_size)
            self._dout[places(others, self._dout, case.layout)] = 0
        ctx.bias, ctx.sink = self._bias, self._sink
        self._out: torch.Tensor | None = None
        self._scales = torch.full((len(_SCALES), len(_SCALED)), torch.nan) if case.fp8 is not None else None
        self._saved: Any = None

    def _copy(self, tensor: torch.Tensor | None, leaf: bool = True) -> Any:
        if tensor is None:
            return None
        copied = copy_of(tensor)
        return copied.requires_grad_() if self._leaves and leaf else copied

    def forward(self) -> tuple[Any, Any, Any, Any, Any]:
        """Runs the forward. Returns out, lse, max_logit, part_lse and the scales of FP8; each of the last four is None
        if the adapter does not return it."""
        runner = self._runner
        target = runner.adapter.target
        function = target if runner.adapter.is_function else target.forward
        with torch.set_grad_enabled(self._trains), runner.delays("forward"):
            given = runner.call(function, self._q, self._k, self._v, self._case, self._ctx)
        name = runner.adapter.name
        if given is None:
            raise Failure("exception", f"{name} returned None: it has to return out, or dict(out=out)")
        if not isinstance(given, dict):
            given = {"out": given}
        if "out" not in given:
            keys = ", ".join(map(str, given)) or "nothing"
            raise Failure("exception", f"{name} returned a dict without 'out': it has {keys}")
        self._saved = given
        self._out = given["out"]
        out = self._result("out", given["out"])
        lse, part_lse = (self._result(key, given.get(key), missing=True) for key in ("lse", "part_lse"))
        max_logit = self._result("max_logit", given.get("max_logit"), missing=True) if self._case.max_logit else None
        max_logit = None if max_logit is None else max_logit.reshape(-1)
        return out, self._by_head(lse), max_logit, self._by_head(part_lse), self._scales_with(given)

    def backward(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """Runs the backward. Returns dq, dk, dv, dbias, dsink and the scales of FP8; the last three are None if the
        case does not have them."""
        with self._runner.delays("backward"):
            gradients = self._autograd() if self._leaves else self._own_backward()
        if not self._runner.adapter.sums_replicated:
            self._runner.call(self._sum_replicated, gradients)
        return (
            self._result("dq", gradients["dq"]),
            self._result("dk", gradients["dk"]),
            self._result("dv", gradients["dv"]),
            self._result("dbias", gradients.get("dbias"), missing=True),
            self._result("dsink", gradients.get("dsink"), missing=True),
            self._scales_with(gradients),
        )

    def _scales_with(self, given: dict[str, Any]) -> torch.Tensor | None:
        """The scales of FP8 so far, as Results::fp8_scales has them, with those that the adapter has returned now."""
        if self._scales is None:
            return None
        for row, key in enumerate(_SCALES):
            told = given.get(key, {})
            if not isinstance(told, dict) or not told.keys() <= set(_SCALED):
                raise Failure("exception", f"{key} is {told!r}: it has to be a dict of {', '.join(_SCALED)}")
            for name, value in told.items():
                self._scales[row, _SCALED.index(name)] = float(value)
        return self._scales

    def _autograd(self) -> dict[str, Any]:
        out = self._out
        assert out is not None
        leaves = {"dq": self._q, "dk": self._k, "dv": self._v}
        if self._bias is not None and self._bias.requires_grad:
            leaves["dbias"] = self._bias
        if self._sink is not None:
            leaves["dsink"] = self._sink
        if not out.requires_grad:
            name = self._runner.adapter.name
            raise Failure(
                "exception",
                f"out of {name} has no gradient: was it detached, or computed under torch.no_grad()?"
                " An adapter without a backward declares backward=False",
            )
        if self._dout is None or out.shape != self._dout.shape:
            wanted = None if self._dout is None else list(self._dout.shape)
            raise Failure(
                "exception",
                f"out has the shape {list(out.shape)}, and its gradient {wanted}: "
                "out has to have the shape of this rank's queries with the dimension of v",
            )
        dout = self._dout if out.dtype == self._dout.dtype else self._dout.to(out.dtype)
        found = self._runner.call(_gradients, out, list(leaves.values()), dout)
        gradients: dict[str, Any] = {}
        for (name, leaf), gradient in zip(leaves.items(), found, strict=True):
            if gradient is None and leaf.numel() > 0:
                print(f"cp-pool: autograd finds no way from out to {name[1:]}: {name} is taken as 0", file=sys.stderr)
            gradients[name] = torch.zeros_like(leaf) if gradient is None else gradient
        return gradients

    def _own_backward(self) -> dict[str, Any]:
        adapter = self._runner.adapter
        given = self._runner.call(adapter.target.backward, self._dout, self._saved, self._case, self._ctx)
        if isinstance(given, (tuple, list)) and len(given) == 3:
            given = dict(zip(("dq", "dk", "dv"), given, strict=True))
        if not isinstance(given, dict) or not {"dq", "dk", "dv"} <= given.keys():
            what = type(given).__name__ if not isinstance(given, dict) else f"a dict with {', '.join(map(str, given))}"
            raise Failure(
                "exception", f"backward of {adapter.name} returned {what}: it has to return dict(dq=, dk=, dv=)"
            )
        return given

    def _sum_replicated(self, gradients: dict[str, Any]) -> None:
        """Sums the gradients of inputs that all ranks share, of which each rank has computed a part: whole tensors
        (dbias in thd, dsink), or replicated rows."""
        for name in ("dbias", "dsink"):
            part = gradients.get(name)
            if part is None or (name == "dbias" and self._case.layout != "thd"):
                continue
            gradients[name] = self._summed(part)
        if self._case.replicated_queries:
            self._sum_replicated_rows(gradients)

    def _sum_replicated_rows(self, gradients: dict[str, Any]) -> None:
        case, ctx = self._case, self._ctx
        queries, keys = query_rows(case, ctx), key_rows(case, ctx)
        for name, like, rows in (("dq", self._q, queries), ("dk", self._k, keys), ("dv", self._v, keys)):
            whole = self._result(name, gradients[name])
            if whole.shape != like.shape:
                wanted = f"{list(whole.shape)}, and {name[1:]} {list(like.shape)}"
                raise Failure("exception", f"{name} has the shape {wanted}")
            place = places(rows, whole, case.layout)
            whole[place] = self._summed(whole[place])
            gradients[name] = whole
        dbias = gradients.get("dbias")
        if dbias is None or case.layout == "thd" or case.bias == "111s":
            return
        whole = self._result("dbias", dbias)
        rows = bias_rows(case, ctx)
        whole[:, :, rows] = self._summed(whole[:, :, rows])
        gradients["dbias"] = whole

    def _summed(self, part: torch.Tensor) -> torch.Tensor:
        total = part.detach().to(torch.float32, copy=True).contiguous()
        dist.all_reduce(total, group=self._ctx.group)
        return total.to(part.dtype)

    def _result(self, name: str, value: Any, missing: bool = False) -> Any:
        """Checks a result and returns a copy, since the adapter may write into it in its next step."""
        if value is None and missing:
            return None
        if not isinstance(value, torch.Tensor):
            raise Failure("exception", f"{name} is {_described(value)}, and has to be a tensor")
        if value.layout != torch.strided:
            raise Failure("exception", f"{name} is a {value.layout} tensor, and has to be a dense one")
        device = self._ctx.device
        if value.device.type != device.type or (value.device.index or 0) != (device.index or 0):
            raise Failure("exception", f"{name} is on the device {value.device}, and has to be on {device}")
        return value.detach().clone(memory_format=torch.contiguous_format)

    def _by_head(self, lse: torch.Tensor | None) -> torch.Tensor | None:
        """Converts an lse to [heads, rows in packed order]. It may also be [batch, heads, s], and either may have a
        last dimension of 1."""
        if lse is None:
            return None
        if lse.dim() > 2 and lse.shape[-1] == 1 and self._q.numel() > 0 and lse.numel() != lse.shape[0]:
            lse = lse.squeeze(-1)
        if lse.dim() != 3:
            return lse
        return lse.transpose(0, 1).reshape(lse.shape[1], -1)


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides. A slice of a larger tensor becomes a slice of a copy of the larger tensor."""
    tensor = tensor.detach()
    if tensor.is_contiguous():
        return tensor.clone()
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    whole = tensor.as_strided((elements,), (1,), 0).clone()
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _gradients(out: torch.Tensor, leaves: list[torch.Tensor], dout: torch.Tensor) -> Any:
    return torch.autograd.grad(out, leaves, dout, allow_unused=True)


def _described(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"

"""An adapter with the fault that the model of a case names: FAULT.RANK, or FAULT for all ranks. Otherwise it computes
like plain.py."""

from __future__ import annotations

import collections
import ctypes
import itertools
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from plain import attention  # type: ignore[import-not-found,unused-ignore]

from cp_pool import Skip, adapter, shard
from cp_pool.adapter import FEATURES
from cp_pool.context import CaseView, Ctx
from cp_pool.errors import Failure

Results = Any


class _RaisesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        raise ValueError("no gradient today")


_old: dict[torch.Size, torch.Tensor] = {}
_gradients = itertools.count()


class _OldGradient(torch.autograd.Function):
    """The identity. Its gradient is that of the call before, if it had the same shape."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        old = _old.get(gradients[0].shape, gradients[0])
        _old[gradients[0].shape] = gradients[0]
        return old


class _LargerNowAndThen(torch.autograd.Function):
    """The identity. Every second gradient is half as large again."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * (1.5 if next(_gradients) % 2 else 1)


def helper_that_throws() -> None:
    raise ValueError("the ring is broken")


def raises_odd_text() -> None:
    raise ValueError("no file \udcff\0.bin")


def sleeps() -> None:
    time.sleep(1000)


def spins() -> None:
    while True:
        pass


def waits_for_a_peer(ctx: Ctx) -> None:
    dist.all_reduce(torch.ones(4), group=ctx.group)


def leaves_a_child() -> None:
    if os.fork() == 0:
        time.sleep(1000)
        os._exit(0)


def in_a_child() -> bool:
    """Forks. Returns True in the child; the parent waits for the child's end and then gets False."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return child == 0


def stubborn() -> None:
    """Catches the first exception, whatever it is, and goes on sleeping."""
    try:
        sleeps()
    except BaseException:
        sleeps()


def prints() -> None:
    print("from Python")
    ctypes.CDLL(None).puts(b"from C")
    ctypes.CDLL(None).fflush(None)


def holds_the_gil() -> None:
    collections.deque(itertools.repeat(0), maxlen=0)


def catches_and_wraps(ctx: Ctx) -> None:
    try:
        waits_for_a_peer(ctx)
    except RuntimeError as error:
        raise ValueError("the ring of this rank failed") from error


def changes_all_state() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.backends.cuda.enable_math_sdp(False)
    random.seed(9)
    np.random.seed(9)
    torch.manual_seed(9)
    os.environ["CP_POOL_TEST_LEFT_BEHIND"] = "1"
    os.environ["LANG"] = "changed"
    os.environ.pop("PATH", None)
    ctypes.CDLL(None).setenv(b"CP_POOL_TEST_SET_IN_C", b"1", 1)  # os.environ does not have it
    os.chdir("/")
    warnings.simplefilter("error")
    sys.setrecursionlimit(12345)


def state() -> str:
    """The state that a case can see and that other cases may have changed."""
    seen = {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "math_sdp": torch.backends.cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
        "draws": (random.random(), float(np.random.rand()), torch.rand(1).item()),
        "environment": {name: os.environ.get(name) for name in ("CP_POOL_TEST_LEFT_BEHIND", "LANG", "PATH")},
        "C environment": [
            ctypes.CDLL(None).getenv(name) for name in (b"CP_POOL_TEST_LEFT_BEHIND", b"CP_POOL_TEST_SET_IN_C")
        ],
        "folder": os.getcwd(),
        "filters": len(warnings.filters),
        "recursion": sys.getrecursionlimit(),
    }
    return repr(seen)


BEFORE: dict[str, Callable[[Ctx], Any]] = {
    "throw": lambda ctx: helper_that_throws(),
    "odd_text": lambda ctx: raises_odd_text(),
    "sleep": lambda ctx: sleeps(),
    "spin": lambda ctx: spins(),
    "stubborn": lambda ctx: stubborn(),
    "hold_gil": lambda ctx: holds_the_gil(),
    "wait": waits_for_a_peer,
    "wraps": catches_and_wraps,
    "segv": lambda ctx: ctypes.string_at(0),
    "os_exit": lambda ctx: os._exit(3),
    "fork": lambda ctx: leaves_a_child(),
    "print": lambda ctx: prints(),
    "sys_exit": lambda ctx: sys.exit(3),
    "interrupt": lambda ctx: (_ for _ in ()).throw(KeyboardInterrupt()),
    "memory": lambda ctx: bytearray(1 << 62),
    "skip": lambda ctx: (_ for _ in ()).throw(Skip("this case is not for me")),
    "odd_kind": lambda ctx: (_ for _ in ()).throw(Failure("odd", "no kind")),  # type: ignore[arg-type]
    "mismatch": lambda ctx: helper_that_throws() if ctx.rank == 0 else catches_and_wraps(ctx),
    "cpp": lambda ctx: torch.ones(2) @ torch.ones(3),
    "change_state": lambda ctx: changes_all_state(),
}

STEPS_OF_A_CASE = 3  # the step, its repetition, and the mask probe

_kept: dict[torch.Size, torch.Tensor] = {}
_steps: collections.Counter[str] = collections.Counter()  # number of steps, by case


def in_the_same_buffer(out: torch.Tensor) -> torch.Tensor:
    """The result in the same memory as every earlier result of that shape."""
    buffer = _kept.setdefault(out.shape, torch.empty_like(out))
    return buffer.detach_().copy_(out)


AFTER: dict[str, Callable[[Results], Any]] = {
    "none": lambda results: None,
    "list": lambda results: [results["out"]],
    "empty_dict": lambda results: {},
    "shape": lambda results: results["out"][:, :-1],
    "dtype": lambda results: results["out"].double(),
    "meta": lambda results: results["out"].to("meta"),
    "no_grad": lambda results: results["out"].detach(),
    "strided": lambda results: results["out"].transpose(0, 2).contiguous().transpose(0, 2),
    "out_only": lambda results: results["out"],
    "lse_bhs": lambda results: {"out": results["out"], "lse": results["lse"].unsqueeze(0)},
    "backward": lambda results: _RaisesInBackward.apply(results["out"]),  # type: ignore[no-untyped-call]
    "buffer": lambda results: {"out": in_the_same_buffer(results["out"]), "lse": in_the_same_buffer(results["lse"])},
    "wrong": lambda results: results["out"] * 1.5,
    "sign": lambda results: results["out"] * torch.where(results["out"] > 0, 1 + 2**-23, 1),
}


def fault_of(case: CaseView) -> tuple[str, str]:
    """The name and the rank of the fault. `then_FAULT` is a wrong answer in the steps of the case itself, and FAULT in
    the later steps of its diagnosis."""
    fault, _, rank = case.model.partition(".")
    if not fault.startswith("then_"):
        return fault, rank
    _steps[case.id] += 1
    return ("wrong", "") if _steps[case.id] <= STEPS_OF_A_CASE else (fault.removeprefix("then_"), rank)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    fault, rank = fault_of(case)
    here = not rank or int(rank) == ctx.rank
    if fault == "state":
        raise Skip(state())
    if fault == "fork_returns" and here and in_a_child():
        return None
    if fault == "leaves" and here:
        return {"out": q * 1}
    if here and fault in BEFORE:
        BEFORE[fault](ctx)
    if here and fault == "old_dk":
        k = _OldGradient.apply(k)  # type: ignore[no-untyped-call]
    if here and fault == "second_dq":
        q = _LargerNowAndThen.apply(q)  # type: ignore[no-untyped-call]
    with torch.enable_grad() if case.training else torch.no_grad():
        if fault == "change_state":
            torch.set_default_dtype(torch.float32)
            torch.set_default_device(None)
        results = attention(q, k, v, case, ctx)
    if fault == "writes":
        with torch.no_grad():
            k.zero_()
            v.zero_()
    return AFTER[fault](results) if here and fault in AFTER else results


@adapter(shard=shard.dual_chunk, features=list(FEATURES))
def faulty(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return run(q, k, v, case, ctx)


@adapter(shard=shard.dual_chunk, features=list(FEATURES), survives_abort=True)
def surviving(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return run(q, k, v, case, ctx)


@adapter(shard=shard.dual_chunk, features=list(FEATURES), survives_abort=True, repeats_bits=False)
def restless(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return run(q, k, v, case, ctx)


@adapter(shard=shard.dual_chunk, features=list(FEATURES), survives_abort=True, odd=False)
def uneven(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
    return run(q, k, v, case, ctx)


@adapter(shard=shard.dual_chunk, features=["causal"], layouts=["bshd"])
class Null:
    """Computes nothing, so that only cp-pool's own time remains."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> Results:
        return {"out": q}

    def backward(self, dout: torch.Tensor, saved: Results, case: CaseView, ctx: Ctx) -> Results:
        return {"dq": dout, "dk": dout, "dv": dout}

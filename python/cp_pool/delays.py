"""Delays of an adapter's work at random places. A result that a left-out wait makes depend on timing becomes wrong; any
other stays as it is."""

from __future__ import annotations

import functools
import random
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Delays"]

# Of other operations than collectives, this share is delayed.
_SHARE = 1 / 8
# The clock of current GPUs is at most 2 GHz; the kernel counts its cycles.
_CYCLES_PER_MS = 2_000_000
# The operators of torch.distributed, with and without torch.compile.
_COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")


class Delays(TorchDispatchMode):
    """While it is entered, it delays operations of torch, collectives among them, and what follows a change of stream.

    On a GPU a kernel that waits goes onto the current stream. On a CPU, which has no streams, the thread sleeps before
    collectives only. The places and times follow from the seed, the rank, and what `begin` is given.
    """

    def __init__(self, seed: int, max_ms: float, rank: int, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed, self._max_ms = seed, max_ms
        self._rank, self._on_gpu = rank, device.type == "cuda"
        self._random = random.Random()
        self._entered = 0
        if self._on_gpu:
            # Both ways to change the stream go through this function, also in the threads of autograd.
            torch.cuda.set_stream = self._delaying(torch.cuda.set_stream)

    def begin(self, *step: Any) -> Delays:
        """To be called before each use. The same step of a rank is delayed in the same way in every run."""
        self._random.seed(f"{self._seed}/{self._rank}/{step}")
        return self

    def __enter__(self) -> Any:
        self._entered += 1
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._entered -= 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in _COLLECTIVES or (self._on_gpu and self._random.random() < _SHARE):
            self._delay()
        return func(*args, **(kwargs or {}))

    def _delaying(self, set_stream: Any) -> Any:
        @functools.wraps(set_stream)
        def delaying(stream: Any) -> None:
            set_stream(stream)
            if self._entered and stream is not None:
                self._delay()

        return delaying

    def _delay(self) -> None:
        ms = self._random.uniform(0, self._max_ms)
        if self._on_gpu:
            torch.cuda._sleep(int(ms * _CYCLES_PER_MS))  # type: ignore[no-untyped-call]
        else:
            time.sleep(ms / 1000)

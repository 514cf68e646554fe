"""Restores the state of the interpreter and of its libraries before each case."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["State"]

_SEED = 1234


def _flags() -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """The global switches of torch, as pairs of functions that read and set them. The extension restores those of ATen:
    seeds of devices, deterministic and TF32 flags."""
    return [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
        (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
        (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
        (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
        (lambda: torch.is_autocast_enabled("cpu"), lambda value: torch.set_autocast_enabled("cpu", value)),
        (lambda: torch.is_autocast_enabled("cuda"), lambda value: torch.set_autocast_enabled("cuda", value)),
        (lambda: torch.get_autocast_dtype("cpu"), lambda value: torch.set_autocast_dtype("cpu", value)),
        (lambda: torch.get_autocast_dtype("cuda"), lambda value: torch.set_autocast_dtype("cuda", value)),
        (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.get_num_threads, torch.set_num_threads),
        (gc.isenabled, lambda value: gc.enable() if value else gc.disable()),
        (lambda: signal.getsignal(signal.SIGALRM), lambda value: signal.signal(signal.SIGALRM, value)),
        (lambda: signal.getitimer(signal.ITIMER_REAL)[0], lambda _: signal.setitimer(signal.ITIMER_REAL, 0)),
    ]


class State:
    """A snapshot of the state, taken when a rank is ready for its first case."""

    def __init__(self, resets_dynamo: bool) -> None:
        self._resets_dynamo = resets_dynamo
        self._environment = dict(os.environb)
        self._folder = os.getcwd()
        self._filters = list(warnings.filters)
        self._streams = (sys.stdout, sys.stderr, sys.stdin)
        self._hooks = (sys.excepthook, sys.unraisablehook, sys.displayhook)
        self._limit = sys.getrecursionlimit()
        self._path = list(sys.path)
        self._flags = [(read, put, read()) for read, put in _flags()]

    def put_back(self) -> None:
        random.seed(_SEED)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(_SEED)
        self._put_back_environment()
        for read, put, value in self._flags:
            if read() != value:
                put(value)
        torch.set_default_device(None)
        if self._resets_dynamo and "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()

    def _put_back_environment(self) -> None:
        """Restores os.environ, working directory, warnings, streams, hooks and sys.path. The extension restores the
        environment only in C, which os.environ does not see."""
        # Its dictionary is compared if it has one, since os.environb itself decodes every variable.
        if getattr(os.environb, "_data", os.environb) != self._environment:
            for name in [name for name in os.environb if name not in self._environment]:
                del os.environb[name]
            for name, value in self._environment.items():
                if os.environb.get(name) != value:
                    os.environb[name] = value
        try:
            moved = os.getcwd() != self._folder
        except FileNotFoundError:  # the folder was removed
            moved = True
        if moved:
            os.chdir(self._folder)
        if warnings.filters != self._filters:
            warnings.filters[:] = self._filters  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]
        sys.stdout, sys.stderr, sys.stdin = self._streams
        sys.excepthook, sys.unraisablehook, sys.displayhook = self._hooks
        if sys.getrecursionlimit() != self._limit:
            sys.setrecursionlimit(self._limit)
        if sys.path != self._path:
            sys.path[:] = self._path

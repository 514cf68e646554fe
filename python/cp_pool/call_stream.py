"""Submits calls to warm ranks, many at a time, by driving the cp-pool program (docs/functions.md)."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from cp_pool.driver_process import DriverProcess
from cp_pool.programs import environment_for, find_binary
from cp_pool.result import CaseRefused, PoolError, Result

__all__ = ["CallStream", "PooledFunction", "failure_text"]

_MOST_AT_ONCE = 100_000  # calls that cp-pool knows of; it runs as many as there are slots


class CallStream:
    """One cp-pool that runs calls, in the order of their coming as far as slots and warm ranks allow.

    device: auto, cpu or cuda. python: the interpreter of the ranks. env: variables of the ranks. arguments: further
    arguments of `cp-pool submit`."""

    def __init__(
        self,
        *,
        device: str = "auto",
        python: str | None = None,
        env: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """Starts cp-pool. Raises PoolError if it cannot be found or started."""
        binary = find_binary()
        words = [binary, "submit", "--json", "-", "--jobs", str(_MOST_AT_ONCE), "--adapter", "cp_pool.calls:ranks"]
        words += ["--python", python or sys.executable, "--device", device, *arguments]
        self._process = DriverProcess(words, environment_for(binary, {**os.environ, **(env or {})}))
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Result]] = {}  # by the number of the line
        self._lines = 0
        self._death: PoolError | None = None
        self._reader = threading.Thread(target=self._read, name="cp-pool answers", daemon=True)
        self._reader.start()
        atexit.register(self.close)

    def submit(
        self,
        function: str,
        arguments: Mapping[str, Any],
        world_size: int,
        *,
        name: str | None = None,
        timeout: float | None = None,
        fresh: bool = False,
    ) -> Future[Result]:
        """Has the function called on ranks, as function(ranks, **arguments).

        function: package.module:name or FILE.py:name. arguments: what JSON has. name: the ID in reports. timeout: in
        seconds; None is that of cp-pool. fresh: on ranks that have run nothing else, and that run nothing afterwards.
        The future raises CaseRefused for what is no call, and PoolError if cp-pool has ended."""
        line: dict[str, Any] = {
            "call": {"function": function, "arguments": dict(arguments), "cp_size": world_size},
            "fresh": fresh,
        }
        if name is not None:
            line["id"] = name
        if timeout is not None:
            line["timeout_ms"] = round(timeout * 1000)
        text = json.dumps(line, allow_nan=False).encode() + b"\n"
        future: Future[Result] = Future()
        with self._lock:
            if self._death is not None:
                raise self._death
            self._lines += 1
            self._waiting[self._lines] = future
            self._process.send(text)
        return future

    def close(self, at_once: bool = False) -> None:
        """Ends cp-pool and all its ranks, and waits for them. at_once: calls that still run are cancelled. Is also
        called when Python ends."""
        atexit.unregister(self.close)
        if at_once:
            self._process.interrupt()
        self._process.finish_input()
        self._reader.join()
        self._process.end()

    def _read(self) -> None:
        try:
            while True:
                answer = json.loads(self._process.receive())
                with self._lock:
                    future = self._waiting.pop(answer["number"])
                if answer["outcome"] == "invalid":
                    future.set_exception(CaseRefused(answer["reason"]))
                else:
                    future.set_result(Result.from_json(answer))
        except PoolError as error:  # also the end after the last answer
            with self._lock:
                self._death = error
                left, self._waiting = self._waiting, {}
            for future in left.values():
                future.set_exception(error)


class PooledFunction:
    """A function of keyword arguments that knows nothing of cp-pool, called on warm ranks of any number.

    function: package.module:name or FILE.py:name. env: variables of the ranks."""

    def __init__(self, function: str, *, device: str = "auto", env: Mapping[str, str] | None = None) -> None:
        self._function = function
        self._device = device
        self._env = env
        self._stream: CallStream | None = None

    def on_ranks(self, world_size: int) -> PooledRanks:
        """Starts nothing: ranks start with the first call."""
        return PooledRanks(self, world_size)

    def call(self, arguments: Mapping[str, Any], world_size: int, timeout: float | None) -> None:
        """Waits until the function has returned on all ranks. Raises AssertionError if it has not, or not in time."""
        if self._stream is None:
            self._stream = CallStream(device=self._device, env=self._env)
        given = {"function": self._function, "arguments": dict(arguments)}
        result = self._stream.submit("cp_pool.calls:without_ranks", given, world_size, timeout=timeout).result()
        if not result.ok:
            raise AssertionError(failure_text(result))

    def close(self) -> None:
        """Ends the ranks."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class PooledRanks:
    """A PooledFunction with a number of ranks."""

    def __init__(self, function: PooledFunction, world_size: int) -> None:
        self._function = function
        self.world_size = world_size

    def submit(self, arguments: Mapping[str, Any], timeout: float | None = None) -> None:
        """PooledFunction.call."""
        self._function.call(arguments, self.world_size, timeout)

    def shutdown(self) -> None:
        """Does nothing: the ranks stay warm until PooledFunction.close."""


def failure_text(result: Result, *, stderr: bool = True) -> str:
    """The outcome of a call that did not pass, the traceback of the first rank that failed, a line for each other rank
    that did, and what ranks wrote to stderr."""
    parts = [result.reason if result.outcome == "fail" else result.summary()]
    texts = [(rank.rank, rank.error.strip()) for rank in result.ranks if not rank.ok and rank.error.strip()]
    for number, (rank, text) in enumerate(texts):
        if number > 0:
            lines = text.splitlines()
            parts.append(f"rank {rank}: {lines[-1] if lines[0].startswith('Traceback') else lines[0]}")
        elif "\n" in text:
            parts.append(text)
    if stderr:
        parts += [tail.described() for tail in result.stderr if tail.text.strip()]
    return "\n".join(parts)

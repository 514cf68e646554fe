"""Limits how long the start of a process may take. An import that hangs is reported with the place where it hangs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cp_pool.errors import place_of_frame, stack_of_frame

__all__ = ["Hang", "StartLimit"]

START_TIMEOUT_MS = "CP_POOL_START_TIMEOUT_MS"
_PART = 0.9  # the rest of --start-timeout is for the report


@dataclass(frozen=True)
class Hang:
    """What the main thread was doing when the time was over. text: a sentence without a subject."""

    text: str
    stack: str


def _age() -> float:
    """The seconds since this process was started or forked."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        started = int(file.read().rpartition(")")[2].split()[19])  # starttime of proc(5)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


class StartLimit:
    """How long the start of this process may take, by CP_POOL_START_TIMEOUT_MS; without that variable, any time.

    from_now: the time begins now, not when this process was started or forked.
    """

    def __init__(self, from_now: bool = False) -> None:
        timeout_ms = os.environ.get(START_TIMEOUT_MS, "")
        self.seconds = _PART * int(timeout_ms) / 1000 if timeout_ms.isdigit() else threading.TIMEOUT_MAX
        self._end = time.monotonic() - (0.0 if from_now else _age()) + self.seconds

    @property
    def left(self) -> float:
        return min(max(0.0, self._end - time.monotonic()), threading.TIMEOUT_MAX)

    def hang(self, place: str, stack: str) -> Hang:
        whole = f"not ready after {self.seconds:.1f} s, 90 % of --start-timeout"
        return Hang(f"{whole}: still in {place}" if place else whole, stack)

    @contextmanager
    def watching(self, tell: Callable[[Hang], None]) -> Iterator[None]:
        """Calls tell, on another thread, if the time is over before the block has ended. tell ends the process."""
        main = threading.get_ident()
        ended = threading.Event()

        def watch() -> None:
            if not ended.wait(self.left):
                frame = sys._current_frames().get(main)
                tell(self.hang(place_of_frame(frame), stack_of_frame(frame)))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            # The thread has left Python and may not have ended yet. A process that forks ranks must have no other.
            while os.path.exists(f"/proc/self/task/{watcher.native_id}"):
                time.sleep(0.001)

"""Runs one `cp-pool submit --json -`: sends lines of JSON, receives lines of JSON, and ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import IO

from cp_pool.catalog import ended, said
from cp_pool.result import PoolError

_MOST_STDERR_BYTES = 8192
_WAITING = "cp-pool: waiting for cases"  # a line that cp-pool prints after a second without cases
# How long to wait for cp-pool before each interrupt. cp-pool ends its ranks within seconds of the end of its input, so
# after that something is stuck.
_PATIENCE_S = (30.0, 15.0, 5.0)

_living: weakref.WeakSet[DriverProcess] = weakref.WeakSet()


class DriverProcess:
    """cp-pool in a process group of its own, so that Ctrl-C reaches only Python, which then interrupts cp-pool once.
    cp-pool ends by itself when its input is closed, and so also if this process is killed."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str] | None) -> None:
        """Raises PoolError if the program cannot be started."""
        self.owner = os.getpid()
        self._received = bytearray()
        # Stays open as long as this object lives.
        self._stderr: IO[bytes] = tempfile.TemporaryFile(prefix="cp-pool-stderr-")  # noqa: SIM115
        child_in, self._to = os.pipe()
        self._from, child_out = os.pipe()
        try:
            self._process = subprocess.Popen(
                words, stdin=child_in, stdout=child_out, stderr=self._stderr, env=env, process_group=0
            )
        except OSError as error:
            self._close_pipes()
            raise PoolError(f"cannot start {words[0]}: {error.strerror}") from None
        finally:
            os.close(child_in)
            os.close(child_out)
        _living.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: bytes) -> None:
        """Sends a line. Raises PoolError if cp-pool has ended."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._to, rest) :]
        except BrokenPipeError:
            raise self.death() from None

    def receive(self) -> bytes:
        """Waits for the next line. Raises PoolError if cp-pool has ended."""
        while (end := self._received.find(b"\n")) < 0:
            data = os.read(self._from, 1 << 16)
            if not data:
                raise self.death()
            self._received += data
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def stderr(self) -> str:
        """The last 8 KiB that cp-pool has written to stderr."""
        if self._stderr.closed:
            return ""
        fd = self._stderr.fileno()
        size = os.fstat(fd).st_size
        return os.pread(fd, _MOST_STDERR_BYTES, max(0, size - _MOST_STDERR_BYTES)).decode(errors="replace")

    def death(self) -> PoolError:
        """Waits for the process. Returns the error that says why there is no answer."""
        code = self._wait(_PATIENCE_S[1])
        if code is None:
            return PoolError(
                f"cp-pool (process {self.pid}) has closed its output and does not end", None, self.stderr()
            )
        stderr = self.stderr()
        told = said("\n".join(line for line in stderr.splitlines() if not line.startswith(_WAITING)))
        return PoolError(f"cp-pool has died: {ended(code)}" + (f": {told}" if told else ""), code, stderr)

    def interrupt(self) -> None:
        """Does what Ctrl-C does: cp-pool cancels the running case and ends. A second call kills the ranks at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def finish_input(self) -> None:
        """Says that no lines follow. cp-pool ends after the answers to those that it has."""
        if self._to >= 0:
            os.close(self._to)
            self._to = -1

    def abandon(self) -> None:
        """Interrupts cp-pool and stops reading, so that cp-pool does not wait with an answer that fills the pipe."""
        self.interrupt()
        os.close(self._from)
        self._from = -1

    def end(self) -> int | None:
        """Closes the input and waits until cp-pool, and with it all ranks, has ended. Interrupts and finally kills it
        if it does not end. Returns its exit code. Does nothing in a fork of the process that started it."""
        if self.owner != os.getpid():
            return None
        code: int | None = None
        try:
            self.finish_input()
            for patience in _PATIENCE_S:
                code = self._wait(patience)
                if code is not None:
                    return code
                self.interrupt()
        except BaseException:  # a Ctrl-C while waiting
            self.interrupt()
            code = self._wait(_PATIENCE_S[2])
            raise
        finally:
            if code is None:
                # Ranks end by themselves when cp-pool has ended.
                self._process.kill()
                code = self._process.wait()
            self._close_pipes()
        return code

    def drop(self) -> None:
        """For a fork: closes the inherited pipes, or else cp-pool would not see the end of its input."""
        self._close_pipes()
        self._process.returncode = 0  # it is not a child of this process

    def _wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _close_pipes(self) -> None:
        for fd in (self._to, self._from):
            if fd >= 0:
                os.close(fd)
        self._to = self._from = -1


def _drop_all() -> None:
    for process in list(_living):
        process.drop()


os.register_at_fork(after_in_child=_drop_all)

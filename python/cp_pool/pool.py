"""Submits cases to warm pools of ranks, by driving the cp-pool program."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cp_pool.catalog import Catalog
from cp_pool.driver_process import DriverProcess
from cp_pool.dump import dump_file_name
from cp_pool.exit_codes import ExitCode
from cp_pool.programs import check_shipped_worker, environment_for, find_binary
from cp_pool.result import CaseRefused, DumpFile, PoolError, Result

_WRAPPED_KEYS = frozenset({"id", "world_size", "size", "tags", "case", "lengths"})  # keys of cp-pool list --json
_BAD_EXITS: dict[int, str] = {
    ExitCode.internal_error: "had an internal error",
    ExitCode.cannot_write: "could not write an output",
}

Duration = float | str
Case = str | Mapping[str, Any]


class Pool:
    """A group of warm ranks, as a context manager. It may be used from several threads; one case runs at a time.

    world_size: the number of ranks of every case (for cases with several groups, of all groups together). It is the
        `cp_size` of cases that do not set one. None: each case sets its own, and ranks of each size stay warm.
    adapter: the implementation under test, as FILE.py[:NAME] or package.module:NAME.
    worker: a command line, or a list of its words, instead of an adapter. Without either, cp-pool's own worker runs.
    timeout, start_timeout: the deadline of a case and of the start of ranks, in seconds or as cp-pool writes durations
        ("2m").
    python: the interpreter of the adapter; the default is this one. bound_factor: widens the bounds, and is reported
        with results. fork: auto, on or off.
    matrices, size: where IDs are looked up; by default, in the matrix whose name begins the ID.
    dump: True keeps the tensors of each case until the Pool is closed; a folder keeps them there.
    perf: True also times the step of each case that passes; a mapping may set "warmup" and "iterations".
    events: a file for the event stream (docs/events.md). arguments: further arguments of `cp-pool submit`.
    env: variables that are added to the environment of the ranks. binary: the path of the cp-pool program."""

    def __init__(
        self,
        world_size: int | None = None,
        *,
        adapter: str | os.PathLike[str] | None = None,
        worker: str | Sequence[str] | None = None,
        device: str = "auto",
        timeout: Duration = 90,
        start_timeout: Duration | None = None,
        python: str | os.PathLike[str] | None = None,
        bound_factor: float | None = None,
        fork: str = "auto",
        matrices: Sequence[str] = (),
        size: str = "small",
        dump: bool | str | os.PathLike[str] = False,
        perf: bool | Mapping[str, int] = False,
        events: str | os.PathLike[str] | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        binary: str | os.PathLike[str] | None = None,
    ) -> None:
        """Starts cp-pool. Ranks start with the first case. Raises PoolError if cp-pool cannot be found or started, and
        TypeError or ValueError for arguments that are not valid."""
        if world_size is not None and (isinstance(world_size, bool) or not isinstance(world_size, int)):
            raise TypeError(f"world_size is a number of ranks, not {world_size!r}")
        if world_size is not None and world_size < 1:
            raise ValueError(f"world_size is {world_size}: a Pool has at least one rank")
        if adapter is not None and worker is not None:
            raise ValueError("adapter and worker exclude each other")
        if isinstance(matrices, str):
            matrices = [matrices]
        self.world_size = world_size
        self.binary = find_binary(binary)
        if adapter is None and worker is None:
            check_shipped_worker(self.binary)
        environment = environment_for(self.binary, {**os.environ, **(env or {})})
        self._catalog = Catalog(self.binary, matrices, size, environment)
        self._judging = _judging_arguments(
            adapter, worker, device, timeout, start_timeout, python, bound_factor, fork, perf, arguments
        )
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._dump_folder: Path | None = None
        if dump is True:
            self._temporary = tempfile.TemporaryDirectory(prefix="cp-pool-dump-")
            self._dump_folder = Path(self._temporary.name)
        elif dump is not False:
            self._dump_folder = Path(dump).absolute()
        words = [self.binary, "submit", "--json", "-", *self._judging]
        if self._dump_folder is not None:
            words += ["--dump", str(self._dump_folder)]
        if events is not None:
            words += ["--events", os.fspath(events)]
        self.command = words
        self._lock = threading.RLock()
        self._lines = 0
        self._closed = ""  # why nothing can be submitted any more
        self._process = DriverProcess(words, environment)
        self._finalizer = weakref.finalize(self, DriverProcess.end, self._process)

    def submit(self, case: Case | None = None, /, **fields: Any) -> Result:
        """Runs one case and returns its result, whatever the outcome.

        case: an ID (`quick/causal/p2p/cp2/bshd/fp32`), the fields of a case (docs/matrix_format.md), or an object
        that `cp-pool list --json` prints. Keyword arguments are fields too, and override those of `case`.
        Raises CaseRefused if this is no valid case, PoolError if cp-pool has ended, and ValueError for a case of
        another world size."""
        request, rerun = self._request(case, fields)
        try:
            line = json.dumps(request, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise CaseRefused(f"a case is made of what JSON has: {error}") from None
        with self._lock:
            self._expect_open()
            try:
                self._process.send(line)
                self._lines += 1
                answer = self._answer()
            except PoolError as error:
                self._closed = str(error)
                raise
            except BaseException:
                # The answer is still to come and would be taken for the answer to the next case.
                self._closed = "a submit was interrupted, which ended it"
                self._process.abandon()
                self.close()
                raise
            if answer["outcome"] == "invalid":
                raise CaseRefused(answer["reason"].removeprefix(f"<stdin>:{self._lines}: "))
            return Result.from_json(answer, rerun, self._kept_dump(answer))

    def map(self, cases: Iterable[Case]) -> Iterator[Result]:
        """Yields the result of each case, in order. A case is taken only when the caller asks for its result."""
        for case in cases:
            yield self.submit(case)

    def close(self) -> None:
        """Ends cp-pool and all its ranks, and waits for them. If another thread is waiting for a case, that case ends
        as `cancelled`. Further calls do nothing."""
        in_order = not self._closed
        self._closed = self._closed or "it was closed"  # threads that wait for their turn then submit nothing
        if not self._lock.acquire(blocking=False):
            self._process.interrupt()
            self._lock.acquire()
        try:
            if self._finalizer.detach() is None:
                return
            code = self._process.end()
            if in_order and code in _BAD_EXITS:
                warnings.warn(
                    f"cp-pool {_BAD_EXITS[code]}: {self._process.stderr().strip()}", RuntimeWarning, stacklevel=2
                )
            if self._temporary is not None:
                self._temporary.cleanup()
        finally:
            self._lock.release()

    @property
    def stderr(self) -> str:
        """The last 8 KiB that cp-pool itself has written to stderr: warnings, and notes on cases that run long."""
        return self._process.stderr()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        ranks = "ranks as each case says" if self.world_size is None else f"{self.world_size} ranks"
        return f"<Pool of {ranks}: {shlex.join(self.command)}{' (closed)' if self._closed else ''}>"

    def _expect_open(self) -> None:
        if self._process.owner != os.getpid():
            raise PoolError(f"this Pool belongs to process {self._process.owner}, of which this one is a fork")
        if self._closed:
            raise PoolError(f"this Pool takes no more cases: {self._closed}")

    def _answer(self) -> dict[str, Any]:
        line = self._process.receive()
        try:
            answer: dict[str, Any] = json.loads(line)
            if answer["number"] == self._lines:
                return answer
        except (ValueError, KeyError, TypeError):
            pass
        raise PoolError(f"cp-pool answered line {self._lines} with {line[:200]!r}")

    def _request(self, case: Case | None, fields: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
        """The request to send, and the command for a rerun if there is one that need not contain the whole case."""
        request: dict[str, Any]
        rerun: str | None = None
        if isinstance(case, str):
            listed = self._catalog.find(case)
            if not fields:
                self._expect_ranks(listed.world_size, case)
                return {"id": listed.id, "case": dict(listed.case)}, self._rerun_of_id(listed.id)
            request = {**listed.case, **fields}
        elif case is None:
            request = dict(fields)
        else:
            request = dict(case)
            if "case" in request:
                if unknown := sorted(set(request) - _WRAPPED_KEYS):
                    raise CaseRefused(f"'{unknown[0]}' stands beside 'case', where fields of a case are not read")
                named = {"id": request["id"]} if "id" in request and not fields else {}
                request = {**named, **request["case"]}
            request.update(fields)
        groups = request.get("group")
        if not isinstance(groups, int) or groups < 1:  # none is named, or cp-pool will refuse it
            groups = 1
        if listed_ranks := request.get("group_ranks"):
            self._expect_ranks(sum(map(len, listed_ranks)), request.get("id", "the case"))
            return request, rerun
        if request.get("cp_size") is None and self.world_size is not None:
            request["cp_size"] = self.world_size // groups
        self._expect_ranks(request.get("cp_size"), request.get("id", "the case"), groups)
        return request, rerun

    def _expect_ranks(self, cp_size: object, name: str, groups: int = 1) -> None:
        if self.world_size is None or (isinstance(cp_size, int) and cp_size * groups == self.world_size):
            return
        what = f"cp_size {cp_size}" if groups == 1 else f"cp_size {cp_size} in {groups} groups"
        raise ValueError(f"{name} has {what}, but this Pool has {self.world_size} ranks (world_size)")

    def _rerun_of_id(self, case_id: str) -> str:
        matrices = ["--matrix", *self._catalog.matrices] if self._catalog.matrices else []
        return shlex.join([self.binary, "submit", case_id, *matrices, "--size", self._catalog.size, *self._judging])

    def _kept_dump(self, answer: Mapping[str, Any]) -> DumpFile | None:
        if self._dump_folder is None:
            return None
        return DumpFile.at(self._dump_folder / dump_file_name(answer.get("dump_name", answer["id"])))


def _duration(value: Duration) -> str:
    return value if isinstance(value, str) else f"{round(value * 1000)}ms"


def _judging_arguments(
    adapter: str | os.PathLike[str] | None,
    worker: str | Sequence[str] | None,
    device: str,
    timeout: Duration,
    start_timeout: Duration | None,
    python: str | os.PathLike[str] | None,
    bound_factor: float | None,
    fork: str,
    perf: bool | Mapping[str, int],
    arguments: Sequence[str],
) -> list[str]:
    """The arguments that can change the outcome of a case, and so belong into the command for a rerun too."""
    words: list[str] = []
    if adapter is not None:
        words += ["--adapter", os.fspath(adapter)]
    if worker is not None:
        words += ["--worker", worker if isinstance(worker, str) else shlex.join(worker)]
    if device != "auto":
        words += ["--device", device]
    if timeout != 90:
        words += ["--timeout", _duration(timeout)]
    if start_timeout is not None:
        words += ["--start-timeout", _duration(start_timeout)]
    if adapter is not None:
        # By default this interpreter, since cp_pool is installed in its environment.
        words += ["--python", os.fspath(python) if python is not None else sys.executable]
    if bound_factor is not None:
        words += ["--bound-factor", f"{bound_factor:g}"]
    if fork != "auto":
        words += ["--fork", fork]
    if perf is not False:
        words += ["--mode", "perf"]
        for key, value in (perf if isinstance(perf, Mapping) else {}).items():
            words += [f"--{key}", str(value)]
    return [*words, *arguments]

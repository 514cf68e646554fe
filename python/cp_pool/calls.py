"""Calls: functions that every rank of a pool runs (docs/functions.md). As an adapter, ``cp_pool.calls:ranks``, this
module makes ranks that run calls alone."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cp_pool.adapter import Skip, adapter
from cp_pool.loading import LoadError, find
from cp_pool.shared_import import own_files, stamps_of

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import Store
    from torch.distributed import ProcessGroup

__all__ = ["Calls", "Ranks", "is_fail", "is_skip", "ranks"]

#: Modules, separated as in PATH, that are imported before ranks are forked.
MODULES = "CP_POOL_CALLS"


class Ranks:
    """What a function that runs on ranks gets first. The default group of torch.distributed has all ranks of the call.

    rank, world_size: as torch.distributed has them. device: of this rank. group: of all ranks, which is kept between
    calls. store: in which only ranks of this call see keys."""

    def __init__(
        self, rank: int, world_size: int, device: torch.device, group: ProcessGroup, store: Store, number: int
    ) -> None:
        self.rank, self.world_size, self.device = rank, world_size, device
        self.group, self.store = group, store
        self._number = number  # of the call, among those of its pool

    def new_group(self, members: Sequence[int] | None = None, **options: Any) -> ProcessGroup | None:
        """torch.distributed.new_group, without a timeout of its own: the deadline of the call ends its waits. All ranks
        have to call it. The group is destroyed after the call."""
        import torch.distributed as dist

        from cp_pool.runner import NO_LIMIT

        options.setdefault("timeout", NO_LIMIT)
        made = dist.new_group(None if members is None else list(members), **options)
        return None if made is dist.GroupMember.NON_GROUP_MEMBER else made

    def log(self, *values: object) -> None:
        """Prints to stderr, whose end is shown if the call fails."""
        print(f"rank {self.rank}:", *values, file=sys.stderr, flush=True)

    @cached_property
    def scratch(self) -> Path:
        """A folder that the ranks of one host share. It is empty at first, and removed after the call."""
        folder = Path(tempfile.gettempdir()) / f"cp-pool-{os.environ.get('CP_POOL_TAG', os.getppid())}-{self._number}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


@adapter(comm=(), name="calls", preload=filter(None, os.environ.get(MODULES, "").split(os.pathsep)))
def ranks(*_: Any) -> Any:
    """Skips every attention case, since it declares no communication type."""
    raise Skip("these ranks run calls alone")


def is_skip(error: BaseException) -> bool:
    """Whether the function asks to be skipped, in any of the usual ways."""
    if isinstance(error, (Skip, unittest.SkipTest)):
        return True
    return _is_of_pytest(error, "Skipped") or _is_of_pytest(error, "XFailed")


def is_fail(error: BaseException) -> bool:
    """Whether the exception says that what the function tests is wrong, and not that the test is."""
    return isinstance(error, AssertionError) or _is_of_pytest(error, "Failed")


def _is_of_pytest(error: BaseException, name: str) -> bool:
    outcomes = sys.modules.get("_pytest.outcomes")
    return outcomes is not None and isinstance(error, getattr(outcomes, name, ()))


def find_function(name: str) -> Callable[..., Any]:
    """The function that a call names, as package.module:name or FILE.py:name. Raises LoadError."""
    if name not in _functions:
        found = find(name)
        if not callable(found):
            raise LoadError(f"{name} is a {type(found).__name__}, not a function")
        _functions[name] = found
    return _functions[name]


_functions: dict[str, Callable[..., Any]] = {}


def without_ranks(_: Ranks, function: str, arguments: dict[str, Any]) -> Any:
    """Calls a function that takes only the arguments."""
    return find_function(function)(**arguments)


class Calls:
    """The calls of one rank."""

    def __init__(self) -> None:
        self.number = 0  # of the last call, among those of the pool
        self._scratch: Path | None = None  # of the last call, if this rank has used it
        self._stamps: dict[str, tuple[int, int] | None] = {}  # of the files that calls have made this rank import
        self._descriptors = Descriptors()

    def run(self, ranks: Ranks, function: str, arguments: str) -> tuple[str, set[str]]:
        """Runs the function. Returns what it returned, as JSON, and what it left behind, in sentences."""
        known = set() if function in _functions else set(sys.modules)
        try:
            called = find_function(function)
        except LoadError as error:
            if error.details:
                print(error.details, file=sys.stderr)
            raise
        if known:
            self._stamps.update(stamps_of(own_files(set(sys.modules) - known)))
        before = Traces(self._descriptors)
        try:
            value = called(ranks, **json.loads(arguments))
        finally:
            self._scratch = ranks.__dict__.get("scratch")
        try:
            return json.dumps(value), before.left_behind()
        except (TypeError, ValueError) as error:
            raise TypeError(f"{function} returned what JSON does not have: {error}") from None

    def changed(self) -> bool:
        """Whether a file has changed since this rank imported it for a call."""
        return bool(self._stamps) and stamps_of(list(self._stamps)) != self._stamps

    def clean(self) -> None:
        """Removes what another rank may have needed until the end of the last call."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None


class Traces:
    """What a call may leave behind that cannot be restored: a snapshot from before the call."""

    def __init__(self, descriptors: Descriptors) -> None:
        self._threads = set(threading.enumerate())
        self._children = _children()
        self._descriptors = descriptors
        self._open = descriptors.now()

    def left_behind(self) -> set[str]:
        """What has been left behind since, as sentences."""
        left = {f"the call left the thread {thread.name!r}" for thread in set(threading.enumerate()) - self._threads}
        left |= {f"the call left the child process {pid}" for pid in _children() - self._children}
        return left | {f"the call left {path} open" for path in _files(self._descriptors.now() - self._open)}


def _children() -> set[str]:
    with open("/proc/thread-self/children", "rb", buffering=0) as file:
        return set(file.read().decode().split())


class Descriptors:
    """The file descriptors that this process has open. They are listed only when they have changed, because that takes
    as long as all else that is done for an empty call."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def now(self) -> set[int]:
        # Since 6.2 Linux reports their number as the size of the folder, and 0 before.
        if os.stat("/proc/self/fd").st_size != len(self._known) or not _are_open(self._known):
            # One of them, that of listdir itself, has been closed since.
            self._known = {fd for fd in map(int, os.listdir("/proc/self/fd")) if _are_open({fd})}
        return self._known


def _are_open(descriptors: set[int]) -> bool:
    try:
        for fd in descriptors:
            os.get_inheritable(fd)
    except OSError:
        return False
    return True


def _files(descriptors: set[int]) -> set[str]:
    """Those that are regular files."""
    found = set()
    for fd in descriptors:
        with contextlib.suppress(OSError):  # another thread has closed it
            path = os.readlink(f"/proc/self/fd/{fd}")
            if path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/sys/", "/memfd:")):
                found.add(path)
    return found

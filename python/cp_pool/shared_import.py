"""Imports an adapter in the process that its ranks are forked from, and finds out what forked ranks could not share."""

from __future__ import annotations

import _collections_abc
import contextlib
import hashlib
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from cp_pool.errors import place_of_frame

__all__ = ["SharedImport", "import_shared", "note_import", "own_files", "recall_import", "stamps_of", "why_not_safe"]

# Variables of the environment that differ between ranks or pools, so the fork server does not have a rank's values.
_RANK_VARIABLES = frozenset(
    (b"RANK", b"LOCAL_RANK", b"WORLD_SIZE", b"LOCAL_WORLD_SIZE", b"MASTER_ADDR", b"MASTER_PORT")
)
_ENVIRONMENT_FILES = ("<frozen os>", "<frozen _collections_abc>", os.__file__, _collections_abc.__file__)
_MOST_OUTPUT = 1 << 16  # bytes of what the import prints that are kept

# Makes torch.cuda.is_available() ask NVML. Otherwise it initialises CUDA, which does not survive a fork.
_ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


@dataclass(frozen=True)
class SharedImport:
    """An adapter that was imported before its ranks are forked."""

    adapter: Any
    variables: dict[bytes, bytes | None]  # of the environment that the import has set, or removed (None)
    output: bytes  # what it has printed, which each rank repeats
    stamps: dict[str, tuple[int, int] | None]  # of its files (stamps_of)
    unsafe: str  # why ranks have to import it by themselves, in sentences; empty if they can be forked


def import_shared(load: Callable[[], Any], file: str, argv: list[str]) -> SharedImport:
    """Calls load as a rank would, with this sys.argv. Whatever load raises is passed on.

    file: the adapter's file; empty if the adapter is named by a module.
    """
    known = set(sys.modules)
    before = dict(os.environb)
    sockets, children = _sockets(), _children()
    own_argv, sys.argv = sys.argv, argv
    os.environ.setdefault(_ASK_NVML, "1")
    try:
        with _collecting_output() as output, _noting_reads() as reads:
            adapter = load()
    finally:
        sys.argv = own_argv
        if _ASK_NVML.encode() not in before:
            os.environ.pop(_ASK_NVML, None)
    after = dict(os.environb)
    variables = {name: after.get(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    unsafe = why_not_safe()
    if reads.first:
        unsafe = f"the import reads {reads.first}, which differs between ranks. Read it in setup(ctx) or at first use"
    elif not unsafe and _children() - children:
        unsafe = "a process that the import has started still runs. Start it in setup(ctx) or at first use"
    elif not unsafe and _sockets() - sockets:
        unsafe = "the import has opened a socket, which ranks would share. Open it in setup(ctx) or at first use"
    files = [file, *own_files(set(sys.modules) - known)] if file else own_files(set(sys.modules) - known)
    return SharedImport(adapter, variables, bytes(output), stamps_of(files), unsafe)


def note_import(adapter: str, answer: dict[str, Any]) -> None:
    """Keeps for later runs that ranks have to import the adapter by themselves: `alone` says why, `files` names its
    files. Empty: they need not."""
    place = _place_of_note(adapter)
    with contextlib.suppress(OSError):
        if not answer:
            place.unlink(missing_ok=True)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        new = place.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({**answer, "stamps": stamps_of(answer["files"])}), encoding="utf-8")
        new.replace(place)


def recall_import(adapter: str) -> dict[str, Any]:
    """Returns what was kept of the adapter; empty if nothing was, or if one of its files has changed."""
    try:
        answer = json.loads(_place_of_note(adapter).read_text(encoding="utf-8"))
        stamps = {name: stamp and tuple(stamp) for name, stamp in answer["stamps"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {}
    return answer if stamps_of(list(stamps)) == stamps else {}


def _place_of_note(adapter: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    name = f"{os.path.abspath(adapter)} {sys.executable}"
    return Path(cache) / "cp-pool" / "imports" / hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


def why_not_safe() -> str:
    """Why this process cannot be forked into ranks, as a sentence; empty if it can."""
    # OpenBLAS ends its threads before a fork and starts them again when needed. After this fork, only the threads that
    # a rank would lack are left.
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    if threads := _threads():
        return (
            f"threads exist after the imports, which a forked rank would lack: {', '.join(threads)}."
            " Start threads in setup(ctx) or at first use"
        )
    if any(target.startswith("/dev/nvidia-uvm") for target in _descriptors()):
        return (
            "CUDA was initialised by the imports (there is a CUDA context), and cannot be used in a forked process."
            " Use CUDA in setup(ctx) or in the function first"
        )
    return ""


def own_files(modules: set[str] | None = None) -> list[str]:
    """The files of imported modules (None: of all) outside the interpreter's environment, which are those that an
    author edits."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    environment = tuple(os.path.realpath(prefix) + os.sep for prefix in prefixes)
    found = [module for name, module in list(sys.modules.items()) if modules is None or name in modules]
    named = [getattr(module, "__file__", None) for module in found]
    files = {os.path.realpath(name) for name in named if name}
    return sorted(name for name in files if not name.startswith(environment))


def stamps_of(files: list[str]) -> dict[str, tuple[int, int] | None]:
    """What changes if a file is changed: its time and size; None for a file that does not exist."""

    def stamp(file: str) -> tuple[int, int] | None:
        try:
            there = os.stat(file)
        except OSError:
            return None
        return there.st_mtime_ns, there.st_size

    return {file: stamp(file) for file in files}


def _threads() -> list[str]:
    """The threads beside the main one: those of Python by name and place, others by the name that Linux has."""
    python = {thread.native_id: thread for thread in threading.enumerate()}
    frames = sys._current_frames()
    names: Counter[str] = Counter()
    for tid in (int(tid) for tid in os.listdir("/proc/self/task")):
        if tid == os.getpid():
            continue
        thread = python.get(tid)
        if thread is None:
            names[_name_of_native_thread(tid)] += 1
        else:
            place = place_of_frame(frames.get(thread.ident or 0))
            names[f"{thread.name}, in {place}" if place else thread.name] += 1
    return [name if count == 1 else f"{name} ({count} threads)" for name, count in sorted(names.items())]


def _name_of_native_thread(tid: int) -> str:
    try:
        with open(f"/proc/self/task/{tid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "one that has ended"


def _descriptors() -> list[str]:
    targets = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the list itself
            targets.append(os.readlink(f"/proc/self/fd/{fd}"))
    return targets


def _sockets() -> set[str]:
    return {target for target in _descriptors() if target.startswith("socket:")}


def _children() -> set[str]:
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return set(file.read().split())
    return set()


@contextlib.contextmanager
def _collecting_output() -> Iterator[bytearray]:
    """Collects what is written to fd 1 and 2. The result is there when the block has ended."""
    out = bytearray()
    kept = [os.dup(fd) for fd in (1, 2)]
    file = os.memfd_create("output")
    for fd in (1, 2):
        os.dup2(file, fd)
    try:
        yield out
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        for fd, own in zip((1, 2), kept, strict=True):
            os.dup2(own, fd)
            os.close(own)
        out += os.pread(file, _MOST_OUTPUT, 0)
        os.close(file)


class _NotedReads(dict[bytes, bytes]):
    """The variables of the environment. Notes the first read of one that differs between ranks, and where it was."""

    first = ""

    def __getitem__(self, name: bytes) -> bytes:
        if name in _RANK_VARIABLES and not self.first:
            self.first = f"{os.fsdecode(name)} ({_reader(sys._getframe(1))})"
        return super().__getitem__(name)


@contextlib.contextmanager
def _noting_reads() -> Iterator[_NotedReads]:
    noted = _NotedReads(os.environ._data)  # type: ignore[attr-defined]
    _use_variables(noted)
    try:
        yield noted
    finally:
        _use_variables(dict(noted))


def _use_variables(variables: dict[bytes, bytes]) -> None:
    os.environ._data = os.environb._data = variables  # type: ignore[attr-defined]


def _reader(frame: FrameType | None) -> str:
    """The place that reads the environment, behind the functions of os."""
    while frame is not None and frame.f_code.co_filename in _ENVIRONMENT_FILES:
        frame = frame.f_back
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"

"""``python -m cp_pool.server ADAPTER``: the process that an adapter's ranks are forked from.

It imports once what every rank needs, then forks a rank for each order of cp-pool, whose side is
driver/pool/fork_server.h. A rank that is forked is meant not to differ from one that was started by itself: it has the
descriptors, the environment, the process group and the parent that it would have had.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

__all__ = ["Order", "serve"]

TAG = b"CP_POOL_TAG"
MASTER_FD = b"CP_POOL_MASTER_FD"
PR_SET_PDEATHSIG = 1
MAX_MESSAGE_BYTES = 1 << 20
MAX_DESCRIPTORS = 8
DECLARATION_LIMIT_S = 60.0  # for loading the adapter once, to see what it declares

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Order:
    """What a rank is started with."""

    argv: list[str]  # as if it were executed
    environment: dict[bytes, bytes]  # what it has beyond that of the server
    descriptors: dict[str, int]  # stdin, stdout, stderr, master: those that it has

    @staticmethod
    def parse(text: bytes, descriptors: list[int]) -> Order:
        message = json.loads(text)
        environment = {os.fsencode(name): os.fsencode(value) for name, value in message["env"].items()}
        return Order(message["argv"], environment, dict(zip(message["descriptors"], descriptors, strict=True)))

    def close(self) -> None:
        for fd in self.descriptors.values():
            os.close(fd)


class ForkError(Exception):
    """A rank could not be forked."""


def serve(connection: socket.socket, driver: int, prepare: Callable[[], str], run: Callable[[list[str]], int]) -> int:
    """Answers orders until cp-pool closes the connection; returns the exit code of the server.

    driver: the pid of cp-pool. prepare: imports what ranks need, and returns why they cannot be forked afterwards, as
    a sentence, or nothing. run: called in a rank with the arguments that it would be executed with; returns its exit
    code.
    """
    environment = dict(os.environb)  # before an import changes it
    tag = _TagPlace.find()
    unsafe = prepare() if tag else "the environment of the fork server cannot be found in its memory"
    unsafe = unsafe or why_not_safe()
    if unsafe:
        _say(connection, {"event": "unsafe", "reason": unsafe})
        return 0
    assert tag is not None
    _flush()
    # Ranks share the pages of what was imported as long as the collector does not write to them.
    gc.collect()
    gc.freeze()
    _say(connection, {"event": "ready"})
    while True:
        text, descriptors, _, _ = socket.recv_fds(
            connection, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        if not text:
            return 0
        order = Order.parse(text, descriptors)
        try:
            pid = _fork_orphan(partial(_be_rank, order, driver, tag, environment, connection, run))
        except (OSError, ForkError) as error:
            _say(connection, {"event": "failed", "reason": f"the fork server cannot fork a rank: {error}"})
            return 1
        order.close()
        _say(connection, {"event": "forked", "pid": pid})


def why_not_safe() -> str:
    """Why this process cannot be forked into ranks, as a sentence; empty if it can."""
    # OpenBLAS ends its threads before a fork and starts them when they are needed again. So this one leaves the
    # threads that a rank would miss.
    _wait_for(_fork_silent(lambda: 0))
    threads = sorted(_name_of_thread(int(tid)) for tid in os.listdir("/proc/self/task") if int(tid) != os.getpid())
    if threads:
        return f"threads exist after the imports, which a forked rank would lack: {', '.join(threads)}"
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the descriptor of the list itself
            continue
        if target.startswith("/dev/nvidia-uvm"):
            return "CUDA was initialised by the imports, and cannot be used in a forked process"
    return ""


def _name_of_thread(tid: int) -> str:
    try:
        with open(f"/proc/self/task/{tid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "one that has ended"


def _say(connection: socket.socket, message: dict[str, Any]) -> None:
    try:
        connection.send(json.dumps(message).encode())
    except OSError:  # cp-pool is gone, and this process with it in a moment
        os._exit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _die_with_parent(parent: int) -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)


def _fork_silent(function: Callable[[], int]) -> int:
    """The pid of a child that calls the function and ends, and of which nothing is seen."""
    _flush()
    server = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _die_with_parent(server)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        code = function()
    finally:
        os._exit(code)


def _wait_for(pid: int) -> None:
    os.waitpid(pid, 0)


def _fork_orphan(be_child: Callable[[int], NoReturn]) -> int:
    """The pid of a grandchild whose parent has ended: the kernel has given it to cp-pool, the next subreaper.

    be_child: called in it with the pid of its first parent.
    """
    server = os.getpid()
    _flush()
    reading, writing = os.pipe()
    try:
        first = os.fork()
        if first == 0:
            _be_parent_of(be_child, server, writing, reading)
    finally:
        os.close(writing)
    try:
        answer = os.read(reading, 64)
    finally:
        os.close(reading)
        os.waitpid(first, 0)
    if not answer.isdigit():
        raise ForkError(answer.decode(errors="replace") or "its parent was killed")
    return int(answer)


def _be_parent_of(be_child: Callable[[int], NoReturn], server: int, writing: int, reading: int) -> NoReturn:
    try:
        _die_with_parent(server)
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(writing)
            os.close(reading)
            be_child(own)
        os.setpgid(pid, pid)  # before cp-pool knows the pid and may signal the group
        os.write(writing, str(pid).encode())
    except BaseException as error:
        os.write(writing, f"{type(error).__name__}: {error}"[:64].encode())
    finally:
        os._exit(0)


def _be_rank(
    order: Order,
    driver: int,
    tag: _TagPlace,
    environment: dict[bytes, bytes],
    connection: socket.socket,
    run: Callable[[list[str]], int],
    parent: int,
) -> NoReturn:
    """Makes this process what it would be if it had been executed, and runs it."""
    code = 1
    try:
        tag.write(order.environment[TAG])
        os.setpgid(0, 0)
        # The signal of a parent's death follows the parent that a process has when it asks for it.
        while os.getppid() == parent:
            time.sleep(0.0002)
        _die_with_parent(driver)
        connection.close()
        _take_descriptors(order, environment)
        _reseed()
        code = run(order.argv)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _take_descriptors(order: Order, environment: dict[bytes, bytes]) -> None:
    """Puts the descriptors where the rank expects them, and replaces the environment, in C too."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(order.descriptors.get(name, null), number, inheritable=True)
    for fd in [null, *(fd for name, fd in order.descriptors.items() if name != "master")]:
        os.close(fd)
    wanted = {**environment, **order.environment}
    if "master" in order.descriptors:
        wanted[MASTER_FD] = str(order.descriptors["master"]).encode()
    for variable in [variable for variable in os.environb if variable not in wanted]:
        del os.environb[variable]
    for variable, value in wanted.items():
        if os.environb.get(variable) != value:
            os.environb[variable] = value


def _reseed() -> None:
    """Global generators that are seeded from the system when they are imported. (Python's own is, after a fork.)"""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


class _TagPlace:
    """Where the kernel reads CP_POOL_TAG of this process, as /proc/PID/environ shows it.

    By the tag cp-pool finds what a pool has left behind. A forked process has its parent's, so that a rank has to write
    its own there.
    """

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        self._size = size

    @staticmethod
    def find() -> _TagPlace | None:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        start, end = int(fields[47]), int(fields[48])  # env_start and env_end of proc(5)
        value = os.environb.get(TAG, b"")
        if start == 0 or not value:
            return None
        block = b"\0" + ctypes.string_at(start, end - start)
        at = block.find(b"\0" + TAG + b"=" + value + b"\0")
        return None if at < 0 else _TagPlace(start + at + len(TAG) + 1, len(value))

    def write(self, value: bytes) -> None:
        if len(value) != self._size:
            raise ForkError(f"the tag {value!r} has not {self._size} bytes")
        ctypes.memmove(self._address, value, self._size)


# --- Of an adapter ----------------------------------------------------------------------------------------------------
def _prepare(adapter: str) -> str:
    """Imports torch, the worker and what the adapter names. Returns why ranks cannot be forked, or nothing."""
    from cp_pool import worker
    from cp_pool.loading import LoadError

    # Where there are GPUs, the first backward initialises CUDA and starts a thread for each.
    has_gpu = os.path.exists("/dev/nvidiactl")
    try:
        worker.prepare(rehearse=not has_gpu)
    except LoadError as error:
        return str(error)
    declared = _declaration(adapter)
    if not declared.get("fork", True):
        return "the adapter declares fork=False"
    file = adapter.rpartition(":")[0] if not adapter.endswith(".py") else adapter
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)) if file.endswith(".py") else os.getcwd())
    for name in declared.get("preload", []):
        try:
            importlib.import_module(name)
        except BaseException as error:
            return f"the adapter names {name!r} in preload, whose import raised {type(error).__name__}: {error}"
    del sys.path[0]
    return ""


def _declaration(adapter: str) -> dict[str, Any]:
    """What the adapter declares. It is loaded in a child, because its file may do what a rank has to do by itself, such
    as to read RANK. An adapter that cannot be loaded declares nothing: the ranks say why."""
    reading, writing = os.pipe()

    def tell() -> int:
        from cp_pool.loading import load

        os.setpgid(0, 0)
        os.write(writing, json.dumps(load(adapter).declaration()).encode())
        return 0

    pid = _fork_silent(tell)
    os.close(writing)
    text = b""
    deadline = time.monotonic() + DECLARATION_LIMIT_S
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reading, 65536)
        text += part
        if not part:
            break
    os.close(reading)
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):  # it may have no group of its own
            kill(pid, signal.SIGKILL)
    _wait_for(pid)
    try:
        declared = json.loads(text)
    except ValueError:
        return {}
    return declared if isinstance(declared, dict) else {}


def _run(argv: list[str]) -> int:
    """A rank: PYTHON -m cp_pool.worker ADAPTER .."""
    from cp_pool import worker

    sys.argv = [str(worker.__file__), *argv[3:]]
    return worker.main(argv[3:], worker._take_stdout(), forked=True)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cp_pool.server", description="Forks the ranks of an adapter; cp-pool starts it."
    )
    parser.add_argument("adapter", metavar="ADAPTER", help="FILE.py, FILE.py:NAME or package.module:NAME")
    parser.add_argument("--socket", type=int, required=True, metavar="FD", help="on which cp-pool speaks")
    parser.add_argument("--driver", type=int, required=True, metavar="PID", help="of cp-pool")
    options = parser.parse_args(argv)
    connection = socket.socket(fileno=options.socket)
    connection.set_inheritable(False)
    return serve(connection, options.driver, lambda: _prepare(options.adapter), _run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

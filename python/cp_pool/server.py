"""``python -m cp_pool.server ADAPTER``: the process from which an adapter's ranks are forked.

It imports once what every rank needs, then forks a rank for each order of cp-pool (driver/pool/fork_server.h). A forked
rank should not differ from one that was executed: it has the same descriptors, environment, process group and parent.
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
import stat
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from cp_pool.start_limit import Hang, StartLimit

__all__ = ["CannotStart", "Order", "serve"]

TAG = b"CP_POOL_TAG"
MASTER_FD = b"CP_POOL_MASTER_FD"
PR_SET_PDEATHSIG = 1
MAX_MESSAGE_BYTES = 1 << 20
MAX_DESCRIPTORS = 8
MAX_STACK = 3000  # characters of a stack that are told
GRACE_S = 2.0  # from the limit until a child that has said nothing counts as hanging
MAX_WAIT_S = 1e6

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Order:
    """What a rank is started with."""

    argv: list[str]  # the command line with which the rank would be executed
    environment: dict[bytes, bytes]  # variables in addition to those of the server
    descriptors: dict[str, int]  # by name: stdin, stdout, stderr, master; some may be missing

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


class CannotStart(Exception):
    """No rank can start, forked or not. The text is a sentence; ``details`` is a traceback or a stack."""

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(text)
        self.details = details


def serve(connection: socket.socket, driver: int, prepare: Callable[[], str], run: Callable[[list[str]], int]) -> int:
    """Carries out orders until cp-pool closes the connection. Returns the exit code of the server.

    driver: the pid of cp-pool. prepare: imports what ranks need, and returns why ranks cannot be forked afterwards, as
    a sentence; empty if they can. It may raise CannotStart. run: is called in a rank with the rank's command line, and
    returns its exit code.
    """
    environment = dict(os.environb)  # copied before an import may change it
    tag = _TagPlace.find()
    try:
        unsafe = prepare() if tag else "the environment of the fork server cannot be found in its memory"
    except CannotStart as error:
        return _tell_broken(connection, error)
    unsafe = unsafe or why_not_safe()
    if unsafe:
        _say(connection, {"event": "unsafe", "reason": unsafe})
        return 0
    assert tag is not None
    _flush()
    # Ranks share the pages of imported modules as long as the garbage collector does not write to them.
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
    # OpenBLAS ends its threads before a fork and starts them again when needed. After this fork, only the threads that
    # a rank would lack are left.
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
    except OSError:  # cp-pool has ended, so this process ends too
        os._exit(1)


def _tell_broken(connection: socket.socket, error: CannotStart) -> int:
    """Says that no rank can start, and returns the exit code. cp-pool reads the details from stderr."""
    if error.details:
        print(error.details, file=sys.stderr)
    _flush()
    _say(connection, {"event": "broken", "reason": str(error)})
    return 0


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _die_with_parent(parent: int) -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(1)


def _fork_silent(function: Callable[[], int]) -> int:
    """Forks a child that calls the function and ends, with all its output suppressed. Returns the child's pid."""
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
    """Forks a grandchild whose parent has ended, so that the kernel makes cp-pool, the next subreaper, its parent.
    Returns the grandchild's pid.

    be_child: is called in the grandchild with the pid of its first parent.
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
    """Gives this process what it would have if it had been executed, and runs the rank."""
    code = 1
    try:
        tag.write(order.environment[TAG])
        os.setpgid(0, 0)
        # The death signal belongs to the parent at the time of the prctl call, so cp-pool must be the parent first.
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
    """Moves the descriptors to where the rank expects them, and replaces the environment, in C too."""
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
    """Seeds numpy's global generator from the system, as its import would have. Python reseeds its own after a fork."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


class _TagPlace:
    """The memory in which the kernel reads CP_POOL_TAG of this process for /proc/PID/environ.

    cp-pool finds processes that a pool has left behind by this tag. A forked process has its parent's tag there, so a
    rank has to write its own.
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


# --- The server of an adapter -----------------------------------------------------------------------------------------
def _prepare(adapter: str, connection: socket.socket) -> str:
    """Imports torch, the worker and the modules that the adapter preloads. Returns why ranks cannot be forked, as a
    sentence; empty if they can. Raises CannotStart if the imports fail or hang that each rank would repeat."""
    from cp_pool import worker
    from cp_pool.loading import LoadError

    limit = StartLimit()

    def give_up(hang: Hang) -> None:
        os._exit(_tell_broken(connection, CannotStart(f"adapter {adapter}: {hang.text}", hang.stack)))

    # If there are GPUs, the first backward would initialise CUDA and start a thread for each.
    has_gpu = os.path.exists("/dev/nvidiactl")
    try:
        with limit.watching(give_up):
            worker.prepare(rehearse=not has_gpu)
    except LoadError as error:
        raise CannotStart(str(error), error.details) from None
    declared = _declaration(adapter, limit)
    if not declared.get("fork", True):
        return "the adapter declares fork=False"
    file = adapter.rpartition(":")[0] if not adapter.endswith(".py") else adapter
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)) if file.endswith(".py") else os.getcwd())
    with limit.watching(give_up):
        for name in declared.get("preload", []):
            try:
                importlib.import_module(name)
            except BaseException as error:
                return f"the adapter names {name!r} in preload, whose import raised {type(error).__name__}: {error}"
    del sys.path[0]
    return ""


def _declaration(adapter: str, limit: StartLimit) -> dict[str, Any]:
    """What the adapter declares. The adapter is loaded in a child process, because its file may do things that each
    rank must do by itself, such as read RANK. The child also answers which of cp-pool's cases the adapter would skip.
    Empty if the adapter cannot be loaded; the ranks then report why. Raises CannotStart if loading it hangs."""
    reading, writing = os.pipe()
    cases = os.dup(0)

    def say(message: dict[str, Any]) -> None:
        os.write(writing, json.dumps(message).encode())

    def give_up(hang: Hang) -> None:
        say({"hangs": hang.text, "stack": hang.stack[-MAX_STACK:]})
        os._exit(1)

    def tell() -> int:
        from cp_pool.loading import load

        os.setpgid(0, 0)
        with limit.watching(give_up):
            loaded = load(adapter)
        say({"declared": loaded.declaration()})
        _answer_cases(loaded, cases)
        return 0

    pid = _fork_silent(tell)
    os.close(writing)
    os.close(cases)
    text = b""
    deadline = time.monotonic() + limit.left + GRACE_S
    while select.select([reading], [], [], min(max(0.0, deadline - time.monotonic()), MAX_WAIT_S))[0]:
        part = os.read(reading, 65536)
        text += part
        if not part:
            break
    else:
        if not text:  # it hangs in C code, which holds the GIL
            text = json.dumps({"hangs": limit.hang("", "").text, "stack": ""}).encode()
    os.close(reading)
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):  # it may not have a group of its own yet
            kill(pid, signal.SIGKILL)
    _wait_for(pid)
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    if "hangs" in answer:
        raise CannotStart(f"adapter {adapter}: {answer['hangs']}", answer["stack"])
    declared = answer["declared"]
    return declared if isinstance(declared, dict) else {}


def _answer_cases(adapter: Any, file: int) -> None:
    """Says which cases the adapter would skip: the file has a case on each line, and gets an answer for each line
    below them."""
    from cp_pool import worker

    if not stat.S_ISREG(os.fstat(file).st_mode):
        return
    with os.fdopen(file, "r+", encoding="utf-8") as cases:
        cases.seek(0)
        lines = list(cases)
        if not lines:
            return
        answers = list(worker.explain_skips(adapter, lines))
        cases.seek(0, os.SEEK_END)
        cases.writelines(f"{answer}\n" for answer in answers)


def _run(argv: list[str]) -> int:
    """Runs a rank. argv: PYTHON -m cp_pool.worker ADAPTER .."""
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
    return serve(connection, options.driver, lambda: _prepare(options.adapter, connection), _run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``python -m cp_pool.server ADAPTER``: the process from which an adapter's ranks are forked.

It imports torch. A child of it imports the adapter once and then forks a rank for each order of cp-pool
(driver/ranks/fork_server.h). If ranks cannot be forked after the adapter's import, the first process forks them, and
each imports the adapter by itself; so it does if the import fails, and the ranks then report why. A forked rank should
not differ from one that was executed: it has the same descriptors, environment, process group and parent.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from cp_pool.shared_import import SharedImport, import_shared, note_import, recall_import, stamps_of, why_not_safe
from cp_pool.start_limit import Hang, StartLimit

__all__ = ["CannotStart", "Order", "Ranks", "serve"]

TAG = b"CP_POOL_TAG"
MASTER_FD = b"CP_POOL_MASTER_FD"
PR_SET_PDEATHSIG = 1
MAX_MESSAGE_BYTES = 1 << 20
MAX_DESCRIPTORS = 8
MAX_STACK = 3000  # characters of a stack that are told
GRACE_S = 2.0  # from the limit until a child that has said nothing counts as hanging
MAX_WAIT_S = 1e6
OUTDATED = 75  # exit code of a process that has imported files which have changed since

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


class Ranks:
    """What the ranks of a fork server run, and what it does for them before they are forked."""

    def __init__(self) -> None:
        self.remark = ""  # once prepared: why each rank still imports the adapter by itself, in sentences
        self.ready_was_said = False
        # Variables of the environment that the imports have set, or removed (None).
        self.variables: dict[bytes, bytes | None] = {}

    def prepare(self) -> str:
        """Imports what ranks need. Returns why ranks cannot be forked afterwards, as a sentence; empty if they can.
        May raise CannotStart, and may return in a child process, which then serves."""
        raise NotImplementedError

    def look_again(self) -> str:
        """Called before each order, like prepare."""
        return ""

    def run(self, argv: list[str]) -> int:
        """Is called in a rank with the rank's command line, and returns its exit code."""
        raise NotImplementedError


def serve(connection: socket.socket, driver: int, ranks: Ranks) -> int:
    """Carries out orders until cp-pool closes the connection. Returns the exit code of the server.

    driver: the pid of cp-pool.
    """
    environment = dict(os.environb)  # copied before an import may change it
    tag = _TagPlace.find()
    try:
        unsafe = ranks.prepare() if tag else "the environment of the fork server cannot be found in its memory"
        if unsafe:
            return _tell_unsafe(connection, unsafe)
        assert tag is not None
        if ranks.remark or not ranks.ready_was_said:
            _say(connection, {"event": "ready", "reason": ranks.remark})
        while connection.recv(1, socket.MSG_PEEK):
            if unsafe := ranks.look_again():
                return _tell_unsafe(connection, unsafe)
            text, descriptors, _, _ = socket.recv_fds(
                connection, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
            order = Order.parse(text, descriptors)
            pid = _fork_orphan(partial(_be_rank, order, driver, tag, environment, connection, ranks))
            order.close()
            _say(connection, {"event": "forked", "pid": pid})
    except CannotStart as error:
        return _tell_broken(connection, error)
    except (OSError, ForkError) as error:
        _say(connection, {"event": "failed", "reason": f"the fork server cannot fork a rank: {error}"})
        return 1
    return 0


def _say(connection: socket.socket, message: dict[str, Any]) -> None:
    try:
        connection.send(json.dumps(message).encode())
    except OSError:  # cp-pool has ended, so this process ends too
        os._exit(1)


def _tell_unsafe(connection: socket.socket, reason: str) -> int:
    _say(connection, {"event": "unsafe", "reason": reason})
    return 0


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
        _point_at_null(0, 1, 2)
        code = function()
    finally:
        os._exit(code)


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
    ranks: Ranks,
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
        _take_descriptors(order, {**environment, **ranks.variables})
        _reseed()
        code = ranks.run(order.argv)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code)


def _take_descriptors(order: Order, environment: Mapping[bytes, bytes | None]) -> None:
    """Moves the descriptors to where the rank expects them, and replaces the environment, in C too."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(order.descriptors.get(name, null), number, inheritable=True)
    for fd in [null, *(fd for name, fd in order.descriptors.items() if name != "master")]:
        os.close(fd)
    wanted = {name: value for name, value in environment.items() if value is not None} | order.environment
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
class AdapterRanks(Ranks):
    """Ranks of an adapter.

    cases: a descriptor of the file with the cases about which cp-pool asks.
    """

    def __init__(self, adapter: str, connection: socket.socket, cases: int) -> None:
        super().__init__()
        self._adapter = adapter
        self._connection = connection
        self._cases = cases
        self._imported: SharedImport | None = None  # in the process that has imported the adapter
        self._stamps: dict[str, tuple[int, int] | None] = {}  # of the adapter's files when they were imported
        place = adapter if adapter.endswith(".py") else adapter.rpartition(":")[0]
        self._file = os.path.abspath(place) if place.endswith(".py") else ""

    def prepare(self) -> str:
        from cp_pool import worker
        from cp_pool.loading import LoadError

        limit = StartLimit()
        # If there are GPUs, the first backward would initialise CUDA and start a thread for each.
        has_gpu = os.path.exists("/dev/nvidiactl")
        try:
            with limit.watching(self._give_up):
                worker.prepare(rehearse=True, backward=not has_gpu)
        except LoadError as error:
            raise CannotStart(str(error), error.details) from None
        unsafe = why_not_safe()
        # Ranks share the pages of imported modules as long as the garbage collector does not write to them.
        gc.collect()
        gc.freeze()
        return self._import(limit, unsafe)

    def look_again(self) -> str:
        if stamps_of(list(self._stamps)) == self._stamps:
            return ""
        if self._imported is not None:
            _flush()
            os._exit(OUTDATED)
        _say(self._connection, {"event": "importing"})
        return self._import(StartLimit(from_now=True))

    def run(self, argv: list[str]) -> int:
        from cp_pool import worker

        sys.argv = [str(worker.__file__), *argv[3:]]
        adapter = None
        if self._imported is not None:
            os.write(2, self._imported.output)
            adapter = self._imported.adapter
        return worker.main(argv[3:], worker._take_stdout(), forked=True, adapter=adapter)

    def _give_up(self, hang: Hang) -> NoReturn:
        os._exit(_tell_broken(self._connection, CannotStart(f"adapter {self._adapter}: {hang.text}", hang.stack)))

    def _import(self, limit: StartLimit, unsafe: str = "") -> str:
        """Imports the adapter in a child process. If ranks can be forked from the child, returns there, while this
        process waits for the child's end. Otherwise returns here.

        unsafe: why ranks cannot be forked from this process; the child is then only asked.
        """
        known = {} if unsafe else recall_import(self._adapter)
        while not known:
            reading, writing = os.pipe()
            server = os.getpid()
            child = os.fork()
            if child == 0:
                os.close(reading)
                return self._be_importer(server, writing, limit, unsafe)
            os.close(writing)
            answer = self._await_answer(reading, child, limit)
            if not answer.get("serves"):
                if answer.get("alone") and not answer["executes"]:
                    note_import(self._adapter, answer)
                break
            self._forget_cases()
            self.ready_was_said = True
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            code = _end(child)
            if code != OUTDATED:
                if code:
                    print(f"the process that had imported the adapter ended with {code}", file=sys.stderr, flush=True)
                os._exit(int(code != 0))
            _say(self._connection, {"event": "importing"})
            limit = StartLimit(from_now=True)
        if known:
            answer = known
            self._ask_beside(limit)
        self._forget_cases()
        if "hangs" in answer:
            raise CannotStart(f"adapter {self._adapter}: {answer['hangs']}", answer["stack"])
        self._stamps = stamps_of(answer.get("files", [self._file] if self._file else []))
        self.remark = answer.get("alone", "")
        if why := unsafe or answer.get("executes", ""):
            return str(why)
        with limit.watching(self._give_up):
            trouble = self._preload(answer.get("preload", []))
        return trouble or why_not_safe()

    def _ask_beside(self, limit: StartLimit) -> None:
        """Imports the adapter in a child process that asks it about the cases, and finds out for the next run whether
        the import can be shared by now. Meanwhile ranks import it by themselves."""
        server = os.getpid()
        if os.fork():
            return
        os.setpgid(0, 0)
        _die_with_parent(server)
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            imported, _ = self._import_in_time(null, limit)
            if not imported.unsafe:
                note_import(self._adapter, {})
            _point_at_null(0, 1, 2)
            _answer_cases(imported.adapter, self._cases)
            _say(self._connection, {"event": "asked"})
        finally:
            os._exit(0)

    def _await_answer(self, reading: int, child: int, limit: StartLimit) -> dict[str, Any]:
        """Returns what the child says of the import, empty if nothing. The child then serves, or has ended."""
        text = b""
        deadline = time.monotonic() + limit.left + GRACE_S
        while _is_readable(reading, deadline) and (part := os.read(reading, 65536)):
            text += part
            if text.startswith(b'{"serves"'):
                break
        else:
            if not text and time.monotonic() >= deadline:  # it hangs in C code, which holds the GIL
                text = json.dumps({"hangs": limit.hang("", "").text, "stack": ""}).encode()
            _end(child)
        os.close(reading)
        try:
            answer = json.loads(text)
        except ValueError:
            return {}
        return answer if isinstance(answer, dict) else {}

    def _be_importer(self, server: int, writing: int, limit: StartLimit, unsafe: str) -> str:
        """The child of _import. Returns if ranks can be forked from it, and otherwise ends."""
        os.setpgid(0, 0)
        _die_with_parent(server)
        try:
            imported, trouble = self._import_in_time(writing, limit)
            declared = imported.adapter.declaration()
            executes = trouble if declared.get("fork", True) else "the adapter declares fork=False"
            if not (unsafe or executes or imported.unsafe):
                self._begin_to_serve(imported, writing, limit)
                return ""
            answer = {"alone": imported.unsafe, "executes": executes, "preload": declared.get("preload", [])}
            os.write(writing, json.dumps({**answer, "files": list(imported.stamps)}).encode())
            _point_at_null(0, 1, 2)
            _answer_cases(imported.adapter, self._cases)
            os._exit(0)
        except BaseException:  # ranks do the same, and report it
            os._exit(1)

    def _import_in_time(self, writing: int, limit: StartLimit) -> tuple[SharedImport, str]:
        """Imports the adapter and what it preloads. Returns them, and what goes wrong with what it preloads."""
        from cp_pool import worker
        from cp_pool.loading import load

        trouble = ""

        def give_up(hang: Hang) -> None:
            os.write(writing, json.dumps({"hangs": hang.text, "stack": hang.stack[-MAX_STACK:]}).encode())
            os._exit(1)

        def load_all() -> Any:
            nonlocal trouble
            with limit.watching(give_up):
                adapter = load(self._adapter)
                trouble = self._preload(adapter.declaration().get("preload", []))
            return adapter

        return import_shared(load_all, self._file, [str(worker.__file__), self._adapter]), trouble

    def _begin_to_serve(self, imported: SharedImport, writing: int, limit: StartLimit) -> None:
        gc.collect()
        gc.freeze()
        os.write(writing, b'{"serves": true}')
        os.close(writing)
        self._imported = imported
        self._stamps = imported.stamps
        self.variables = imported.variables
        self.remark = ""
        if self._cases < 0:
            return
        # To ask the adapter may start threads, so another process does it.
        asked = _fork_silent(lambda: _answer_cases(imported.adapter, self._cases))
        end = os.pidfd_open(asked)
        _is_readable(end, time.monotonic() + limit.left + GRACE_S)
        os.close(end)
        _end(asked)
        self._forget_cases()

    def _forget_cases(self) -> None:
        if self._cases >= 0:
            os.close(self._cases)
        self._cases = -1

    def _preload(self, modules: list[str]) -> str:
        """Imports the modules. Returns why ranks cannot be forked because one cannot be imported."""
        sys.path.insert(0, os.path.dirname(self._file) if self._file else os.getcwd())
        try:
            for name in modules:
                try:
                    importlib.import_module(name)
                except BaseException as error:
                    return f"the adapter names {name!r} in preload, whose import raised {type(error).__name__}: {error}"
        finally:
            del sys.path[0]
        return ""


def _is_readable(fd: int, deadline: float) -> bool:
    """Waits until the descriptor can be read. Returns False if the deadline comes first."""
    return bool(select.select([fd], [], [], min(max(0.0, deadline - time.monotonic()), MAX_WAIT_S))[0])


def _end(pid: int) -> int:
    """Kills the child, and the processes of its group, and returns its exit code, negative for a signal."""
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):  # it may not have a group of its own yet
            kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _point_at_null(*fds: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in fds:
        os.dup2(null, fd)
    os.close(null)


def _answer_cases(adapter: Any, file: int) -> int:
    """Says which cases the adapter would skip: the file has a case on each line, and gets an answer for each line
    below them."""
    from cp_pool import worker

    if file < 0:
        return 0
    with os.fdopen(file, "r+", encoding="utf-8") as cases:
        cases.seek(0)
        lines = list(cases)
        answers = list(worker.explain_skips(adapter, lines))
        cases.seek(0, os.SEEK_END)
        cases.writelines(f"{answer}\n" for answer in answers)
    return 0


def _take_cases() -> int:
    """Moves stdin, if it is the file with the cases, to a descriptor of its own, and points stdin at /dev/null."""
    cases = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3) if stat.S_ISREG(os.fstat(0).st_mode) else -1
    _point_at_null(0)
    return cases


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
    return serve(connection, options.driver, AdapterRanks(options.adapter, connection, _take_cases()))


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    _flush()
    os._exit(exit_code)

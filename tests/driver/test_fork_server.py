#!/usr/bin/env python3
"""The fork server (python/cp_pool/server.py) for driver tests: test_fork_server.py MODE --socket FD --driver PID.

The modes:
exec: a forked rank executes the worker command.
worker: a forked rank runs the worker of this file, without executing a program.
thread, says_no, exits, hangs, broken: the server does this instead of getting ready.
alone: the server is ready, and says that each rank imports by itself.
asks: at its first order the server says which cases it would skip: those of the model undeclared.
dies, stalls, babbles: the server does this at its third order.
imports: at its third order the server says that it imports anew, for three seconds.
interrupts: at its third order the server sends SIGINT to the driver, and then stalls.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time
from typing import Any, NoReturn

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
from cp_pool import server  # noqa: E402
from cp_pool.shared_import import why_not_safe  # noqa: E402


def respond(message: dict[str, Any]) -> None:
    os.write(1, f"\n[CP_POOL_RESP] {json.dumps(message)}\n".encode())


def environment_of(pid: int) -> dict[str, str]:
    """The environment of a process as /proc shows it to others."""
    entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in entries if b"=" in entry)


def facts() -> dict[str, Any]:
    """What the test compares with a rank that was executed."""
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return {
        "parent": os.getppid(),
        "group": os.getpgid(0) == os.getpid(),
        "rank": os.environ["RANK"],
        "tag": os.environ["CP_POOL_TAG"] == environment_of(os.getpid())["CP_POOL_TAG"],
        "added": os.environ.get("CP_POOL_TEST_ADDED", ""),
        "blocked": int(status["SigBlk"], 16),
        "stdin": os.readlink("/proc/self/fd/0").split(":")[0],
        "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and not is_of_list(fd)),
        "master": int(os.environ.get("CP_POOL_MASTER_FD", -1)),
    }


def is_of_list(fd: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").endswith("/fd")
    except OSError:
        return True


def leave_daemon(orphan: bool) -> None:
    """Leaves a process in a session of its own. It executes nothing, so /proc shows its parent's environment for it."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if orphan and os.fork() != 0:
            os._exit(0)
        for fd in range(3):
            os.close(fd)
        time.sleep(3600)
        os._exit(0)
    if orphan:
        os.wait()


def do(model: str) -> str:
    """Does what the model says. Returns the reason of the result; an empty one is a pass."""
    if model.startswith("exit_"):
        os._exit(int(model[5:]))
    elif model.startswith("signal_"):
        os.kill(os.getpid(), int(model[7:]))
    elif model == "return_4":
        sys.exit(4)
    elif model == "hang":
        time.sleep(3600)
    elif model == "daemon":
        leave_daemon(orphan=True)
    elif model == "child":
        leave_daemon(orphan=False)
    elif model == "facts":
        return json.dumps(facts())
    return ""


def run_worker(argv: list[str]) -> int:
    """The worker: rank 0 does what the model of each case says, the other ranks sleep until they are killed."""
    world_size = int(os.environ["WORLD_SIZE"])
    if os.environ["RANK"] != "0":
        while True:
            time.sleep(3600)
    respond({"event": "ready", "protocol": 1, "worker": "forked", "world_size": world_size})
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "shutdown":
            break
        if request["op"] != "run":
            continue
        respond({"event": "started", "seq": request["seq"]})
        reason = do(request["case"]["model"])
        respond({"event": "result", "seq": request["seq"], "outcome": "error" if reason else "pass", "reason": reason})
        print(f"\n[CP_POOL_FENCE] {request['seq']}", file=sys.stderr, flush=True)
    return 0


def execute(argv: list[str]) -> NoReturn:
    if master := os.environ.get("CP_POOL_MASTER_FD"):
        os.set_inheritable(int(master), True)
    os.execvp(argv[0], argv)


class TestRanks(server.Ranks):
    def prepare(self) -> str:
        if options.mode == "alone":
            self.remark = "the test says no"
        return prepare(options.mode) or why_not_safe()

    def run(self, argv: list[str]) -> int:
        return execute(argv) if options.mode == "exec" else run_worker(argv)


def prepare(mode: str) -> str:
    os.environ["CP_POOL_TEST_ADDED"] = "yes"
    if mode == "thread":
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    elif mode == "says_no":
        return "the test says no"
    elif mode == "exits":
        print("no license for this machine", file=sys.stderr, flush=True)
        os._exit(3)
    elif mode == "hangs":
        time.sleep(3600)
    elif mode == "broken":
        raise server.CannotStart("the test has no license", "where it looked for one")
    return ""


def say_skips() -> None:
    with os.fdopen(os.dup(0), "r+", encoding="utf-8") as cases:
        cases.seek(0)
        answers = [{"skip": "undeclared" if "undeclared" in line else ""} for line in cases]
        cases.seek(0, os.SEEK_END)
        cases.writelines(f"{json.dumps(answer)}\n" for answer in answers)
    socket.socket(fileno=os.dup(options.socket)).send(b'{"event": "asked"}')


def act_at_an_order(mode: str) -> None:
    orders = 0
    fork = server._fork_orphan

    def counted(be_child: Any) -> int:
        nonlocal orders
        orders += 1
        if orders == 1 and mode == "asks":
            say_skips()
        if orders == 3:
            if mode == "dies":
                fork(be_child)  # forks a rank whose pid the driver never learns
                os.kill(os.getpid(), signal.SIGKILL)
            elif mode in ("stalls", "interrupts"):
                fork(be_child)
                if mode == "interrupts":
                    os.kill(options.driver, signal.SIGINT)
                time.sleep(3600)
            elif mode == "imports":
                socket.socket(fileno=os.dup(options.socket)).send(b'{"event": "importing"}')
                time.sleep(3)
            elif mode == "babbles":
                socket.socket(fileno=os.dup(options.socket)).send(b"what?")
        return fork(be_child)

    server._fork_orphan = counted


parser = argparse.ArgumentParser()
parser.add_argument("mode")
parser.add_argument("--socket", type=int, required=True)
parser.add_argument("--driver", type=int, required=True)
options = parser.parse_args()
if options.mode in ("asks", "dies", "stalls", "babbles", "interrupts", "imports"):
    act_at_an_order(options.mode)
sys.exit(server.serve(socket.socket(fileno=options.socket), options.driver, TestRanks()))

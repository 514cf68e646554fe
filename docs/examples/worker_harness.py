"""A rank of a worker: cp-pool's protocol, and a control channel between the ranks. Needs only Python.

Three channels are kept apart, so that a failure of one can be reported over another:
  protocol  rank 0's stdin and stdout: cp-pool's requests and the answers
  control   a socket between rank 0 and each other rank: requests go out, reports come back
  data      the worker's own connections, in which its ranks exchange tensors and wait for each other

On every rank the main thread reads requests and a second thread runs the cases, so that a rank answers while its case
hangs.
Import this file before anything that prints, as minimal_worker.py does. docs/writing_a_worker.md is the guide.
"""
import faulthandler
import json
import math
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback

import injected_faults

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
OWN_DEADLINE = 0.8  # fraction of timeout_ms; before cp-pool's own deadline, so that the result names the missing rank
LAST_WAIT = 0.1  # fraction of timeout_ms, at most 1 s: how long to wait for the other reports after a failure

# cp-pool sends SIGUSR2 at a case's deadline. By default it kills; here it prints the stack of every thread. SIGSEGV,
# SIGABRT and similar signals print it too, before the rank dies of them.
faulthandler.register(signal.SIGUSR2)
faulthandler.enable()
# Output of libraries must not mix with the answers, so libraries keep fd 1, which now is stderr.
PROTOCOL_FD = os.dup(1)
os.dup2(2, 1)
EMITTING = threading.Lock()
FAULTS = injected_faults.Faults(RANK)


class Channel:
    """Messages to and from another rank, one JSON value per line. ConnectionError means that the other rank is gone."""

    def __init__(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._connection, self._lines = connection, connection.makefile("r", encoding="utf-8")
        self._sending = threading.Lock()

    def send(self, message):
        with self._sending:
            self._connection.sendall(f"{json.dumps(message)}\n".encode())

    def receive(self):
        line = self._lines.readline()
        if not line:
            raise ConnectionError("another rank closed its connection")
        return json.loads(line)

    def abort(self):
        """Ends the waits of threads on both sides that are in receive()."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side has already closed it


# --- Every rank ------------------------------------------------------------------------------------------------------


def report(run, data, request):
    """Runs a case and returns this rank's report. An exception becomes the outcome "error" and is also printed to
    stderr at once."""
    FAULTS.start_case(request["id"])
    try:
        FAULTS.reach("before")
        told = run(data, request)
        FAULTS.reach("after")
    except BaseException as error:  # also sys.exit() in a library
        traceback.print_exc()
        told = {"outcome": "error", "reason": f"rank {RANK}: {type(error).__name__}: {error}",
                "error": traceback.format_exc()[-16384:], "aborted": isinstance(error, ConnectionError)}
    sys.stderr.flush()
    os.write(2, f"\n[CP_POOL_FENCE] {request['seq']}\n".encode())
    return report_of(RANK, **told)


def report_of(rank, **told):
    return {"rank": rank, "reason": "", "error": "", "aborted": False, "checks": [], **told}


def figure(value):
    """A number for a check. JSON has no NaN and no infinity, so the protocol writes them as strings."""
    return value if math.isfinite(value) else str(value)


def compute(run, data, requests, send_report):
    """The thread that runs the cases."""
    while True:
        told = report(run, data, requests.get())
        FAULTS.reach("result")
        send_report(told)
        FAULTS.reach("idle")


def abort(data):
    """Ends this rank's waits, since another rank has failed. Runs on a thread of its own, since it may hang."""
    try:
        data.abort()
    except Exception:
        traceback.print_exc()


def start_thread(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()


def die_of_exception(failure):
    sys.__excepthook__(failure.exc_type, failure.exc_value, failure.exc_traceback)
    os._exit(1)


# --- Ranks 1 .. WORLD_SIZE - 1 ---------------------------------------------------------------------------------------


def serve_other_rank(connect, run):
    rank0 = Channel(socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))))
    rank0.send([RANK, os.getpid()])

    def share(value):
        rank0.send(value)
        return rank0.receive()

    data = connect(share)
    share("connected")
    requests = queue.Queue()
    start_thread(compute, run, data, requests, rank0.send)
    while True:
        message = rank0.receive()
        if message["op"] == "run":
            requests.put(message)
        elif message["op"] == "ping":
            rank0.send({"pong": message["seq"], "rank": RANK})
        elif message["op"] == "abort":
            start_thread(abort, data)
        elif message["op"] == "shutdown":
            return


# --- Rank 0 ----------------------------------------------------------------------------------------------------------


class Coordinator:
    """Sends a case to every rank and combines their reports into one result."""

    def __init__(self, data, peers, pids):
        self._data, self._peers, self._pids = data, peers, pids  # peers: channels, by rank
        self.own_requests, self.reports, self.pongs = queue.Queue(), queue.Queue(), queue.Queue()
        for rank, peer in peers.items():
            start_thread(self._listen, rank, peer)

    def _listen(self, rank, peer):
        while True:
            try:
                message = peer.receive()
            except ConnectionError:
                self.reports.put({"gone": rank, "outcome": "error"})
                return
            (self.pongs if "pong" in message else self.reports).put(message)

    def tell(self, message):
        for peer in self._peers.values():
            try:
                peer.send(message)
            except ConnectionError:
                pass  # _listen reports it

    def run(self, request, seq):
        emit(event="started", seq=seq)
        run = {"op": "run", "seq": seq, "id": request.get("id", ""), "case": request.get("case"),
               "lengths": request.get("lengths"), "call": request.get("call")}
        self.tell(run)
        self.own_requests.put(run)
        reports, failure = self._collect(seq, request.get("timeout_ms", 90000) / 1000)
        first = reports[0]
        value = next(told.get("value") for told in reports if told["rank"] == 0)
        emit(event="result", seq=seq, outcome=first["outcome"], reason=first["reason"], healthy=failure is None,
             ranks=[{"rank": told["rank"], "ok": told["outcome"] in ("pass", "skip"), "aborted": told["aborted"],
                     "error": told["error"]} for told in reports],
             checks=[check for told in sorted(reports, key=lambda told: told["rank"]) for check in told["checks"]],
             **({} if value is None else {"value": value}))

    def cancel(self, seq):
        self.reports.put({"cancelled": seq, "outcome": "cancelled"})

    def _collect(self, seq, timeout):
        """Returns the reports of all ranks, with the one that explains the outcome first, and the failure, or None.

        A failure is the "error" of a rank, or the "timeout" or "cancelled" of the case. It ends the waits of all ranks.
        """
        reports, seconds = {}, OWN_DEADLINE * timeout
        failure = self._take_reports(reports, seq, seconds)
        if failure == "timeout":
            self._show_stacks()
        if failure:
            self.tell({"op": "abort"})
            start_thread(abort, self._data)
            self._take_reports(reports, seq, min(1, LAST_WAIT * timeout), after_failure=True)
        when = {"timeout": f" within {seconds:g} s", "cancelled": " before the case was cancelled"}.get(failure, "")
        for told in reports.values():
            if failure != "error" and told["aborted"]:
                told.update(outcome=failure, reason=f"rank {told['rank']} waited for a rank that did not come{when}")
        for rank in set(range(WORLD_SIZE)) - set(reports):
            reason = f"rank {rank} did not report{when}"
            reports[rank] = report_of(rank, outcome=failure, reason=reason, error=reason)
        severity = {"cancelled": 0, "fail": 1, "error": 2, "timeout": 2, "skip": 3, "pass": 4}
        ordered = sorted(reports.values(), key=lambda told: (severity[told["outcome"]], told["aborted"]))
        return ordered, failure

    def _show_stacks(self):
        """Prints the stacks of all ranks. Other ranks get a signal, which works even if none of their threads can
        run."""
        faulthandler.dump_traceback()
        for pid in self._pids:
            try:
                os.kill(pid, signal.SIGUSR2)
            except ProcessLookupError:
                pass  # the rank has died, which is reported elsewhere

    def _take_reports(self, reports, seq, seconds, after_failure=False):
        """Adds the reports that arrive. Returns the failure that ended the wait before all had arrived, or None."""
        deadline = time.monotonic() + seconds
        while len(reports) < WORLD_SIZE:
            try:
                told = self.reports.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                return "timeout"
            if told.get("cancelled", seq) != seq:
                continue  # the cancelled case has already ended
            if "rank" in told:
                reports[told["rank"]] = told
            if told["outcome"] in ("error", "cancelled") and not after_failure:
                return told["outcome"]
        return None

    def answer_ping(self, request, seq):
        ranks, deadline = [0], time.monotonic() + 1
        if request.get("all"):
            self.tell({"op": "ping", "seq": seq})
            try:
                while len(ranks) < WORLD_SIZE:
                    pong = self.pongs.get(timeout=max(0, deadline - time.monotonic()))
                    if pong["pong"] == seq:
                        ranks.append(pong["rank"])
            except queue.Empty:
                pass
        emit(event="pong", seq=seq, ranks=sorted(ranks))


def emit(**event):
    with EMITTING:
        os.write(PROTOCOL_FD, f"\n[CP_POOL_RESP] {json.dumps(event, allow_nan=False)}\n".encode())


def serve_rank0(connect, run, about):
    listener = socket.socket(fileno=int(os.environ["CP_POOL_MASTER_FD"]))  # it listens on MASTER_PORT already
    hellos = []
    for _ in range(WORLD_SIZE - 1):
        peer = Channel(listener.accept()[0])
        rank, pid = peer.receive()
        hellos.append((rank, pid, peer))
    peers = {rank: peer for rank, _, peer in sorted(hellos)}
    pids = [pid for _, pid, _ in hellos]

    def share(value):
        values = [value] + [peer.receive() for peer in peers.values()]
        for peer in peers.values():
            peer.send(values)
        return values

    data = connect(share)
    share("connected")
    coordinator = Coordinator(data, peers, pids)
    start_thread(compute, run, data, coordinator.own_requests, coordinator.reports.put)
    emit(event="ready", protocol=1, world_size=WORLD_SIZE, **about)
    for line in open(0, encoding="utf-8", errors="replace", newline="\n"):  # ends when cp-pool does
        if line.strip() and answer(coordinator, line) == "shutdown":
            break
    coordinator.tell({"op": "shutdown"})


def answer(coordinator, line):
    """Carries out a request, or reports what is wrong with it. Returns its op."""
    request = {}
    try:
        request = json.loads(line)
        op = request["op"]
        if op == "run":
            if "call" not in request and "case" not in request:
                raise KeyError("case")
            start_thread(coordinator.run, request, request["seq"])
        elif op == "ping":
            start_thread(coordinator.answer_ping, request, request["seq"])
        elif op == "cancel":
            coordinator.cancel(request["seq"])
        elif op not in ("prepare", "shutdown"):  # a worker may ignore prepare
            raise ValueError(f"unknown op {op}")
        return op
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        seq = request.get("seq") if isinstance(request, dict) else None
        emit(event="protocol_error", seq=seq, message=f"{type(error).__name__}: {error}")
        return None


def serve(name, connect, run_case, run_call=None, device="cpu", capabilities={}):
    """Runs a rank until its end; does not return.

    connect(share) makes the data plane; share(value) returns the values of all ranks, by rank. The data plane's method
    abort() is called on every rank when one has failed, and must end this rank's connections. Code that waits in them
    must get a ConnectionError, which shows that this rank failed because of another.

    run_case(data, case, lengths) runs a case on this rank. It returns {"outcome": ..} with "pass", "fail" or "skip", a
    "reason" unless the case passes, and "checks" if there are figures. An exception becomes the outcome "error".
    docs/protocol.md describes checks and capabilities.

    run_call(data, call), for a worker that runs calls, returns the same and perhaps a "value".
    """
    def run(data, request):
        if request["call"] is not None:
            return run_call(data, request["call"])
        return run_case(data, request["case"], request["lengths"])

    threading.excepthook = die_of_exception
    low, high = map(int, os.environ.get("CP_POOL_PROTOCOL", "1..1").split(".."))
    if not low <= 1 <= high:
        if RANK == 0:
            emit(event="protocol_error", seq=None, message=f"{name} speaks version 1 alone, not {low}..{high}")
        os._exit(78)
    FAULTS.reach("start")
    try:
        if RANK == 0:
            can = {"requests": ["cancel"], "calls": run_call is not None, **capabilities}
            serve_rank0(connect, run, {"worker": name, "device": device, "capabilities": can})
        else:
            serve_other_rank(connect, run)
    except ConnectionError:
        traceback.print_exc()
        time.sleep(0.5)  # the other rank has died, and cp-pool must see its death before this rank's
        os._exit(1)
    os._exit(0)  # at once, even if a thread waits for another rank

"""The faults that CP_POOL_INJECT asks of a worker, for users and for `cp-pool conformance`."""
import fnmatch
import os
import re
import signal
import sys
import threading
import time

KINDS = ("throw", "hang", "exit", "slow", "print", "print_err", "sigsegv", "sigabrt", "sigkill", "sigstop")
PHASES = ("start", "before", "inside", "after", "result", "idle")


class Faults:
    """The faults of one rank. CP_POOL_INJECT has KIND@RANK:PHASE[:CASE], separated by spaces. CASE is a glob; each
    fault fires once per case."""

    def __init__(self, rank):
        self._faults = [self._parse(spec) for spec in os.environ.get("CP_POOL_INJECT", "").split()]
        self._faults = [fault for fault in self._faults if int(fault["rank"]) == rank]
        self._armed = list(self._faults)  # before the first case, only the phase "start" is reached

    @staticmethod
    def _parse(spec):
        fault = re.fullmatch(r"(?P<kind>\w+)(=(?P<number>\d+))?@(?P<rank>\d+):(?P<phase>\w+)(:(?P<case>.+))?", spec)
        if not fault or fault["kind"] not in KINDS or fault["phase"] not in PHASES:
            sys.exit(f"CP_POOL_INJECT: {spec}: expected KIND@RANK:PHASE[:CASE]; "
                     f"KIND is one of {', '.join(KINDS)}; PHASE is one of {', '.join(PHASES)}")
        return fault

    def start_case(self, case_id):
        self._armed = [fault for fault in self._faults if fnmatch.fnmatchcase(case_id, fault["case"] or "*")]

    def reach(self, phase):
        """Fires the faults of this phase one after the other. A fault may raise an exception, or not return."""
        for fault in [fault for fault in self._armed if fault["phase"] == phase]:
            self._armed.remove(fault)
            fire(fault["kind"], int(fault["number"] or 0))


def fire(kind, number):
    if kind == "throw":
        raise RuntimeError("injected fault")
    if kind == "hang":
        threading.Event().wait()
    if kind == "exit":
        os._exit(number)
    if kind == "slow":
        time.sleep(number / 1000)
    if kind in ("print", "print_err"):
        os.write(1 if kind == "print" else 2, (b"." * 99 + b"\n") * ((number or 10 << 20) // 100))
    if kind.startswith("sig"):
        signal.raise_signal(signal.Signals[kind.upper()])

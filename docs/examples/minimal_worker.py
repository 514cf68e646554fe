#!/usr/bin/env python3
"""A small but complete worker for cp-pool: cp-pool run --worker docs/examples/minimal_worker.py ...

Replace Ring and run_case with your own. worker_harness.py does the rest; docs/writing_a_worker.md is the guide.
"""
import os
import socket

from worker_harness import FAULTS, RANK, WORLD_SIZE, Channel, serve


class Ring:
    """The data plane. A rank sends to the next rank and receives from the previous one."""

    def __init__(self, share):
        """share(value) returns the values of all ranks, by rank."""
        with socket.create_server((os.environ["MASTER_ADDR"], 0)) as listener:
            addresses = share(listener.getsockname())
            self._next = Channel(socket.create_connection(addresses[(RANK + 1) % WORLD_SIZE]))
            self._previous = Channel(listener.accept()[0])

    def rotate(self, value):
        FAULTS.reach("inside")
        self._next.send(value)
        return self._previous.receive()

    def abort(self):
        """Called on every rank when one has failed. A rank that waits in rotate() gets a ConnectionError."""
        self._next.abort()
        self._previous.abort()


def run_case(ring, case, lengths):
    """Runs a case on this rank and returns its outcome. A real worker computes attention here (docs/definitions.md).

    This worker sends the numbers of the chunks that each rank owns once around the ring, and checks that all arrive.
    """
    if case["comm"] != "p2p":
        return {"outcome": "skip", "reason": f"this worker has no {case['comm']}"}
    held = [RANK, 2 * WORLD_SIZE - 1 - RANK]
    seen = set(held)
    for _ in range(WORLD_SIZE - 1):
        held = ring.rotate(held)
        seen.update(held)
    missing = 2 * WORLD_SIZE - len(seen)
    check = {"tensor": "chunks", "rank": RANK, "error": missing, "bound": 0, "ok": missing == 0}
    if missing:
        return {"outcome": "fail", "reason": f"rank {RANK}: {missing} chunks did not come", "checks": [check]}
    return {"outcome": "pass", "checks": [check]}


def ring_sum(ring, n=0):
    """Adds n and the rank over all ranks."""
    total = sent = n + RANK
    for _ in range(WORLD_SIZE - 1):
        sent = ring.rotate(sent)
        total += sent
    return total


# What a call may name (docs/functions.md). A worker without calls leaves run_call out.
FUNCTIONS = {"minimal_worker:ring_sum": ring_sum}


def run_call(ring, call):
    """Runs the function of a call on this rank."""
    return {"outcome": "pass", "value": FUNCTIONS[call["function"]](ring, **call["arguments"])}


if __name__ == "__main__":
    serve("minimal_worker", connect=Ring, run_case=run_case, run_call=run_call, capabilities={"figures": True})

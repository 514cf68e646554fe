#!/usr/bin/env python3
"""A complete worker for cp-pool: cp-pool run --worker docs/examples/minimal_worker.py ...

Replace run_case. Needs nothing but Python; docs/writing_a_worker.md explains it line by line.
"""
import json
import os
import socket
import sys
import traceback

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def run_case(case: dict) -> tuple[str, str]:
    """Every rank's part of one case. Returns (outcome, reason); an exception is an error."""
    if case["comm"] != "p2p":
        return "skip", f"this worker has no {case['comm']}"
    return "pass", ""


def report(seq: int, case: dict) -> dict:
    """Runs the case on this rank and says how it went."""
    try:
        outcome, reason, trace = *run_case(case), ""
    except Exception as error:
        outcome, reason, trace = "error", f"rank {RANK}: {type(error).__name__}: {error}", traceback.format_exc()
    sys.stderr.flush()
    os.write(2, f"\n[CP_POOL_FENCE] {seq}\n".encode())
    return {"rank": RANK, "outcome": outcome, "reason": reason, "error": trace or reason}


def emit(**event) -> None:
    os.write(PROTOCOL_FD, f"\n[CP_POOL_RESP] {json.dumps(event)}\n".encode())


def answer_run(request: dict, peers: list) -> None:
    for peer in peers:
        peer.write(json.dumps(request) + "\n")
        peer.flush()
    emit(event="started", seq=request["seq"])
    reports = [report(request["seq"], request["case"])] + [json.loads(peer.readline()) for peer in peers]
    worst = min(reports, key=lambda r: ["fail", "error", "skip", "pass"].index(r["outcome"]))
    ranks = [{"rank": r["rank"], "ok": r["outcome"] in ("pass", "skip"), "error": r["error"]} for r in reports]
    emit(event="result", seq=request["seq"], outcome=worst["outcome"], reason=worst["reason"], ranks=ranks)


def serve_rank0() -> None:
    listener = socket.socket(fileno=int(os.environ["CP_POOL_MASTER_FD"]))  # already listens on MASTER_PORT
    peers = [listener.accept()[0].makefile("rw") for _ in range(WORLD_SIZE - 1)]
    emit(event="ready", protocol=1, world_size=WORLD_SIZE, worker="minimal_worker", device="cpu")
    for line in sys.stdin:  # ends when the driver does; then the peers' connections close, and they end, too
        request = json.loads(line)
        if request["op"] == "run":
            answer_run(request, peers)
        elif request["op"] == "ping":
            emit(event="pong", seq=request["seq"])
        elif request["op"] == "shutdown":
            return
        elif request["op"] not in ("prepare", "cancel"):
            emit(event="protocol_error", seq=request.get("seq"), message=f"unknown op {request['op']}")


def serve_other_rank() -> None:
    connection = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
    rank0 = connection.makefile("rw")
    for line in rank0:
        request = json.loads(line)
        rank0.write(json.dumps(report(request["seq"], request["case"])) + "\n")
        rank0.flush()


# Keep stray prints out of the protocol: it gets a descriptor of its own, and fd 1 becomes stderr.
PROTOCOL_FD = os.dup(1)
os.dup2(2, 1)
serve_rank0() if RANK == 0 else serve_other_rank()

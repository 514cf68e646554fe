#!/usr/bin/env python3
"""A worker for the tests of searches. It computes nothing. It gives each case the outcome of the first of its rules
that holds, or pass if none does. Each argument is a rule OUTCOME=CONDITION. OUTCOME is fail, skip, error, crash or
hang; CONDITION is a Python expression over the fields of the case and the request's `seq`. CP_POOL_TEST_REQUESTS names
a file to which every request is appended."""
import json
import os
import signal
import sys
import time


def respond(message):
    sys.stdout.write("\n[CP_POOL_RESP] " + json.dumps(message) + "\n")
    sys.stdout.flush()


def outcome_of(request):
    names = {**request["case"], "seq": request["seq"]}
    for rule in sys.argv[1:]:
        outcome, condition = rule.split("=", 1)
        if eval(condition, {}, names):
            return outcome
    return "pass"


def result(request):
    outcome = outcome_of(request)
    if outcome == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if outcome == "hang":
        time.sleep(3600)
    world_size = int(os.environ["WORLD_SIZE"])
    checks = [{"tensor": tensor, "rank": rank, "max_abs": 0.5, "rms": 0.1, "error": 0.125, "bound": 0.25, "baseline": 0.125,
               "worst_index": [0, 0, 0], "ok": True, "message": ""}
              for rank in range(world_size) for tensor in ("out", "dq")]
    if outcome == "fail":
        checks[-1].update(ok=False, error=0.5)
    return {"event": "result", "seq": request["seq"], "outcome": outcome, "healthy": True,
            "reason": "" if outcome == "pass" else f"rank 0: {outcome} of case {request['seq']}",
            "ranks": [{"rank": rank, "ok": outcome != "error", "error": ""} for rank in range(world_size)],
            "checks": checks if outcome in ("pass", "fail") else [], "timings_ms": {}, "hygiene": [], "backend": "math"}


def main():
    if os.environ["RANK"] != "0":
        time.sleep(3600)
    respond({"event": "ready", "protocol": 1, "worker": "ruled", "world_size": int(os.environ["WORLD_SIZE"]), "device": "cpu",
             "ranks": [{"rank": 0, "host": "here", "pid": os.getpid()}],
             "capabilities": {"case_fields": ["inner", "mask", "softcap", "fp8", "input_scale", "score_offset", "strided", "replicated", "all_queries", "group", "group_ranks", "group_lengths"]}})
    for line in sys.stdin:
        request = json.loads(line)
        if requests := os.environ.get("CP_POOL_TEST_REQUESTS"):
            with open(requests, "a", encoding="utf-8") as file:
                file.write(line)
        if request["op"] == "run":
            respond({"event": "started", "seq": request["seq"]})
            respond(result(request))
            print(f"\n[CP_POOL_FENCE] {request['seq']}", file=sys.stderr, flush=True)
        elif request["op"] == "ping":
            respond({"event": "pong", "seq": request["seq"]})
        elif request["op"] == "shutdown":
            return


main()

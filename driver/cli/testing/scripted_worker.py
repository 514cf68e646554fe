#!/usr/bin/env python3
"""A worker for the tests of the command line. It speaks the protocol, computes nothing, and answers as the model of a
case says: pass, fail, skip, error, crash, hang; glued (its answer stands on a line that begins with other text), denies
(a pass whose error is beyond its bound), diagnosed (a fail, followed by its cause if the request asks for a
diagnosis).

Environment variables:
  CP_POOL_TEST_MARK      a file that the worker creates when it starts
  CP_POOL_TEST_REQUESTS  a file to which it appends every request
  CP_POOL_TEST_STEP_MS   the duration of a step (ms) of a case that passes
  CP_POOL_TEST_HASH      the hash of the outputs; "seq" means another one each time
  CP_POOL_TEST_CHATTER   a text that it prints when it starts
  CP_POOL_TEST_REMOVE    a folder that it removes, with its content, when it runs a case
  CP_POOL_TEST_LEAK      if set, pass_2 fails after any other case
  CP_POOL_TEST_LOST      the name of an output that it reports as not written"""
import json
import os
import pathlib
import shutil
import signal
import sys
import time


LEFT = []  # the models of earlier cases


def respond(message):
    sys.stdout.write("\n[CP_POOL_RESP] " + json.dumps(message) + "\n")
    sys.stdout.flush()


def output_hash(request):
    text = os.environ.get("CP_POOL_TEST_HASH", "f00d")
    return f"{request['seq']:x}" if text == "seq" else text


def result(request):
    model = request["case"]["model"]
    world_size = int(os.environ["WORLD_SIZE"])
    answer = {"event": "result", "seq": request["seq"], "outcome": "pass", "reason": "", "healthy": True,
              "ranks": [{"rank": rank, "ok": True, "error": "", "output_hash": output_hash(request)}
                        for rank in range(world_size)],
              "checks": [], "timings_ms": {"forward": 1.5}, "hygiene": [], "backend": "math"}
    check = {"tensor": "dq", "rank": 0, "max_abs": 0.5, "rms": 0.1, "error": 0.5, "bound": 0.25, "baseline": 0.125,
             "worst_index": [0, 7, 1], "ok": True, "message": ""}
    if model in ("fail", "diagnosed"):
        answer.update(outcome="fail", reason="dq is wrong", checks=[{**check, "ok": False}])
        if model == "diagnosed" and "diagnosis_ms" in request["options"]:
            answer["diagnosing"] = True
    elif model == "skip":
        answer.update(outcome="skip", reason="this worker skips it", ranks=[])
    elif model == "error":
        answer.update(outcome="error", reason="rank 0 threw", ranks=[{"rank": 0, "ok": False, "error": "boom\nat here"}])
    elif model == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    elif model == "hang":
        time.sleep(3600)
    elif model == "glued":
        print("progress: 100 %[CP_POOL_RESP]", json.dumps(answer), flush=True)
        time.sleep(3600)
    else:
        answer["checks"] = [{**check, "rank": rank, "error": 0.125} for rank in range(world_size)]
        if model == "denies":
            answer["checks"][0]["error"] = 0.5
        if perf := request["options"].get("perf"):
            ms = float(os.environ["CP_POOL_TEST_STEP_MS"])
            step = {"median": ms, "min": ms, "max": ms}
            answer["perf"] = {**perf, "step_ms": step, "ranks": [{"rank": 0, "ms": step}], "one_rank_ms": None,
                              "one_rank_reason": "one rank is all there is"}
    if os.environ.get("CP_POOL_TEST_LEAK"):
        if model == "pass_2" and LEFT:
            answer.update(outcome="fail", reason="found what was left", checks=[{**check, "ok": False}])
        LEFT.append(model)
    if folder := os.environ.get("CP_POOL_TEST_REMOVE"):
        shutil.rmtree(folder, ignore_errors=True)
    if lost := os.environ.get("CP_POOL_TEST_LOST"):
        answer["lost_outputs"] = [{"output": lost, "message": "cannot write /d/x: No space left on device"}]
    print("stderr of", request["id"], file=sys.stderr, flush=True)
    print(f"\n[CP_POOL_FENCE] {request['seq']}", file=sys.stderr, flush=True)
    return answer


def diagnosis(request):
    return {"event": "diagnosis", "seq": request["seq"], "diagnosis": {
        "certainty": "likely", "id": "no_mask", "cause": "the mask is <missing>\x1b[31m", "explains": ["dq"],
        "others": ["whole_keys"], "evidence": ["every query saw every key"]}}


def main():
    if mark := os.environ.get("CP_POOL_TEST_MARK"):
        pathlib.Path(mark).touch()
    if os.environ["RANK"] != "0":
        time.sleep(3600)
    world_size = int(os.environ["WORLD_SIZE"])
    print(os.environ.get("CP_POOL_TEST_CHATTER", ""), flush=True)
    respond({"event": "ready", "protocol": 1, "worker": "scripted", "world_size": world_size, "device": "cpu",
             "ranks": [{"rank": 0, "host": "here", "pid": os.getpid()}], "capabilities": {"options": ["diagnosis_ms"]}})
    for line in sys.stdin:
        request = json.loads(line)
        if requests := os.environ.get("CP_POOL_TEST_REQUESTS"):
            with open(requests, "a", encoding="utf-8") as file:
                file.write(line)
        if request["op"] == "run":
            respond({"event": "started", "seq": request["seq"]})
            answer = result(request)
            respond(answer)
            if answer.get("diagnosing"):
                respond(diagnosis(request))
        elif request["op"] == "ping":
            respond({"event": "pong", "seq": request["seq"]})
        elif request["op"] == "shutdown":
            return


main()

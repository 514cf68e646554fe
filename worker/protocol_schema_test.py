#!/usr/bin/env python3
"""Validates every line that a real worker writes or is sent against docs/protocol.schema.json.

Usage: protocol_schema_test.py SCHEMA WORKER EXAMPLE_WORKER
"""
import json
import os
import socket
import subprocess
import sys

import jsonschema

PREFIX = "[CP_POOL_RESP] "
ENDS_WITHIN_S = 60
# A worker has a second to free its ranks and one to connect them again. A busy machine may need longer, but not every
# time.
TRIES_TO_RECOVER = 5


class Group:
    """The ranks of one worker, started as the driver starts them."""

    def __init__(self, validator, command, ranks=2, **environment):
        self.validator = validator
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        self.processes = []
        for rank in range(ranks):
            variables = {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(listener.getsockname()[1]), "CP_POOL_PROTOCOL": "1..1", "CP_POOL_TAG": "schema-test",
            }
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            if rank == 0:
                variables["CP_POOL_MASTER_FD"] = str(listener.fileno())
                streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": [listener.fileno()]}
            self.processes.append(subprocess.Popen(command, env={**os.environ, **variables, **environment}, **streams))
        listener.close()
        self.ranks, self.seq = ranks, 0

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        if failed:
            for process in self.processes:
                process.kill()
        self.processes[0].stdin.close()
        for process in self.processes:
            process.wait(ENDS_WITHIN_S)

    def send(self, **request):
        self.validator.validate(request)
        self.send_text(json.dumps(request))

    def send_text(self, text):
        self.processes[0].stdin.write(text.encode() + b"\n")
        self.processes[0].stdin.flush()

    def next(self, event):
        """Returns the next event of this name; validates all lines up to it against the schema."""
        for line in self.processes[0].stdout:
            text = line.decode().rstrip("\n")
            if not text.startswith(PREFIX):
                continue
            message = json.loads(text[len(PREFIX):])
            self.validator.validate(message)
            if message["event"] == event:
                return message
        raise AssertionError(f"no {event} before the end of stdout")

    def run(self, case_id, timeout_ms=20000, **changes):
        self.start(case_id, timeout_ms, **changes)
        return self.next("result")

    def start(self, case_id, timeout_ms=20000, perf=None, diagnosis_ms=None, lengths=None, **changes):
        self.seq += 1
        case = {"comm": "p2p", "cp_size": self.ranks, "dtype": "fp32", "batch": 1, "seqlen_q": 32, "seqlen_kv": 32, "heads": 2,
                "kv_heads": 2, "head_dim_qk": 8, "head_dim_v": 8, "causal": True, **changes}
        self.send(op="run", seq=self.seq, id=case_id, case=case, timeout_ms=timeout_ms, 
                  options={"dump_dir": None, "reference_cache": True, **({"perf": perf} if perf else {}),
                           **({"diagnosis_ms": diagnosis_ms} if diagnosis_ms else {})},
                  **({"lengths": lengths} if lengths else {}))


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def hang(validator, worker):
    """Returns the result of a case in which a rank hangs. It is a timeout if the other rank comes back in time."""
    for _ in range(TRIES_TO_RECOVER):
        with Group(validator, [worker, "--inject", "hang@1:before:hangs"]) as group:
            group.next("ready")
            result = group.run("hangs", timeout_ms=1000)
            expect(not result["healthy"], "a rank that hangs makes the pool unhealthy")
        if result["outcome"] == "timeout":
            break
    return result


def diagnose(validator, worker):
    """Returns the outcomes of two cases of a pool with wrong answers, whose second diagnosis throws; none if the pool
    did not recover from that in time."""
    outcomes = set()
    # With this --cut half of the queries meet wrong keys.
    with Group(validator, [worker, "--cut", "contiguous", "--inject", "throw@1:diagnosis:throws"]) as group:
        group.next("ready")
        for name, failed in (("fails", False), ("throws", True)):
            wrong = group.run(name, diagnosis_ms=20000)
            outcomes.add(wrong["outcome"])
            expect(wrong["diagnosing"], "the cause follows")
            cause = group.next("diagnosis")
            expect(cause["seq"] == group.seq, f"{cause}")
            expect(cause["diagnosis"]["cause"].startswith("the diagnosis failed: rank 1: ") == failed, f"{cause}")
            if not cause["healthy"]:
                expect(failed, f"{cause}")
                return set()
        expect("diagnosing" not in group.run("is not asked"), "nobody asks for the cause")
    return outcomes


def check_worker(validator, worker):
    seen = set()
    with Group(validator, [worker, "--inject", "throw@1:inside:throws"]) as group:
        group.next("ready")
        group.send(op="ping", seq=1001)
        group.next("pong")
        group.send(op="ping", seq=1002, all=True)
        pong = group.next("pong")
        expect(pong["ranks"] == [0, 1], "both ranks answer")
        expect([(rank["rank"], rank["phase"]) for rank in pong["phases"]] == [(0, "idle"), (1, "idle")], f"{pong}")
        group.send(op="prepare", seq=1003, case={})
        group.send_text('{"op":"jump","seq":1004}')
        expect(group.next("protocol_error")["seq"] == 1004, "the error names the seq")
        group.send_text("nonsense")
        expect(group.next("protocol_error")["seq"] is None, "no seq is null")
        group.start("passes")
        for event in ("started", "progress"):
            group.next(event)
        seen.add(group.next("result")["outcome"])
        lengths = {"valid_q": [32], "padded_q": [32], "valid_kv": [32], "padded_kv": [32]}
        expect(group.run("has lengths", lengths=lengths)["outcome"] == "pass", "lengths of the case are taken")
        refused = group.run("has others", lengths={**lengths, "valid_kv": [31]})
        expect("valid_kv" in refused["reason"], "lengths that are not the case's are refused")
        seen.add(group.run("is impossible", heads=0)["outcome"])
        seen.add(group.run("pads", layout="thd", pad_between_seqs=True, dtype="bf16", comm="all_gather")["outcome"])
        timed = group.run("is timed", perf={"warmup": 1, "iterations": 3})
        expect(timed["perf"]["step_ms"]["median"] > 0 and timed["perf"]["one_rank_ms"]["median"] > 0, "times are taken")
        expect([rank["rank"] for rank in timed["perf"]["ranks"]] == [0, 1], "times of every rank")
        # K and V of a rank's 16 tokens, and gradients of the same size, all in fp32.
        expect(timed["perf"]["bytes_sent"] == 2 * 16 * 2 * (8 + 8) * 4, "bytes are counted")
        # The last case, because on a busy machine the pool may not be back in time after it.
        seen.add(group.run("throws")["outcome"])
    seen.add(hang(validator, worker)["outcome"])
    with Group(validator, [worker, "--inject", "hang@1:inside:hangs"]) as group:
        group.next("ready")
        group.start("hangs")
        group.next("started")
        group.send(op="cancel", seq=group.seq)
        seen.add(group.next("result")["outcome"])
    diagnosed = next(filter(None, (diagnose(validator, worker) for _ in range(TRIES_TO_RECOVER))), None)
    expect(diagnosed, "no pool recovered from a diagnosis that throws")
    seen |= diagnosed
    with Group(validator, [worker, "--cut", "striped:3"]) as group:
        group.next("ready")
        seen.add(group.run("skips", causal=False)["outcome"])
    with Group(validator, [worker], CP_POOL_PROTOCOL="8..9") as group:
        group.next("protocol_error")
    expect(seen == {"pass", "fail", "skip", "error", "timeout", "cancelled"}, f"outcomes seen: {seen}")


def check_example(validator, worker):
    with Group(validator, [worker]) as group:
        group.next("ready")
        expect(group.run("passes")["outcome"] == "pass", "p2p passes")
        expect(group.run("skips", comm="a2a")["outcome"] == "skip", "a2a is skipped")
        group.send(op="ping", seq=1001)
        group.next("pong")
        group.send_text('{"op":"jump","seq":1004}')
        group.next("protocol_error")
        group.send(op="shutdown")
    expect([process.returncode for process in group.processes] == [0, 0], "both ranks end well")
    with Group(validator, [worker], CP_POOL_INJECT="hang@0:before") as group:
        group.next("ready")
        group.send(op="ping", seq=1002, all=True)
        expect(group.next("pong")["ranks"] == [0, 1], "both ranks answer")
        group.start("hangs")
        group.next("started")
        group.send(op="ping", seq=1003, all=True)
        expect(group.next("pong")["ranks"] == [0, 1], "both ranks answer while a case hangs")
        group.send(op="cancel", seq=group.seq)
        cancelled = group.next("result")
        expect(cancelled["outcome"] == "cancelled" and not cancelled["healthy"], f"{cancelled}")
    with Group(validator, [worker], CP_POOL_INJECT="throw@1:inside") as group:
        group.next("ready")
        thrown = group.run("throws")
        expect(thrown["reason"] == "rank 1: RuntimeError: injected fault" and not thrown["healthy"], f"{thrown}")
        expect([(rank["rank"], rank["aborted"]) for rank in thrown["ranks"]] == [(1, False), (0, True)], f"{thrown}")
        for text in ("nonsense", "[3]", '{"op":"run","seq":7}', "[" * 100000):
            group.send_text(text)
            group.next("protocol_error")
    with Group(validator, [worker], CP_POOL_PROTOCOL="8..9") as group:
        group.next("protocol_error")


def main():
    schema_file, worker, example = sys.argv[1:]
    with open(schema_file, encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    check_worker(validator, worker)
    check_example(validator, example)


if __name__ == "__main__":
    main()

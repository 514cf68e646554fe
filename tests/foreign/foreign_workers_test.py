#!/usr/bin/env python3
"""Runs workers that are not ours under the real driver, and checks their answers and that a fault in a rank is named.

Usage: foreign_workers_test.py CP_POOL version1|minimal|torch
"""
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
EXAMPLES = TESTS.parents[1] / "docs" / "examples"
# The worker of version 1 stays as it was when there was only that version: a new cp-pool must not break old workers.
VERSION1 = TESTS / "version1_worker.py"
VERSION1_SHA256 = "3563457cdb9c00895f275f4b78386b32d868f38f9940441a3a4c43d307758627"
# The last line of the stack trace of a rank that was freed because another rank had failed.
LOST = re.compile(r"^(Connection\w*|BrokenPipe)Error: ", re.MULTILINE)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def case(model, cp_size=2, **fields):
    return {"model": model, "cp_size": cp_size, "dtype": "fp32", "batch": 1, "seqlen_q": 32, "seqlen_kv": 32,
            "heads": 2, "kv_heads": 2, "head_dim_qk": 8, "head_dim_v": 8, **fields}


class Driver:
    def __init__(self, cp_pool):
        self._cp_pool = cp_pool

    def submit(self, worker, cases, inject="", timeout="60s"):
        """The answers of submit --json, by model."""
        finished = subprocess.run(
            [self._cp_pool, "submit", "-", "--json", "--device", "cpu", "--timeout", timeout, "--worker", worker],
            input="".join(json.dumps(one) + "\n" for one in cases), env={**os.environ, "CP_POOL_INJECT": inject},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        answers = [json.loads(line) for line in finished.stdout.splitlines()]
        expect(len(answers) == len(cases), f"answers of {len(cases)}:\n{finished.stdout}{finished.stderr}")
        return {one["model"]: answer for one, answer in zip(cases, answers)}


    def conformance(self, worker):
        """The last line of `cp-pool conformance` on a worker, and its whole output."""
        finished = subprocess.run([self._cp_pool, "conformance", "--device", "cpu", "--worker", worker],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return finished.stdout.splitlines()[-1], finished.stdout


def tail(answer, rank):
    return next((entry["text"] for entry in answer["stderr"] if entry["rank"] == rank), "")


def check_version1(driver):
    expect(hashlib.sha256(VERSION1.read_bytes()).hexdigest() == VERSION1_SHA256, f"{VERSION1} was changed")
    answers = driver.submit(str(VERSION1), [
        case("dense"), case("packed", layout="thd", seqlens=[16]), case("wide", cp_size=4, dtype="bf16"),
        case("no_a2a", comm="a2a"), case("newer_field", input_scale=10), case("after_the_skip")])
    outcomes = {model: answer["outcome"] for model, answer in answers.items()}
    expect(outcomes == {"dense": "pass", "packed": "pass", "wide": "pass", "no_a2a": "skip",
                        "newer_field": "skip", "after_the_skip": "pass"},
           f"outcomes {outcomes}")
    expect(all(answers[model]["unverified_by_figures"] for model in ("dense", "packed", "wide")), f"{answers}")
    expect(answers["no_a2a"]["reason"] == "this worker has no a2a", answers["no_a2a"]["reason"])


def check_throw(answer, rank, ranks=2):
    """The reason is the exception of the rank at fault, wherever its peers waited. The peers were freed and say so."""
    expect(answer["outcome"] == "error" and answer["reason"] == f"rank {rank}: RuntimeError: injected fault",
           f"{answer['outcome']}: {answer['reason']}")
    told = answer["ranks"]
    expect(len(told) == ranks and told[0]["rank"] == rank, f"ranks {told}")
    expect("Traceback" in told[0]["error"] and "Traceback" in tail(answer, rank), f"no stack trace: {answer}")
    expect(all(LOST.search(other["error"]) for other in told[1:]), f"not freed: {told}")


def check_death(answer, rank, how):
    expect(answer["outcome"] == "crash" and answer["reason"].startswith(f"rank {rank} died: {how}"),
           f"{answer['outcome']}: {answer['reason']}")


def check_minimal(driver):
    worker = str(EXAMPLES / "minimal_worker.py")
    faults, cases = [], []

    def add(kind, rank, phase, cp_size=2):
        model = f"{kind.replace('=', '')}_{rank}_{phase}_{cp_size}"
        faults.append(f"{kind}@{rank}:{phase}:*/{model}/*")
        cases.extend([case(model, cp_size), case(f"after_{model}", cp_size)])
        return model

    throws = {add("throw", rank, phase): rank for rank in (0, 1) for phase in ("before", "inside")}
    throw_of_four = add("throw", 2, "inside", cp_size=4)
    deaths = {add(kind, rank, phase): (rank, how) for kind, phase, how in (
        ("exit=3", "before", "exit 3"), ("sigsegv", "inside", "signal 11 (SIGSEGV)"))
        for rank in (0, 1)}
    unreported = {add("throw", 1, "result"): (1, "exit 1")}
    printed = add("print=100000", 1, "before")
    faults.append(f"slow=20@1:before:*/{printed}/*")  # faults of the same rank and phase fire one after the other
    skipped = case("all_gather", comm="all_gather")
    answers = driver.submit(worker, [*cases, skipped], " ".join(faults))
    for model, rank in throws.items():
        check_throw(answers[model], rank)
    check_throw(answers[throw_of_four], 2, ranks=4)
    for model, (rank, how) in {**deaths, **unreported}.items():
        check_death(answers[model], rank, how)
        if how.endswith("(SIGSEGV)"):
            stack = tail(answers[model], rank)
            expect("Segmentation fault" in stack and "in rotate" in stack, f"no stack: {stack}")
    expect(answers[printed]["outcome"] == "pass", "what a rank prints is no answer")
    expect(answers[printed]["duration_ms"] >= 20, "the fault after it fired, too")
    expect(answers["all_gather"]["outcome"] == "skip", "the example has p2p alone")
    for model, answer in answers.items():
        if model.startswith("after_"):
            expect(answer["outcome"] == "pass", f"{model}: {answer['outcome']}: {answer['reason']}")
            expect(not answer["unverified_by_figures"], f"{model}: a pass without figures")
    check_hangs(driver, worker)
    check_stop(driver, worker)
    check_bad_fault(driver, worker)
    last, verdicts = driver.conformance(worker)
    expect(re.fullmatch(r"\d+ rules: \d+ ok, 0 broken", last), f"none is broken, absent or untested:\n{verdicts}")


def check_hangs(driver, worker):
    """The worker's own deadline comes before the driver's, and names the rank that hangs. The driver could not."""
    hangs = {"hang_before": (0, "before"), "hang_inside": (1, "inside")}
    faults = " ".join(f"hang@{rank}:{phase}:*/{model}/*" for model, (rank, phase) in hangs.items())
    for seconds in (1, 4, 16):  # the shortest deadline that this machine can keep
        answers = driver.submit(worker, [*map(case, hangs), case("after")], faults, f"{seconds}s")
        if all(answers[model]["reason"].startswith(f"rank {rank} ") for model, (rank, _) in hangs.items()):
            break
    for model, (rank, _) in hangs.items():
        expect(answers[model]["outcome"] == "timeout", answers[model]["outcome"])
        expect(answers[model]["reason"] == f"rank {rank} did not report within {0.8 * seconds:g} s",
               answers[model]["reason"])
        expect("in fire" in tail(answers[model], rank), f"no stack of the rank that hangs: {answers[model]}")
        expect("in rotate" in tail(answers[model], 1 - rank), "the stack of the rank that waits for it")
        expect(answers[model]["duration_ms"] < 1000 * seconds, f"{answers[model]['duration_ms']} ms")
    expect(answers["after"]["outcome"] == "pass", f"after: {answers['after']}")


def check_stop(driver, worker):
    """Rank 0 is stopped, so the driver's deadline ends the case. SIGUSR2 makes rank 1 write its stack and does not kill
    it."""
    answer = driver.submit(worker, [case("stopped")], "sigstop@0:inside", "5s")["stopped"]
    expect(answer["outcome"] == "timeout" and answer["reason"].startswith("no result within"), answer["reason"])
    expect("in rotate" in tail(answer, 1), f"no stack of rank 1: {tail(answer, 1)}")


def check_bad_fault(driver, worker):
    answer = driver.submit(worker, [case("never_run")], "jump@0:inside")["never_run"]
    expect(answer["outcome"] == "infra", answer["outcome"])
    expect("CP_POOL_INJECT: jump@0:inside: expected KIND@RANK:PHASE[:CASE]" in json.dumps(answer), f"{answer}")


def check_torch(driver):
    thd = {"comm": "all_gather", "layout": "thd", "pad_between_seqs": True, "batch": 4, "seqlens": [13, 0, 32, 5]}
    answers = driver.submit(f"{shlex.quote(sys.executable)} {shlex.quote(str(EXAMPLES / 'torch_worker.py'))}", [
        case("causal", causal=True, **thd),
        case("gqa", **thd, dtype="bf16", heads=4, window=[5, 2], seqlens_kv=[7, 8, 0, 9]),
        case("forward", **thd, training=False, chunk=6),
        case("batch_first", comm="all_gather", layout="bshd", batch=2, seqlen_kv=48),
        case("sequence_first", comm="all_gather", layout="sbhd", batch=2, causal=True, head_dim_v=16),
        case("skipped", comm="p2p"),
        case("throws", **thd),
        case("after", **thd),
        case("throws_early", **thd),
        case("after_early", **thd)], inject="throw@1:inside:*/throws/* throw@1:inside:*/throws_early/* "
                                           "slow=200@0:inside:*/throws_early/*")
    for model, tensors in (("causal", 5), ("gqa", 5), ("forward", 2), ("batch_first", 5), ("sequence_first", 5), ("after", 5),
                           ("after_early", 5)):
        answer = answers[model]
        expect(answer["outcome"] == "pass", f"{model}: {answer['outcome']}: {answer['reason']}\n{answer}")
        expect(len(answer["checks"]) == 2 * tensors, f"{model}: {answer['checks']}")
        expect(all(check["error"] <= check["bound"] for check in answer["checks"]), f"{answer['checks']}")
    expect(answers["skipped"]["outcome"] == "skip", answers["skipped"]["outcome"])
    check_throw(answers["throws"], 1)
    check_throw(answers["throws_early"], 1)  # rank 0 reaches the collective after its process group is gone


def main():
    cp_pool, worker = sys.argv[1:]
    {"version1": check_version1, "minimal": check_minimal, "torch": check_torch}[worker](Driver(cp_pool))


if __name__ == "__main__":
    main()

"""Runs each fault of te_faults.py until a case fails, and prints a table: which case finds it, when, and the diagnosis.

    python examples/faults/run_te_faults.py --cp-pool build/release/bin/cp-pool [FAULT...]

It needs two GPUs; with more, several faults run at a time.
"""

import argparse
import concurrent.futures
import json
import pathlib
import queue
import re
import subprocess
import sys
import tempfile

import torch

FAULTS = pathlib.Path(__file__).resolve().with_name("te_faults.py")
# Transformer Engine's essential cases for two ranks, without those of 128 heads, which take long.
CASES = "tag=essential & cp_size=2 & !model=cp_3_1"


def names():
    """The names of all faults, and the first lines of their descriptions."""
    return dict(re.findall(r'@fault\ndef (\w+)\(\):\n    """(.*?)"""', FAULTS.read_text(encoding="utf-8")))


def first_failure(events):
    """The first case that did not pass, and how long the run had taken by then, in seconds."""
    lines = [json.loads(line) for line in pathlib.Path(events).read_text(encoding="utf-8").splitlines()]
    finished = [event for event in lines if event["type"] == "case_finished"]
    wrong = [event for event in finished if event["outcome"] in ("fail", "error", "timeout", "crash")]
    return (wrong[0] if wrong else None), sum(event["outcome"] == "pass" for event in finished)


def run(name, gpus, options):
    with tempfile.TemporaryDirectory() as folder:
        events = f"{folder}/events.jsonl"
        command = [options.cp_pool, "run", "--no-record", "--device", "cuda", "--gpus", gpus, "--fail-fast"]
        command += ["--matrix", "te-fused", "--size", "full", "--filter", CASES, "--events", events, "-q"]
        command += ["--adapter", f"{FAULTS}:{name}", "--python", sys.executable, *options.arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.limit)
        if not pathlib.Path(events).exists():
            return f"not run: {done.stderr.strip()[-300:]}", "", "", ""
        failure, passed = first_failure(events)
    if failure is None:
        return f"not found in {passed} cases", "", "", ""
    said = failure["diagnosis"] or {}
    diagnosis = f"{said.get('certainty', 'none')} {said.get('id', '')}".strip()
    case = failure["id"].removeprefix("te-fused/")
    return f"`{case}`", f"{failure['at_ms'] / 1000:.0f} s", failure["reason"].split("\n")[0], diagnosis


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cp-pool", default="cp-pool", help="the program")
    parser.add_argument("--at-once", type=int, default=1, help="runs that share two GPUs")
    parser.add_argument("--limit", type=float, default=300, help="the most seconds of a run")
    parser.add_argument("--arguments", default=[], type=str.split, help="more arguments of cp-pool run")
    parser.add_argument("faults", nargs="*", help="all if none is given")
    options = parser.parse_args()
    pairs = queue.Queue()
    for _ in range(options.at_once):
        for first in range(0, torch.cuda.device_count() - 1, 2):
            pairs.put(f"{first},{first + 1}")

    def take(name):
        gpus = pairs.get()
        try:
            return run(name, gpus, options)
        except subprocess.TimeoutExpired:
            return f"not ended in {options.limit:g} s", "", "", ""
        finally:
            pairs.put(gpus)

    print("| fault | first case that fails | after | what failed | diagnosis |\n|---|---|---|---|---|")
    chosen = options.faults or list(names())
    with concurrent.futures.ThreadPoolExecutor(pairs.qsize()) as pool:
        for name, row in zip(chosen, pool.map(take, chosen), strict=True):
            print(f"| `{name}` | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()

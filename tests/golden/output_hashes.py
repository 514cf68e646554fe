#!/usr/bin/env python3
"""output_hashes.py CP_POOL [--write] [MATRIX...]: runs matrices (default: all of hashes/) at size small on CPU ranks and
compares the bits of the outputs of each case with hashes/MATRIX.txt, or writes that file.

A line has the ID of a case, without the name of the matrix, and a hash of the output_hash of its ranks. Each rank
computes with one thread, and MKL with instructions that every x86-64 processor has. Otherwise the order of sums would
depend on the processor: without MKL_CBWR 171 of the 180 cases of quick differed between an AMD EPYC of 2 cores and an
Intel Xeon of 16 cores, and with it none of the 2362 cases of all matrices (2026-11-27).
"""
import argparse
import difflib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent / "hashes"
FIXED = {"OMP_NUM_THREADS": "1", "MKL_CBWR": "COMPATIBLE", "CP_POOL_PLAN_STORE": "off"}
MOST_SHOWN = 20  # lines of a difference


def hash_of(case):
    """The hash of a case's outputs; of a case that did not pass, its outcome."""
    if case["outcome"] != "pass":
        return case["outcome"]
    ranks = sorted((rank["rank"], rank["output_hash"]) for rank in case["ranks"])
    return hashlib.sha256(repr(ranks).encode()).hexdigest()[:8]


def hashes_of(cp_pool, matrix):
    with tempfile.TemporaryDirectory() as folder:
        events = pathlib.Path(folder, "events.jsonl")
        done = subprocess.run([cp_pool, "run", "--matrix", matrix, "--size", "small", "--device", "cpu", "-q", "--events",
                               events], env={**os.environ, **FIXED, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder},
                              capture_output=True, text=True)
        if done.returncode not in (0, 100):
            sys.exit(f"cp-pool run --matrix {matrix} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        lines = map(json.loads, events.read_text(encoding="utf-8").splitlines())
        cases = [line for line in lines if line["type"] == "case_finished"]
    return [f'{case["id"].removeprefix(matrix + "/")} {hash_of(case)}' for case in sorted(cases, key=lambda c: c["id"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cp_pool", metavar="CP_POOL")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("matrices", nargs="*", metavar="MATRIX")
    options = parser.parse_args()
    wrong = False
    for matrix in options.matrices or sorted(file.stem for file in FOLDER.iterdir()):
        file = FOLDER / f"{matrix}.txt"
        now = hashes_of(options.cp_pool, matrix)
        if options.write:
            file.write_text("\n".join(now) + "\n", encoding="utf-8")
            continue
        was = file.read_text(encoding="utf-8").splitlines()
        lines = list(difflib.unified_diff(was, now, "before", "now", n=0, lineterm=""))[2:]
        changed = [line for line in lines if not line.startswith("@@")]
        print(f"{matrix}: {len(now)} cases, {sum(line.startswith('+') for line in changed)} with other outputs than before")
        if changed:
            wrong = True
            print("\n".join(changed[:MOST_SHOWN]))
    if wrong:
        sys.exit("If this change is meant, tools/golden --hashes writes the files anew.")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""check_trace.py FILE: checks that ui.perfetto.dev and chrome://tracing can read a trace of a run (--trace-run), and
prints its tracks as one JSON object, which maps "process/thread" to [category, name, begin, end] in order, with times
in microseconds. For a wrong trace it exits with 1 and writes one line to stderr: an event lacks a field that its kind
needs, a track has no name, or two spans of a track overlap without one containing the other."""
import json
import sys


def fail(message):
    sys.exit(f"{sys.argv[1]}: {message}")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        trace = json.load(file)
    processes, threads, tracks = {}, {}, {}
    for event in trace["traceEvents"]:
        kind = event["ph"]
        if kind == "M":
            name = event["args"]["name"]
            of_process = event["name"] == "process_name"
            known = processes if of_process else threads
            key = event["pid"] if of_process else (event["pid"], event["tid"])
            if key in known:
                fail(f"{key} has two names")
            known[key] = name
        elif kind in ("X", "i"):
            begin = event["ts"]
            end = begin + (event["dur"] if kind == "X" else 0)
            if not (isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end):
                fail(f"times of {event}")
            tracks.setdefault((event["pid"], event["tid"]), []).append([event["cat"], event["name"], begin, end])
        else:
            fail(f"an event of kind {kind!r}")
    out = {}
    for (pid, tid), spans in tracks.items():
        if pid not in processes or (pid, tid) not in threads:
            fail(f"the track {pid}/{tid} has no name")
        spans.sort(key=lambda span: (span[2], -span[3]))
        open_spans = []
        for span in spans:
            while open_spans and open_spans[-1][3] <= span[2]:
                open_spans.pop()
            if open_spans and span[3] > open_spans[-1][3]:
                fail(f"{span} is partly in {open_spans[-1]}")
            if span[3] > span[2]:
                open_spans.append(span)
        out.setdefault(f"{processes[pid]}/{threads[pid, tid]}", []).extend(spans)
    print(json.dumps(out))


main()

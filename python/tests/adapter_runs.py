"""Runs cp-pool with real ranks of an adapter, and collects the outcome of each case and of each pool."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
ADAPTERS = TESTS / "adapters"
PACKAGES = TESTS.parents[1] / "build/release/python"  # where the build has cp_pool, if PYTHONPATH is not set
BINARY = Path(os.environ.get("CP_POOL_BINARY", TESTS.parents[1] / "build/release/bin/cp-pool"))

SMALL = {
    "cp_size": 2,
    "comm": "p2p",
    "layout": "bshd",
    "dtype": "fp32",
    "batch": 1,
    "seqlen_q": 16,
    "seqlen_kv": 16,
    "heads": 2,
    "kv_heads": 2,
    "head_dim_qk": 8,
    "head_dim_v": 8,
    "causal": True,
}


# A worker has a second to free its ranks and one to connect them again. A busy machine may need longer, but not every
# time.
TRIES_TO_RECOVER = 5


def case(model: str, **fields: Any) -> dict[str, Any]:
    return {**SMALL, "model": model, **fields}


def worker_command(adapter: str, *options: str) -> str:
    """The command of a worker. adapter: a file of tests/adapters, with :NAME."""
    return shlex.join([sys.executable, "-m", "cp_pool.worker", str(ADAPTERS / adapter), *options])


@dataclass
class Outcome:
    """A case_finished event."""

    event: dict[str, Any]

    @property
    def outcome(self) -> str:
        return str(self.event["outcome"])

    @property
    def reason(self) -> str:
        return str(self.event.get("reason", ""))

    @property
    def errors(self) -> str:
        """The errors of all ranks."""
        return "\n".join(rank.get("error", "") for rank in self.event.get("ranks", []))

    @property
    def stderr(self) -> str:
        """The stderr tails of all ranks."""
        return "\n".join(tail["text"] for tail in self.event.get("stderr", []))

    def rank(self, rank: int) -> dict[str, Any]:
        return next(r for r in self.event["ranks"] if r["rank"] == rank)


@dataclass
class Run:
    code: int
    cases: list[Outcome]
    events: list[dict[str, Any]]
    output: str
    retired: list[dict[str, Any]] = field(default_factory=list)

    def outcomes(self) -> list[str]:
        return [c.outcome for c in self.cases]

    def pools(self) -> int:
        return sum(1 for e in self.events if e["type"] == "pool_ready")

    def unhealthy_pools(self) -> list[dict[str, Any]]:
        """The pools that were replaced because their ranks could not be freed and connected again in time."""
        return [event["pool"] for event in self.retired if event["reason"] == "unhealthy"]


def environment() -> dict[str, str]:
    env = dict(os.environ)
    env["PYTHONPATH"] = f"{os.environ.get('PYTHONPATH', PACKAGES)}:{ADAPTERS}"
    env["CUDA_VISIBLE_DEVICES"] = ""
    return env


def run_cases(
    adapter: str, cases: list[dict[str, Any]], *options: str, worker: str = "", env: dict[str, str] | None = None
) -> Run:
    """Submits the cases, in order, to a pool of the adapter."""
    lines = "".join(json.dumps(c) + "\n" for c in cases)
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events.jsonl"
        ranks = ["--worker", worker or worker_command(adapter)]
        if "--fork" in options:
            ranks = ["--adapter", str(ADAPTERS / adapter), "--python", sys.executable]
        command = [str(BINARY), "submit", "-", "--device", "cpu", *ranks, "--events", str(events), "--grace", "300ms"]
        command += options
        done = subprocess.run(
            command,
            input=lines,
            env={**environment(), **(env or {})},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        told = [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []
    finished = [Outcome(e) for e in told if e["type"] == "case_finished"]
    return Run(
        done.returncode, finished, told, done.stdout + done.stderr, [e for e in told if e["type"] == "pool_retired"]
    )

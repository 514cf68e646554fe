"""The job scripts of examples/cluster, as docs/cluster.md says how to call them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hosts import Cluster, Host, wait_until
from slurm import Slurm

SCRIPTS = Path(__file__).resolve().parents[2] / "examples/cluster"
PROGRAMS = Path(os.environ.get("CP_POOL_TEST_PROGRAM", "")).parent
FEW = ["--filter", "quick/*/p2p/cp2/*"]


def submit(host: Host, folder: Path, words: list[str]) -> str:
    """As from a shell of a login node, with cp-pool in its path."""
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    return host.run(["env", f"--chdir={folder}", *words], env={"PATH": path}).strip()


def events(*files: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_text().rpartition("\n")[0].splitlines()]


def outcomes(of: list[dict[str, Any]]) -> Counter[str]:
    return Counter(event["outcome"] for event in of if event["type"] == "case_finished")


def ended(slurm: Slurm, job: str) -> None:
    wait_until(lambda: job not in " ".join(slurm.jobs()), 300, f"job {job} ends")


@pytest.mark.long
def test_an_array_of_jobs_and_their_report(
    slurm: Slurm, two_hosts: Cluster, nothing_left: None, tmp_path: Path
) -> None:
    host = two_hosts.hosts[0]
    selected = subprocess.run(
        [PROGRAMS / "cp-pool", "list", *FEW], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    job = submit(host, tmp_path, ["sbatch", "--parsable", "--array=1-2", f"{SCRIPTS}/array.sbatch", *FEW])
    report = submit(
        host, tmp_path, ["sbatch", "--parsable", f"--dependency=afterany:{job}", f"{SCRIPTS}/report.sbatch", job]
    )
    ended(slurm, report)
    folder = tmp_path / f"cp-pool-{job}"
    shards = sorted(folder.glob("events-*.jsonl"))
    assert len(shards) == 2, [file.read_text() for file in tmp_path.glob("*.log")]
    assert all(outcomes(events(shard)) for shard in shards)
    assert outcomes(events(*shards)) == {"pass": len(selected)}
    assert f"{len(selected)} pass" in (tmp_path / f"cp-pool-{report}.log").read_text()
    assert (folder / "junit.xml").read_text().count("<testcase") == len(selected)


@pytest.mark.long
def test_a_job_that_is_told_to_end(slurm: Slurm, two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    host = two_hosts.hosts[0]
    job = submit(host, tmp_path, ["sbatch", "--parsable", "--array=1-1", f"{SCRIPTS}/array.sbatch", "--repeat", "20"])
    written = tmp_path / f"cp-pool-{job}/events-1.jsonl"
    wait_until(lambda: written.exists() and "case_finished" in written.read_text(), 120, "a case has finished")
    submit(host, tmp_path, ["scancel", "--batch", "--signal=TERM", job])
    ended(slurm, job)
    last = events(written)[-1]
    assert last["type"] == "run_finished"
    assert last["interrupted"] and last["ledger_exact"] and last["counts"]["not-run"]


@pytest.mark.long
def test_cp_pool_as_the_first_process_of_a_container(two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    """A pid namespace ends with its first process; what ranks have left behind does not keep that one from its end."""
    container = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    words = [f"{PROGRAMS}/cp-pool", "run", *FEW, "--events"]
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    host = two_hosts.hosts[0]
    host.run([*container, *words, str(whole)], env={"CP_POOL_INJECT": "setsid@1:inside daemon@0:idle"})
    told = events(whole)
    assert outcomes(told) == {"pass": told[0]["cases"]}
    run = host.start(
        [*container, *words, str(cut), "--repeat", "20"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    wait_until(lambda: cut.exists() and outcomes(events(cut)), 120, "a case has finished")
    first = [pid for pid, line in host.processes().items() if line.startswith(" ".join(words))]
    assert len(first) == 1
    os.kill(first[0], signal.SIGTERM)
    assert run.wait(timeout=60) == 130
    assert events(cut)[-1]["type"] == "run_finished"

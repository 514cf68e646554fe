"""The job scripts of examples/cluster, called as docs/cluster.md says."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hosts import Cluster, Host, wait_until
from launchers import SRUN
from slurm import Slurm

SCRIPTS = Path(__file__).resolve().parents[2] / "examples/cluster"
PROGRAMS = Path(os.environ.get("CP_POOL_TEST_PROGRAM", "")).parent
FEW = ["--filter", "quick/*/p2p/cp2/*"]


def lines_of_the_page() -> list[tuple[str, list[str]]]:
    """The command lines of docs/cluster.md that start cp-pool on several hosts, each with its heading."""
    text = (SCRIPTS.parents[1] / "docs/cluster.md").read_text()
    sections = dict(re.findall(r"^### ([^\n]*)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
    blocks = [
        (heading, block.replace("\\\n", " "))
        for heading in ("Slurm", "Open MPI", "torchrun on several hosts", "ssh alone")
        for block in re.findall(r"^```\n(.*?)^```$", sections[heading], re.MULTILINE | re.DOTALL)
    ]
    return [
        (heading, shlex.split(line))
        for heading, block in blocks
        for line in block.splitlines()
        if "cp-pool run" in line
    ]


LINES = lines_of_the_page()


def submit(host: Host, folder: Path, words: list[str]) -> str:
    """Runs the words on a host as from a shell of a login node, with cp-pool in PATH. Returns the stdout."""
    path = f"{PROGRAMS}:{SRUN.environment()['PATH']}"
    return host.run(["env", f"--chdir={folder}", *words], env={"PATH": path}, limit=300).strip()


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
@pytest.mark.parametrize(
    ("filter", "slots", "hosts_of_a_pool"),
    [
        pytest.param("quick/*/p2p/cp4/*", 2, 2, id="a pool over nodes"),
        pytest.param(FEW[1], 4, 1, id="pools side by side"),
    ],
)
def test_one_allocation(
    filter: str, slots: int, hosts_of_a_pool: int, slurm: Slurm, two_hosts: Cluster, nothing_left: None, tmp_path: Path
) -> None:
    script = [f"--ntasks-per-node={slots}", f"{SCRIPTS}/one_allocation.sbatch", "--filter", filter]
    job = submit(two_hosts.hosts[0], tmp_path, ["sbatch", "--parsable", "--nodes=2", *script])
    ended(slurm, job)
    told = events(tmp_path / f"cp-pool-{job}.jsonl")
    assert outcomes(told) == {"pass": told[0]["cases"]}, (tmp_path / f"cp-pool-{job}.log").read_text()
    pools = [{rank["host"] for rank in event["ranks"]} for event in told if event["type"] == "pool_ready"]
    assert {len(pool) for pool in pools} == {hosts_of_a_pool}
    assert set().union(*pools) == {"host1", "host2"}
    assert (tmp_path / f"cp-pool-{job}.xml").read_text().count("<testcase") == told[0]["cases"]


@pytest.mark.long
@pytest.mark.parametrize("line", LINES, ids=[heading for heading, _ in LINES])
def test_a_line_of_the_page(
    line: tuple[str, list[str]], slurm: Slurm, two_hosts: Cluster, nothing_left: None, tmp_path: Path
) -> None:
    """A command line of docs/cluster.md, with fewer cases unless it has a filter, passes on both hosts."""
    words, written = line[1], tmp_path / "events.jsonl"
    few = [] if "--filter" in words else FEW
    submit(two_hosts.hosts[0], SCRIPTS.parents[1], [*words, *few, "--no-progress", "--events", str(written)])
    told = events(written)
    assert outcomes(told) == {"pass": told[0]["cases"]}
    ranks = [rank for event in told if event["type"] == "pool_ready" for rank in event["ranks"]]
    assert {rank["host"] for rank in ranks} == {"host1", "host2"}


@pytest.mark.long
def test_cp_pool_as_the_first_process_of_a_container(two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    """As the first process of a pid namespace cp-pool becomes the parent of orphans. Processes that ranks left behind
    do not keep it from ending."""
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

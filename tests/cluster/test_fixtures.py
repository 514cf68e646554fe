"""The hosts and launchers of the tests work: they start programs where they should, and real ranks meet across hosts
and run a case, without cp-pool between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hosts import FOLDERS, Cluster, need, wait_until
from launchers import LAUNCHERS, Launcher
from slurm import Slurm

WORKER = os.environ.get("CP_POOL_WORKER_BINARY", "")
CASE = {
    "model": "by_hand",
    "cp_size": 2,
    "dtype": "fp32",
    "batch": 1,
    "seqlen_q": 32,
    "seqlen_kv": 32,
    "heads": 2,
    "kv_heads": 2,
    "head_dim_qk": 8,
    "head_dim_v": 8,
}
SENTINEL = "[CP_POOL_RESP] "


@pytest.fixture(params=LAUNCHERS, ids=lambda launcher: launcher.name)
def launcher(request: pytest.FixtureRequest, two_hosts: Cluster) -> Launcher:
    chosen: Launcher = request.param
    need(chosen.missing())
    if chosen.needs_slurm:
        request.getfixturevalue("slurm")
    return chosen


def test_hosts_are_apart(two_hosts: Cluster, nothing_left: None) -> None:
    first, second = two_hosts.hosts
    assert [host.run(["hostname"]).strip() for host in two_hosts.hosts] == ["host1", "host2"]
    assert second.run(["ssh", "host1", "hostname"]) == "host1\n"
    assert second.run(["ssh", first.ipv6, "hostname"]) == "host1\n"
    sleeper = first.start(["sleep", "1000"])
    wait_until(lambda: any("sleep 1000" in line for line in first.processes().values()), 20, "it runs")
    assert not second.processes()
    assert "sleep" not in second.run(["ps", "ax"])
    first.run(["touch", "/dev/shm/mark"])
    left = two_hosts.left_behind()
    assert set(left) == {"host1"}
    assert {line.split(maxsplit=1)[0] for line in left["host1"]} == {"process", "shared"}
    first.run(["rm", "/dev/shm/mark"])
    os.kill(next(pid for pid, line in first.processes().items() if "sleep 1000" in line), signal.SIGKILL)
    sleeper.wait(timeout=20)


@pytest.mark.long
def test_a_cable_that_is_pulled(two_hosts: Cluster, nothing_left: None) -> None:
    first, second = two_hosts.hosts
    session = first.start(
        ["ssh", "host2", "echo started; sleep 1000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert session.stdout is not None
    assert session.stdout.readline() == "started\n"
    second.set_link(False)
    assert session.wait(timeout=60) == 255  # ssh's own heartbeat
    second.set_link(True)
    assert first.run(["ssh", "-o", "ConnectTimeout=10", "host2", "hostname"]) == "host2\n"
    second.run(["pkill", "sleep"])  # as a host that was cut off has it
    session.stdout.close()


@pytest.mark.long
def test_a_launcher_starts_a_program_on_each_host(launcher: Launcher, two_hosts: Cluster, nothing_left: None) -> None:
    out = two_hosts.hosts[0].run(launcher.command(2, ["sh", "-c", "echo rank on $(hostname)"]))
    expected = ["host1", "host2"] if launcher.spans_hosts else ["host1", "host1"]
    assert sorted(line.split()[-1] for line in out.splitlines() if line.startswith("rank on ")) == expected


def test_real_ranks_meet_and_run_a_case(launcher: Launcher, two_hosts: Cluster, nothing_left: None) -> None:
    process = two_hosts.hosts[0].start(
        launcher.command(2, [WORKER]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"GLOO_SOCKET_IFNAME": "eth0", "CP_POOL_DEVICE": "cpu"},
    )
    assert process.stdin is not None and process.stdout is not None
    # The request waits for the ranks; no answer ends the test.
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()

    def event(name: str) -> dict[str, Any]:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(SENTINEL) and (found := json.loads(line.removeprefix(SENTINEL)))["event"] == name:
                return dict(found)
        raise AssertionError(f"no {name}")

    def send(request: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()

    try:
        expected = ["host1", "host2"] if launcher.spans_hosts else ["host1", "host1"]
        assert [rank["host"] for rank in event("ready")["ranks"]] == expected
        send({"op": "run", "seq": 1, "id": "by_hand", "case": CASE, "timeout_ms": 60000})
        assert (result := event("result"))["outcome"] == "pass", result
        send({"op": "shutdown"})
        assert process.wait(timeout=60) == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.stdin.close()
        process.stdout.close()


def test_nothing_is_left_of_a_test_that_is_killed(two_hosts: Cluster) -> None:
    script = (
        "import time; from hosts import Cluster; cluster = Cluster(2); cluster.hosts[1].start(['sleep', '1000']); "
        "print(cluster.folder, *[host.init for host in cluster.hosts], flush=True); time.sleep(1000)"
    )
    test = subprocess.Popen(
        [sys.executable, "-c", script], text=True, stdout=subprocess.PIPE, cwd=Path(__file__).parent
    )
    assert test.stdout is not None
    folder, *inits = test.stdout.readline().split()
    test.kill()
    test.wait()
    test.stdout.close()
    wait_until(lambda: not any(Path("/proc", pid).exists() for pid in inits), 20, "the hosts end")
    assert Path(folder).parent == FOLDERS
    Cluster(1).end()
    assert not Path(folder).exists()


@pytest.mark.long
def test_a_node_that_comes_back(slurm: Slurm, two_hosts: Cluster) -> None:
    assert slurm.nodes() == ["idle", "idle"]
    begin = time.monotonic()
    two_hosts.hosts[1].set_link(False)
    try:
        wait_until(lambda: slurm.nodes() != ["idle", "idle"], 60, f"Slurm sees it, {time.monotonic() - begin}")
    finally:
        two_hosts.hosts[1].set_link(True)
    slurm.wait_for_nodes(2)

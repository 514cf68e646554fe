"""The hosts and launchers of these tests work: they start programs on the right hosts, and real ranks connect across
hosts and run a case without cp-pool."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest
from hosts import FOLDERS, Cluster, Host, need, wait_until
from launchers import LAUNCHERS, SSH, TORCHRUN, Launcher
from slurm import Slurm

WORKER = os.environ.get("CP_POOL_TEST_WORKER", "")
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


# torchrun takes 5 s to load torch. What is special about ssh is also tested by mpirun, which reaches hosts over ssh.
SLOW = {TORCHRUN, SSH}
PARAMS = [pytest.param(each, marks=[pytest.mark.long] if each in SLOW else [], id=each.name) for each in LAUNCHERS]


@pytest.fixture(params=PARAMS)
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
    wait_until(lambda: "sleep 1000" in first.processes().values(), 20, "it runs")
    assert "sleep 1000" not in second.processes().values()
    assert "sleep" not in second.run(["ps", "ax"])
    first.run(["touch", "/dev/shm/mark"])
    left = two_hosts.left_behind()
    assert set(left) == {"host1"}
    assert {line.split(maxsplit=1)[0] for line in left["host1"]} == {"process", "shared"}
    first.run(["rm", "/dev/shm/mark"])
    os.kill(next(pid for pid, line in first.processes().items() if line == "sleep 1000"), signal.SIGKILL)
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
    second.run(["pkill", "sleep"])  # a host that was cut off still has the process
    session.stdout.close()


@pytest.mark.long
def test_a_launcher_starts_a_program_on_each_host(
    launcher: Launcher, two_hosts: Cluster, nothing_left: None, tmp_path: Path
) -> None:
    program = ["sh", "-c", f"hostname >>{tmp_path}/ranks"]
    two_hosts.hosts[0].run(launcher.by_hand(program), env=launcher.environment())
    expected = ["host1", "host2"] if launcher.spans_hosts else ["host1", "host1"]
    assert sorted((tmp_path / "ranks").read_text().split()) == expected


class RanksByHand:
    """Two real ranks that a launcher starts. The test speaks the protocol with them in place of a driver."""

    def __init__(self, launcher: Launcher, host: Host) -> None:
        environment = {**launcher.environment(), "GLOO_SOCKET_IFNAME": "eth0", "CP_POOL_DEVICE": "cpu"}
        self.process = host.start(
            launcher.by_hand([WORKER]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self._watchdog = threading.Timer(120, self.process.kill)  # ends a test that gets no answer
        self._watchdog.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        self.stdin.close()
        self.stdout.close()

    def event(self, name: str) -> dict[str, Any]:
        for line in self.stdout:
            if line.startswith(SENTINEL) and (found := json.loads(line.removeprefix(SENTINEL)))["event"] == name:
                return dict(found)
        raise AssertionError(f"no {name}")

    def send(self, request: dict[str, Any]) -> None:
        self.stdin.write(json.dumps(request) + "\n")
        self.stdin.flush()


def workers(cluster: Cluster) -> dict[str, list[int]]:
    """The pids, outside the namespace, of the ranks on each host."""
    lines = {host.name: host.processes().items() for host in cluster.hosts}
    return {name: [pid for pid, line in of if line.split()[0] == WORKER] for name, of in lines.items()}


def test_real_ranks_meet_and_run_a_case(launcher: Launcher, two_hosts: Cluster, nothing_left: None) -> None:
    expected = ["host1", "host2"] if launcher.spans_hosts else ["host1", "host1"]
    with RanksByHand(launcher, two_hosts.hosts[0]) as ranks:
        assert [rank["host"] for rank in ranks.event("ready")["ranks"]] == expected
        ranks.send({"op": "run", "seq": 1, "id": "by_hand", "case": CASE, "timeout_ms": 60000})
        assert (result := ranks.event("result"))["outcome"] == "pass", result
        ranks.send({"op": "shutdown"})
        assert ranks.process.wait(timeout=60) == 0


@pytest.mark.long
@pytest.mark.parametrize("end", ["end of stdin", "death of rank 0"])
def test_ranks_on_other_hosts_end_with_rank_0(
    launcher: Launcher, end: str, two_hosts: Cluster, nothing_left: None
) -> None:
    with RanksByHand(launcher, two_hosts.hosts[0]) as ranks:
        ranks.event("ready")
        running = workers(two_hosts)
        assert {name: len(pids) for name, pids in running.items()} == (
            {"host1": 1, "host2": 1} if launcher.spans_hosts else {"host1": 2, "host2": 0}
        )
        if end == "end of stdin":
            ranks.stdin.close()
        else:
            os.kill(min(running["host1"]), signal.SIGKILL)
        wait_until(lambda: not any(workers(two_hosts).values()), 60, f"ranks outlive the {end}")
        ranks.process.wait(timeout=60)


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

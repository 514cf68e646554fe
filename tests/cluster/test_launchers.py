"""cp-pool with each launcher on several hosts: outcomes, faults, hosts that are cut off, and nothing left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import Cluster, cluster_of, need, wait_until
from launched_run import PROGRAM, LaunchedRun
from launchers import LAUNCHERS, MPIRUN, SRUN, SSH, Launcher

CASES = ["--filter", "quick/*/p2p/cp2/*"]
FIRST, SECOND = "quick/none/p2p/cp2/sbhd/bf16", "quick/none/p2p/cp2/thd/bf16"
FEW = ["--filter", FIRST, "--filter", SECOND]
FAKE_TIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
DEADLINE = 10.0  # s
DEADLINE_WORDS = ["--timeout", f"{DEADLINE}s"]

# The outcome of a case with each fault, whichever rank has it. The kernel kills a stopped rank 9 s after it last heard
# of the driver; its peers give up waiting at about the same time, so either may come first.
FAULTS = {
    "throw@{}:inside": "error",
    "sigsegv@{}:inside": "crash",
    "sigkill@{}:before": "crash",
    "exit=3@{}:after": "crash",
    "hang@{}:inside": "timeout",
    "sigstop@{}:inside": "timeout or crash",
    "print_err=1000000@{}:before": "pass",
    "setsid@{}:inside": "pass",
    "daemon@{}:inside": "pass",
    "wrong=dq@{}:inside": "fail",
}


# The other launchers take longer and behave alike.
FAST = [MPIRUN, SRUN]
PARAMS = [pytest.param(each, marks=[] if each in FAST else [pytest.mark.long], id=each.name) for each in LAUNCHERS]


@pytest.fixture(params=PARAMS)
def launcher(request: pytest.FixtureRequest, two_hosts: Cluster) -> Launcher:
    chosen: Launcher = request.param
    need(chosen.missing())
    if chosen.needs_slurm:
        request.getfixturevalue("slurm")
    return chosen


def hosts_of(launcher: Launcher) -> list[str]:
    return ["host1", "host2"] if launcher.spans_hosts else ["host1", "host1"]


def test_cases_pass(launcher: Launcher, two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    with LaunchedRun(two_hosts, launcher, tmp_path, FEW) as run:
        assert run.wait() == 0, run.log()
        assert set(run.outcomes().values()) == {"pass"}
        ready = run.events("pool_ready")
        assert [[rank["host"] for rank in event["ranks"]] for event in ready] == [hosts_of(launcher)]


def test_pools_side_by_side_have_gpus_of_their_own(two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    """The ranks compute on CPUs, but see in CUDA_VISIBLE_DEVICES the GPUs that they would have."""
    need(MPIRUN.missing())
    wrapper = tmp_path / "wrapper"
    seen = tmp_path / "seen"
    seen.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\necho "$(hostname) $CUDA_VISIBLE_DEVICES" >{seen}/$CP_POOL_TAG.$OMPI_COMM_WORLD_RANK\n'
        'export CP_POOL_DEVICE=cpu\nexec "$@"\n'
    )
    wrapper.chmod(0o755)
    with LaunchedRun(
        two_hosts,
        MPIRUN,
        tmp_path,
        [*FEW, "--filter", "quick/groups/p2p/*"],
        wrapper=[str(wrapper)],
        slots=4,
        device="cuda",
    ) as run:
        assert run.wait() == 0, run.log()
        assert set(run.outcomes().values()) == {"pass"}
        slots = [event["slots"] for event in run.events("pool_spawned")]
    gpus: dict[str, set[str]] = {}
    for file in seen.iterdir():
        gpus.setdefault(file.stem, set()).add(file.read_text().strip())
    assert len(slots) >= 2, "there are cases of two and of four ranks"
    # All ranks of a pool are on one host and see the GPUs of the pool's slots. Slots are numbered over all hosts.
    expected = [{f"host{own[0] // 4 + 1} {','.join(str(slot % 4) for slot in own)}"} for own in slots]
    assert sorted(gpus.values(), key=str) == sorted(expected, key=str)


@pytest.mark.long
def test_quick_passes(launcher: Launcher, two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    with LaunchedRun(two_hosts, launcher, tmp_path, ["--matrix", "quick"], slots=2) as run:
        assert run.wait(900) == 0, run.log()
        assert set(run.outcomes().values()) == {"pass"}
        assert run.events("run_finished")[0]["ledger_exact"]


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_faults(launcher: Launcher, rank: int, two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    """Every second case has a fault; the case after it passes."""
    listed = two_hosts.hosts[0].run([PROGRAM, "list", *CASES]).split()
    expected = dict.fromkeys(listed, "pass")
    faults = []
    for (fault, outcome), case in zip(FAULTS.items(), listed[::2], strict=False):
        faults.append(f"{fault.format(rank)}:{case}")
        expected[case] = outcome
    assert len(faults) == len(FAULTS)
    with LaunchedRun(two_hosts, launcher, tmp_path, [*CASES, *DEADLINE_WORDS], faults) as run:
        assert run.wait(600) == 100, run.log()
        outcomes = run.outcomes()
        assert outcomes.keys() == expected.keys()
        wrong = {case: outcome for case, outcome in outcomes.items() if outcome not in expected[case].split(" or ")}
        assert not wrong, run.log()
        assert run.events("run_finished")[0]["ledger_exact"]
        for event in run.events("case_finished"):
            if event["outcome"] != "pass":
                assert f"rank {rank}" in event["reason"], event["reason"]


@pytest.mark.long
def test_a_host_is_cut_off_in_the_middle_of_a_case(
    launcher: Launcher, two_hosts: Cluster, nothing_left: None, tmp_path: Path
) -> None:
    if not launcher.spans_hosts:
        pytest.skip("its ranks are on one host")
    lost = two_hosts.hosts[1]
    with LaunchedRun(two_hosts, launcher, tmp_path, [*FEW, *DEADLINE_WORDS], [f"slow=8000@0:inside:{FIRST}"]) as run:
        try:
            # Every rank has begun the case: the worker has reported a phase.
            run.wait_for(lambda event: event["type"] == "case_progress" and event["id"] == FIRST)
            lost.set_link(False)
            begin = time.monotonic()
            finished = run.wait_for(lambda event: event["type"] == "case_finished" and event["id"] == FIRST)
            took = time.monotonic() - begin
        finally:
            lost.set_link(True)
        assert finished["outcome"] in ("crash", "timeout"), finished
        assert lost.name in finished["reason"], finished["reason"]
        assert took < DEADLINE + 20
        assert run.wait() == 100, run.log()
        assert run.outcomes()[SECOND] == "pass"


@pytest.mark.long
def test_clocks_that_differ_by_hours(two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    """Wall clocks. The hosts share this machine's clock, so libfaketime shows another one to the ranks of host2."""
    need("" if FAKE_TIME.exists() else "not installed: libfaketime (tools/setup installs it)")
    shifted = tmp_path / "shifted"
    environment = f"LD_PRELOAD={FAKE_TIME} FAKETIME=+5h FAKETIME_DONT_FAKE_MONOTONIC=1"
    shifted.write_text(f'#!/bin/sh\n[ "$(hostname)" = host1 ] || export {environment}\ndate +%H >&2\nexec "$@"\n')
    shifted.chmod(0o755)
    faults = [f"hang@1:inside:{FIRST}"]
    arguments = [*FEW, *DEADLINE_WORDS, "--run-dir", str(tmp_path / "run")]
    with LaunchedRun(two_hosts, SSH, tmp_path, arguments, faults, [str(shifted)]) as run:
        assert run.wait() == 100, run.log()
        assert run.outcomes() == {FIRST: "timeout", SECOND: "pass"}
        assert max(event["duration_ms"] for event in run.events("case_finished")) < (DEADLINE + 20) * 1000
    for name in two_hosts.hosts[1].shared_memory():
        assert "faketime" in name  # left by libfaketime itself
        two_hosts.hosts[1].run(["rm", f"/dev/shm/{name}"])


@pytest.mark.long
@pytest.mark.parametrize("killed", ["driver", "launcher"])
def test_killed(launcher: Launcher, killed: str, two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    with LaunchedRun(two_hosts, launcher, tmp_path, [*FEW, *DEADLINE_WORDS], [f"slow=8000@0:inside:{FIRST}"]) as run:
        # The worker has started the case when it has told its phase.
        run.wait_for(lambda event: event["type"] == "case_progress" and event["id"] == FIRST)
        pids = run.pids_of(PROGRAM) if killed == "driver" else launcher.pids(run.host)
        assert pids
        assert workers_left(two_hosts)
        begin = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if killed == "driver":
            wait_until(lambda: not workers_left(two_hosts), 30 - (time.monotonic() - begin), "ranks outlive the driver")
        else:
            assert run.wait() == 100, run.log()
            assert run.outcomes() == {FIRST: "crash", SECOND: "pass"}


@pytest.mark.long
def test_hosts_without_ipv4(two_hosts: Cluster, nothing_left: None, tmp_path: Path) -> None:
    addresses = ",".join(host.ipv6 for host in two_hosts.hosts)
    option = f"ssh_launch {addresses} {{world_size}} {{rendezvous}} {{worker}}"
    for host in two_hosts.hosts:
        host.run(["ip", "addr", "del", f"{host.ipv4}/24", "dev", "eth0"])
    try:
        with LaunchedRun(two_hosts, SSH, tmp_path, FEW, option=option) as run:
            assert run.wait() == 0, run.log()
            ready = run.events("pool_ready")
            assert [[rank["host"] for rank in event["ranks"]] for event in ready] == [["host1", "host2"]]
    finally:
        for host in two_hosts.hosts:
            host.run(["ip", "addr", "add", f"{host.ipv4}/24", "dev", "eth0"])


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[Cluster]:
    yield from cluster_of(3)


def on_the_last_two(three_hosts: Cluster, folder: Path) -> LaunchedRun:
    option = "ssh_launch host2,host3 {world_size} {rendezvous} {worker}"
    return LaunchedRun(three_hosts, SSH, folder, FEW, option=option)


@pytest.mark.long
def test_cp_pool_is_on_a_third_host(three_hosts: Cluster, tmp_path: Path) -> None:
    three_hosts.settle()
    with on_the_last_two(three_hosts, tmp_path) as run:
        assert run.wait() == 0, run.log()
        ready = run.events("pool_ready")
        assert [[rank["host"] for rank in event["ranks"]] for event in ready] == [["host2", "host3"]]
    three_hosts.expect_clean()


@contextmanager
def apart(cluster: Cluster) -> Iterator[None]:
    """Inside, all hosts but the first cannot reach each other. Afterwards nothing may be left on any host."""
    cluster.settle()
    ends = [host for host in cluster.hosts if host.name != "host1"]
    for host in ends:
        host.isolate(True)
    try:
        yield
    finally:
        for host in ends:
            host.isolate(False)
    cluster.expect_clean()


@pytest.mark.long
def test_hosts_that_do_not_meet_are_named(three_hosts: Cluster, tmp_path: Path) -> None:
    """Both hosts of ranks reach cp-pool, but not each other."""
    with apart(three_hosts), on_the_last_two(three_hosts, tmp_path) as run:
        assert run.wait() == 96, run.log()
        reasons = {event["reason"] for event in run.events("case_finished")}
        assert all("rank 1 on host host3 cannot reach rank 0 on host host2" in reason for reason in reasons)
        assert all("GLOO_SOCKET_IFNAME" in reason for reason in reasons)


@pytest.mark.long
def test_ranks_that_do_not_meet_are_named(three_hosts: Cluster, tmp_path: Path) -> None:
    """All ranks reach rank 0, but two hosts do not reach each other."""
    option = "ssh_launch host1,host1,host2,host3 {world_size} {rendezvous} {worker}"
    selection = ["--filter", "quick/none/a2a+p2p/cp4/bshd/fp16"]
    with apart(three_hosts), LaunchedRun(three_hosts, SSH, tmp_path, selection, option=option) as run:
        assert run.wait() == 96, run.log()
        reasons = {event["reason"] for event in run.events("case_finished")}
        assert all("host host3 cannot reach rank 2 on host host2 (10.77.0.2)" in reason for reason in reasons), reasons
        assert all("GLOO_SOCKET_IFNAME" in reason for reason in reasons)


def workers_left(cluster: Cluster) -> list[str]:
    lines = [line for host in cluster.hosts for line in host.processes().values()]
    return [line for line in lines if line.split()[0].endswith("cp-pool-worker")]

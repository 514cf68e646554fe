"""The hosts of a cluster, as namespaces on one machine. Each host has its own network, host name, pids, /proc and
/dev/shm. All hosts share the file system and are on one switch. They write only to a folder of the cluster, which is
also their home.

Hosts exist only as namespaces. Namespaces end with their processes, and those end with the test, however it ends. The
folder of a test that was killed is removed when the next cluster starts.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

FOLDERS = Path("/var/tmp")  # not /tmp, where the paths of Open MPI's sockets become too long


def wait_until(what: Callable[[], Any], limit: float, message: str) -> Any:
    """Returns the first true value of `what`. Fails after `limit` seconds, which no working machine needs."""
    end = time.monotonic() + limit
    while not (value := what()):
        assert time.monotonic() < end, f"after {limit} s: {message}"
        time.sleep(0.02)
    return value


def _holder(command: Sequence[str], setup: str) -> subprocess.Popen[str]:
    """Starts a shell in new namespaces that runs `setup` and then waits for the end of its stdin. In a pid namespace it
    is the first process and reaps orphans."""
    script = f"set -e\n{setup}\nset +e\necho ready\nread -r _\n"
    process = subprocess.Popen(
        ["unshare", "--net", *command, "bash", "-c", script], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", f"namespaces cannot be set up: {setup}"
    return process


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


class Host:
    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.name = f"host{number}"
        self.ipv4, self.ipv6 = f"10.77.0.{number}", f"fd77::{number}"
        self._port = f"port{number}"
        self._holder = _holder(
            ["--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"],
            f"hostname {self.name}; ip link set lo up\n"
            "mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run; mkdir /run/sshd\n"
            + "\n".join(
                f"mount --bind {cluster.folder}/{source} {target}" for source, target in cluster.own_files.items()
            ),
        )
        self.init = _child_of(self._holder.pid)  # its pid outside the namespace
        self.own_pids: set[int] = {self.init}
        cluster.on_switch(
            f"ip link add {self._port} type veth peer name eth0 netns {self.init}; "
            f"ip link set {self._port} master switch up"
        )
        # Duplicate address detection would delay the use of the address by two seconds.
        self.run(
            [
                "sh",
                "-c",
                f"sysctl -qw net.ipv6.conf.eth0.accept_dad=0; ip link set eth0 up; "
                f"ip addr add {self.ipv4}/24 dev eth0; ip -6 addr add {self.ipv6}/64 dev eth0 nodad",
            ]
        )

    def command(self, words: Sequence[str]) -> list[str]:
        """The command line that runs these words on the host, in the working directory of the caller."""
        return [
            "nsenter",
            f"--target={self.init}",
            "--net",
            "--uts",
            "--ipc",
            "--mount",
            "--pid",
            "env",
            f"--chdir={os.getcwd()}",
            *words,
        ]

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Starts a process on the host, in a session of its own. It survives the loss of the host's network."""
        environment = {
            **os.environ,
            "HOME": str(self.cluster.folder),
            "XDG_RUNTIME_DIR": str(self.cluster.folder),
            "LC_ALL": "C.UTF-8",
            **options.pop("env", {}),
        }
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(self.command(words), text=True, env=environment, start_new_session=True, **options)

    def run(self, words: Sequence[str], limit: float = 120, **options: Any) -> str:
        """Runs a command on the host, which must succeed, and returns its stdout."""
        process = self.start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert process.returncode == 0, f"{self.name}: {shlex.join(words)} ended with {process.returncode}:\n{out}{err}"
        return str(out)

    def daemon(self, words: Sequence[str]) -> None:
        """Starts a daemon that belongs to the host, so that it does not count as left behind. It must stay in the
        foreground."""
        before = set(self._pids())
        log = (self.cluster.folder / f"{self.name}.{Path(words[0]).name}.log").open("w")
        self.start(words, stdout=log, stderr=log)
        program = Path(words[0]).name
        self.own_pids |= wait_until(
            lambda: {pid for pid in set(self._pids()) - before if _name(pid).startswith(program)},
            60,
            f"{program} does not start on {self.name}",
        )

    def set_link(self, up: bool) -> None:
        """Plugs or pulls the cable. While it is pulled, packets to and from other hosts are lost silently."""
        self.cluster.on_switch(f"ip link set {self._port} {'up' if up else 'down'}")

    def isolate(self, on: bool) -> None:
        """Turns isolation on or off. Isolated hosts cannot reach each other, but all other hosts reach them."""
        self.cluster.on_switch(f"bridge link set dev {self._port} isolated {'on' if on else 'off'}")

    def kill(self) -> None:
        """Kills every process of the host at once."""
        self._holder.kill()
        self._holder.wait()

    def end(self) -> None:
        assert self._holder.stdin is not None and self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.stdout.close()
        self._holder.wait(timeout=20)

    def _pids(self) -> list[int]:
        mine = _namespace(self.init)
        return [pid for entry in os.listdir("/proc") if entry.isdigit() and _namespace(pid := int(entry)) == mine]

    def processes(self) -> dict[int, str]:
        """The processes that do not belong to the host itself: {pid outside the namespace: command line}."""
        return {pid: line for pid in set(self._pids()) - self.own_pids if (line := _command_line(pid))}

    def shared_memory(self) -> list[str]:
        return sorted(os.listdir(f"/proc/{self.init}/root/dev/shm"))

    def listening(self) -> set[str]:
        """The TCP ports on which processes of the host listen."""
        lines = self.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"]).splitlines()
        fields = [line.split() for line in lines]
        return {str(int(entry[1].rpartition(":")[2], 16)) for entry in fields if len(entry) > 3 and entry[3] == "0A"}

    def traces(self) -> list[str]:
        return [
            *(f"process {line}" for line in self.processes().values()),
            *(f"port {port}" for port in self.listening()),
            *(f"shared memory {name}" for name in self.shared_memory()),
        ]


def _namespace(pid: int) -> str:
    """The network namespace of a process. The pid namespace would not do, as containers on a host have their own."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def _command_line(pid: int) -> str:
    """The command line of a process; empty if it has ended, even if it has not been reaped."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _name(pid: int) -> str:
    words = _command_line(pid).split()
    return Path(words[0]).name if words else ""


class Cluster:
    """The hosts host1 to hostN, which know each other's names and reach each other by ssh."""

    def __init__(self, hosts: int) -> None:
        for left in FOLDERS.glob("cp-pool-cluster-*"):
            if not Path("/proc", left.name.split("-")[3]).exists():
                shutil.rmtree(left, ignore_errors=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f"cp-pool-cluster-{os.getpid()}-", dir=FOLDERS))
        self.own_files = {"etc_hosts": "/etc/hosts", "ssh_config": "/etc/ssh/ssh_config", "slurm": "/etc/slurm"}
        (self.folder / "slurm").mkdir()
        names = "".join(
            f"{address}{number} host{number}\n" for number in range(1, hosts + 1) for address in ("10.77.0.", "fd77::")
        )
        (self.folder / "etc_hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{names}")
        self._write_ssh()
        self.other_traces: list[Callable[[], dict[str, list[str]]]] = []
        self._switch = _holder([], "ip link add switch type bridge; ip link set switch up")
        self.hosts = [Host(self, number) for number in range(1, hosts + 1)]
        for host in self.hosts:
            host.daemon(["/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")])
        wait_until(lambda: all("22" in host.listening() for host in self.hosts), 60, "sshd listens on every host")
        self.settle()

    def settle(self) -> None:
        """From now on, what the hosts have at this moment does not count as left behind."""
        self.clean = self._traces()

    def _write_ssh(self) -> None:
        key = self.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        (self.folder / "sshd_config").write_text(
            f"HostKey {key}\nAuthorizedKeysFile {key}.pub\nPermitRootLogin yes\nStrictModes no\nUsePAM no\n"
            "PidFile none\nMaxStartups 200\nClientAliveInterval 2\nClientAliveCountMax 2\n"
        )
        (self.folder / "ssh_config").write_text(
            f"IdentityFile {key}\nUserKnownHostsFile /dev/null\nStrictHostKeyChecking no\nLogLevel ERROR\n"
            "ServerAliveInterval 2\nServerAliveCountMax 2\n"
        )

    def on_switch(self, script: str) -> None:
        subprocess.run(["nsenter", f"--target={self._switch.pid}", "--net", "sh", "-ec", script], check=True)

    def _traces(self) -> dict[str, list[str]]:
        traces = {host.name: host.traces() for host in self.hosts}
        for others in self.other_traces:
            traces |= others()
        return traces

    def left_behind(self) -> dict[str, list[str]]:
        """Processes, open ports and shared memory on each host, and Slurm's steps, that were not there before."""
        new = {name: sorted(set(traces) - set(self.clean.get(name, []))) for name, traces in self._traces().items()}
        return {name: traces for name, traces in new.items() if traces}

    def expect_clean(self, limit: float = 60) -> None:
        last: dict[str, list[str]] = {}

        def clean() -> bool:
            last.clear()
            last.update(self.left_behind())
            return not last

        try:
            wait_until(clean, limit, "")
        except AssertionError:
            raise AssertionError(f"left behind after {limit} s: {last}") from None

    def end(self) -> None:
        for host in self.hosts:
            host.end()
        assert self._switch.stdin is not None and self._switch.stdout is not None
        self._switch.stdin.close()
        self._switch.stdout.close()
        self._switch.wait(timeout=20)
        shutil.rmtree(self.folder)


def missing_rights() -> str:
    """Why this machine cannot have such hosts; empty if it can."""
    programs = [
        name for name in ("unshare", "nsenter", "ip", "sysctl", "/usr/sbin/sshd", "ssh") if not shutil.which(name)
    ]
    if programs:
        return f"not installed: {', '.join(programs)} (tools/setup installs them)"
    tried = subprocess.run(
        [
            "unshare",
            "--net",
            "--uts",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "ip",
            "link",
            "add",
            "veth0",
            "type",
            "veth",
            "peer",
            "name",
            "veth1",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return "" if tried.returncode == 0 else f"no rights to make namespaces: {' '.join(tried.stdout.split())}"


def need(missing: str) -> None:
    """Skips the test if something is missing (rights, programs); in CI it fails instead."""
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


def cluster_of(hosts: int) -> Iterator[Cluster]:
    need(missing_rights())
    cluster = Cluster(hosts)
    try:
        yield cluster
    finally:
        cluster.end()

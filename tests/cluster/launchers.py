"""The launchers: how cp-pool is told to use each of them, and how each starts a program once per rank without cp-pool.
Rank 0 is on the first host and has the caller's stdin."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hosts import Cluster, Host
from slurm import missing_slurm

PROGRAMS = Path(__file__).resolve().parents[2] / ".venv/bin"  # has the torchrun of PyTorch's wheel
PORT = "29500"  # always free: the hosts of each test have their own network
EXAMPLES = Path(__file__).resolve().parents[2] / "examples/cluster"


@dataclass(frozen=True)
class Launcher:
    name: str  # also the name of its program
    spans_hosts: bool = True
    needs_slurm: bool = False

    def missing(self) -> str:
        if self.needs_slurm:
            return missing_slurm()
        found = shutil.which(self.name, path=self.environment()["PATH"])
        return "" if found else f"not installed: {self.name} (tools/setup installs it)"

    def by_hand(self, words: Sequence[str]) -> list[str]:
        """The command line that starts the words on two ranks, one on each host if the launcher spans hosts."""
        meet = ["env", "MASTER_ADDR=host1", f"MASTER_PORT={PORT}"]
        match self.name:
            case "torchrun":
                # Every rank has the caller's stdin; only rank 0 reads it.
                return ["torchrun", "--nproc-per-node=2", f"--master-port={PORT}", "--no-python", *words]
            case "mpirun":
                out = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--host", "host1:1,host2:1", "-n", "2"]
                return [*out, "-x", "GLOO_SOCKET_IFNAME", "-x", "CP_POOL_DEVICE", *meet, *words]
            case "ssh_launch":
                return ["ssh_launch", "host1,host2", "2", f"host1:{PORT}", *words]
            case _:
                return ["salloc", "--quiet", "--nodes=2", "--ntasks=2", "srun", "--input=0", *meet, *words]

    def option(self) -> str:
        """The value of --launcher."""
        return "ssh_launch host1,host2 {world_size} {rendezvous} {worker}" if self.name == "ssh_launch" else self.name

    def allocation(self, cluster: Cluster, slots: int) -> tuple[list[str], dict[str, str]]:
        """How cp-pool is given `slots` slots on each host: words before its command line, and variables."""
        if self.needs_slurm:
            nodes = len(cluster.hosts)
            return ["salloc", "--quiet", f"--nodes={nodes}", f"--ntasks-per-node={slots}"], {}
        file = cluster.folder / f"hosts_of_{slots}"
        file.write_text("".join(f"{host.name} slots={slots}\n" for host in cluster.hosts))
        return [], {"OMPI_MCA_orte_default_hostfile": str(file)}

    def pids(self, host: Host) -> list[int]:
        """The pids, outside the namespace, of the launcher's processes on the host."""
        words = {pid: line.split() for pid, line in host.processes().items()}
        return [pid for pid, line in words.items() if self.name in (Path(word).name for word in line[:2])]

    def environment(self) -> dict[str, str]:
        return {"PATH": f"{PROGRAMS}:{EXAMPLES}:{os.environ['PATH']}"}


TORCHRUN = Launcher("torchrun", spans_hosts=False)
MPIRUN = Launcher("mpirun")
SRUN = Launcher("srun", needs_slurm=True)
SSH = Launcher("ssh_launch")  # given to --launcher as a template, like a launcher of the user's own
LAUNCHERS = [TORCHRUN, MPIRUN, SRUN, SSH]

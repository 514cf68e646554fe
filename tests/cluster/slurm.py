"""Slurm on the hosts of a cluster. Its daemons run as root; its configuration, sockets and state are in the cluster's
folder."""

from __future__ import annotations

import os
import shutil
import subprocess

from hosts import Cluster, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch")


def missing_slurm() -> str:
    programs = [name for name in PROGRAMS if not shutil.which(name)]
    return f"not installed: {', '.join(programs)} (tools/setup installs them)" if programs else ""


class Slurm:
    """The controller is on host1. Every host is a node with `cpus` CPUs, however many the machine has."""

    def __init__(self, cluster: Cluster, cpus: int = 4) -> None:
        self.head = cluster.hosts[0]
        folder = cluster.folder / "slurm"
        key, socket = folder / "munge.key", folder / "munge.socket"
        key.write_bytes(os.urandom(64))
        key.chmod(0o400)
        names = [host.name for host in cluster.hosts]
        # A node that is silent for SlurmdTimeout (in s) is down. config_overrides: nodes have the CPUs of this file.
        (folder / "slurm.conf").write_text(
            "\n".join(
                [
                    "ClusterName=test",
                    f"SlurmctldHost={names[0]}",
                    "SlurmUser=root",
                    "AuthType=auth/munge",
                    f"AuthInfo=socket={socket}",
                    f"StateSaveLocation={folder}/state",
                    f"SlurmdSpoolDir={folder}/spool.%n",
                    f"SlurmdPidFile={folder}/slurmd.%n.pid",
                    f"SlurmctldPidFile={folder}/slurmctld.pid",
                    "ProctrackType=proctrack/linuxproc",
                    "TaskPlugin=task/none",
                    "SelectType=select/cons_tres",
                    "SelectTypeParameters=CR_CPU",
                    "SlurmdParameters=config_overrides",
                    "ReturnToService=2",
                    "MpiDefault=none",
                    "SlurmdTimeout=10",
                    "KillWait=2",
                    "InactiveLimit=0",
                    "MinJobAge=60",
                    "SwitchType=switch/none",
                    "SchedulerParameters=sched_interval=1,batch_sched_delay=0",
                    f"NodeName={','.join(names)} CPUs={cpus} RealMemory=4096",
                    f"PartitionName=all Nodes={','.join(names)} Default=YES",
                    "",
                ]
            )
        )
        (folder / "state").mkdir()
        # One munged serves all hosts, because its socket is a file. --force: its folder may be entered by others.
        self.head.daemon(
            [
                "munged",
                "--foreground",
                "--force",
                f"--key-file={key}",
                f"--socket={socket}",
                f"--pid-file={folder}/munge.pid",
                f"--log-file={folder}/munge.log",
                f"--seed-file={folder}/munge.seed",
            ]
        )
        wait_until(socket.exists, 60, "munged does not listen")
        self.head.daemon(["slurmctld", "-D"])
        for host in cluster.hosts:
            host.daemon(["slurmd", "-D", "-N", host.name])
        self.wait_for_nodes(len(names))
        cluster.settle()
        cluster.other_traces.append(lambda: {"Slurm": [f"step {step}" for step in self.steps()]})

    def wait_for_nodes(self, count: int) -> None:
        """Waits until `count` nodes take jobs."""
        wait_until(lambda: self.nodes().count("idle") == count, 60, f"{count} nodes idle")

    def nodes(self) -> list[str]:
        process = self.head.start(
            ["sinfo", "--noheader", "--Node", "--format=%T"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return process.communicate(timeout=60)[0].split()

    def steps(self) -> list[str]:
        """The job steps that Slurm knows, without the .extern and .batch steps that every job has."""
        listed = self.head.run(["squeue", "--steps", "--noheader", "--format=%i"]).split()
        return [step for step in listed if not step.endswith((".extern", ".batch"))]

    def jobs(self) -> list[str]:
        return self.head.run(["squeue", "--noheader", "--format=%i"]).split()

"""How each launcher starts a program once a rank, on the hosts of a test. Rank 0 is on the first host, with the
caller's stdin."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm import missing_slurm

TORCHRUN = Path(__file__).resolve().parents[2] / ".venv/bin/torchrun"
PORT = "29500"  # each test's hosts have all ports for themselves


@dataclass(frozen=True)
class Launcher:
    name: str
    program: str
    spans_hosts: bool = True
    needs_slurm: bool = False

    def missing(self) -> str:
        if self.needs_slurm:
            return missing_slurm()
        return "" if shutil.which(self.program) else f"not installed: {self.program} (tools/setup installs it)"

    def command(self, ranks: int, words: Sequence[str]) -> list[str]:
        """Ranks on host1 and host2 in turn, or in halves."""
        meet = ["env", "MASTER_ADDR=host1", f"MASTER_PORT={PORT}"]
        match self.name:
            case "torchrun":
                # Standard input of every rank is the caller's; only rank 0 reads it.
                return [self.program, f"--nproc-per-node={ranks}", "--master-port", PORT, "--no-python", *words]
            case "mpirun":
                half = ranks // 2
                return [
                    self.program,
                    "--allow-run-as-root",
                    "--bind-to",
                    "none",
                    "--host",
                    f"host1:{half},host2:{half}",
                    "-x",
                    "GLOO_SOCKET_IFNAME",
                    "-x",
                    "CP_POOL_DEVICE",
                    "-n",
                    str(ranks),
                    *meet,
                    *words,
                ]
            case "srun":
                return ["salloc", "--quiet", "--nodes=2", f"--ntasks={ranks}", "srun", "--input=0", *meet, *words]
        sys.exit(f"no launcher {self.name}")


LAUNCHERS = [
    Launcher("torchrun", str(TORCHRUN), spans_hosts=False),
    Launcher("mpirun", "mpirun"),
    Launcher("srun", "srun", needs_slurm=True),
]

"""Functions that run on ranks. Most are wrong, each in a way of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from cp_pool import Skip
from cp_pool.calls import Ranks

LEFT: list[Any] = []


def total(ranks: Ranks, n: int = 0, text: str = "") -> dict[str, Any]:
    summed = torch.full((4,), float(ranks.rank + n), device=ranks.device)
    dist.all_reduce(summed, group=ranks.group)
    return {"sum": summed[0].item(), "ranks": ranks.world_size, "text": text}


def returns_a_tensor(_: Ranks) -> torch.Tensor:
    return torch.ones(1)


def uses_everything(ranks: Ranks) -> list[str]:
    pair = ranks.new_group([0, 1])
    assert pair is not None
    dist.barrier(group=pair)
    ranks.store.set(f"of {ranks.rank}", "set")
    assert ranks.store.get(f"of {1 - ranks.rank}") == b"set"
    (ranks.scratch / str(ranks.rank)).touch()
    dist.barrier()
    ranks.log("logged", 3)
    assert len(dist.distributed_c10d._world.pg_map) == 2
    return [str(ranks.scratch), *sorted(os.listdir(ranks.scratch))]


def asserts(ranks: Ranks, rank: int) -> None:
    assert ranks.rank != rank, f"rank {rank} is wrong"
    dist.barrier()


def raises(ranks: Ranks, rank: int) -> None:
    if ranks.rank == rank:
        raise ValueError("broken")
    dist.barrier()


def skips(_: Ranks) -> None:
    raise Skip("not here")


def exits(ranks: Ranks) -> None:
    if ranks.rank == 1:
        os._exit(3)
    dist.barrier()


def segfaults(ranks: Ranks) -> None:
    if ranks.rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    dist.barrier()


def hangs(ranks: Ranks) -> None:
    if ranks.rank == 1:
        threading.Event().wait()
    dist.barrier()


def leaves_a_collective(ranks: Ranks) -> None:
    if ranks.rank == 1:
        dist.all_reduce(torch.ones(3))


def leaves_groups(_: Ranks) -> None:
    dist.new_group([0, 1])


def destroys_the_group(ranks: Ranks, on: int = -1) -> None:
    if on in (-1, ranks.rank):
        dist.destroy_process_group()


def leaves_a_thread(_: Ranks) -> None:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True, name="left over").start()


def leaves_a_child(ranks: Ranks) -> None:
    if ranks.rank == 0:
        LEFT.append(subprocess.Popen(["sleep", "1000"]))


def leaves_a_file(_: Ranks, path: str) -> None:
    LEFT.append(open(path, "w"))  # noqa: SIM115


def changes_state(_: Ranks) -> None:
    os.environ["LEFT_BEHIND"] = "1"
    os.chdir("/")
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.set_num_threads(3)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    torch.set_autocast_enabled("cpu", True)
    signal.setitimer(signal.ITIMER_REAL, 1000)


def finds_state(_: Ranks) -> dict[str, Any]:
    """What changes_state changes, and whatever else should be the same in every call."""
    return {
        "environment": "LEFT_BEHIND" in os.environ,
        "folder": os.getcwd(),
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0],
        "groups": len(dist.distributed_c10d._world.pg_map),
        "random": torch.rand(1).item(),
    }


def remembers(_: Ranks) -> None:
    """Passes only in a process in which it has not run before."""
    assert not LEFT, "it has run here before"
    LEFT.append(1)

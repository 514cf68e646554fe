"""Functions whose ranks do different things on their groups."""

from __future__ import annotations

import torch
import torch.distributed as dist

from cp_pool.calls import Ranks


def gather(x: torch.Tensor) -> None:
    dist.all_gather([torch.empty_like(x) for _ in range(dist.get_world_size())], x)


def skips_a_collective(ranks: Ranks) -> None:
    dist.all_reduce(torch.ones(4))
    if ranks.rank != 2:
        gather(torch.ones(4, 2))


def enters_one_more(ranks: Ranks) -> None:
    for _ in range(2 if ranks.rank == 1 else 1):
        dist.all_reduce(torch.ones(4))


def sends_to_the_wrong_rank(ranks: Ranks) -> None:
    if ranks.rank == 0:
        dist.send(torch.ones(4), 2)
    elif ranks.rank == 1:
        dist.recv(torch.ones(4), 0)


def receives_before_it_sends(ranks: Ranks) -> None:
    dist.recv(torch.ones(4), (ranks.rank + 1) % 3)
    dist.send(torch.ones(4), (ranks.rank - 1) % 3)


def gives_another_shape(ranks: Ranks) -> None:
    gather(torch.ones(8 if ranks.rank == 2 else 4))


def swaps_two(ranks: Ranks) -> None:
    if ranks.rank == 0:
        gather(torch.ones(4))
    dist.all_reduce(torch.ones(4))
    if ranks.rank != 0:
        gather(torch.ones(4))


def enters_another_group(ranks: Ranks) -> None:
    pair = ranks.new_group([0, 1])
    dist.barrier(pair if ranks.rank == 0 else None)

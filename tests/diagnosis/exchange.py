"""The exchanges of context parallelism: a ring, an all-gather of rows, and an all-to-all between tokens and heads."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup


def around_ring(tensors: list[Tensor], group: Group) -> list[Tensor]:
    """Sends the tensors to the next rank, and returns the tensors of the previous rank."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if size == 1:
        return tensors
    received = [torch.empty_like(tensor) for tensor in tensors]
    operations = []
    for tag, (sent, arriving) in enumerate(zip(tensors, received, strict=True)):
        operations.append(dist.P2POp(dist.isend, sent.contiguous(), (rank + 1) % size, group, tag))
        operations.append(dist.P2POp(dist.irecv, arriving, (rank - 1) % size, group, tag))
    for work in dist.batch_isend_irecv(operations):  # NCCL needs them together
        work.wait()
    return received


def of_all_ranks(rows: Tensor, group: Group) -> Tensor:
    """All-gathers rows: [rows of all ranks, ...], one rank after the other."""
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, rows.contiguous(), group=group)
    return torch.cat(parts)


def summed(tensor: Tensor, group: Group) -> Tensor:
    total = tensor.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total


def largest(tensor: Tensor, group: Group) -> Tensor:
    total = tensor.contiguous().clone()
    dist.all_reduce(total, dist.ReduceOp.MAX, group=group)
    return total


def traded(blocks: Tensor, group: Group) -> Tensor:
    """All-to-all. blocks: [ranks, ...], one for each rank. Returns the blocks that the ranks have for this rank."""
    sent = blocks.contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return received


def blocks_of_heads(rows: Tensor, ranks: int) -> Tensor:
    """Cuts the heads of [rows, heads, dim] into one block per rank: [ranks, rows, heads / ranks, dim]."""
    return rows.reshape(rows.shape[0], ranks, rows.shape[1] // ranks, rows.shape[2]).transpose(0, 1)


def rows_to_heads(rows: Tensor, group: Group) -> Tensor:
    """Exchanges tokens for heads: [rows, heads, dim] becomes [rows of all ranks, this rank's block of heads, dim]."""
    return traded(blocks_of_heads(rows, dist.get_world_size(group)), group).flatten(0, 1)


def heads_to_rows(heads: Tensor, group: Group) -> Tensor:
    """The inverse of rows_to_heads."""
    ranks = dist.get_world_size(group)
    by_rank = heads.reshape(ranks, heads.shape[0] // ranks, *heads.shape[1:])
    return traded(by_rank, group).transpose(0, 1).flatten(1, 2)

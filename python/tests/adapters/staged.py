"""An adapter whose ranks send to single ranks, through cp_pool/staging.py as if they shared a GPU."""

from __future__ import annotations

import torch
import torch.distributed as dist
from plain import attention
from torch.distributed._functional_collectives import all_gather_tensor

from cp_pool import adapter
from cp_pool.context import CaseView, Ctx
from cp_pool.staging import stage_messages


def stage_all(ctx: Ctx) -> None:
    stage_messages(lambda tensor: True, "CPU")


def numbers(rank: int) -> torch.Tensor:
    return torch.arange(4.0) + 10 * rank


@adapter(features=["causal"], setup=stage_all)
def passes_on(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx) -> dict[str, torch.Tensor]:
    """Each rank sends to the next and receives from the one before, in every way that torch.distributed offers."""
    after, before = (ctx.rank + 1) % ctx.world_size, (ctx.rank - 1) % ctx.world_size
    own, expected = numbers(ctx.rank), numbers(before)
    got = [torch.zeros(4) for _ in range(5)]

    sent = dist.isend(own, after)
    received = dist.irecv(got[0], before)
    assert sent is not None and received is not None
    received.wait()
    received.wait()
    sent.wait()

    operations = [dist.P2POp(dist.irecv, got[1], before), dist.P2POp(dist.isend, own, after)]
    for request in dist.batch_isend_irecv(operations):
        request.wait()

    sent = dist.isend(own, after)
    received = dist.irecv(got[2], before)
    assert sent is not None and received is not None
    assert not got[2].any()  # the numbers arrive when they are waited for
    assert received.is_completed()

    sent = dist.isend(own, after)
    dist.recv(got[3], before)
    assert sent is not None
    sent.wait()

    sent = dist.isend(own, after)
    assert dist.recv(got[4]) == before  # from any rank
    assert sent is not None
    sent.wait()

    assert all(torch.equal(numbers, expected) for numbers in got), got
    return attention(q, k, v, case, ctx)


@adapter(features=["causal"], setup=stage_all)
def sends_to_itself(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, case: CaseView, ctx: Ctx
) -> dict[str, torch.Tensor]:
    """Each rank sends two messages to itself, as a ring of one rank does, and gathers by a functional collective."""
    messages, got = (torch.zeros(4), torch.ones(4)), (torch.zeros(4), torch.zeros(4))
    operations = [dist.P2POp(dist.irecv, got[0], ctx.rank)]
    operations += [dist.P2POp(dist.isend, message, ctx.rank) for message in messages]
    operations += [dist.P2POp(dist.irecv, got[1], ctx.rank)]
    for request in reversed(dist.batch_isend_irecv(operations)):
        request.wait()
    assert all(torch.equal(a, b) for a, b in zip(messages, got, strict=True)), got

    gathered = all_gather_tensor(numbers(ctx.rank), 0, ctx.group)
    assert torch.equal(gathered, torch.cat([numbers(rank) for rank in range(ctx.world_size)])), gathered
    return attention(q, k, v, case, ctx)

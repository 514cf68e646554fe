"""An adapter with a deliberate mistake: its window is one key too narrow. tools/pictures shows what cp-pool says of it.

Every rank gathers all keys and values, and torch computes the rest.
"""
import torch
from torch.distributed.nn.functional import all_gather

from cp_pool import adapter, shard


@adapter(comm=["all_gather"], layouts=["bshd"], features=["causal", "window", "gqa"], shard=shard.dual_chunk)
def narrow_window(q, k, v, case, ctx):
    positions = ctx.positions_q.view(case.batch, -1)[0].to(q.device)  # those of every sequence
    of_ranks = [torch.empty_like(positions) for _ in range(ctx.world_size)]
    torch.distributed.all_gather(of_ranks, positions, group=ctx.group)
    order = torch.cat(of_ranks).argsort()
    # [batch, tokens, heads, dim], in the order of the sequence
    keys, values = (torch.cat(all_gather(x.contiguous(), group=ctx.group), dim=1)[:, order] for x in (k, v))
    shared = case.heads // case.kv_heads
    keys, values = (x.float().repeat_interleave(shared, dim=2) for x in (keys, values))
    scores = torch.einsum("bihd,bjhd->bhij", q.float(), keys) * case.scale
    distance = positions[:, None] - torch.arange(keys.shape[1])[None, :]
    seen = (distance >= 0) & (distance <= case.window[0] - 1)  # the mistake: the window has one key more
    weights = scores.masked_fill(~seen, float("-inf")).softmax(dim=-1)
    return dict(out=torch.einsum("bhij,bjhd->bihd", weights, values).to(q.dtype))

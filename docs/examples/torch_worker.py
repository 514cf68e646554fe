#!/usr/bin/env python3
"""A worker on PyTorch: attention by all_gather, forward and backward, checked against an fp64 reference.

    cp-pool run --worker '.venv/bin/python docs/examples/torch_worker.py' --filter comm=all_gather

docs/definitions.md defines what it computes. It skips cases with features that it does not have.
"""
import os

from worker_harness import FAULTS, RANK, WORLD_SIZE, figure, serve  # before torch, which may print

import torch
import torch.distributed as dist

CUDA = os.environ.get("CP_POOL_DEVICE") == "cuda"
DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if CUDA else torch.device("cpu")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TOLERANCES = {"fp32": 1e-4, "bf16": 2.5e-2, "fp16": 5e-3}  # to be multiplied by 1 + abs(value)
HAS = {"comm": "all_gather", "softmax": "vanilla", "bias": None, "max_logit": False}
INFINITY = float("inf")


class Group:
    """The data plane of all ranks. A collective that fails because of another rank raises a ConnectionError."""

    def __init__(self, share):
        # The control channel uses CP_POOL_MASTER_FD, so the store listens on a port of its own, which rank 0 shares.
        host = os.environ["MASTER_ADDR"]
        store = dist.TCPStore(host, 0, WORLD_SIZE, is_master=True, wait_for_workers=False) if RANK == 0 else None
        port = share(store.port if store else None)[0]
        store = store or dist.TCPStore(host, port, WORLD_SIZE, is_master=False)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are on one host
        self._aborted = False
        dist.init_process_group("nccl" if CUDA else "gloo", store=store, rank=RANK, world_size=WORLD_SIZE)

    def all_gather(self, tensor):
        """Returns the tensors of all ranks, concatenated."""
        FAULTS.reach("inside")
        parts = [torch.empty_like(tensor) for _ in range(WORLD_SIZE)]
        return torch.cat(self._run(dist.all_gather, parts, tensor.contiguous()))

    def sum(self, tensor):
        """Sums over all ranks, in place."""
        return self._run(dist.all_reduce, tensor)

    def _run(self, collective, out, *operands):
        try:
            collective(out, *operands)
            if CUDA:
                torch.cuda.synchronize()
        except Exception as error:
            # After abort() this rank has no process group any more, which causes a ValueError.
            if self._aborted or isinstance(error, RuntimeError):
                raise ConnectionError(f"{collective.__name__}: {error}") from error
            raise
        return out

    def abort(self):
        """NCCL frees this rank. Gloo closes this rank's connections, which frees the ranks that wait for this one."""
        self._aborted = True
        if CUDA:
            dist.group.WORLD.abort()
        else:
            dist.destroy_process_group()


# --- Attention of one sequence ---------------------------------------------------------------------------------------


def visible_keys(case, sq, skv):
    """bool [sq, skv]: whether query i sees key j."""
    i = torch.arange(sq, device=DEVICE)[:, None] + (skv - sq)  # the last query is at the last key
    j = torch.arange(skv, device=DEVICE)[None, :]
    left, right = case["window"]
    seen = torch.ones(sq, skv, dtype=torch.bool, device=DEVICE)
    if left >= 0:
        seen &= j >= i - left
    if right >= 0:
        seen &= j <= i + right
    if case["causal"]:
        seen &= j <= i
    if case["chunk"] > 0:
        seen &= torch.div(i, case["chunk"], rounding_mode="floor") == torch.div(j, case["chunk"], rounding_mode="floor")
    return seen


def attend(q, k, v, seen):
    """From q [sq, heads, d], k and v [skv, kv_heads, d]: returns out [sq, heads, d] and lse [sq, heads]."""
    group = q.shape[1] // k.shape[1]  # query head h reads kv head h // group
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    empty = ~seen.any(1, keepdim=True)
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[2] ** 0.5
    scores = scores.masked_fill(~(seen | empty), -INFINITY)
    p = scores.softmax(-1).masked_fill(empty, 0)  # a row that sees no key has p = 0 and lse = -inf
    lse = scores.logsumexp(-1).masked_fill(empty[:, 0], -INFINITY)
    return torch.einsum("hqk,khd->qhd", p, v), lse.T


# --- The whole problem: all sequences concatenated, padding included -------------------------------------------------


def rows_of(rank, padded):
    """Returns the rows that a rank owns, in its order: chunks `rank` and `2n - 1 - rank` of each sequence."""
    rows, start = [], 0
    for length in padded:
        chunk = length // (2 * WORLD_SIZE)
        for held in (rank, 2 * WORLD_SIZE - 1 - rank):
            rows += range(start + held * chunk, start + (held + 1) * chunk)
        start += length
    return torch.tensor(rows, dtype=torch.long, device=DEVICE)


def make_inputs(case, lengths):
    """Makes the inputs, the same on every rank. Padding is NaN, so that a result shows if it is read."""
    generator = torch.Generator().manual_seed(case["seed"] % 2**63)

    def make(side, heads, dim, scale=1):
        valid, padded = lengths[f"valid_{side}"], lengths[f"padded_{side}"]
        values = torch.full((sum(padded), heads, dim), float("nan"))
        for at, length in zip(starts(padded), valid):
            values[at : at + length] = scale * torch.randn(length, heads, dim, generator=generator)
        return values.to(DTYPES[case["dtype"]]).to(DEVICE)

    scale = case.get("input_scale", 1)  # sent to workers that list it in capabilities.case_fields
    return {"q": make("q", case["heads"], case["head_dim_qk"], scale),
            "k": make("kv", case["kv_heads"], case["head_dim_qk"], scale),
            "v": make("kv", case["kv_heads"], case["head_dim_v"]),
            "dout": make("q", case["heads"], case["head_dim_v"])}


def starts(padded):
    return [sum(padded[:b]) for b in range(len(padded))]


def attention(case, lengths, q, k, v, dout, q_rows):
    """Returns the results for the queries in `q_rows`. q and dout have only these rows; k and v have all rows."""
    results = {"out": torch.zeros_like(dout), "lse": torch.full_like(dout[:, :, 0], -INFINITY)}
    if case["training"]:
        results |= {"dq": torch.zeros_like(q), "dk": torch.zeros_like(k), "dv": torch.zeros_like(v)}
    sequences = zip(starts(lengths["padded_q"]), lengths["valid_q"], starts(lengths["padded_kv"]), lengths["valid_kv"])
    for q_start, sq, kv_start, skv in sequences:
        mine = ((q_rows >= q_start) & (q_rows < q_start + sq)).nonzero()[:, 0]
        keys = slice(kv_start, kv_start + skv)
        if len(mine) == 0 or skv == 0:
            continue
        leaves = [tensor.detach().requires_grad_() for tensor in (q[mine], k[keys], v[keys])]
        out, lse = attend(*leaves, visible_keys(case, sq, skv)[q_rows[mine] - q_start])
        results["out"][mine], results["lse"][mine] = out.detach(), lse.detach()
        if case["training"]:
            gradients = torch.autograd.grad(out, leaves, dout[mine])
            results["dq"][mine], results["dk"][keys], results["dv"][keys] = gradients
    return results


# --- A case ----------------------------------------------------------------------------------------------------------


def in_layout(case, rows):
    """Converts this rank's rows [rows, heads, dim] to the case's layout."""
    if case["layout"] == "thd":
        return rows
    by_sequence = rows.unflatten(0, (case["batch"], -1))
    return by_sequence if case["layout"] == "bshd" else by_sequence.transpose(0, 1)


def as_rows(case, shard):
    """The reverse of in_layout."""
    if case["layout"] == "sbhd":
        shard = shard.transpose(0, 1)
    return shard if case["layout"] == "thd" else shard.flatten(0, 1)


def context_parallel(group, case, lengths, shards):
    """Computes this rank's shard of every result from its shards of the inputs, in the case's layout and dtype. lse is
    returned as rows."""
    q_rows, kv_rows = rows_of(RANK, lengths["padded_q"]), rows_of(RANK, lengths["padded_kv"])
    order = torch.cat([rows_of(rank, lengths["padded_kv"]) for rank in range(WORLD_SIZE)])
    whole = {}
    for name in ("k", "v"):
        gathered = group.all_gather(as_rows(case, shards[name]))
        whole[name] = torch.empty_like(gathered).index_copy(0, order, gathered).float()
    q, dout = as_rows(case, shards["q"]).float(), as_rows(case, shards["dout"]).float()
    results = attention(case, lengths, q, whole["k"], whole["v"], dout, q_rows)
    if case["training"]:
        for name in ("dk", "dv"):
            results[name] = group.sum(results[name])[kv_rows]
    dtype = DTYPES[case["dtype"]]
    return {name: value if name == "lse" else in_layout(case, value.to(dtype)) for name, value in results.items()}


def check(case, lengths, inputs, name, actual, expected):
    """Checks the largest error of this rank's rows of a result, in units of 1 + abs(value). Padding has to be exact."""
    side, like = ("kv", "k") if name in ("dk", "dv") else ("q", "q")
    rows = rows_of(RANK, lengths[f"padded_{side}"])
    actual, expected = (actual if name == "lse" else as_rows(case, actual)).double(), expected[rows]
    error = (actual - expected).abs() / (1 + expected.abs())
    error[inputs[like][rows, 0, 0].isnan()] = INFINITY
    error[actual == expected] = 0
    worst, bound = error.max().item() if error.numel() else 0.0, TOLERANCES[case["dtype"]]
    return {"tensor": name, "rank": RANK, "error": figure(worst), "bound": bound, "ok": worst <= bound}


def run_case(group, case, lengths):
    for field, value in HAS.items():
        if case[field] != value:
            return {"outcome": "skip", "reason": f"this worker has no {field}={case[field]}"}
    if lengths is None:
        return {"outcome": "skip", "reason": "this worker draws no lengths, and the request has none"}
    inputs = make_inputs(case, lengths)
    rows = {side: rows_of(RANK, lengths[f"padded_{side}"]) for side in ("q", "kv")}
    shards = {name: in_layout(case, whole[rows["kv" if name in "kv" else "q"]]) for name, whole in inputs.items()}
    results = context_parallel(group, case, lengths, shards)
    # For brevity, the reference uses the same attend() as the results. The reference of a real worker must share
    # nothing.
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    every_row = torch.arange(len(wide["q"]), device=DEVICE)
    reference = attention(case, lengths, q_rows=every_row, **wide)
    checks = [check(case, lengths, inputs, name, results[name], reference[name]) for name in results]
    wrong = [entry["tensor"] for entry in checks if not entry["ok"]]
    if wrong:
        return {"outcome": "fail", "reason": f"rank {RANK}: {', '.join(wrong)} beyond the tolerance", "checks": checks}
    return {"outcome": "pass", "checks": checks}


if __name__ == "__main__":
    torch.set_num_threads(1)
    if CUDA and torch.cuda.device_count() < WORLD_SIZE:
        os._exit(77 if torch.cuda.device_count() else 69)  # exit codes of docs/protocol.md: too few devices, or none
    if CUDA:
        torch.cuda.set_device(DEVICE)
    # score_offset is not listed: its large scores need wider tolerances (docs/numerics.md).
    serve("torch_worker", connect=Group, run_case=run_case, device=DEVICE.type,
          capabilities={"figures": True, "case_fields": ["input_scale"]})

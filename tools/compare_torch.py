#!/usr/bin/env python3
"""How fast PyTorch's own context_parallel is on the problems of `cp-pool run --mode perf`, beside cp-pool's figures.

Usage: compare_torch.py [EVENTS]

EVENTS is the file of `cp-pool run --matrix perf --size full --mode perf --events EVENTS`: its bshd problems are run,
and its figures are shown with them. Without it: the three problems of docs/performance.md. Every problem is run forward
and backward with cuDNN's attention, on one GPU and on --ranks GPUs, with both of PyTorch's ways to rotate K and V, and
timed as cp-pool does it: CUDA events, ranks aligned before each step, of each step the slowest rank.

Needs torch and --ranks GPUs, nothing else. Exit code: 0 done, 1 a problem could not be run, 2 usage, 69 no torch or too
few GPUs.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

EXIT_NO_DEVICE = 69
ROTATIONS = ("allgather", "alltoall")
# batch, sequence length, heads, head dimension
DEFAULT_PROBLEMS = [(2, 4096, 12, 128), (1, 16384, 32, 128), (1, 65536, 32, 128)]


def name_of(problem):
    batch, length, heads, _ = problem
    return f"b{batch}_s{length}_h{heads}"


def read_events(path):
    """(problem, case ID, figures of cp-pool) of every timed case that PyTorch can run too."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            event = json.loads(line)
            if event.get("type") != "case_finished" or not event.get("perf"):
                continue
            case = event["case"]
            plain = (case["layout"] == "bshd" and case["dtype"] == "bf16" and case["causal"] and case["training"]
                     and case["heads"] == case["kv_heads"] and case["head_dim_qk"] == case["head_dim_v"]
                     and case["seqlen_q"] == case["seqlen_kv"] and case["softmax"] == "vanilla" and not case["bias"]
                     and case["window"] == [-1, -1] and not case["chunk"])
            if plain:
                rows.append(((case["batch"], case["seqlen_q"], case["heads"], case["head_dim_qk"]), event["id"],
                             event["perf"]))
    return rows


# --- On the ranks -----------------------------------------------------------------------------------------------------
def time_steps(torch, step, warmup, iterations, align):
    """Milliseconds of each timed step on this rank; `align` makes the stream wait for the other ranks."""
    events = []
    for i in range(warmup + iterations):
        if i >= 2:
            events[i - 2][1].synchronize()  # the host stays at most two steps ahead
        align()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events[warmup:]]


def slowest_of_each_step(torch, dist, times_ms):
    times = torch.tensor(times_ms, device="cuda", dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.tolist()


def make_inputs(torch, problem):
    batch, length, heads, dim = problem
    generator = torch.Generator(device="cuda").manual_seed(1234)
    return [torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16, generator=generator)
            for _ in range(4)]  # q, k, v, dout


def make_step(torch, q, k, v, dout):
    for tensor in (q, k, v):
        tensor.requires_grad_(True)

    def step():
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(out, (q, k, v), dout)

    return step


def time_one_gpu(torch, dist, rank, problem, options):
    """Times of rank 0 on its own; the other ranks wait and return None."""
    try:
        if rank != 0:
            return None
        return time_steps(torch, make_step(torch, *make_inputs(torch, problem)), options.warmup, options.iterations,
                          lambda: None)
    finally:
        torch.cuda.empty_cache()
        dist.barrier()


def time_context_parallel(torch, dist, mesh, problem, rotation, options):
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method

    set_rotate_method(rotation)
    tensors = make_inputs(torch, problem)
    here = torch.zeros(1, device="cuda")
    # The tensors are sharded in place and need not be restored.
    with context_parallel(mesh, buffers=tensors, buffer_seq_dims=[2] * 4, no_restore_buffers=set(tensors)):
        times = time_steps(torch, make_step(torch, *tensors), options.warmup, options.iterations,
                           lambda: dist.all_reduce(here))
    times = slowest_of_each_step(torch, dist, times)
    del tensors
    torch.cuda.empty_cache()
    return times


def rank_main(rank, options, problems, folder):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.attention import SDPBackend, sdpa_kernel

    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=options.ranks,
                            device_id=torch.device("cuda", rank))
    mesh = init_device_mesh("cuda", (options.ranks,), mesh_dim_names=("cp",))
    results = {}

    def attempt(key, run):
        # All ranks do the same, so if one rank cannot run a problem, for lack of memory for example, none can.
        try:
            results[key] = run()
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            results[key] = str(error).splitlines()[0]
            torch.cuda.empty_cache()

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        # One GPU comes first, since a context_parallel that fails leaves its own attention in place.
        for problem in problems:
            attempt(f"{name_of(problem)}/one", lambda: time_one_gpu(torch, dist, rank, problem, options))
        for problem in problems:
            for rotation in ROTATIONS:
                attempt(f"{name_of(problem)}/{rotation}",
                        lambda: time_context_parallel(torch, dist, mesh, problem, rotation, options))
            if rank == 0:
                print(f"{name_of(problem)} done", file=sys.stderr, flush=True)
    if rank == 0:
        with open(f"{folder}/results.json", "w", encoding="utf-8") as file:
            json.dump(results, file)
    dist.barrier()
    dist.destroy_process_group()


# --- The report -------------------------------------------------------------------------------------------------------
def number(value):
    return f"{value:.{4 if value < 1 else 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0}f}"


def row(ms, smallest, largest, tflops, one_ms, efficiency, name):
    return (f"{number(ms):>9} {number(smallest):>9} {number(largest):>9} {number(tflops):>8} "
            f"{number(one_ms) if one_ms else '-':>9} {f'{efficiency:.3f}' if efficiency else '-':>6}  {name}")


def torch_rows(problem, results, ranks):
    """(lines, whether every run of the problem worked)."""
    batch, length, heads, dim = problem
    pairs = batch * heads * length * (length + 1) // 2
    flop = 2 * pairs * 7 * dim  # two products forward, five backward
    lines, good = [], True
    one = results[f"{name_of(problem)}/one"]
    one_ms = statistics.median(one) if isinstance(one, list) else None
    if one_ms is None:
        lines.append(f"{name_of(problem)} on one GPU: {one}")
        good = False
    else:
        lines.append(row(one_ms, min(one), max(one), flop / one_ms / 1e9, one_ms, 1.0, f"torch/{name_of(problem)}/one GPU"))
    for rotation in ROTATIONS:
        times = results[f"{name_of(problem)}/{rotation}"]
        name = f"torch/{name_of(problem)}/context_parallel {rotation}/cp{ranks}"
        if not isinstance(times, list):
            lines.append(f"{name}: {times}")
            good = False
            continue
        ms = statistics.median(times)
        lines.append(row(ms, min(times), max(times), flop / ranks / ms / 1e9, one_ms,
                         one_ms / (ranks * ms) if one_ms else None, name))
    return lines, good


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", nargs="?", metavar="EVENTS", help="events file of cp-pool run --mode perf")
    parser.add_argument("--ranks", type=int, default=2, help="GPUs (2)")
    parser.add_argument("--warmup", type=int, default=5, help="steps before the timed ones (5)")
    parser.add_argument("--iterations", type=int, default=20, help="timed steps (20)")
    return parser.parse_args()


def main():
    options = parse_arguments()
    try:
        ours = read_events(options.events) if options.events else []
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"compare_torch.py: error: {options.events}: {error!r}")
    if options.events and not ours:
        sys.exit(f"compare_torch.py: error: {options.events} has no times of a causal bf16 bshd case")
    problems = list(dict.fromkeys(problem for problem, _, _ in ours)) or DEFAULT_PROBLEMS
    try:
        import torch
        import torch.multiprocessing as multiprocessing
    except ImportError as error:
        print(f"compare_torch.py: no PyTorch here: {error}", file=sys.stderr)
        return EXIT_NO_DEVICE
    if torch.cuda.device_count() < options.ranks:
        print(f"compare_torch.py: needs {options.ranks} GPUs, and {torch.cuda.device_count()} are visible", file=sys.stderr)
        return EXIT_NO_DEVICE

    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(rank_main, (options, problems, folder), nprocs=options.ranks)
        with open(f"{folder}/results.json", encoding="utf-8") as file:
            results = json.load(file)
    print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name(0)}")
    print(f"{'ms':>9} {'min':>9} {'max':>9} {'TFLOP/s':>8} {'one rank':>9} {'effic.':>6}")
    all_good = True
    for problem in problems:
        for _, case_id, perf in (entry for entry in ours if entry[0] == problem):
            one = perf["one_rank_ms"]
            print(row(perf["ms"], perf["min_ms"], perf["max_ms"], perf["tflops"], one and one["median"],
                      perf["efficiency"], f"cp-pool/{case_id}"))
        lines, good = torch_rows(problem, results, options.ranks)
        print("\n".join(lines))
        all_good = all_good and good
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())

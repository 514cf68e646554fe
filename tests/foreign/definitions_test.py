#!/usr/bin/env python3
"""Compares cp-pool's own worker with docs/definitions.md: its dumps hold the inputs that the page defines, and right
results.

Usage: definitions_test.py CP_POOL WORKER
"""
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_dump

STREAMS = {"q": 1, "k": 2, "v": 3, "dout": 4, "bias": 5, "sink": 6}
G = 0x9E3779B97F4A7C15
MASK = 2**64 - 1

SIZES = {"cp_size": 2, "heads": 4, "kv_heads": 2, "head_dim_qk": 8, "head_dim_v": 6, "batch": 3,
         "seqlen_q": 16, "seqlen_kv": 24}
PADDED = {"layout": "thd", "pad_between_seqs": True, "seqlens": [16, 0, 7], "seqlens_kv": [5, 9, 24]}
CASES = [
    {**SIZES, "model": "causal", "dtype": "fp32", "causal": True, "seed": 2**64 - 1, "bias": "b1ss"},
    {**SIZES, **PADDED, "model": "sink", "dtype": "bf16", "softmax": "learnable", "max_logit": True, "window": [3, 1]},
    {**SIZES, **PADDED, "model": "chunk", "dtype": "fp16", "chunk": 4, "softmax": "off_by_one"},
    {**SIZES, **PADDED, "model": "row", "dtype": "fp32", "bias": "111s", "causal": True, "comm": "all_gather"},
    {**SIZES, "model": "scaled", "dtype": "bf16", "input_scale": 2.7},
    {**SIZES, "model": "low", "dtype": "fp16", "score_offset": -100, "causal": True},
    {**SIZES, **PADDED, "model": "lowest", "dtype": "fp32", "score_offset": -65536, "training": False},
    {**SIZES, "model": "high", "dtype": "bf16", "score_offset": 17.5, "input_scale": 0.5, "head_dim_qk": 7},
    {**SIZES, **PADDED, "model": "slices", "dtype": "fp32", "softcap": 0.5, "bias": "11ss", "max_logit": True,
     "mask": [[0, 7, 0, 9, "causal"], [7, 16, 9, 24, "bicausal"], [7, 16, 2, 9, "inverse_causal"]]},
    {**SIZES, "model": "capped", "dtype": "bf16", "input_scale": 2.7, "softcap": 4, "softmax": "learnable"},
    {**SIZES, **PADDED, "model": "joint", "dtype": "fp32", "bias": "b1ss", "causal": True, "replicated": 6},
]


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def values(seed, stream, shape):
    start = mix((mix(seed) + stream * G) & MASK)
    out = np.empty(int(np.prod(shape)), np.float32)
    for e in range(out.size):
        bits = mix((start + e * G) & MASK)
        centred = sum((bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) - 131070
        out[e] = np.float32(centred) * (np.float32(1.7320508) / np.float32(65536))
    return out.reshape(shape)


def rounded(tensor, dtype):
    if dtype == "fp16":
        return tensor.astype(np.float16).astype(np.float64)
    if dtype == "bf16":
        bits = tensor.view(np.uint32).astype(np.uint64)
        even = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
        tensor = even.astype(np.uint32).view(np.float32)
    return tensor.astype(np.float64)


def offset_parts(case):
    raw = case["score_offset"] * case["head_dim_qk"] ** 0.5
    power = 2.0 ** ((math.frexp(raw)[1] - 1) // 2)
    return {"q": np.float32(power), "k": np.float32(raw / power)}


def check_tokens(case, tensors, name, side):
    """Checks q, k, v or dout: valid tokens have the values of the page, padding is NaN."""
    lengths = np.diff(tensors[f"cu_seqlens_{side}"])
    offsets = tensors[f"cu_seqlens_{side}_padded"]
    whole = tensors[name]
    scale = np.float32(case["input_scale"]) if name in ("q", "k") else np.float32(1)
    made = scale * values(case["seed"], STREAMS[name], (int(lengths.sum()), *whole.shape[-2:]))
    if case["score_offset"] and name in ("q", "k"):
        made[..., -1] = offset_parts(case)[name]
    made = rounded(made, case["dtype"])
    taken = 0
    for index, part in enumerate(check_dump.per_sequence(case, whole, offsets, lengths)):
        expect(np.array_equal(part, made[taken : taken + len(part)]), f"{case['model']}: {name} of sequence {index}")
        taken += len(part)
    expect(np.isnan(whole).sum() == (whole.size - made.size), f"{case['model']}: the padding of {name}")


def check_bias(case, tensors):
    q, kv = (int(np.diff(tensors[f"cu_seqlens_{side}"]).max()) for side in ("q", "kv"))
    extents = {"b1ss": (case["batch"], 1, q, kv), "11ss": (1, 1, q, kv), "111s": (1, 1, 1, kv)}[case["bias"]]
    made = rounded(values(case["seed"], STREAMS["bias"], extents), case["dtype"])
    held = tensors["bias"][: extents[0], : extents[1], : extents[2], : extents[3]]
    expect(np.array_equal(held[~np.isnan(held)], made[~np.isnan(held)]), f"{case['model']}: bias")
    expect(not np.isnan(held).all(), f"{case['model']}: a bias of NaN alone")


def check(path):
    metadata, tensors = check_dump.read_safetensors(path)
    case = json.loads(metadata["case"])
    for name, side in (("q", "q"), ("k", "kv"), ("v", "kv"), ("dout", "q")):
        if name == "dout" and not case["training"]:
            continue
        check_tokens(case, tensors, name, side)
    if case["bias"]:
        check_bias(case, tensors)
    if case["softmax"] != "vanilla":
        made = values(case["seed"], STREAMS["sink"], (case["heads"],)) * (case["softmax"] == "learnable")
        expect(np.array_equal(tensors["sink"], made.astype(np.float64)), f"{case['model']}: sink")
    found = check_dump.faults(case, tensors)
    expect(not found, f"{case['model']}: {found}")


def main():
    cp_pool, worker = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([cp_pool, "submit", "-", "--device", "cpu", "--worker", worker, "--dump", folder],
                              input="".join(json.dumps(case) + "\n" for case in CASES), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        expect(done.returncode == 0, done.stdout)
        dumps = sorted(Path(folder).glob("*.safetensors"))
        expect(len(dumps) == len(CASES), f"{dumps}")
        for path in dumps:
            check(path)


if __name__ == "__main__":
    main()

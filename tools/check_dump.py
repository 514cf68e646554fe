#!/usr/bin/env python3
"""Rechecks the .safetensors files of `cp-pool run --dump DIR`, with numpy alone and from the definition alone.

Usage: check_dump.py DIR|FILE...      exit code: 0 all right, 1 something wrong, 2 nothing to check, or not a dump

Every result is computed again in fp64, sequence by sequence and head by head, and held against the file: per row, the
root mean square error must be within C * u * A, A being the same sums over absolute values (docs/numerics.md).
"""
import json
import sys
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("check_dump.py: needs numpy: .venv/bin/python has it")

UNIT_ROUNDOFF = {"fp32": 2.0**-24, "bf16": 2.0**-8, "fp16": 2.0**-11}
FACTOR = {"fp32": 64.0, "bf16": 8.0, "fp16": 8.0}
# The absolute error of a number that is too small for the dtype (docs/numerics.md, "Large scores").
UNDERFLOW = {"fp32": 2.0**-126, "bf16": 2.0**-126, "fp16": 2.0**-25}
FEWEST_FP16_VALUES = 64  # so many fp16 numbers are not all bf16 numbers by chance
NUMPY_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}


def read_safetensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin : 8 + length + end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, NUMPY_TYPES[entry["dtype"]])
        values = values.reshape(entry["shape"])
        tensors[name] = values if values.dtype.kind == "i" else values.astype(np.float64)
    return metadata, tensors


def shown_by(first_query, end_of_queries, first_key, end_of_keys, kind, i, j):
    """Which pairs of positions a slice of a mask shows."""
    shown = (first_query <= i) & (i < end_of_queries) & (first_key <= j) & (j < end_of_keys)
    if kind in ("causal", "bicausal"):
        shown &= j - end_of_keys <= i - end_of_queries
    if kind in ("inverse_causal", "bicausal"):
        shown &= j - first_key >= i - first_query
    return shown


def visible(case, sq, skv):
    i = np.arange(sq)[:, None] + skv - sq
    j = np.arange(skv)[None, :]
    if case.get("mask"):
        return np.any([shown_by(*s, i=np.arange(sq)[:, None], j=j) for s in case["mask"]], axis=0)
    left, right = case["window"]
    seen = np.ones((sq, skv), bool)
    if left >= 0:
        seen &= i - j <= left
    if right >= 0:
        seen &= j - i <= right
    if case["causal"]:
        seen &= j <= i
    if case["chunk"] > 0:
        seen &= i // case["chunk"] == j // case["chunk"]
    return seen


def per_sequence(case, tensor, offsets, lengths):
    """A view [tokens, heads, dim] of each sequence, without padding."""
    if case["layout"] == "thd":
        return [tensor[o : o + n] for o, n in zip(offsets, lengths)]
    batch = range(len(lengths))
    return [tensor[b] if case["layout"] == "bshd" else tensor[:, b] for b in batch]


def padding_is(case, tensor, offsets, lengths, ends, value):
    """Whether every padding row of a thd tensor, whose first axis is rows, holds `value`."""
    if case["layout"] != "thd":
        return True
    return all(np.all(tensor[o + n : e] == value) for o, n, e in zip(offsets, lengths, ends))


class Expected:
    """The expected values and magnitudes, shaped like the tensors of the file."""

    def __init__(self, tensors, names):
        self.value = {name: np.zeros_like(tensors[name]) for name in names}
        self.magnitude = {name: np.zeros_like(tensors[name]) for name in names}
        for name in ("lse", "max_logit"):
            if name in self.value:
                self.value[name][...] = -np.inf


def floor_of(dtype):
    return FACTOR[dtype] * UNIT_ROUNDOFF[dtype]


def has_offset(case):
    return case.get("score_offset", 0) != 0


def has_large_scores(case):
    return case.get("input_scale", 1) > 1 or has_offset(case)


def parts_of(case, name):
    """The parts of a row that are judged, by name. With an offset, the last dimension of dq and dk is one of its own."""
    if has_offset(case) and name in ("dq", "dk"):
        return {name: slice(None, -1), f"offset {name}": slice(-1, None)}
    return {name: slice(None)}


def attend_head(case, q, k, v, dout, bias, sink, seen):
    """Computes one head of one sequence. Returns a dict of values and a dict of magnitudes."""
    scale = case["head_dim_qk"] ** -0.5
    raw, slope = scale * q @ k.T, 1.0
    if case.get("softcap"):
        tanh = np.tanh(raw / case["softcap"])
        raw, slope = case["softcap"] * tanh, 1 - tanh**2
    scores = np.where(seen, raw + bias, -np.inf)
    largest = np.max(scores, axis=1, initial=-np.inf)
    shift = largest if sink is None else np.maximum(largest, sink)
    shift = np.where(np.isinf(shift), 0.0, shift)[:, None]
    weights = np.exp(scores - shift)
    total = weights.sum(1, keepdims=True)
    if sink is not None:
        sink_weight = np.exp(sink - shift)
        total = total + sink_weight
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + shift)[:, 0]
    p = weights / np.where(total == 0, 1, total)
    out = p @ v
    value = {"out": out, "lse": lse, "max_logit": np.max(largest, initial=-np.inf)}
    p_size, of_lse, least, weight = p, 0.0, 0.0, 0.0
    size = {}
    if has_large_scores(case):  # adds the rounding of fp32 scores, and underflow
        score_size = np.where(seen, 0.5 * scale * abs(q) @ abs(k).T + (abs(raw) if case.get("softcap") else 0.0), 0.0)
        size["lse"] = (p * score_size).sum(1)
        size["max_logit"] = np.max(score_size, initial=0.0)
        of_lse = (1 + abs(np.where(np.isinf(lse), 0, lse)) + size["lse"])[:, None]
        least = UNDERFLOW[case["dtype"]] / floor_of(case["dtype"])
        weight = floor_of("fp32") / floor_of(case["dtype"])
        p_size = p * (1 + weight * (score_size + of_lse)) + least * seen
    size["out"] = p_size @ abs(v)
    if dout is None:
        return value, size
    delta = (dout * out).sum(1, keepdims=True)
    of_delta = (abs(dout) * size["out"]).sum(1, keepdims=True) if has_large_scores(case) else 0.0
    delta_size = abs(dout * out).sum(1, keepdims=True) + floor_of(case["dtype"]) * of_delta
    ds_size = p_size * (abs(dout) @ abs(v).T + delta_size) + p * of_delta + least * seen
    for result, weights, ds, slope, a, b, d in (
        (value, p, p * (dout @ v.T - delta), slope, q, k, dout),
        (size, p_size, ds_size, 1.0, abs(q), abs(k), abs(dout)),
    ):
        result.update(dbias=ds, dq=scale * (slope * ds) @ b, dk=scale * (slope * ds).T @ a, dv=weights.T @ d)
    if sink is not None:
        p_sink = sink_weight / total
        value["dsink"] = -(p_sink * delta).sum()
        sink_least = UNDERFLOW["fp32"] / floor_of(case["dtype"]) if has_large_scores(case) else 0.0
        p_sink_size = p_sink * (1 + weight * of_lse) + sink_least
        size["dsink"] = (p_sink_size * delta_size + p_sink * of_delta).sum()
    return value, size


def compute(case, t):
    names = [n for n in ("out", "lse", "max_logit", "dq", "dk", "dv", "dbias", "dsink") if n in t]
    expected = Expected(t, names)
    q_off, kv_off = t["cu_seqlens_q_padded"], t["cu_seqlens_kv_padded"]
    q_len, kv_len = np.diff(t["cu_seqlens_q"]), np.diff(t["cu_seqlens_kv"])

    def rows(tensor, query_side):
        return per_sequence(case, tensor, q_off if query_side else kv_off, q_len if query_side else kv_len)

    parts = {n: rows(t[n], n in ("q", "dout")) for n in ("q", "k", "v", "dout") if n in t}
    group = case["heads"] // case["kv_heads"]
    for b, (sq, skv) in enumerate(zip(q_len, kv_len)):
        seen = visible(case, sq, skv)
        for h in range(case["heads"]):
            kv = h // group
            bias = 0.0
            if "bias" in t:
                table = t["bias"][min(b, t["bias"].shape[0] - 1), min(h, t["bias"].shape[1] - 1)]
                bias = np.where(seen, table[: sq if table.shape[0] > 1 else 1, :skv], 0.0)
            sink = t["sink"][h] if "sink" in t else None
            dout = parts["dout"][b][:, h] if "dout" in parts else None
            answers = attend_head(
                case, parts["q"][b][:, h], parts["k"][b][:, kv], parts["v"][b][:, kv], dout, bias, sink, seen
            )
            for target, answer in zip((expected.value, expected.magnitude), answers):
                for name in ("out", "dq"):
                    if name in target:
                        rows(target[name], True)[b][:, h] = answer[name]
                for name in ("dk", "dv"):
                    if name in target:
                        rows(target[name], False)[b][:, kv] += answer[name]
                if "dbias" in target:
                    table = target["dbias"]
                    table[min(b, table.shape[0] - 1), min(h, table.shape[1] - 1), :sq, :skv] += answer["dbias"]
                if "dsink" in target:
                    target["dsink"][h] += answer["dsink"]
            place = (h, slice(q_off[b], q_off[b] + sq)) if case["layout"] == "thd" else (b, h)
            if "lse" in t:
                expected.value["lse"][place] = answers[0]["lse"]
                expected.magnitude["lse"][place] = answers[1].get("lse", 0.0)
            if "max_logit" in t:
                for target, answer in zip((expected.value, expected.magnitude), answers):
                    target["max_logit"][h] = max(target["max_logit"][h], answer.get("max_logit", 0.0))
    return expected


def needs_fp16(values):
    """Which values in the normal range of fp16 are no bf16 numbers: the last three bits of the mantissa are not 0."""
    bits = values.astype(np.float16).view(np.uint16)
    return (bits & 7 != 0) & (abs(values) >= 2.0**-14)


def faults(case, t):
    expected = compute(case, t)
    found = []
    q_off, kv_off = t["cu_seqlens_q_padded"], t["cu_seqlens_kv_padded"]
    q_len, kv_len = np.diff(t["cu_seqlens_q"]), np.diff(t["cu_seqlens_kv"])
    for name, value in expected.value.items():
        actual = t[name]
        if value.size == 0:
            continue
        if name in ("out", "dq", "dk", "dv"):
            off, length = (q_off, q_len) if name in ("out", "dq") else (kv_off, kv_len)
            if not padding_is(case, actual, off, length, off[1:], 0.0):
                found.append(f"{name}: padding is not zero")
        factor = floor_of(case["dtype"])
        magnitude = expected.magnitude[name]
        if name in ("lse", "max_logit"):
            factor = floor_of("fp32")
            magnitude = magnitude + 1 + abs(np.where(np.isinf(value), 0, value))
            if not np.array_equal(np.isneginf(actual), np.isneginf(value)):
                found.append(f"{name}: -inf in the wrong places")
                continue
            value, actual = np.where(np.isinf(value), 0, value), np.where(np.isinf(actual), 0, actual)
        if not np.all(np.isfinite(actual)):
            found.append(f"{name}: not finite in {np.sum(~np.isfinite(actual))} places")
            continue
        if case["dtype"] == "fp16" and name in ("out", "dq", "dk", "dv", "dbias") and not np.any(needs_fp16(actual)):
            if np.sum(needs_fp16(value)) >= FEWEST_FP16_VALUES:
                found.append(f"{name}: every value is a bf16 number")
        if name == "dbias" and np.any(actual[magnitude == 0] != 0):
            found.append("dbias: not zero where nothing contributes")
        for part, elements in parts_of(case, name).items():
            error, bound = (x[..., elements] for x in (abs(actual - value), factor * magnitude))
            if name in ("out", "dq", "dk", "dv", "dbias"):
                error, bound = (np.sqrt(np.mean(np.square(x), axis=-1)) for x in (error, bound))
            if has_large_scores(case) and name not in ("lse", "max_logit"):
                bound = bound + UNDERFLOW["fp32" if name == "dsink" else case["dtype"]] * (bound > 0)
            beyond = np.argwhere(error > bound)
            if len(beyond):
                worst = tuple(int(i) for i in beyond[np.argmax((error - bound)[tuple(beyond.T)])])
                found.append(
                    f"{part}: error {error[worst]:.3g} beyond {bound[worst]:.3g} at {worst}, {len(beyond)} rows"
                )
    return found


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    files = []
    for argument in map(Path, arguments):
        files += sorted(argument.rglob("*.safetensors")) if argument.is_dir() else [argument]
    if not files:
        print("no .safetensors file found", file=sys.stderr)
        return 2
    wrong = left_out = 0
    for path in files:
        try:
            metadata, tensors = read_safetensors(path)
            case = json.loads(metadata["case"])
        except OSError as error:
            print(error, file=sys.stderr)
            return 2
        except (ValueError, LookupError, TypeError) as error:
            print(f"{path} is no dump of cp-pool run --dump, or is cut off: {error!r}", file=sys.stderr)
            return 2
        if case.get("fp8"):
            print(f"not checked, since the bounds are not those of FP8: {metadata.get('id', path.name)}")
            left_out += 1
            continue
        found = faults(case, tensors)
        wrong += bool(found)
        for fault in found:
            print(f"FAIL {metadata.get('id', path.name)}: {fault}")
    print(f"{len(files) - left_out} files checked, {wrong} wrong")
    if left_out == len(files):
        return 2
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

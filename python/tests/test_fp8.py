"""Adapters that compute in FP8: a right one passes, and what is wrong in FP8 alone is found."""

from __future__ import annotations

from typing import Any

import pytest
from adapter_runs import case, run_cases

SIZES: dict[str, Any] = {
    "dtype": "bf16", "seqlen_q": 64, "seqlen_kv": 64, "heads": 4, "head_dim_qk": 32, "head_dim_v": 32,
}  # fmt: skip
PACK: dict[str, Any] = {"layout": "thd", "batch": 3, "pad_between_seqs": True, "seqlens": [64, 1, 30]}


def in_fp8(scaling: str = "current", **fields: Any) -> dict[str, Any]:
    options: dict[str, Any] = {key: fields.pop(key) for key in ("backward", "output") if key in fields}
    return case("case", **{**SIZES, "fp8": {"scaling": scaling, **options}, **fields})


def test_a_right_adapter_passes_and_its_scales_are_checked() -> None:
    cases = [
        in_fp8(),
        in_fp8(scaling="delayed", output="fp8", softmax="learnable"),
        in_fp8(backward=False, dtype="fp16"),
        in_fp8(training=False, output="fp8", causal=False, window=[5, 3]),
        in_fp8(**PACK, kv_heads=4, head_dim_v=16),
        in_fp8(input_scale=0.125, seqlen_q=256, seqlen_kv=256),
    ]
    found = run_cases("fp8.py:fp8", cases)
    assert found.outcomes() == ["pass"] * len(cases), [c.reason for c in found.cases] or found.output
    checks = {check["tensor"] for check in found.cases[0].event["checks"]}
    assert {"weights", "amax of k", "scale of dout", "mask dv"} <= checks


@pytest.mark.parametrize(
    ("wrong", "checked", "cause"),
    [
        ("scale_of_each_rank", "amax of ", "fp8_scale_of_rank"),
        ("weights_underflow", "weights", "fp8_weights_lost"),
        ("score_gradients_underflow", "dq", "unknown"),
    ],
)
def test_what_is_wrong_in_fp8_alone_is_found(wrong: str, checked: str, cause: str) -> None:
    found = run_cases(f"fp8.py:{wrong}", [in_fp8(batch=2)])
    assert found.outcomes() == ["fail"], found.output
    failed = [check["tensor"] for check in found.cases[0].event["checks"] if not check["ok"]]
    assert any(tensor.startswith(checked) for tensor in failed), found.cases[0].reason
    diagnosis = found.cases[0].event["diagnosis"]
    assert diagnosis["id"] == cause, diagnosis
    assert "in fp32 without FP8, all results are right" in diagnosis["evidence"]


def test_a_scale_that_is_kept_from_an_earlier_case_is_found() -> None:
    found = run_cases("fp8.py:scale_of_the_first_case", [in_fp8(), in_fp8(input_scale=0.125)])
    assert found.outcomes() == ["pass", "fail"], [c.reason for c in found.cases]
    assert found.cases[1].event["diagnosis"]["id"] == "fp8_scale_of_rank"

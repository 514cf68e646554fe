"""Tests cp-pool with the adapters of examples/, whose packages others have written. What is known to be right in these
packages must pass, and what is known to be wrong must fail."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

PACKAGES: list[dict[str, Any]] = json.loads((EXAMPLES / "implementations.json").read_text(encoding="utf-8"))
RUN_HERE = [
    f"{package['file']}:{name}"
    for package in PACKAGES
    for name, matrices in package["adapters"].items()
    if "cpu" in matrices
]


def judge(
    binary: Path, folder: Path, adapter: str, *ids: str, matrix: str = str(EXAMPLES / "matrices/dense.json")
) -> dict[str, dict[str, Any]]:
    """The case_finished events of these cases of the matrix, by ID; the dumps are in the folder."""
    command = [str(binary), "run", "--device", "cpu", "--matrix", matrix]
    for case in ids:
        command += ["--filter", case]
    command += ["--adapter", str(EXAMPLES / adapter), "--python", sys.executable]
    command += ["--events", str(folder / "events.jsonl"), "--dump", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    finished = {event["id"]: event for event in events if event["type"] == "case_finished"}
    assert set(finished) == set(ids), run.stdout + run.stderr
    return finished


def wrong_tensors(event: dict[str, Any]) -> set[str]:
    return {check["tensor"] for check in event["checks"] if not check["ok"]}


@pytest.mark.long
def test_the_ring_of_pytorch_is_right_in_fp32(binary: Path, tmp_path: Path) -> None:
    ids = ["dense/causal/p2p/cp2/bshd/fp32", "dense/gqa/all_gather/cp2/bshd/fp32", "dense/cross/p2p/cp2/bshd/fp32"]
    for case, event in judge(binary, tmp_path, "torch_ring.py:head_tail", *ids).items():
        assert event["outcome"] == "pass", f"{case}: {event['reason']}"
        tensors = {check["tensor"] for check in event["checks"]}
        assert tensors >= {"out", "lse", "dq", "dk", "dv"}


@pytest.mark.long
def test_the_merge_of_pytorch_is_right_where_a_part_has_keys(binary: Path, tmp_path: Path) -> None:
    right, empty = ("decode/gqa/all_gather/cp4/thd/bf16/pad", "decode/empty_shards/all_gather/cp4/thd/bf16/pad")
    events = judge(binary, tmp_path, "decode_merge.py:merge", right, empty, matrix="decode")
    assert events[right]["outcome"] == "pass", events[right]["reason"]
    assert "part_lse" in {check["tensor"] for check in events[right]["checks"]}
    assert wrong_tensors(events[empty]) >= {"out", "lse"}  # of a query that sees no key of any rank


@pytest.mark.long
def test_ringmaster_is_right_but_for_the_right_side_of_a_window(binary: Path, tmp_path: Path) -> None:
    causal, left = "dense/causal/all_gather/cp2/bshd/fp32", "dense/window_left/all_gather/cp2/bshd/bf16"
    both, right = "dense/window_both/all_gather/cp2/bshd/bf16", "dense/window_right/all_gather/cp2/bshd/fp32"
    events = judge(binary, tmp_path, "axolotl_ringmaster.py:gather", causal, left, both, right)
    assert {case: event["outcome"] for case, event in events.items()} == {
        causal: "pass",
        left: "pass",
        both: "fail",
        right: "fail",
    }
    assert "NaN" in events[right]["reason"]
    for case in (both, right):
        assert wrong_tensors(events[case]) == {"out", "dq", "dk", "dv", "mask out", "mask dv"}
        dump = tmp_path / (case.replace("/", "__") + ".safetensors")
        checked = subprocess.run(
            [sys.executable, str(ROOT / "tools/check_dump.py"), str(dump)], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 1
        assert f"FAIL {case}: out" in checked.stdout


@pytest.mark.soak
@pytest.mark.parametrize("adapter", RUN_HERE)
def test_every_failure_of_a_package_is_explained(binary: Path, tmp_path: Path, adapter: str) -> None:
    """At least 20 cases are judged, and each failure matches a cause in examples/causes.json."""
    command = [sys.executable, str(ROOT / "tools/implementations"), "--only", adapter, "--keep", str(tmp_path)]
    command += ["--cp-pool", str(binary), "--python", sys.executable]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith(f"{adapter}: ")


@pytest.mark.long
@pytest.mark.parametrize("report", sorted((EXAMPLES / "reports").glob("*.md")), ids=lambda path: path.stem)
def test_a_report_shows_what_it_says(report: Path, tmp_path: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    script, seen = text.split("```python\n")[1].split("```")[0], text.split("```text\n")[1].split("```")[0]
    package = "transformer_engine" if "transformer_engine" in script else "flash_attn"
    if '"cuda"' in script and not (torch.cuda.is_available() and importlib.util.find_spec(package)):
        pytest.skip(f"the script needs a GPU, and {package}")
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    command = [
        sys.executable,
        *(["-m", "torch.distributed.run", "--nproc-per-node", "4"] if "torchrun" in text else []),
    ]
    ran = subprocess.run(
        [*command, str(tmp_path / "script.py")], capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.stdout == seen, ran.stderr

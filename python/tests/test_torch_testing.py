"""Classes that were written for torch's test cases, and a test file of the shape of Transformer Engine's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

CLASSES = """
import os, unittest
import torch, torch.distributed as c10d
from cp_pool.torch_testing import PooledTestCase


class TestOwnGroup(PooledTestCase):  # as for MultiProcessTestCase
    @property
    def world_size(self):
        return 2

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def _init(self):
        store = c10d.FileStore(self.file_name, self.world_size)
        c10d.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)

    def test_sum(self):
        self._init()
        x = torch.ones(2) * self.rank
        c10d.all_reduce(x)
        self.assertEqual(x[0].item(), 1)

    def test_again(self):
        self._init()
        self.assertEqual(c10d.get_world_size(), 2)

    def test_wrong(self):
        self._init()
        self.assertEqual(self.rank, 0)
        c10d.barrier()

    def test_skip(self):
        raise unittest.SkipTest("not here")


class TestKeptGroup(PooledTestCase):  # as for MultiProcContinuousTest
    world_size = 2

    @classmethod
    def backend_str(cls):
        return "gloo"

    def test_sum(self):
        x = torch.ones(2) * self.rank
        c10d.all_reduce(x, group=self.pg)
        self.assertEqual(x[0].item(), 1)

    def test_error(self):
        raise ValueError(self.rank)


if __name__ == "__main__":
    unittest.main()
"""

# A runner of the shape of Transformer Engine's run_attention_with_cp.py, on CPU ranks.
RUNNER = """
import os
import torch, torch.distributed as dist


def run_dpa_with_cp(dtype="bf16", model="", wrong="False", log_level="30"):
    if int(os.getenv("NVTE_CP_POOL_PG", "0")) == 0:
        dist.init_process_group("gloo")
    group = dist.new_group(range(dist.get_world_size()), backend="gloo")
    x = torch.ones(4, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[dtype])
    dist.all_reduce(x, group=group)
    assert x[0].item() == dist.get_world_size() and wrong == "False", f"{model} is wrong"
    if int(os.getenv("NVTE_CP_POOL_PG", "0")) == 0:
        dist.destroy_process_group()
"""
TESTS = """
import pytest


class PoolWorker:
    def __init__(self, world_size):
        raise NotImplementedError("the conftest replaces it")


@pytest.fixture(scope="session")
def cp_pool():
    pools = {}

    def get(world_size):
        if world_size not in pools:
            pools[world_size] = PoolWorker(world_size)
        return pools[world_size]

    yield get
    for pool in pools.values():
        pool.shutdown()


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_right(cp_pool, dtype, world_size):
    cp_pool(world_size).submit({"dtype": dtype, "model": "cp_1_0", "log_level": "30"})


def test_wrong(cp_pool):
    cp_pool(2).submit({"dtype": "bf16", "model": "cp_2_0", "wrong": "True"}, 30)
"""


def test_classes_of_torch_run_on_ranks(tmp_path: Path) -> None:
    file = tmp_path / "test_classes.py"
    file.write_text(CLASSES)
    done = subprocess.run([sys.executable, str(file), "-v"], capture_output=True, text=True, check=False)
    ends = ("sum", "ok"), ("again", "ok"), ("wrong", "FAIL"), ("skip", "skipped 'not here'")
    for name, end in ends:
        assert f"test_{name} (__main__.TestOwnGroup.test_{name}) ... {end}" in done.stderr, done.stderr
    for name, end in (("sum", "ok"), ("error", "ERROR")):
        assert f"test_{name} (__main__.TestKeptGroup.test_{name}) ... {end}" in done.stderr, done.stderr
    assert "AssertionError: 1 != 0" in done.stderr


def test_tests_of_the_shape_of_transformer_engines_run_on_ranks(tmp_path: Path) -> None:
    """The example's conftest.py makes them, as they are, use cp-pool."""
    folder = tmp_path / "tests/pytorch/attention"
    folder.mkdir(parents=True)
    (folder / "run_attention_with_cp.py").write_text(RUNNER)
    (folder / "test_attention_with_cp.py").write_text(TESTS)
    (folder / "conftest.py").write_text((ROOT / "examples/transformer_engine/conftest.py").read_text())
    env = {**os.environ, "TE_PATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "1 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "cp_2_0 is wrong" in done.stdout

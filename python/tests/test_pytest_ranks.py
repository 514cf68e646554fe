"""Tests that run on ranks (cp_pool.on_ranks), in a real pytest."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = """
import os, pathlib, pickle, signal, time, unittest
import cp_pool, pytest, torch, torch.distributed as dist

IMPORTS = pathlib.Path(os.environ["IMPORTS"])
with IMPORTS.open("a") as file:
    file.write(f"{os.getpid()}\\n")


class Point:
    def __init__(self, x):
        self.x = x


@pytest.fixture
def number():
    return 5


@pytest.fixture
def connection():
    return open(__file__)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@cp_pool.on_ranks(2)
def test_all_gather(ranks, dtype):
    x = torch.full((4,), ranks.rank, dtype=dtype, device=ranks.device)
    parts = [torch.empty_like(x) for _ in range(ranks.world_size)]
    dist.all_gather(parts, x)
    assert [part[0].item() for part in parts] == [0, 1]


@cp_pool.on_ranks(1, 2)
def test_sizes(ranks):
    assert ranks.world_size == dist.get_world_size()


@pytest.mark.parametrize("point", [Point(3)], ids=["three"])
@cp_pool.on_ranks(2)
def test_fixtures(ranks, number, point, tmp_path):
    assert (number, point.x) == (5, 3)
    (tmp_path / str(ranks.rank)).touch()


class TestInAClass:
    @cp_pool.on_ranks(2)
    def test_method(self, ranks):
        dist.barrier()


@cp_pool.on_ranks(2)
def test_wrong(ranks):
    values = {"a": 1, "b": ranks.rank}
    print("on rank", ranks.rank)
    assert values == {"a": 1, "b": 0}
    dist.barrier()


@cp_pool.on_ranks(2)
def test_skips(ranks):
    pytest.skip("not today")


@pytest.mark.skip(reason="never")
@cp_pool.on_ranks(2)
def test_marked():
    raise RuntimeError


@pytest.mark.xfail(reason="known")
@cp_pool.on_ranks(2)
def test_expected(ranks):
    assert False


@cp_pool.on_ranks(2)
def test_crash(ranks):
    if ranks.rank == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    dist.barrier()


@cp_pool.on_ranks(2, timeout=2)
def test_hang(ranks):
    if ranks.rank == 0:
        time.sleep(1000)
    dist.barrier()


@cp_pool.on_ranks(2)
def test_refused(ranks, connection):
    pass


@cp_pool.on_ranks(2)
def test_stays(ranks, monkeypatch):
    pass


def test_without_ranks():
    pass


def test_lost(ranks):
    pass
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command() -> list[str]:
    words = [sys.executable, "-m", "pytest", "-p", "cp_pool.pytest_plugin", "--cp-pool-device", "cpu"]
    return [*words, "-p", "no:cacheprovider"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**env, "COLUMNS": "200", "IMPORTS": str(tmp_path / "imports")}


@pytest.fixture
def run(command: list[str], environment: dict[str, str], tmp_path: Path) -> Run:
    def finished(*arguments: str, tests: str = TESTS) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_mine.py").write_text(tests)
        return subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return finished


def counts(done: subprocess.CompletedProcess[str]) -> str:
    return re.sub(r" in [0-9.]+s.*", "", done.stdout.rstrip().splitlines()[-1]).strip("= ")


def test_each_test_has_its_outcome(run: Run, tmp_path: Path) -> None:
    done = run("-v", "-rsx", "--durations=0", "-vv")
    assert counts(done) == "5 failed, 7 passed, 2 skipped, 1 xfailed, 1 error", done.stdout + done.stderr
    for name, outcome in (
        ("test_all_gather[dtype0]", "PASSED"),
        ("test_sizes[1ranks]", "PASSED"),
        ("test_sizes[2ranks]", "PASSED"),
        ("test_fixtures[three]", "PASSED"),
        ("TestInAClass::test_method", "PASSED"),
        ("test_wrong", "FAILED"),
        ("test_skips", "SKIPPED (not today)"),
        ("test_marked", "SKIPPED (never)"),
        ("test_expected", "XFAIL (known)"),
        ("test_crash", "FAILED"),
        ("test_hang", "FAILED"),
    ):
        assert f"test_mine.py::{name} {outcome}" in done.stdout
    # Assertions are rewritten on ranks, and the other ranks have a line each.
    assert "rank 1: AssertionError: assert {'a': 1, 'b': 1} == {'a': 1, 'b': 0}" in done.stdout
    # Rank 0 waits in the barrier until it is freed, or until rank 1 has closed its connections, whichever comes first.
    assert re.search(
        "rank 0: (freed in (barrier of )?test_wrong|.*(Broken pipe|Connection (closed|reset)))", done.stdout
    ), [x for x in done.stdout.splitlines() if "rank 0" in x]
    assert "Captured stderr of rank 1" in done.stdout
    assert "on rank 1" in done.stdout
    assert "the fixture 'connection' cannot go to ranks: TypeError" in done.stdout
    assert "the fixture 'monkeypatch' cannot go to ranks: it belongs to pytest's process" in done.stdout
    assert "the fixture 'ranks' is for tests with @cp_pool.on_ranks(..)" in done.stdout
    # pytest has imported the file, and then the process that ranks are forked from.
    assert len(set((tmp_path / "imports").read_text().split())) == 2


@pytest.mark.long
def test_options_of_pytest_hold(run: Run) -> None:
    assert counts(run("-k", "all_gather and dtype1")) == "1 passed, 15 deselected"
    assert counts(run("-x", "-k", "wrong or sizes or without")).startswith("1 failed, 2 passed")
    done = run("-k", "wrong", "--pdb")
    assert "To stop there, give the test a long timeout" in done.stdout
    assert counts(run("-n", "2", "-k", "all_gather or sizes")) == "4 passed"


@pytest.mark.long
def test_a_file_that_cannot_be_imported_on_ranks_is_told_with_each_test(run: Run) -> None:
    tests = "import os, cp_pool\nif 'CP_POOL_TEST_FILES' in os.environ: raise ImportError('no ranks')\n"
    done = run(tests=tests + "@cp_pool.on_ranks(2)\ndef test_it(ranks): pass\n")
    assert counts(done) == "1 failed"
    assert "ImportError: no ranks" in done.stdout


@pytest.mark.long
def test_a_cp_pool_that_dies_costs_the_tests_that_wait_for_it(run: Run) -> None:
    tests = (
        "import os, signal, cp_pool, pytest\n"
        "@pytest.fixture\n"
        "def late(): pass\n"
        "@cp_pool.on_ranks(2)\n"
        "def test_kills(ranks): os.kill(os.getppid(), signal.SIGKILL)\n"
        "@cp_pool.on_ranks(2)\n"
        "def test_after(ranks, late): pass\n"
    )
    done = run(tests=tests)
    assert counts(done) == "1 failed, 1 passed"
    assert "cp-pool has died: " in done.stdout


@pytest.mark.long
def test_an_argument_that_cannot_be_pickled_is_named(run: Run) -> None:
    tests = "import cp_pool, pytest\n@pytest.mark.parametrize('f', [lambda: 1])\n"
    done = run(tests=tests + "@cp_pool.on_ranks(2)\ndef test_it(ranks, f): pass\n")
    assert counts(done) == "1 failed"
    assert "the argument 'f' cannot go to ranks: " in done.stdout


def test_ctrl_c_leaves_nothing(command: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import os, time, cp_pool\n"
        "@cp_pool.on_ranks(2)\n"
        "def test_it(ranks):\n"
        "    with open(os.environ['IMPORTS'] + str(ranks.rank), 'w') as file: file.write(str(os.getpid()))\n"
        "    time.sleep(1000)\n"
    )
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    files = [tmp_path / f"imports{rank}" for rank in (0, 1)]
    while not all(file.exists() and file.read_text() for file in files):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    assert "KeyboardInterrupt" in out
    for file in files:
        assert not Path(f"/proc/{file.read_text()}").exists()

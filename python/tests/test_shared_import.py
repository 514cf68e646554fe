"""Tests that a run imports its adapter once, in the process that its ranks are forked from, and that forked ranks see
what ranks see that import it by themselves. adapters/imports.py notes it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adapter_runs import Run, case, environment, run_cases

from cp_pool import Pool
from cp_pool.start_limit import StartLimit


def causal(cp_size: int = 2) -> dict[str, Any]:
    return case("any", cp_size=cp_size, seqlen_q=120, seqlen_kv=120)


class Runs:
    """Runs of imports.py in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.imports = folder / "imports"

    def env(self, does: str = "") -> dict[str, str]:
        return {
            "CP_POOL_TEST_IMPORTS": str(self.imports),
            "CP_POOL_TEST_FACTS": str(self.folder),
            "CP_POOL_TEST_DOES": does,
            "CP_POOL_TEST_REMOVED": "not yet",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }

    def run(self, cases: list[dict[str, Any]], *options: str, does: str = "") -> Run:
        self.imports.write_text("", encoding="utf-8")
        fork = () if "--fork" in options else ("--fork", "on")
        return run_cases("imports.py:facts", cases, *fork, *options, env=self.env(does))

    def count(self) -> int:
        return len(self.imports.read_text(encoding="utf-8").splitlines())

    def facts(self) -> list[Any]:
        return [json.loads((self.folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_an_adapter_is_imported_once_for_the_ranks_of_all_pools(runs: Runs) -> None:
    found = runs.run([causal(1), causal(2), causal(3)])
    assert found.outcomes() == ["skip"] * 3, found.output
    assert found.pools() == 3
    assert runs.count() == 1
    told = [event for event in found.events if event["type"] == "fork_server"]
    assert [(event["ready"], event["reason"]) for event in told] == [(True, "")]


def test_a_forked_rank_sees_what_an_executed_rank_sees(runs: Runs) -> None:
    logs = runs.folder / "logs"
    runs.run([causal()], "--fork", "off")
    assert runs.count() == 2
    executed = runs.facts()
    found = runs.run([causal()], "--run-dir", str(logs))
    assert runs.count() == 1, found.output
    assert runs.facts() == executed
    assert [facts["environment"]["RANK"] for facts in executed] == ["0", "1"]
    assert executed[0]["in C"] == "by the import\n"
    for rank in range(2):
        (log,) = logs.rglob(f"rank{rank}.stderr.log")
        assert "the adapter was imported" in log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("does", "why"),
    [
        (
            "thread",
            "threads exist after the imports, which a forked rank would lack: watcher of mine, in wait of watch",
        ),
        ("socket", "the import has opened a socket, which ranks would share"),
        ("process", "a process that the import has started still runs"),
        ("rank", ""),
    ],
)
def test_ranks_import_by_themselves_what_they_cannot_share(runs: Runs, does: str, why: str) -> None:
    found = runs.run([causal()], does=does)
    assert found.outcomes() == ["skip"], found.output
    assert runs.count() == 3  # to ask it, and two ranks
    assert [facts["watchers"] for facts in runs.facts()] == [int(does == "thread")] * 2
    line = "cp-pool: warning: each rank imports the adapter by itself: "
    if why:
        assert line + why in found.output
        assert "in setup(ctx) or at first use" in found.output
    else:  # its import fails without a rank, as it does with --worker
        assert line not in found.output


def test_the_imports_of_ranks_that_share_none_begin_with_the_first_from_the_second_run_on(runs: Runs) -> None:
    undeclared = case("undeclared", window=[4, 0])
    for does in ("thread", "thread together"):
        found = runs.run([causal(), undeclared], does=does)
        assert found.outcomes() == ["skip", "skip"], found.output
        assert "each rank imports the adapter by itself: threads exist" in found.output
        assert runs.count() == 3
    # What has changed for the better is noticed by the next run, and used by the one after it.
    assert [[*runs.run([causal()]).outcomes(), runs.count()] for _ in range(2)] == [["skip", 3], ["skip", 1]]


def test_an_import_that_would_take_another_rank_for_its_own_is_not_shared(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import os\nfrom cp_pool import adapter, Skip\nRANK = int(os.environ.get('RANK', 0))\n"
        "@adapter(features=['causal'])\ndef mine(q, k, v, case, ctx):\n"
        "    assert ctx.rank == RANK\n    raise Skip('right')\n",
        encoding="utf-8",
    )
    found = run_cases(str(file), [causal()], "--fork", "on")
    assert found.outcomes() == ["skip"], found.output
    assert "the import reads RANK (mine.py:3), which differs between ranks" in found.output


@contextmanager
def pool_of(file: Path) -> Iterator[Pool]:
    variables = {name: value for name, value in environment().items() if name in ("PYTHONPATH", "CUDA_VISIBLE_DEVICES")}
    with Pool(None, adapter=str(file), device="cpu", env=variables) as pool:
        yield pool


def test_an_adapter_that_has_changed_is_imported_anew(tmp_path: Path) -> None:
    file, count = tmp_path / "mine.py", tmp_path / "imports"

    def write(version: int, more: str = "") -> None:
        file.write_text(
            "from cp_pool import adapter, Skip\n"
            f"open({str(count)!r}, 'a').write('x')\n{more}\n"
            f"@adapter(features=['causal'])\ndef mine(q, k, v, case, ctx):\n    raise Skip('version {version}')\n",
            encoding="utf-8",
        )
        os.utime(file, ns=(time.time_ns(), version * 10**9))

    write(1)
    with pool_of(file) as pool:
        assert pool.submit(causal(1)).reason == "version 1"
        assert pool.submit(causal(2)).reason == "version 1"
        assert count.read_text(encoding="utf-8") == "x"
        write(2)
        assert pool.submit(causal(3)).reason == "version 2"
        assert count.read_text(encoding="utf-8") == "xx"
        write(3, "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()")
        assert pool.submit(causal(4)).reason == "version 3"
        assert count.read_text(encoding="utf-8") == "xx" + "x" * 5
        write(4)
        assert pool.submit(causal(5)).reason == "version 4"
        assert count.read_text(encoding="utf-8") == "xx" + "x" * 5 + "x"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise ValueError('no license')", "its import raised ValueError: no license"),
        ("import sys; sys.exit(4)", "its import raised SystemExit: 4"),
        ("import os; os._exit(3)", "rank 0 died: exit 3"),
    ],
)
def test_an_import_that_fails_is_reported_as_by_ranks_that_import_by_themselves(
    tmp_path: Path, body: str, why: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"{body}\n", encoding="utf-8")
    forked = run_cases(str(file), [causal(1)], "--fork", "on")
    executed = run_cases(str(file), [causal(1)], "--fork", "off")
    assert forked.outcomes() == executed.outcomes() == ["infra"]
    assert why in forked.cases[0].reason
    assert forked.cases[0].reason == executed.cases[0].reason
    assert forked.code == executed.code == 96
    assert "each rank imports" not in forked.output


def test_an_import_that_hangs_in_c_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import ctypes\nctypes.PyDLL(None).sleep(3600)\n", encoding="utf-8")
    found = run_cases(str(file), [causal(1)], "--fork", "on", "--start-timeout", "12s")
    assert found.outcomes() == ["infra"], found.output
    # The second if a busy machine has taken all the time for torch.
    givers = ("the fork server was not ready within 12000 ms (--start-timeout)", "90 % of --start-timeout")
    assert any(giver in found.cases[0].reason for giver in givers), found.output


def test_a_start_limit_leaves_no_thread_that_a_fork_would_lack() -> None:
    before = os.listdir("/proc/self/task")
    for _ in range(300):
        with StartLimit().watching(lambda _: None):
            pass
        assert os.listdir("/proc/self/task") == before

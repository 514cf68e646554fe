"""PooledTestCase: runs classes that were written for MultiProcessTestCase or MultiProcContinuousTest of
torch.testing._internal.common_distributed on warm ranks (docs/functions.md)."""

from __future__ import annotations

import os
import sys
import unittest
from typing import Any

from cp_pool.call_stream import CallStream, failure_text
from cp_pool.calls import MODULES, Ranks
from cp_pool.rank_tests import test_module

try:  # it needs packages that torch does not install
    from torch.testing._internal.common_utils import TestCase
except ImportError:
    TestCase = unittest.TestCase  # type: ignore[assignment,misc]

__all__ = ["PooledTestCase", "run"]

_ranks: Ranks | None = None  # in a rank, during a test
_stream: CallStream | None = None


class PooledTestCase(TestCase):  # type: ignore[misc,unused-ignore]
    """In the process of the test runner each test method waits for ranks that run it. As with torch's classes, setUp
    and tearDown run in that process alone.

    A class with backend_str, as MultiProcContinuousTest has, finds the group of all ranks made, and as `pg`. In any
    other class the tests make it themselves, with `rank`, `world_size` and `file_name`."""

    MAIN_PROCESS_RANK = -1
    world_size: Any = 2
    rank: int = MAIN_PROCESS_RANK
    file_name: str = ""
    pg: Any = None

    def __init__(self, method_name: str = "runTest", methodName: str = "runTest") -> None:
        name = methodName if methodName != "runTest" else method_name
        super().__init__(name)  # type: ignore[no-untyped-call,unused-ignore]
        if _ranks is None and hasattr(self, name):
            setattr(self, name, lambda: self._run_on_ranks(name))

    def _spawn_processes(self) -> None:
        """There are processes already."""

    _fork_processes = _spawn_processes

    def _run_on_ranks(self, name: str) -> None:
        global _stream
        if _stream is None:
            _stream = CallStream(device="cpu", env={MODULES: "cp_pool.torch_testing"})
        cls = type(self)
        file = sys.modules[cls.__module__].__file__
        assert file is not None
        module = cls.__module__
        if module == "__main__":
            module = os.path.splitext(os.path.basename(file))[0]
        arguments = {"file": os.path.abspath(file), "module": module, "cls": cls.__qualname__, "method": name}
        future = _stream.submit("cp_pool.torch_testing:run", arguments, int(self.world_size), name=self.id())
        result = future.result()
        if result.skipped:
            raise unittest.SkipTest(result.reason)
        if result.outcome == "fail":
            self.fail(failure_text(result))
        if not result.ok:
            raise RuntimeError(failure_text(result))


def run(ranks: Ranks, file: str, module: str, cls: str, method: str) -> None:
    """Runs a test method on this rank."""
    import torch.distributed as dist

    global _ranks
    folder = os.path.dirname(file)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    test_class = getattr(test_module(module, file), cls)
    has_group = hasattr(test_class, "backend_str")
    if not has_group:
        dist.destroy_process_group()
    _ranks = ranks
    try:
        test = test_class(method)
        test.rank = ranks.rank
        if not isinstance(getattr(test_class, "world_size", None), property):
            test.world_size = ranks.world_size
        test.file_name = str(ranks.scratch / "store")
        test.pg = dist.group.WORLD if has_group else None
        getattr(test, method)()
    except SystemExit as end:
        raise _skip_of(end) or end from None
    finally:
        _ranks = None
        # A group that the test has made is destroyed before the next call, when no rank still makes it.


def _skip_of(end: SystemExit) -> unittest.SkipTest | None:
    """What torch's decorators mean by the exit codes with which they skip."""
    common = sys.modules.get("torch.testing._internal.common_distributed")
    for skip in getattr(common, "TEST_SKIPS", {}).values():
        if skip.exit_code == end.code:
            return unittest.SkipTest(skip.message)
    return None

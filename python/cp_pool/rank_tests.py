"""Tests that run on ranks: the decorator, and what a rank does with a test (docs/functions.md)."""

from __future__ import annotations

import ast
import base64
import contextlib
import importlib
import importlib.util
import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from cp_pool.calls import Ranks

__all__ = ["FILES", "OnRanks", "on_ranks", "run", "test_module"]

#: JSON: {"path": sys.path of pytest, "files": [[module, file], ..]}, which are imported before ranks are forked.
FILES = "CP_POOL_TEST_FILES"

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class OnRanks:
    """How a test runs on ranks."""

    world_sizes: tuple[int, ...]
    device: str
    timeout: float | None
    fresh: bool


def on_ranks(
    *world_sizes: int, device: str = "auto", timeout: float | None = None, fresh: bool = False
) -> Callable[[_Function], _Function]:
    """Runs a test of pytest on each rank of a warm pool. The test has a parameter `ranks` (cp_pool.calls.Ranks); its
    other arguments come along pickled.

    world_sizes: numbers of ranks; of several, the test runs once with each. device: auto, cpu or cuda. timeout: in
    seconds. fresh: on ranks that have run nothing else."""
    if not world_sizes or any(not isinstance(size, int) or size < 1 for size in world_sizes):
        raise ValueError(f"on_ranks{world_sizes}: it takes numbers of ranks, as on_ranks(2) or on_ranks(2, 4)")
    how = OnRanks(world_sizes, device, timeout, fresh)

    def mark(function: _Function) -> _Function:
        function.__cp_pool_on_ranks__ = how  # type: ignore[attr-defined]
        return function

    return mark


def run(ranks: Ranks, file: str, module: str, name: str, given: dict[str, str]) -> None:
    """Runs a test on this rank. given: the arguments, each pickled and in base64."""
    found: Any = test_module(module, file)
    *holders, last = name.split(".")
    for holder in holders:
        found = getattr(found, holder)
    if holders:
        found = found()
    arguments = {argument: pickle.loads(base64.b64decode(value)) for argument, value in given.items()}
    getattr(found, last)(ranks=ranks, **arguments)


def test_module(name: str, file: str) -> ModuleType:
    """The module of a test file, by the name that it has in pytest, with rewritten assertions."""
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == file:
        return known
    package, _, _ = name.rpartition(".")
    if package:
        importlib.import_module(package)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(_rewritten(file), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _rewritten(file: str) -> Any:
    source = Path(file).read_bytes()
    tree = ast.parse(source, filename=file)
    with contextlib.suppress(ImportError):  # assertions then have no details
        from _pytest.assertion.rewrite import rewrite_asserts

        rewrite_asserts(tree, source, file)
    return compile(tree, file, "exec", dont_inherit=True)


def _import_test_files() -> None:
    wanted = json.loads(os.environ.get(FILES, "{}"))
    for entry in wanted.get("path", []):
        if entry not in sys.path:
            sys.path.append(entry)
    for name, file in wanted.get("files", []):
        with contextlib.suppress(BaseException):  # each test of the file reports it
            test_module(name, file)


_import_test_files()

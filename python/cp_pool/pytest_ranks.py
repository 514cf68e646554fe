"""Tests of pytest that run on ranks (cp_pool.on_ranks). All that need nothing from pytest's process are submitted
before the first one runs, so that pools work side by side."""

from __future__ import annotations

import base64
import contextlib
import json
import pickle
import sys
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

import pytest
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

from cp_pool.call_stream import CallStream, failure_text
from cp_pool.calls import MODULES
from cp_pool.rank_tests import FILES, OnRanks
from cp_pool.result import PoolError, Result

try:  # the fixture that pytest makes for each argument of parametrize
    from _pytest.python import get_direct_param_fixture_func as _PARAMETER
except ImportError:  # in another version of pytest: each test is submitted in its turn
    _PARAMETER = None  # type: ignore[assignment]

__all__ = ["RankTests"]

_RUN = "cp_pool.rank_tests:run"
# They belong to pytest's process, whatever they can be pickled to.
_STAY = frozenset(
    ("request", "monkeypatch", "capsys", "capfd", "capsysbinary", "capfdbinary", "caplog", "recwarn", "pytester")
)
_HOW_TO_STOP = (
    "--pdb: this failed on a rank, which is another process. To stop there, give the test a long timeout and put"
    " `import debugpy; debugpy.listen(5678 + ranks.rank); debugpy.wait_for_client()` before the line"
)
_RESULT: pytest.StashKey[Result] = pytest.StashKey()


class RankTests:
    """The plugin for tests on ranks."""

    NAME = "cp-pool-rank-tests"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._streams: dict[str, CallStream] = {}  # by device
        self._submitted: dict[str, Future[Result]] = {}  # by node ID
        self._files: list[tuple[str, str]] = []

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        how = getattr(metafunc.function, "__cp_pool_on_ranks__", None)
        if how is not None and len(how.world_sizes) > 1:
            ids = [f"{size}ranks" for size in how.world_sizes]
            metafunc.parametrize("ranks", how.world_sizes, indirect=True, ids=ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Submits the tests that can be. With -x or --maxfail fewer would be wasted if each waited for its turn, but
        nothing is lost: what has not been asked for when pytest ends is cancelled."""
        items = [item for item in session.items if isinstance(item, pytest.Function) and _how(item) is not None]
        self._files = sorted({(item.module.__name__, str(item.path)) for item in items})
        # Processes of xdist deal out the tests themselves.
        is_of_xdist = hasattr(session.config, "workerinput") or getattr(session.config.option, "dist", "no") != "no"
        if session.config.option.collectonly or is_of_xdist:
            return
        for item in items:
            arguments = _known_arguments(item)
            if arguments is None or not _will_run(item):
                continue
            with contextlib.suppress(PoolError, pytest.fail.Exception):  # it is told in the test's turn
                self._submitted[item.nodeid] = self._submit(item, arguments)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        if _how(pyfuncitem) is None:
            return None
        result = self._result(pyfuncitem)
        pyfuncitem.stash[_RESULT] = result
        if result.skipped:
            pytest.skip(result.reason)
        if not result.ok:
            text = failure_text(result, stderr=False)  # which is a section of the report
            pytest.fail(f"{text}\n{_HOW_TO_STOP}" if self._config.option.usepdb else text, pytrace=False)
        return True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        report: pytest.TestReport = (yield).get_result()
        result = item.stash.get(_RESULT, None)
        if result is None or call.when != "call":
            return
        report.duration = result.duration_ms / 1000
        for tail in result.stderr:
            if tail.text.strip():
                report.sections.append((f"Captured stderr of {tail.of or f'rank {tail.rank}'}", tail.text))

    def pytest_sessionfinish(self) -> None:
        """Ends cp-pool: at once if tests are left over, after Ctrl-C or -x."""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.close(at_once=bool(self._submitted))

    def pytest_unconfigure(self) -> None:
        self.pytest_sessionfinish()

    def _result(self, item: pytest.Function) -> Result:
        """Waits for the test. If cp-pool has died, the test fails, and the next one starts another."""
        try:
            if item.nodeid not in self._submitted:
                names = [name for name in item._fixtureinfo.argnames if name != "ranks"]
                self._submitted[item.nodeid] = self._submit(item, {name: item.funcargs[name] for name in names})
            result = self._submitted[item.nodeid].result()
        except PoolError as error:
            self._submitted.clear()
            self.pytest_sessionfinish()
            pytest.fail(str(error), pytrace=False)
        del self._submitted[item.nodeid]
        return result

    def _submit(self, item: pytest.Function, arguments: dict[str, Any]) -> Future[Result]:
        how = _how(item)
        assert how is not None
        size: Any = item.callspec.params["ranks"] if len(how.world_sizes) > 1 else how.world_sizes[0]
        given = {
            "file": str(item.path),
            "module": item.module.__name__,
            "name": f"{item.cls.__qualname__}.{item.originalname}" if item.cls else item.originalname,
            "given": {name: _pickled(item, name, value) for name, value in arguments.items()},
        }
        name = item.nodeid.encode("ascii", "backslashreplace").decode()
        return self._stream(how.device).submit(_RUN, given, size, name=name, timeout=how.timeout, fresh=how.fresh)

    def _stream(self, device: str) -> CallStream:
        option = self._config.option
        if device == "auto":
            device = option.cp_pool_device
        if device not in self._streams:
            files = json.dumps({"path": [entry for entry in sys.path if entry], "files": self._files})
            arguments = ["--timeout", option.cp_pool_timeout] if option.cp_pool_timeout else []
            self._streams[device] = CallStream(
                device=device,
                python=option.cp_pool_python,
                env={MODULES: "cp_pool.rank_tests", FILES: files},
                arguments=arguments,
            )
        return self._streams[device]


def _how(item: pytest.Item) -> OnRanks | None:
    """How the test runs on ranks; None if it does not."""
    return getattr(item.obj, "__cp_pool_on_ranks__", None) if isinstance(item, pytest.Function) else None


def _known_arguments(item: pytest.Function) -> dict[str, Any] | None:
    """The arguments of a test that has only those of parametrize; None if fixtures have to be set up first."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    for name, definitions in item._fixtureinfo.name2fixturedefs.items():
        if name != "ranks" and definitions[-1].func is not _PARAMETER:
            return None
    return {name: params[name] for name in item._fixtureinfo.argnames if name != "ranks"}


def _will_run(item: pytest.Item) -> bool:
    """Whether no mark keeps it from running. A condition that cannot be evaluated is reported in its turn."""
    try:
        expected = evaluate_xfail_marks(item)
        return evaluate_skip_marks(item) is None and (expected is None or expected.run or item.config.option.runxfail)
    except BaseException:
        return False


def _pickled(item: pytest.Function, name: str, value: object) -> str:
    """An argument for ranks, in base64. Refuses, by name, what cannot go there."""
    try:
        if name not in _STAY:
            return base64.b64encode(pickle.dumps(value)).decode()
        why = "it belongs to pytest's process"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    what = "argument" if name in getattr(getattr(item, "callspec", None), "params", {}) else "fixture"
    pytest.fail(f"the {what} {name!r} cannot go to ranks: {why}", pytrace=False)

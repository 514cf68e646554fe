"""The pytest plugin. `pytest --cp-pool-adapter mine.py --cp-pool-matrix quick` makes an item of each case of a
matrix. The fixture `cp_pool` submits cases from your own tests. All items and tests of a process share one Pool, whose
ranks stay warm."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback, TerminalRepr

from cp_pool.catalog import ListedCase, Listing, list_cases
from cp_pool.exit_codes import ExitCode
from cp_pool.pool import Case, Pool
from cp_pool.programs import find_binary
from cp_pool.pytest_ranks import RankTests
from cp_pool.result import CaseFailed, CaseRefused, CaseSkipped, PoolError, Result

_OUTCOME = "cp_pool_outcome"  # the property that marks reports of cases, also those that come from workers of xdist
_NO_POOL = ("infra", "cancelled", "not-run")  # outcomes that say nothing about the case itself


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cp-pool", "cp-pool: cases of context-parallel attention on warm ranks")
    group.addoption(
        "--cp-pool-adapter", metavar="ADAPTER", help="Your attention: FILE.py[:NAME] or package.module:NAME"
    )
    group.addoption("--cp-pool-worker", metavar="CMD", help="A worker's command line, instead of an adapter")
    group.addoption(
        "--cp-pool-matrix",
        metavar="MATRIX",
        action="append",
        default=[],
        help="Run the cases of a shipped matrix or of a file, each as an item; may be repeated",
    )
    group.addoption(
        "--cp-pool-filter",
        metavar="FILTER",
        action="append",
        default=[],
        help="Only the cases that this filter of cp-pool selects (comm=p2p & layout=thd); of several, their union",
    )
    group.addoption(
        "--cp-pool-size", metavar="SIZE", default="small", help="Size of the cases: small (default) or full"
    )
    group.addoption(
        "--cp-pool-device", choices=("auto", "cpu", "cuda"), default="auto", help="Device of the ranks (default: auto)"
    )
    group.addoption("--cp-pool-timeout", metavar="TIME", help="Deadline of a case: 90 (default), 1500ms, 2m")
    group.addoption(
        "--cp-pool-bound-factor",
        metavar="X",
        type=float,
        help="Widen the allowance of each check, visibly in every report",
    )
    group.addoption("--cp-pool-python", metavar="PATH", help="The Python that runs the adapter")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpPoolPlugin(config), CpPoolPlugin.NAME)
    config.pluginmanager.register(RankTests(config), RankTests.NAME)


@pytest.fixture(scope="session")
def cp_pool(pytestconfig: pytest.Config) -> Submitter:
    """Submits cases to warm ranks, as the options --cp-pool-* say. `cp_pool.check(heads=8, ..)` runs a case and fails
    or skips the test as the case did; `cp_pool.submit(..)` returns the Result."""
    return Submitter(_plugin(pytestconfig).pool)


@pytest.fixture
def ranks(request: pytest.FixtureRequest) -> None:
    """The ranks of a test with the decorator cp_pool.on_ranks. In pytest's process there are none."""
    if not hasattr(request.function, "__cp_pool_on_ranks__"):
        pytest.fail("the fixture 'ranks' is for tests with @cp_pool.on_ranks(..)", pytrace=False)


def _plugin(config: pytest.Config) -> CpPoolPlugin:
    plugin = config.pluginmanager.get_plugin(CpPoolPlugin.NAME)
    assert isinstance(plugin, CpPoolPlugin)
    return plugin


class Submitter:
    """The fixture `cp_pool`."""

    def __init__(self, pool: SharedPool) -> None:
        self._pool = pool

    def submit(self, case: Case | None = None, /, **fields: Any) -> Result:
        """Like Pool.submit: returns the result of the case, whatever the outcome."""
        __tracebackhide__ = True
        return self._pool.submit(case, fields)

    def check(self, case: Case | None = None, /, **fields: Any) -> Result:
        """Submits a case. A skip skips the test with the case's reason; any other outcome but a pass raises
        CaseFailed."""
        __tracebackhide__ = True
        result = self._pool.submit(case, fields)
        if result.skipped:
            pytest.skip(result.reason)
        return result.raise_for_outcome()


class SharedPool:
    """The Pool of this process. It is started by the first case, and if it has died, again by the next case, unless
    cp-pool refuses its command line."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._pool: Pool | None = None
        self._refused: PoolError | None = None

    def submit(self, case: Case | None, fields: Mapping[str, Any]) -> Result:
        __tracebackhide__ = True
        if self._refused is not None:
            raise PoolError("cp-pool did not start, as said with the first case", self._refused.exit_code)
        if self._pool is None:
            self._pool = self._start()
        try:
            return self._pool.submit(case, **fields)
        except PoolError as error:
            self.close()
            if error.exit_code == ExitCode.usage:  # it would be refused again
                self._refused = error
            raise

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _start(self) -> Pool:
        option = self._config.option
        return Pool(
            adapter=option.cp_pool_adapter,
            worker=option.cp_pool_worker,
            device=option.cp_pool_device,
            timeout=option.cp_pool_timeout or 90,
            python=option.cp_pool_python,
            bound_factor=option.cp_pool_bound_factor,
            matrices=option.cp_pool_matrix,
            size=option.cp_pool_size,
        )


class CpPoolPlugin:
    """Collects the cases and formats their reports."""

    NAME = "cp-pool-cases"

    def __init__(self, config: pytest.Config) -> None:
        option = config.option
        if option.cp_pool_adapter and option.cp_pool_worker:
            raise pytest.UsageError("--cp-pool-adapter and --cp-pool-worker exclude each other")
        if not option.cp_pool_matrix and option.cp_pool_filter:
            raise pytest.UsageError("--cp-pool-filter needs --cp-pool-matrix")
        self.pool = SharedPool(config)
        self._config = config
        self._matrices: list[str] = option.cp_pool_matrix
        self._listing: Listing | None = None
        self._ids: list[str] | None = None  # those that the command line names
        if self._matrices:
            self._take_ids()

    def _take_ids(self) -> None:
        """Removes IDs of cases from the arguments, in which pytest expects files. If there are no arguments at all,
        sets them to none, or else pytest would also collect the tests of the folder."""
        config = self._config
        shared = getattr(config, "workerinput", {}).get("cp_pool")
        if shared is not None:  # a worker of xdist takes over what the controller has found
            config.args, self._ids = shared["args"], shared["ids"]
            return
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            config.args = []
            return
        where = config.invocation_params.dir
        ids = [arg for arg in config.args if "/" in arg and "::" not in arg and not (where / arg).exists()]
        if ids:
            self._ids = ids
            config.args = [arg for arg in config.args if arg not in ids]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """A hook of xdist: passes arguments and IDs to a worker. Each worker collects the cases and has its own
        Pool."""
        if self._matrices:
            node.workerinput["cp_pool"] = {"args": list(self._config.args), "ids": self._ids}

    def pytest_report_header(self) -> list[str]:
        option = self._config.option
        if not (self._matrices or option.cp_pool_adapter or option.cp_pool_worker):
            return []
        told = [f"matrix {', '.join(self._matrices)} at size {option.cp_pool_size}"] if self._matrices else []
        told.append(f"adapter {option.cp_pool_adapter}" if option.cp_pool_adapter else "")
        told.append(f"worker {option.cp_pool_worker}" if option.cp_pool_worker else "")
        told.append(f"device {option.cp_pool_device}")
        if option.cp_pool_bound_factor:
            told.append(f"bounds widened by {option.cp_pool_bound_factor:g}")
        return ["cp-pool: " + ", ".join(text for text in told if text)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Lists the cases, which starts no ranks. Errors in the options are reported as usage errors of pytest."""
        is_xdist_controller = getattr(session.config.option, "dist", "no") != "no" and not hasattr(
            session.config, "workerinput"
        )
        if not self._matrices or is_xdist_controller:
            return
        option = self._config.option
        try:
            listing = list_cases(
                find_binary(), self._matrices, option.cp_pool_size, option.cp_pool_filter or self._all()
            )
            self._listing = self._named(listing)
        except (PoolError, CaseRefused) as error:
            raise pytest.UsageError(str(error)) from None
        for warning in listing.warnings:
            session.config.issue_config_time_warning(pytest.PytestWarning(f"cp-pool: {warning}"), stacklevel=2)

    def _all(self) -> list[str]:
        """The filter if none is given. With IDs on the command line it also selects optional cases, one of which may be
        meant."""
        return [] if self._ids is None else ["*"]

    def _named(self, listing: Listing) -> Listing:
        """Reduces the listing to the IDs on the command line, if there are any. Raises CaseRefused for an unknown
        ID."""
        if self._ids is None:
            return listing
        unknown = set(self._ids) - {listed.id for listed in listing.cases}
        for name in self._ids:
            if name in unknown:
                raise CaseRefused(f"file or directory not found, and no case of {', '.join(self._matrices)}: {name}")
        return Listing(tuple(listed for listed in listing.cases if listed.id in self._ids), listing.warnings)

    # The old kind of hook wrappers, since this module is loaded with whatever version of pytest is installed.
    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, None]:
        """Adds the cases to the files that the session has collected."""
        report: pytest.CollectReport = (yield).get_result()
        if self._listing is not None and isinstance(collector, pytest.Session) and report.passed:
            name = ", ".join(self._matrices)
            cases = Cases.from_parent(collector, name=name, nodeid="cp-pool", listing=self._listing, pool=self.pool)
            report.result.append(cases)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
        report: pytest.TestReport = (yield).get_result()
        if not isinstance(item, CaseItem):
            return
        if report.skipped and isinstance(report.longrepr, tuple):
            # A case has no file and line to point to.
            report.longrepr = (item.case.id.split("/", 1)[0], None, report.longrepr[2])  # type: ignore[assignment]
        if report.failed and report.when == "call" and call.excinfo is not None and _is_infra(call.excinfo.value):
            report.when = "setup"  # so that it is reported as an error and not as a failure

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In JUnit XML, sets the ID as the name and the suite as the class of a case."""
        if not any(name == _OUTCOME for name, _ in report.user_properties):
            return
        from _pytest.junitxml import xml_key

        xml = self._config.stash.get(xml_key, None)
        if xml is not None:
            reporter = xml.node_reporter(report)
            reporter.add_attribute("classname", report.nodeid.split("/", 1)[0])
            reporter.add_attribute("name", report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.pool.close()

    def pytest_unconfigure(self) -> None:
        self.pool.close()


def _is_infra(error: BaseException) -> bool:
    return isinstance(error, PoolError) or (isinstance(error, CaseFailed) and error.result.outcome in _NO_POOL)


class Cases(pytest.Collector):
    """All cases of the matrices."""

    def __init__(self, listing: Listing, pool: SharedPool, **kwargs: Any) -> None:
        super().__init__(path=kwargs["parent"].path, **kwargs)
        self._listing = listing
        self._pool = pool

    def collect(self) -> Iterable[CaseItem]:
        for listed in self._listing.cases:
            # The ID of the case is the node ID.
            yield CaseItem.from_parent(self, name=listed.id, nodeid=listed.id, case=listed, pool=self._pool)


class CaseItem(pytest.Item):
    """One case. Its tags can be selected with -k."""

    def __init__(self, case: ListedCase, pool: SharedPool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case
        self._pool = pool
        self.extra_keyword_matches.update(case.tags)
        self.user_properties.append((_OUTCOME, "not-run"))

    def runtest(self) -> None:
        result = self._pool.submit(self.case.id, {})
        self._tell(result)
        try:
            result.raise_for_outcome(skipped=True)
        except CaseSkipped as skipped:
            pytest.skip(str(skipped))

    def _tell(self, result: Result) -> None:
        """Sets the properties that JUnit XML shows for the case."""
        answer = result.raw
        told = {
            "world_size": self.case.world_size,
            "backend": answer.get("backend"),
            "attempts": answer.get("attempts"),
        }
        if result.bound_factor != 1:
            told["bound_factor"] = f"{result.bound_factor:g}"
        self.user_properties[:] = [(_OUTCOME, result.outcome)]
        self.user_properties += [(name, value) for name, value in told.items() if value]
        self.user_properties.append(("rerun", result.rerun))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | TerminalRepr:
        error = excinfo.value
        if isinstance(error, CaseFailed):
            return _told(self, error.result.failure_text(named=False), error.result.summary())
        if isinstance(error, PoolError | CaseRefused):
            return _told(self, str(error), str(error).split("\n", 1)[0])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.case.id


def _told(item: CaseItem, text: str, summary: str) -> TerminalRepr:
    """A report of only text, with a sentence for the short summary. It is of a type that xdist transfers unchanged."""
    # With --tb=line only the sentence is shown.
    lines = [] if item.config.getoption("tbstyle", "auto") == "line" else [ReprEntryNative([text + "\n"])]
    return ReprExceptionInfo(
        reprtraceback=ReprTraceback(lines, None, style="native"),
        reprcrash=ReprFileLocation(item.case.id, 0, summary),
    )

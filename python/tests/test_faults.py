"""Tests each fault of an adapter on a real pool of two ranks: how the case ends, what the user reads, and whether the
pool is replaced. One run of cp-pool has all faults of a table; each fault is followed by a case that must pass."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from adapter_runs import TRIES_TO_RECOVER, Outcome, Run, case, run_cases


@dataclass
class Fault:
    model: str  # what tests/adapters/faults.py does: FAULT.RANK, or FAULT for all ranks
    outcome: str
    reason: str
    replaced: bool = False  # whether the pool is replaced, even if the adapter declares survives_abort


TIMEOUT_MS = 6000.0
LONG_TIMEOUT_MS = 20000.0  # where nothing waits for it

NO_RESULT = (
    "no result within 6000 ms (--timeout); the last phase was forward;"
    " rank 1 has not entered all_gather #1; rank 0 waits in it"
)

# For an adapter that survives aborts. A reason that begins with "rank" names the rank at fault.
SOON = [
    Fault("throw.0", "error", "rank 0: ValueError: the ring is broken"),
    Fault("throw.1", "error", "rank 1: ValueError: the ring is broken"),
    Fault("backward.0", "error", "rank 0: ValueError: no gradient today"),
    Fault("mismatch", "error", "rank 0: ValueError: the ring is broken"),
    Fault("sys_exit.1", "error", "rank 1: the adapter called sys.exit: SystemExit: 3"),
    Fault("interrupt.0", "error", "rank 0: KeyboardInterrupt"),
    Fault("memory.1", "error", "rank 1: MemoryError"),
    Fault("odd_text.1", "error", "rank 1: ValueError: no file \\udcff\\x00.bin"),
    Fault("cpp.1", "error", "rank 1: RuntimeError: inconsistent tensor size"),
    Fault(
        "odd_kind.1",
        "error",
        "rank 1: cp_pool: internal error: runner.py reports a failure of unknown kind 'odd': no kind",
    ),
    Fault("none.1", "error", "rank 1: surviving returned None: it has to return out, or dict(out=out)"),
    Fault("list.0", "error", "rank 0: out is a list, and has to be a tensor"),
    Fault("empty_dict.1", "error", "rank 1: surviving returned a dict without 'out': it has nothing"),
    Fault("shape.1", "error", "rank 1: out has the shape [1, 7, 2, 8], and its gradient [1, 8, 2, 8]"),
    Fault("dtype.1", "fail", "rank 1: out: dtype Double instead of Float"),
    Fault("meta.1", "error", "rank 1: out is on the device meta, and has to be on cpu"),
    Fault(
        "no_grad.0",
        "error",
        "rank 0: out of surviving has no gradient: was it detached, or computed under torch.no_grad()?",
    ),
    Fault("wrong.1", "fail", "error beyond the bound"),
    Fault("old_dk.1", "fail", "rank 1: repeat: state of an earlier step: "),
    Fault("sign.1", "fail", "repeat: depends on the sign: "),
    Fault("second_dq.1", "fail", "rank 1: repeat: does not repeat: the same step again gave other bits: dq in "),
    Fault("skip", "skip", "this case is not for me"),
    Fault("skip.1", "skip", "rank 1: this case is not for me"),
    Fault("strided", "pass", ""),
    Fault("out_only", "pass", ""),
    Fault("lse_bhs", "pass", ""),
    Fault("buffer", "pass", ""),
    Fault("writes", "pass", ""),
    Fault("print", "pass", ""),
    Fault("fork.1", "pass", ""),
    Fault("fork_returns.0", "pass", ""),
    Fault("then_throw.1", "fail", "error beyond the bound"),
    Fault("then_skip", "fail", "error beyond the bound"),
    Fault("then_throw", "fail", "error beyond the bound"),
]
LATE = [  # those that cost a deadline or the pool
    Fault("sleep.1", "timeout", "rank 1: at 90 % of the case's time still in sleeps (faults.py:"),
    Fault("spin.0", "timeout", "rank 0: at 90 % of the case's time still in spins (faults.py:"),
    Fault("wait.1", "timeout", "at 90 % of the case's time still in all_"),
    Fault("leaves.1", "timeout", "; rank 1 left without entering all_gather #1; rank 0 waits in it"),
    Fault("wraps.1", "timeout", "at 90 % of the case's time still in all_"),
    Fault("stubborn.0", "timeout", "at 90 % of the case's time still in"),
    Fault("segv.1", "crash", "rank 1 died: signal 11 (SIGSEGV)", replaced=True),
    Fault("os_exit.0", "crash", "rank 0 died: exit 3", replaced=True),
    Fault("hold_gil.1", "timeout", NO_RESULT, replaced=True),
    Fault("then_sleep.1", "fail", "error beyond the bound"),
    Fault("then_os_exit.0", "fail", "error beyond the bound", replaced=True),
    Fault("then_hold_gil.1", "fail", "error beyond the bound", replaced=True),
]
# For an adapter that does not survive aborts: more faults cost the pool.
NOT_SURVIVED = [
    Fault("throw.1", "error", "rank 1: ValueError: the ring is broken", replaced=True),
    Fault("sleep.0", "timeout", "rank 0: at 90 % of the case's time still in sleeps (faults.py:", replaced=True),
    Fault("skip", "skip", "this case is not for me"),
    Fault("dtype.1", "fail", "rank 1: out: dtype Double instead of Float"),
    Fault("then_throw", "fail", "error beyond the bound"),
]


# For an adapter that declares repeats_bits=False.
RESTLESS = [
    Fault("old_dk", "fail", "repeated dk: state of an earlier step: with q, k, v and dout negated, rows are"),
    Fault("second_dq.1", "fail", "rank 1: repeated dq: does not repeat: the same step again gave other bits: error"),
]
# For an adapter that declares odd=False.
UNEVEN = [
    Fault("sign.1", "pass", ""),
    Fault("second_dq.1", "fail", "rank 1: repeat: does not repeat: the same step again gave other bits: dq in "),
]


# The cause that the diagnosis reports if the fault happens in its own steps. The outcome is that of the case.
CAUSES_SOON = {
    "then_throw.1": "the diagnosis failed: rank 1: ValueError: the ring is broken",
    "then_throw": "the code under test refused a question of the diagnosis: the ring is broken",
    "then_skip": "the code under test refused a question of the diagnosis: this case is not for me",
}
CAUSES_LATE = {
    "then_sleep.1": "still in sleeps (faults.py:",
    "then_os_exit.0": "the diagnosis failed: rank 0 died: exit 3",
    "then_hold_gil.1": "not every rank came back from the abort",
}

# For ranks that a fork server forks.
FORKED = [
    Fault("throw.1", "error", "rank 1: ValueError: the ring is broken"),
    Fault("fork_returns.0", "pass", ""),
    Fault("sleep.1", "timeout", "rank 1: at 90 % of the case's time still in sleeps (faults.py:"),
    Fault("segv.1", "crash", "rank 1 died: signal 11 (SIGSEGV)", replaced=True),
    Fault("os_exit.0", "crash", "rank 0 died: exit 3", replaced=True),
    Fault("hold_gil.1", "timeout", NO_RESULT, replaced=True),
]


class Table:
    """Runs the faults of a table, each followed by a clean case, and looks up the outcomes."""

    def __init__(self, adapter: str, faults: list[Fault], *options: str, timeout_ms: float = TIMEOUT_MS) -> None:
        cases = [c for fault in faults for c in (case(fault.model), case("clean"))]
        self.run: Run = run_cases(f"faults.py:{adapter}", cases, "--timeout", f"{timeout_ms:.0f}ms", *options)
        assert len(self.run.cases) == len(cases), self.run.output
        self._rows = {fault.model: i for i, fault in enumerate(faults)}
        self._adapter, self._options, self._timeout_ms = adapter, options, timeout_ms

    def came_back_late(self, fault: Fault) -> bool:
        """Whether the pool of a fault that should not cost it was lost because its ranks came back too late, or the
        ranks could not say by the deadline where they stood."""
        broken, clean = self.of(fault)
        silent = "no result within"
        if broken.reason.startswith(silent) and not fault.reason.startswith(silent):
            return True
        pool = broken.event["pool"]
        return pool in self.run.unhealthy_pools() and pool != clean.event["pool"] and not fault.replaced

    def again_if_late(self, fault: Fault) -> Table:
        """This table, or one of the fault alone in which the ranks came back in time, if there is one."""
        table: Table = self
        for _ in range(TRIES_TO_RECOVER - 1):
            if not table.came_back_late(fault):
                break
            table = Table(self._adapter, [fault], *self._options, timeout_ms=self._timeout_ms)
        return table

    def of(self, fault: Fault) -> tuple[Outcome, Outcome]:
        first = 2 * self._rows[fault.model]
        return self.run.cases[first], self.run.cases[first + 1]


@pytest.fixture(scope="module")
def soon() -> Table:
    return Table("surviving", SOON, timeout_ms=LONG_TIMEOUT_MS)


@pytest.fixture(scope="module")
def late() -> Table:
    return Table("surviving", LATE)


@pytest.fixture(scope="module")
def faulty() -> Table:
    return Table("faulty", NOT_SURVIVED)


@pytest.fixture(scope="module")
def restless() -> Table:
    return Table("restless", RESTLESS, timeout_ms=LONG_TIMEOUT_MS)


@pytest.fixture(scope="module")
def uneven() -> Table:
    return Table("uneven", UNEVEN, timeout_ms=LONG_TIMEOUT_MS)


def check(fault: Fault, table: Table) -> None:
    table = table.again_if_late(fault)
    broken, clean = table.of(fault)
    assert broken.outcome == fault.outcome, broken.reason
    if fault.outcome in ("error", "timeout", "fail", "crash", "skip"):
        assert fault.reason in broken.reason
    assert clean.outcome == "pass", clean.reason
    replaced = broken.event["pool"] != clean.event["pool"]
    assert replaced == fault.replaced, table.run.retired


@pytest.mark.parametrize("fault", SOON, ids=lambda fault: fault.model)
def test_a_fault_ends_its_case_alone(fault: Fault, soon: Table) -> None:
    check(fault, soon)
    assert soon.of(fault)[0].event["duration_ms"] < 0.8 * LONG_TIMEOUT_MS


@pytest.mark.parametrize("fault", RESTLESS, ids=lambda fault: fault.model)
def test_gradients_that_need_not_repeat_keep_their_bounds(fault: Fault, restless: Table) -> None:
    check(fault, restless)


@pytest.mark.parametrize("fault", UNEVEN, ids=lambda fault: fault.model)
def test_a_step_whose_rounding_is_not_odd_is_repeated_as_it_is(fault: Fault, uneven: Table) -> None:
    check(fault, uneven)


@pytest.mark.long
@pytest.mark.parametrize("fault", LATE, ids=lambda fault: fault.model)
def test_a_deadline_or_a_crash_ends_its_case_alone(fault: Fault, late: Table) -> None:
    check(fault, late)
    assert late.of(fault)[0].event["duration_ms"] < TIMEOUT_MS + 10_000  # these faults last for ever


def check_cause(model: str, cause: str, table: Table) -> None:
    broken, _ = table.of(Fault(model, "fail", ""))
    assert broken.event["diagnosis"]["certainty"] == "unknown"
    assert cause in broken.event["diagnosis"]["cause"]


@pytest.mark.parametrize("model", CAUSES_SOON)
def test_a_fault_in_the_diagnosis_is_its_answer(model: str, soon: Table) -> None:
    check_cause(model, CAUSES_SOON[model], soon)


@pytest.mark.parametrize(("model", "id"), [("old_dk.1", "stale_buffer"), ("sign.1", "depends_on_sign"),
                                           ("second_dq.1", "not_repeatable")])  # fmt: skip
def test_a_fault_of_the_repetition_is_named(model: str, id: str, soon: Table) -> None:
    broken, _ = soon.of(Fault(model, "fail", ""))
    assert broken.event["diagnosis"]["id"] == id, broken.event["diagnosis"]


@pytest.mark.long
@pytest.mark.parametrize("model", CAUSES_LATE)
def test_a_deadline_or_a_crash_in_the_diagnosis_is_its_answer(model: str, late: Table) -> None:
    check_cause(model, CAUSES_LATE[model], late)


@pytest.fixture(scope="module")
def forked() -> Table:
    return Table("surviving", FORKED, "--fork", "on")


@pytest.mark.long
@pytest.mark.parametrize("fault", FORKED, ids=lambda fault: fault.model)
def test_a_fault_of_a_forked_rank_ends_its_case_alone(fault: Fault, forked: Table) -> None:
    check(fault, forked)


@pytest.mark.long
@pytest.mark.parametrize("fault", NOT_SURVIVED, ids=lambda fault: fault.model)
def test_an_abort_costs_the_pool_of_an_adapter_that_does_not_survive_it(fault: Fault, faulty: Table) -> None:
    check(fault, faulty)


@pytest.mark.long
def test_no_reason_speaks_of_the_pool_that_is_replaced(faulty: Table) -> None:
    broken, _ = faulty.of(NOT_SURVIVED[0])
    assert broken.reason == "rank 1: ValueError: the ring is broken"


def test_the_traceback_has_the_users_frames_alone(soon: Table) -> None:
    broken, _ = soon.of(SOON[1])
    error = broken.rank(1)["error"]
    assert error.startswith("ValueError: the ring is broken\nTraceback (most recent call last):\n")
    assert 'in helper_that_throws\n    raise ValueError("the ring is broken")' in error
    assert not re.search(r"cp_pool/\w+\.py", error)


def test_a_text_that_is_not_utf_8_keeps_its_traceback(soon: Table) -> None:
    broken, _ = soon.of(next(fault for fault in SOON if fault.model == "odd_text.1"))
    assert "in raises_odd_text\n" in broken.rank(1)["error"]


def test_the_peer_of_a_rank_that_throws_says_where_it_was_freed(soon: Table) -> None:
    places = []
    for fault in (fault for fault in SOON if fault.outcome == "error" and fault.model.endswith(".1")):
        broken, _ = soon.of(fault)
        assert broken.event["ranks"][0]["rank"] == 1
        peer = broken.rank(0)["error"]
        # A rank that was between two functions of the adapter when its wait was ended has no place to name.
        between = peer.partition("\n")[0] == "another rank failed"
        assert peer.startswith("freed in ") or between or "Connection closed by peer" in peer
        places += [peer] if peer.startswith("freed in ") and "all_gather" in peer else []
    assert places


@pytest.mark.long
def test_a_crash_and_a_deadline_show_the_python_stack(late: Table) -> None:
    for model, function in (("segv.1", "string_at"), ("hold_gil.1", "in main")):
        broken, _ = late.of(next(fault for fault in LATE if fault.model == model))
        assert "Stack (most recent call first):" in broken.stderr
        assert function in broken.stderr
        assert "above is the stack of the computing thread" in broken.stderr

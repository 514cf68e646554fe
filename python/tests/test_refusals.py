"""Tests what becomes of a case that the code under test refuses with an exception of its own, on real pools."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from adapter_runs import TRIES_TO_RECOVER, Outcome, Run, case, run_cases

WORDS = "No dot product attention backend is available"

# Refused by every rank before it began an operation: a skip in the package's words.
SKIPPED = {
    "refuse": f"{WORDS} for the provided inputs.",
    "pattern": "head_dim 8 is not supported",
    "late": f"{WORDS} for the provided inputs.",
    "backward_alone": f"{WORDS} for the provided inputs.",
}
OPERATIONS = {
    "all_reduce": "all_reduce",
    "of_world": "all_reduce",
    "of_own_group": "all_reduce",
    "asynchronous": "all_reduce",
    "swap": "",  # the send or the receive
    "send": "",
    "barrier": "barrier",
    "objects": "all_gather",
    "functional": "all_gather_into_tensor",
    "in_cpp": "all_reduce",
    "in_a_thread": "all_reduce",
    "backward": "",  # of the forward
}
# Anything else is an error of the rank named first.
ERRORS = {
    "refuse.0": f"rank 0: ValueError: {WORDS} for the provided inputs.; rank 1 did not refuse the case",
    "refuse.1": f"rank 1: ValueError: {WORDS} for the provided inputs.; rank 0 did not refuse the case",
    "other_text": "ValueError: the ring is broken",
    "other_type": f"TypeError: {WORDS}",
    "new_group.1": "rank 1 declined the case in step 1, with 3 process groups made, rank 0 declined the case",
    "throw_or_refuse.1": "rank 1: KeyError: 'no plan'",
}


class Refusals:
    """Runs each case between two that say how often the process groups have been made, and then a clean one."""

    def __init__(self, adapter: str, models: Iterable[str], **fields: object) -> None:
        self._models = list(models)
        cases = [case(one, **fields) for model in self._models for one in ("where", model, "where", "clean")]
        self.run: Run = run_cases(f"refusals.py:{adapter}", cases, "--timeout", "20s")
        assert len(self.run.cases) == len(cases), self.run.output

    def of(self, model: str) -> tuple[Outcome, bool]:
        """The case, and whether its ranks had to be connected again, or replaced. The clean case passed."""
        first = 4 * self._models.index(model)
        before, broken, after, clean = self.run.cases[first : first + 4]
        assert clean.outcome == "pass", clean.reason
        assert before.reason.startswith("generation ")
        made = [(one.event["pool"], one.reason) for one in (before, after)]
        return broken, made[0] != made[1]


@pytest.fixture(scope="module")
def skipped() -> Refusals:
    return Refusals("refusing", SKIPPED)


@pytest.mark.parametrize("model", SKIPPED)
def test_a_case_that_every_rank_refuses_is_a_skip_and_costs_nothing(model: str, skipped: Refusals) -> None:
    broken, rebuilt = skipped.of(model)
    assert (broken.outcome, broken.reason) == ("skip", SKIPPED[model])
    assert not rebuilt
    assert skipped.run.pools() == 1


@pytest.fixture(scope="module")
def begun() -> Refusals:
    return Refusals("surviving", OPERATIONS)


@pytest.mark.parametrize("model", OPERATIONS)
def test_a_refusal_after_an_operation_is_an_error(model: str, begun: Refusals) -> None:
    broken, rebuilt = begun.of(model)
    assert broken.outcome == "error", broken.reason
    said = f"ValueError: {WORDS} for the provided inputs. (no refusal, because this rank had begun an operation on a"
    assert f"{said} process group before: {OPERATIONS[model]}" in broken.reason
    assert rebuilt


@pytest.fixture(scope="module")
def errors() -> Refusals:
    return Refusals("surviving", ERRORS)


@pytest.mark.parametrize("model", ERRORS)
def test_other_exceptions_and_refusals_of_some_ranks_are_errors(model: str, errors: Refusals) -> None:
    broken, rebuilt = errors.of(model)
    assert broken.outcome == "error", broken.reason
    assert ERRORS[model] in broken.reason
    assert rebuilt


def test_the_groups_of_a_case_refuse_together() -> None:
    of_four = Refusals("surviving", ["refuse", "refuse.2"], group=2)
    broken, rebuilt = of_four.of("refuse")
    assert (broken.outcome, rebuilt) == ("skip", False), broken.reason
    broken, rebuilt = of_four.of("refuse.2")
    assert (broken.outcome, rebuilt) == ("error", True), broken.reason
    assert broken.reason.startswith("rank 2: ValueError")
    assert "; ranks 0, 1, 3 did not refuse the case" in broken.reason


def test_setup_is_called_again_after_an_abort() -> None:
    """A busy machine may take too long to connect the ranks again, but not every time."""
    for _ in range(TRIES_TO_RECOVER):
        run = Refusals("surviving", ["refuse.1"]).run
        if run.pools() == 1:
            break
    assert [(one.outcome, one.reason) for one in run.cases[2:]] == [("skip", "generation 1"), ("pass", "")]
    assert run.pools() == 1

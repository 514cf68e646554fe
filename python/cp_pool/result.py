"""The result of one case, and the errors that a caller can get."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cp_pool.dump import Dump

if TYPE_CHECKING:
    import torch


class PoolError(RuntimeError):
    """cp-pool itself cannot answer: it is not found, was closed, or has died. `exit_code` is the exit code of cp-pool
    if it has ended (negative: the signal), and `stderr` the end of its stderr."""

    __module__ = "cp_pool"

    def __init__(self, message: str, exit_code: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr = stderr


class CaseRefused(ValueError):
    """This is no valid case: an unknown ID, a wrong field name or value, or impossible sizes. The message is
    cp-pool's."""

    __module__ = "cp_pool"


class CaseFailed(AssertionError):
    """A case did not pass. The message says why, with failed checks, stderr of the ranks and the command that reruns
    the case."""

    __module__ = "cp_pool"

    def __init__(self, result: Result) -> None:
        super().__init__(result.failure_text())
        self.result = result

    def __reduce__(self) -> tuple[type[CaseFailed], tuple[Result]]:
        return CaseFailed, (self.result,)


class CaseSkipped(Exception):
    """A case was skipped, and the caller asked for an exception in this case. The message is the reason."""

    __module__ = "cp_pool"

    def __init__(self, result: Result) -> None:
        super().__init__(result.reason)
        self.result = result

    def __reduce__(self) -> tuple[type[CaseSkipped], tuple[Result]]:
        return CaseSkipped, (self.result,)


def _number(value: Any) -> float | None:
    """JSON cannot hold NaN and infinities: cp-pool writes them as the strings "nan", "inf" and "-inf"."""
    return None if value is None else float(value)


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one tensor on one rank against the reference. `error`, `bound` and `baseline` are those of the row
    with the largest error / bound, at `worst_index` = (sequence, position, head). They are None if the worker did not
    report them."""

    tensor: str
    rank: int
    ok: bool
    error: float | None = None
    bound: float | None = None
    baseline: float | None = None
    max_abs: float | None = None
    rms: float | None = None
    worst_index: tuple[int, ...] = ()
    message: str = ""

    @property
    def ratio(self) -> float | None:
        """error / bound; above 1 the tensor is wrong. None if there is no such ratio."""
        if self.error is None or self.bound is None or math.isnan(self.error):
            return None
        if not 0 <= self.bound < math.inf:
            return None
        if self.bound == 0:
            return math.inf if self.error > 0 else 0.0
        return self.error / self.bound

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Check:
        return cls(
            tensor=json["tensor"],
            rank=json["rank"],
            ok=json["ok"],
            error=_number(json.get("error")),
            bound=_number(json.get("bound")),
            baseline=_number(json.get("baseline")),
            max_abs=_number(json.get("max_abs")),
            rms=_number(json.get("rms")),
            worst_index=tuple(json.get("worst_index") or ()),
            message=json.get("message", ""),
        )


@dataclass(frozen=True, slots=True)
class RankResult:
    """How the case ended on one rank. `error` has the stack trace of the exception. `timings_ms` has the milliseconds
    of each phase that the rank completed; empty if the worker does not report them."""

    rank: int
    ok: bool
    error: str = ""
    output_hash: str = ""
    timings_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StderrTail:
    """The last 4 KiB that a rank wrote to stderr during the case. If `fenced` is false, lines may be missing or belong
    to something else. If the text came from a launcher (or from ranks through it), `of` names the launcher and `rank`
    is
    -1."""

    rank: int
    text: str
    fenced: bool = True
    of: str = ""

    def described(self) -> str:
        """Whose text it is, and below it the text, with a margin."""
        unfenced = "" if self.fenced else " (unfenced)"
        return f"{self.of or f'rank {self.rank}'} stderr{unfenced}:\n{_indented(self.text, '  | ')}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a case failed, as far as the worker could find out (docs/diagnosis.md). `certainty` is certain, likely or
    unknown. `raw` has all fields of the event (docs/events.md)."""

    certainty: str
    id: str  # "unknown" if no known mistake fits
    cause: str  # one sentence
    explains: tuple[str, ...]  # names of the tensors that the cause explains
    others: tuple[str, ...]  # ids that fit as well
    evidence: tuple[str, ...]  # sentences
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Diagnosis:
        return cls(
            certainty=json["certainty"],
            id=json["id"],
            cause=json["cause"],
            explains=tuple(json.get("explains") or ()),
            others=tuple(json.get("others") or ()),
            evidence=tuple(json.get("evidence") or ()),
            raw=json,
        )

    def text(self) -> str:
        """The cause, and below it, indented, the evidence and the largest rectangles of wrong pairs."""
        if self.certainty == "unknown":
            line = f"cause: unknown: {self.cause}"
        else:
            line = f"cause{' (likely)' if self.certainty == 'likely' else ''}: {self.cause}"
            if self.explains:
                line += f" (explains {', '.join(self.explains)} within bounds)"
            if self.others and not any(sentence.startswith("or: ") for sentence in self.evidence):
                line += f"; or: {', '.join(self.others)}"
        pairs = self.raw.get("pairs") or {}
        rectangles = [one["text"] for kind in ("missing", "excess") for one in (pairs.get(kind) or [])[:3]]
        return "\n".join([line, *(f"  {sentence}" for sentence in (*self.evidence, *rectangles))])


@dataclass(frozen=True, slots=True)
class Perf:
    """Times of the step in milliseconds, on the slowest rank, and rates. `raw` has all fields of the event
    (docs/events.md)."""

    ms: float
    min_ms: float
    max_ms: float
    tflops: float
    gbytes_per_s: float
    efficiency: float | None
    raw: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Perf:
        return cls(
            ms=float(json["ms"]),
            min_ms=float(json["min_ms"]),
            max_ms=float(json["max_ms"]),
            tflops=float(json["tflops"]),
            gbytes_per_s=float(json["gbytes_per_s"]),
            efficiency=_number(json.get("efficiency")),
            raw=json,
        )


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file of tensors, with its identity when the case ended, since a case of a later run may replace it."""

    path: Path
    identity: tuple[int, int, int] | None  # inode, size, time of change; None: there was no file

    @classmethod
    def at(cls, path: Path) -> DumpFile:
        return cls(path, _identity(path))

    def open(self, case_id: str) -> Dump:
        now = _identity(self.path)
        if self.identity is None:
            raise PoolError(f"the worker wrote no tensors for {case_id}: there is no {self.path}")
        if now is None:
            raise PoolError(f"the tensors of {case_id} are gone with {self.path}: read them before the Pool is closed")
        if now != self.identity:
            raise PoolError(
                f"{self.path} has been replaced since {case_id} ended: its tensors are those of a later case"
            )
        return Dump(self.path)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The result of one case. `raw` is the whole answer of cp-pool, with the fields of `case_finished` in
    docs/events.md."""

    id: str
    outcome: str  # pass, fail, skip, error, timeout, crash, infra, cancelled or not-run
    reason: str  # a sentence; empty for a pass
    duration_ms: float  # from sending the case until its outcome is known
    checks: tuple[Check, ...]
    ranks: tuple[RankResult, ...]
    timings_ms: Mapping[str, float]  # by phase, on the slowest rank
    perf: Perf | None
    diagnosis: Diagnosis | None  # only if the outcome is fail
    stderr: tuple[StderrTail, ...]  # empty if the outcome is pass or skip
    case: Mapping[str, Any]
    rerun: str  # the command that reruns the case alone
    bound_factor: float  # the factor on every bound
    raw: Mapping[str, Any]
    dump: DumpFile | None = None

    @classmethod
    def from_json(cls, json: Mapping[str, Any], rerun: str | None = None, dump: DumpFile | None = None) -> Result:
        """json: an answer of `cp-pool submit --json`. rerun: a command that replaces that of the answer, since it is
        shorter."""
        ranks = json.get("ranks") or ()
        tails = json.get("stderr") or ()
        perf = json.get("perf")
        diagnosis = json.get("diagnosis")
        return cls(
            id=json["id"],
            outcome=json["outcome"],
            reason=json.get("reason", ""),
            duration_ms=float(json.get("duration_ms", 0)),
            checks=tuple(Check.from_json(check) for check in json.get("checks") or ()),
            ranks=tuple(
                RankResult(
                    one["rank"],
                    one["ok"],
                    one.get("error", ""),
                    one.get("output_hash", ""),
                    {phase: float(ms) for phase, ms in (one.get("timings_ms") or {}).items()},
                )
                for one in ranks
            ),
            timings_ms={phase: float(ms) for phase, ms in (json.get("timings_ms") or {}).items()},
            perf=Perf.from_json(perf) if perf else None,
            diagnosis=Diagnosis.from_json(diagnosis) if diagnosis else None,
            stderr=tuple(
                StderrTail(tail["rank"], tail["text"], tail.get("fenced", True), tail.get("of", "")) for tail in tails
            ),
            case=json.get("case", {}),
            rerun=rerun if rerun is not None else json.get("rerun", ""),
            bound_factor=float(json.get("bound_factor") or 1),
            raw=json,
            dump=dump,
        )

    @property
    def ok(self) -> bool:
        """Whether the case was verified on every rank. A skip is neither ok nor a failure: see `skipped`."""
        return self.outcome == "pass"

    @property
    def skipped(self) -> bool:
        return self.outcome == "skip"

    @property
    def value(self) -> Any:
        """What the function of a call has returned on rank 0; None for an attention case."""
        return self.raw.get("value")

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.ok)

    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The tensors of the case by name (docs/numerics.md, "Dumps"), gathered from all ranks. Each access reads the
        tensor from its file. The Pool needs `dump=True` or a folder. Raises PoolError if there are no tensors."""
        if self.dump is None:
            raise PoolError(f"no tensors were kept of {self.id}: ask for them with Pool(.., dump=True)")
        return self.dump.open(self.id)

    def raise_for_outcome(self, skipped: bool = False) -> Result:
        """Returns itself if the case passed. Raises CaseFailed for any other outcome but a skip. A skip raises
        CaseSkipped if `skipped` is true, and otherwise returns like a pass."""
        __tracebackhide__ = True  # pytest shows the line of the caller
        if self.skipped:
            if skipped:
                raise CaseSkipped(self)
        elif not self.ok:
            raise CaseFailed(self)
        return self

    def summary(self) -> str:
        """One line: the outcome and its reason."""
        first = self.reason.strip().split("\n", 1)[0]
        return f"{self.outcome}: {first}" if first else self.outcome

    def failure_text(self, named: bool = True) -> str:
        """A text for people: outcome and reason, failed checks, the cause, errors and stderr of the ranks, and the
        command for a rerun. With named=False the ID is left out, since the caller has shown it."""
        parts = [f"{self.id + ': ' if named else ''}{self.outcome}: {self.reason}".rstrip(": ")]
        if self.failed_checks:
            parts.append(checks_table(self.failed_checks))
        if self.bound_factor != 1:
            parts.append(f"bounds are {self.bound_factor:g} times as wide as cp-pool's own")
        if self.diagnosis is not None:
            parts.append(self.diagnosis.text())
        parts += [_rank_error(rank, self.reason) for rank in self.ranks if not rank.ok]
        parts += [tail.described() for tail in self.stderr if tail.text.strip()]
        if self.rerun:
            parts.append(f"rerun: {self.rerun}")
        return "\n".join(part for part in parts if part)

    def __repr__(self) -> str:
        return f"<Result {self.id}: {self.summary()}>"


def checks_table(checks: tuple[Check, ...]) -> str:
    """A table with a line of headings and a line for each check."""
    rows = [("tensor", "rank", "error", "bound", "ratio", "worst index", "")]
    for check in checks:
        ratio = check.ratio
        rows.append(
            (
                check.tensor,
                str(check.rank),
                _figure(check.error),
                _figure(check.bound),
                "-" if ratio is None else f"{ratio:.3g}",
                "[" + ", ".join(map(str, check.worst_index)) + "]",
                check.message,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = []
    for tensor, rank, error, bound, ratio_text, index, message in rows:
        figures = zip((rank, error, bound, ratio_text), widths[1:5], strict=True)
        words = [
            tensor.ljust(widths[0]),
            *(text.rjust(width) for text, width in figures),
            index.ljust(widths[5]),
            message,
        ]
        lines.append(("  " + "  ".join(words)).rstrip())
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _rank_error(rank: RankResult, reason: str) -> str:
    """The error of a rank, without its first line if that is the reason."""
    text = rank.error.strip("\n")
    first, _, rest = text.partition("\n")
    name = f"rank {rank.rank}: "
    if first.removeprefix(name) == reason.strip().removeprefix(name):
        text = rest
    if not text.strip():
        return ""
    return f"rank {rank.rank} error:\n{_indented(text, '  ')}"


def _indented(text: str, prefix: str) -> str:
    return "\n".join((prefix + line).rstrip() for line in text.strip("\n").split("\n"))

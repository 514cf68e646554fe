"""Lists the cases of matrices with `cp-pool list`."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cp_pool.exit_codes import ExitCode
from cp_pool.result import CaseRefused, PoolError


@dataclass(frozen=True, slots=True)
class ListedCase:
    """A case of a matrix."""

    id: str
    world_size: int
    size: str
    tags: tuple[str, ...]
    case: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listing:
    cases: tuple[ListedCase, ...]
    warnings: tuple[str, ...]  # filters that select nothing


def said(stderr: str) -> str:
    """The lines of cp-pool's stderr without prefixes such as "cp-pool: error: "."""
    lines = []
    for line in stderr.strip().splitlines():
        for lead in ("cp-pool: error: ", "cp-pool: warning: ", "cp-pool: "):
            if line.startswith(lead):
                line = line[len(lead) :]
                break
        lines.append(line)
    return "\n".join(lines)


def _run(words: Sequence[str], env: Mapping[str, str] | None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise PoolError(f"cannot start {words[0]}: {error.strerror}") from None


def list_cases(
    binary: str,
    matrices: Sequence[str],
    size: str,
    filters: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Listing:
    """The cases that the filters select. Raises CaseRefused, with cp-pool's own message, if the matrices, the size or
    the filters are wrong or select nothing; PoolError if cp-pool fails otherwise."""
    words = [binary, "list", "--json", "--size", size, "--matrix", *matrices]
    for expression in filters:
        words += ["--filter", expression]
    done = _run(words, env)
    if done.returncode in (ExitCode.usage, ExitCode.nothing_selected, ExitCode.bad_input):
        raise CaseRefused(said(done.stderr))
    if done.returncode != ExitCode.ok:
        raise PoolError(f"cp-pool list: {ended(done.returncode)}: {said(done.stderr)}", done.returncode, done.stderr)
    cases = tuple(
        ListedCase(one["id"], one["world_size"], one["size"], tuple(one["tags"]), one["case"])
        for one in json.loads(done.stdout)
    )
    return Listing(cases, tuple(line for line in said(done.stderr).splitlines() if line))


def ended(code: int) -> str:
    """ "exit code 2" or "signal 11 (SIGSEGV)"."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


class Catalog:
    """Looks up IDs in the given matrices, or else in the shipped matrix whose name begins the ID. Each matrix is
    expanded once."""

    def __init__(
        self, binary: str, matrices: Iterable[str] = (), size: str = "small", env: Mapping[str, str] | None = None
    ) -> None:
        self.matrices = tuple(matrices)
        self.size = size
        self._binary = binary
        self._env = env
        self._known: dict[tuple[str, ...], dict[str, ListedCase]] = {}

    def find(self, case_id: str) -> ListedCase:
        """The case with this ID. Raises CaseRefused for an unknown ID, with the suggestion of cp-pool."""
        matrices = self.matrices or (case_id.split("/", 1)[0],)
        if matrices not in self._known:
            try:
                # The filter * also selects optional cases.
                listing = list_cases(self._binary, matrices, self.size, ["*"], self._env)
            except CaseRefused:
                if self.matrices:
                    raise
                self._known[matrices] = {}
            else:
                self._known[matrices] = {listed.id: listed for listed in listing.cases}
        if listed := self._known[matrices].get(case_id):
            return listed
        raise CaseRefused(self._refusal(case_id))

    def _refusal(self, case_id: str) -> str:
        """cp-pool's message for an unknown ID. It comes from `cp-pool explain`, which looks IDs up but runs nothing."""
        matrices = ["--matrix", *self.matrices] if self.matrices else []
        # An argument that is empty or begins with a dash would not be taken for an ID.
        if not case_id or case_id.startswith("-"):
            return f"there is no case '{case_id}'"
        done = _run([self._binary, "explain", case_id, "--size", self.size, *matrices], self._env)
        return said(done.stderr) if done.returncode != 0 and done.stderr else f"there is no case '{case_id}'"

"""A run of cp-pool on the first host of a cluster, whose ranks a launcher starts. Tests look at it from outside."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from hosts import Cluster, wait_until
from launchers import Launcher

PROGRAM = os.environ.get("CP_POOL_TEST_PROGRAM", "")
WORKER = os.environ.get("CP_POOL_TEST_WORKER", "")
Event = dict[str, Any]


def read_events(file: Path) -> list[Event]:
    """The events of a file; a last line that is still being written is left out."""
    return [json.loads(line) for line in file.read_text().rpartition("\n")[0].splitlines()] if file.exists() else []


class LaunchedRun:
    def __init__(
        self,
        cluster: Cluster,
        launcher: Launcher,
        folder: Path,
        arguments: Sequence[str],
        faults: Sequence[str] = (),
        wrapper: Sequence[str] = (),
        slots: int = 1,
        option: str = "",
        device: str = "cpu",
    ) -> None:
        """faults: for --inject. wrapper: words before the worker command. slots: the slots of each host; with 1, every
        pool of two ranks spans both hosts. option: the value of --launcher, if not the usual one."""
        self.cluster = cluster
        self.host = cluster.hosts[0]
        self._events = folder / "events.jsonl"
        self._log = folder / "log"
        worker = shlex.join([*wrapper, WORKER, *(word for fault in faults for word in ("--inject", fault))])
        words = [
            PROGRAM,
            "run",
            "--device",
            device,
            "--no-progress",
            "--launcher",
            option or launcher.option(),
            "--worker",
            worker,
        ]
        words += ["--events", str(self._events), *arguments]
        before, variables = launcher.allocation(cluster, slots)
        with self._log.open("w") as log:
            self.process = self.host.start(
                [*before, *words], stdout=log, stderr=log, env={**launcher.environment(), **variables}
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            for pid in self.pids_of(PROGRAM):
                os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()

    def log(self) -> str:
        return self._log.read_text()

    def events(self, type: str = "") -> list[Event]:
        return [event for event in read_events(self._events) if not type or event["type"] == type]

    def wait_for(self, what: Callable[[Event], bool], limit: float = 120) -> Event:
        """Waits for the first event of which `what` is true."""

        def found() -> Event | None:
            event = next((event for event in self.events() if what(event)), None)
            assert event or self.process.poll() is None, f"the run ended without it:\n{self.log()}"
            return event

        event: Event = wait_until(found, limit, f"no such event:\n{self.log()}")
        return event

    def wait(self, limit: float = 300) -> int:
        try:
            return self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.log()}") from None

    def outcomes(self) -> dict[str, str]:
        return {event["id"]: event["outcome"] for event in self.events("case_finished")}

    def pids_of(self, program: str) -> list[int]:
        """The pids, outside the namespace, of the processes of this program on the first host."""
        return [pid for pid, line in self.host.processes().items() if Path(line.split()[0]).name == Path(program).name]

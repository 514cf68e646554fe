"""The exit codes of cp-pool and of its workers. A test compares them with the C++ sources that define them."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of cp-pool (driver/core/exit_code.h); `cp-pool --help` says what each means."""

    interrupted = 130
    internal_error = 70
    failed = 100
    infra = 96
    bad_input = 94
    cannot_write = 73
    usage = 2
    nothing_selected = 4
    ok = 0


class WorkerExit(IntEnum):
    """The exit codes of a worker that starts no rank (worker/worker_main.h, worker/protocol/messages.h)."""

    usage = 2
    no_device = 69  # no case can run here, and another start would not help (docs/protocol.md)

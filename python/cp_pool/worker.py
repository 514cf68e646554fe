"""``python -m cp_pool.worker ADAPTER``: one rank of a worker group that runs an adapter (docs/adapters.md)."""

from __future__ import annotations

import fcntl
import os
import sys


def _take_stdout() -> int:
    """Moves the process's stdout to a private descriptor and points fd 1 at stderr, before anything can print."""
    try:
        private = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError:  # there is no stdout
        private = -1
    os.dup2(2, 1)
    return private


# torch and the adapter's modules may print while they are imported.
_STDOUT = _take_stdout() if __name__ == "__main__" else -1

import argparse  # noqa: E402
import contextlib  # noqa: E402
import faulthandler  # noqa: E402
import json  # noqa: E402
import signal  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Iterable, Iterator  # noqa: E402
from typing import TYPE_CHECKING, Any, NoReturn  # noqa: E402

from cp_pool.built_for import torch_problem  # noqa: E402
from cp_pool.exit_codes import WorkerExit  # noqa: E402
from cp_pool.loading import LoadError, load  # noqa: E402
from cp_pool.start_limit import Hang, StartLimit  # noqa: E402

if TYPE_CHECKING:
    from cp_pool.adapter import Adapter

__all__ = ["explain_skips", "main", "prepare"]

# Real-time signals that nothing else uses. The first makes faulthandler write the Python stack. The second ends Python
# code that still waits or computes although it should stop.
STACK_SIGNAL = signal.SIGRTMIN + 6
INTERRUPT_SIGNAL = signal.SIGRTMIN + 7


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cp_pool.worker",
        description="Runs the cases of cp-pool with an adapter, as one rank of a group that cp-pool starts.",
    )
    parser.add_argument("adapter", metavar="ADAPTER", help="FILE.py, FILE.py:NAME or package.module:NAME")
    parser.add_argument(
        "--inject", metavar="FAULT", action="append", default=[], help="break a rank on purpose (docs/protocol.md)"
    )
    parser.add_argument(
        "--delays", nargs=2, default=(), metavar=("SEED", "MAX_MS"), help="delay the adapter's work at random places"
    )
    parser.add_argument(
        "--no-rehearsal", action="store_true", help="let the first case wait for what it is the first to import"
    )
    parser.add_argument("--declare", action="store_true", help="print what the adapter declares, as JSON, and end")
    parser.add_argument(
        "--explain-skips",
        action="store_true",
        help='read cases, one JSON object a line, and answer {"skip": "why"} to each, empty if it would run; with'
        ' {"case": {..}, "pairs": true} also how much each rank would compute; then end',
    )
    return parser


def main(argv: list[str], stdout_fd: int | None = None, forked: bool = False, adapter: Adapter | None = None) -> int:
    """Runs one rank, or what the options ask for. Returns the exit code, with which the caller ends the process by
    _exit.

    stdout_fd: the descriptor for the protocol; the default is the stdout that this module has moved. fd 1 must already
    be stderr.
    forked: this process was forked by the fork server, which has already imported torch and rehearsed.
    adapter: the adapter, if the fork server has imported it.
    """
    # Line buffering, so that output of a case comes before the fence that ends the case.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True)
    options = _parser().parse_args(argv)
    out = _STDOUT if stdout_fd is None else stdout_fd
    if options.declare or options.explain_skips:
        return _tell(options, out)
    # The protocol's streams are moved, so that an adapter may use stdin and stdout as it likes.
    stdin = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    _point_at_null(0)

    def give_up(hang: Hang) -> None:
        _end(_refuse(out, f"adapter {options.adapter}: {hang.text}", hang.stack))

    try:
        with StartLimit().watching(give_up):
            if "CP_POOL_LIFELINE" in os.environ:  # before the adapter is imported, since that may take long
                prepare(rehearse=False).start_lifeline()
            if os.environ.get("CP_POOL_DEVICE") == "cuda":
                _keep_to_own_gpu(prepare(rehearse=False))
            adapter = adapter or load(options.adapter)
            native = prepare(rehearse=not options.no_rehearsal and not forked)
    except LoadError as error:
        return _refuse(out, str(error), error.details)
    from cp_pool.runner import Runner

    faulthandler.register(STACK_SIGNAL, file=sys.stderr, all_threads=False, chain=False)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as in cp-pool-worker, so that an idle rank prints no traceback
    runner = Runner(adapter, native, INTERRUPT_SIGNAL, options.delays)
    os.dup2(stdin, 0, inheritable=False)
    os.close(stdin)
    code = int(native.serve(runner, options.inject, not options.no_rehearsal, out, STACK_SIGNAL, INTERRUPT_SIGNAL))
    runner.close()
    return code


def prepare(rehearse: bool, backward: bool = True) -> Any:
    """Imports torch, and imports and returns the extension module. Raises LoadError if they do not fit together.

    rehearse: does in advance what the first case would have to wait for; backward: also a backward.
    """
    # Checked on its own, since the adapter may have loaded torch already, and an extension for another version would
    # crash.
    problem = torch_problem()
    if problem is not None:
        raise LoadError(problem)
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise LoadError(f"torch cannot be loaded by {sys.executable}: {error}") from None
    try:
        from cp_pool import _worker  # type: ignore[attr-defined,unused-ignore]
    except ImportError as error:
        raise LoadError(f"cp_pool's extension module cannot be loaded by {sys.executable}: {error}") from None
    if rehearse:
        from cp_pool.runner import rehearse as run_once

        run_once(backward)
    return _worker


def _keep_to_own_gpu(native: Any) -> None:
    """Hides the GPUs of other ranks. Is called before the adapter is imported, which may look for GPUs."""
    visible = native.hide_other_gpus()
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible  # the extension has changed the environment only in C


def _point_at_null(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, fd)
    os.close(null)


def _refuse(stdout_fd: int, why: str, details: str) -> int:
    """Reports on stderr, and if this is rank 0 also to the driver, why no case can run. Returns the exit code."""
    rank = os.environ.get("RANK", "0")
    if details:
        print(details, file=sys.stderr)
    print(f"cp-pool: rank {rank}: {why}", file=sys.stderr, flush=True)
    if rank == "0" and stdout_fd >= 0 and "CP_POOL_PROTOCOL" in os.environ:
        event = {"event": "protocol_error", "seq": None, "message": why}
        os.write(stdout_fd, f"\n[CP_POOL_RESP] {json.dumps(event)}\n".encode())
    return WorkerExit.no_device


def _tell(options: argparse.Namespace, stdout_fd: int) -> int:
    try:
        adapter = load(options.adapter)
        if options.explain_skips:
            prepare(rehearse=False)
    except LoadError as error:
        return _refuse(-1, str(error), error.details)
    with os.fdopen(os.dup(stdout_fd), "w", encoding="utf-8") as out:
        if options.declare:
            print(json.dumps(adapter.declaration()), file=out)
        else:
            for answer in explain_skips(adapter, sys.stdin):
                print(answer, file=out, flush=True)
    return 0


def explain_skips(adapter: Adapter, lines: Iterable[str]) -> Iterator[str]:
    """Answers each case, a line of JSON, with {"skip": why} as --explain-skips does; if it asks for "pairs", also with
    the number of pairs that each rank would compute."""
    from cp_pool.runner import Runner

    native = prepare(rehearse=False)
    device = os.environ.get("CP_POOL_DEVICE", "cpu")
    outlook = native.Outlook(Runner(adapter, native, INTERRUPT_SIGNAL), INTERRUPT_SIGNAL)
    for line in lines:
        if line.strip():
            fields = json.loads(line)
            if "call" in fields or "function" in fields:  # a call says itself, on ranks, whether it is skipped
                yield json.dumps({"skip": ""})
                continue
            case = json.dumps(fields.get("case", fields))
            answer: dict[str, Any] = {"skip": outlook.why_skipped(case, device)}
            if fields.get("pairs") and not answer["skip"]:
                answer["pairs"] = outlook.pairs(case)
            yield json.dumps(answer)


def _end(code: int) -> NoReturn:
    """Ends the process without C++ destructors and Python exit handlers, since threads of the worker may still be
    running."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if native := sys.modules.get("cp_pool._worker"):
        native.tell_ending(code)
    os._exit(code)


if __name__ == "__main__":
    try:
        exit_code = main(sys.argv[1:])
    except SystemExit as end:
        exit_code = end.code if isinstance(end.code, int) else WorkerExit.usage
    except BaseException:  # a mistake of cp-pool
        traceback.print_exc()
        exit_code = 1
    _end(exit_code)

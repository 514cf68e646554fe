"""Exceptions of an adapter as people read them: without the frames of cp-pool and of the import machinery."""

from __future__ import annotations

import os
import traceback
from types import FrameType, TracebackType

__all__ = ["innermost_place", "one_line", "place_of_frame", "says_peer_is_gone", "user_traceback"]

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_HIDDEN = (_OWN_FOLDER, "<frozen importlib")
_TORCH_PARTS = (f"{os.sep}torch{os.sep}", f"{os.sep}site-packages{os.sep}")

# What Gloo, NCCL, TCPStore and sockets say when the other end is closed.
_PEER_IS_GONE = (
    "connection closed by peer",
    "connection reset by peer",
    "connection aborted",
    "broken pipe",
    "socket closed",
    "pair closure",
    "got 0 bytes",
    "remote process exited",
    "ncclremoteerror",
    "nccl communicator was aborted",
    "transport endpoint is not connected",
    "connection was likely closed",
)


def _is_hidden(file: str) -> bool:
    return file.startswith(_HIDDEN)


def _shown(summary: traceback.StackSummary) -> traceback.StackSummary:
    """Without cp-pool's frames, unless there are no others: then it is a mistake of cp-pool."""
    kept = [frame for frame in summary if not _is_hidden(frame.filename)]
    return traceback.StackSummary.from_list(kept or summary)


def user_traceback(error: BaseException) -> str:
    """The traceback of an exception, and of those behind it, cut from the frames of cp-pool."""
    whole = traceback.TracebackException.from_exception(error)
    seen: list[traceback.TracebackException] = []
    pending: list[traceback.TracebackException | None] = [whole]
    while pending:
        one = pending.pop()
        if one is None or one in seen:
            continue
        seen.append(one)
        one.stack = _shown(one.stack)
        pending += [one.__cause__, one.__context__]
    return "".join(whole.format()).rstrip("\n")


def one_line(error: BaseException) -> str:
    """The type of an exception, with its module unless it is a built-in, and the first line of what it says."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    first, _, _ = str(error).strip().partition("\n")
    return f"{name}: {first}" if first else name


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is not None and one not in chain:
            chain.append(one)
            pending += [one.__cause__, one.__context__]
    return chain


def says_peer_is_gone(error: BaseException) -> bool:
    """Whether an exception, or one that it was raised from, only says that a peer has closed its connection."""
    for one in _chain(error):
        if isinstance(one, (ConnectionError, BrokenPipeError)):
            return True
        text = str(one).lower()
        if isinstance(one, RuntimeError) and any(phrase in text for phrase in _PEER_IS_GONE):
            return True
    return False


def _is_users(file: str) -> bool:
    return not _is_hidden(file) and not file.startswith("<") and not any(part in file for part in _TORCH_PARTS)


def _place(frames: list[tuple[str, int, str]]) -> str:
    """Names the innermost frame that is the user's, and the call that it made into a library."""
    users = [i for i, (file, _, _) in enumerate(frames) if _is_users(file)]
    if not users:
        users = [i for i, (file, _, _) in enumerate(frames) if not _is_hidden(file)]
    if not users:
        return ""
    file, line, function = frames[users[-1]]
    place = f"{function} ({os.path.basename(file)}:{line})"
    called = [name for name_file, _, name in frames[users[-1] + 1 :] if not _is_hidden(name_file) and name != "wrapper"]
    return f"{called[0]} of {place}" if called else place


def innermost_place(trace: TracebackType | None) -> str:
    """Where a traceback ends, as ``ring (mine.py:31)``; empty if it has no frame but cp-pool's."""
    return _place([(f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_tb(trace)])


def place_of_frame(frame: FrameType | None) -> str:
    """The same of a frame that runs."""
    frames = [(f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_stack(frame)]
    return _place(frames[::-1])

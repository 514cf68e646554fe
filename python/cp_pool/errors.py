"""Formats exceptions of an adapter for people: without the frames of cp-pool and of the import machinery."""

from __future__ import annotations

import os
import sysconfig
import traceback
from types import FrameType

__all__ = ["chain_of", "is_gone", "one_line", "place_of_frame", "place_of_wait", "says_peer_is_gone", "user_traceback"]

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_HIDDEN = (_OWN_FOLDER, "<frozen importlib")
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_TORCH_PARTS = (f"{os.sep}torch{os.sep}", f"{os.sep}site-packages{os.sep}")

# Functions of torch.distributed that appear in stacks between a collective and its caller.
_WRAPPERS = ("wrapper", "_get_msg_dict")

# What Gloo, NCCL, TCPStore and sockets say if the peer has closed the connection.
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
    """The frames that are not cp-pool's. If all are, they are kept, since the mistake is then in cp-pool."""
    kept = [frame for frame in summary if not _is_hidden(frame.filename)]
    return traceback.StackSummary.from_list(kept or summary)


def user_traceback(error: BaseException) -> str:
    """The traceback of an exception and of its causes, without the frames of cp-pool."""
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


# What Gloo says if it is asked to send a GPU tensor to a single rank.
_GLOO_SENDS_NO_GPU_TENSOR = ("writev", "bad address")


def one_line(error: BaseException) -> str:
    """The type of an exception, with its module unless it is built in, and the first line of its message."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    first, _, _ = str(error).strip().partition("\n")
    if all(part in first.lower() for part in _GLOO_SENDS_NO_GPU_TENSOR):
        first += " (Gloo, which ranks that share a GPU have, sends tensors of a GPU in collectives, not point to point)"
    return f"{name}: {first}" if first else name


def chain_of(error: BaseException) -> list[BaseException]:
    """An exception, with those that it was raised from and those that were being handled when it was raised."""
    chain: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is not None and one not in chain:
            chain.append(one)
            pending += [one.__cause__, one.__context__]
    return chain


def is_gone(error: BaseException) -> bool:
    """Whether an exception says that a peer has closed its connection."""
    if isinstance(error, ConnectionError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(phrase in text for phrase in _PEER_IS_GONE)


def says_peer_is_gone(error: BaseException) -> bool:
    """Whether is_gone holds for an exception of the chain."""
    return any(is_gone(one) for one in chain_of(error))


def _is_users(file: str) -> bool:
    if _is_hidden(file) or file.startswith("<") or any(part in file for part in _TORCH_PARTS):
        return False
    # torch formats a traceback when a collective fails, and may be interrupted there.
    return not file.startswith(_STANDARD_LIBRARY)


def _named(frames: traceback.StackSummary) -> str:
    """The innermost frame of the user's code, and the library function that it called: all_reduce of f (mine.py:3)."""
    seen = [frame for frame in frames if not _is_hidden(frame.filename)]
    users = [i for i, frame in enumerate(seen) if _is_users(frame.filename)]
    if not seen:
        return ""
    innermost = users[-1] if users else len(seen) - 1
    frame = seen[innermost]
    place = f"{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})"
    called = [after.name for after in seen[innermost + 1 :] if after.name not in _WRAPPERS]
    return f"{called[0]} of {place}" if called else place


def place_of_wait(errors: list[BaseException]) -> tuple[str, str]:
    """Where code was waiting when its wait was ended, and the stack there. errors: the chain of exceptions that ending
    the wait has raised. There may be several, since an error of a library may have only the library's own frames."""
    frames = traceback.StackSummary()
    for error in errors:
        found = traceback.extract_tb(error.__traceback__)
        if any(_is_users(frame.filename) for frame in found):
            frames = found
        else:
            frames.extend(found)
    shown = [frame for frame in frames if not _is_hidden(frame.filename) and frame.name not in _WRAPPERS]
    return _named(frames), "".join(traceback.format_list(shown))


def place_of_frame(frame: FrameType | None) -> str:
    """Where a frame is, in the words of place_of_wait."""
    return _named(traceback.StackSummary.from_list(traceback.extract_stack(frame)))

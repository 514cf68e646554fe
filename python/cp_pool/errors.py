"""Formats exceptions of an adapter for people: without the frames of cp-pool and of the import machinery. And Failure,
which the extension reports."""

from __future__ import annotations

import itertools
import linecache
import logging
import os
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Literal

__all__ = [
    "Failure",
    "Wait",
    "chain_of",
    "escaped",
    "is_gone",
    "one_line",
    "place_of_frame",
    "place_of_wait",
    "says_peer_is_gone",
    "stack_of_frame",
    "text_of",
    "user_traceback",
]

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_HIDDEN = (_OWN_FOLDER, "<frozen ")
# torch.distributed formats and logs the error of a collective (_get_msg_dict of its c10d_logger), which takes long.
_ERROR_LOGGERS = (traceback.__file__, linecache.__file__, logging.__file__)
_STANDARD_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_TORCH_PARTS = (f"{os.sep}torch{os.sep}", f"{os.sep}site-packages{os.sep}")

_DISTRIBUTED = f"{os.sep}torch{os.sep}distributed{os.sep}"

# Functions of torch.distributed that appear in stacks between a collective and its caller.
_WRAPPERS = ("wrapper",)

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


def escaped(text: str) -> str:
    """The text with escapes for NUL and lone surrogates (a file name that is not UTF-8 has these): C++ refuses both."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


# The names of FailureKind (worker/rank_messages.h).
Kind = Literal["assertion", "exception", "unsupported", "timeout", "communication", "aborted"]


class Failure(Exception):
    """The failure of a case, for the extension to report. collective: the function of torch.distributed in which the
    adapter waited for other ranks. declined_in: if every rank fails with the same text here, the case is a skip, and
    `reason` says why; else empty."""

    def __init__(
        self, kind: Kind, summary: str, text: str = "", collective: str = "", declined_in: str = "", reason: str = ""
    ) -> None:
        super().__init__(summary)
        self.declined_in = declined_in
        self.reason = escaped(reason)
        self.kind = kind
        self.collective = collective
        self.summary = escaped(summary)
        self.text = escaped(text or summary)


def text_of(error: BaseException) -> str:
    """The message of an exception, whose __str__ may raise."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"  # as Python's tracebacks say it


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


def one_line(error: BaseException) -> str:
    """The type of an exception, with its module unless it is built in, and the first line of its message."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    first, _, _ = text_of(error).strip().partition("\n")
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
    text = text_of(error).lower()
    return isinstance(error, RuntimeError) and any(phrase in text for phrase in _PEER_IS_GONE)


def says_peer_is_gone(error: BaseException) -> bool:
    """Whether is_gone holds for an exception of the chain."""
    return any(is_gone(one) for one in chain_of(error))


def _is_users(file: str) -> bool:
    if _is_hidden(file) or file.startswith("<") or any(part in file for part in _TORCH_PARTS):
        return False
    return not file.startswith(_STANDARD_LIBRARY)


def _waiting(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The frames, outermost first, up to the code that waits."""
    return list(itertools.takewhile(lambda f: f.filename not in _ERROR_LOGGERS and f.name != "_get_msg_dict", frames))


@dataclass(frozen=True)
class Wait:
    """Where code was waiting when its wait was ended."""

    place: str  # the innermost line of the user's code, and the library function that it called
    stack: str
    collective: str  # that function, if it is one of torch.distributed


def _called(frames: list[traceback.FrameSummary]) -> tuple[traceback.FrameSummary, traceback.FrameSummary | None]:
    """The innermost frame of the user's code, and that of the library function that it called, if any."""
    users = [i for i, frame in enumerate(frames) if _is_users(frame.filename)]
    innermost = users[-1] if users else len(frames) - 1
    after = [frame for frame in frames[innermost + 1 :] if frame.name not in _WRAPPERS]
    return frames[innermost], after[0] if after else None


def _named(frames: list[traceback.FrameSummary]) -> str:
    """The innermost frame of the user's code, and the library function that it called: all_reduce of f (mine.py:3)."""
    seen = [frame for frame in frames if not _is_hidden(frame.filename)]
    if not seen:
        return ""
    frame, called = _called(seen)
    place = f"{frame.name} ({os.path.basename(frame.filename)}:{frame.lineno})"
    return f"{called.name} of {place}" if called else place


def place_of_wait(errors: list[BaseException]) -> Wait:
    """errors: the chain of exceptions that ending the wait has raised. There may be several, since an error of a
    library may have only the library's own frames."""
    frames: list[traceback.FrameSummary] = []
    for error in errors:
        found = _waiting(traceback.extract_tb(error.__traceback__))
        if any(_is_users(frame.filename) for frame in found):
            frames = found
        else:
            frames.extend(found)
    seen = [frame for frame in frames if not _is_hidden(frame.filename)]
    shown = [frame for frame in seen if frame.name not in _WRAPPERS]
    called = _called(seen)[1] if seen else None
    collective = called.name if called and _DISTRIBUTED in called.filename else ""
    return Wait(_named(frames), "".join(traceback.format_list(shown)), collective)


def place_of_frame(frame: FrameType | None) -> str:
    """Where a frame is, in the words of place_of_wait. Reads no source lines, since signal handlers call it."""
    return _named(_stack_of(frame))


def stack_of_frame(frame: FrameType | None) -> str:
    """The stack of a frame, innermost last, without the frames of cp-pool."""
    shown = [one for one in _stack_of(frame) if not _is_hidden(one.filename)]
    return "Stack (most recent call last):\n" + "".join(traceback.format_list(shown)).rstrip("\n")


def _stack_of(frame: FrameType | None) -> list[traceback.FrameSummary]:
    taken = traceback.StackSummary.extract(traceback.walk_stack(frame), lookup_lines=False)
    return _waiting(reversed(taken))

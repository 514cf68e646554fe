"""Point-to-point messages of ranks that share a GPU. Such ranks have Gloo, which sends tensors of a host only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["stage_messages"]

# So many messages may be on their way from a rank before a further one waits for the oldest.
_SENT_AT_MOST = 64
# Gloo gives up a message whose request is dropped, and callers may drop it.
_sent: deque[Any] = deque()


class _Request:
    """A message on its way, in other respects `work`. `deliver` is called once it has been waited for."""

    def __init__(self, work: Any, deliver: Callable[[], object]) -> None:
        self._work, self._deliver = work, deliver
        self._waits = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def wait(self, *limit: Any, **limits: Any) -> bool:
        if self._waits:  # a second wait of Gloo would be for a second message
            self._work.wait(*limit, **limits)
            self._waits = False
            self._deliver()
        return True

    def is_completed(self) -> bool:
        """Waits, since a request of Gloo does not learn of its end in any other way."""
        return self.wait()


def stage_messages(through_host: Callable[[torch.Tensor], bool] = lambda tensor: tensor.is_cuda) -> None:
    """From now on, process groups send and receive the tensors for which `through_host` is true through host memory.

    A sender waits for its current stream before it copies. A receiver copies on its current stream when the request is
    waited for.
    """
    _sent.clear()  # those of the groups before an abort
    group: Any = dist.ProcessGroup
    if hasattr(group, "_cp_pool_stages"):
        return
    group._cp_pool_stages = True
    send = group.send

    def staged_send(self: Any, tensors: list[torch.Tensor], *peer_and_tag: Any) -> Any:
        if not through_host(tensors[0]):
            return send(self, tensors, *peer_and_tag)
        if len(_sent) == _SENT_AT_MOST:
            _sent.popleft().wait()
        _sent.append(_Request(send(self, [tensors[0].to("cpu", copy=True)], *peer_and_tag), lambda: None))
        return _sent[-1]

    def staged(receive: Any) -> Any:
        def staged_receive(self: Any, tensors: list[torch.Tensor], *peer_and_tag: Any) -> Any:
            if not through_host(tensors[0]):
                return receive(self, tensors, *peer_and_tag)
            buffer = torch.empty_like(tensors[0], device="cpu")
            return _Request(receive(self, [buffer], *peer_and_tag), lambda: tensors[0].copy_(buffer))

        return staged_receive

    group.send = staged_send
    group.recv, group.recv_anysource = staged(group.recv), staged(group.recv_anysource)

"""What NCCL has and Gloo lacks, for ranks that share a GPU: messages and functional all-gathers of tensors on a GPU,
and messages of a rank to itself."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]

__all__ = ["stage_messages"]

# So many messages may be on their way from a rank before a further one waits for the oldest.
_SENT_AT_MOST = 64
# Gloo gives up a message whose request is dropped, and callers may drop it.
_sent: deque[Any] = deque()
# Implementations of operators last as long as their library.
_operators: list[Any] = []


class _OwnMessages:
    """Messages of a rank to itself, in the order in which they were sent, and in which their receivers were posted."""

    def __init__(self) -> None:
        self._messages: dict[int, torch.Tensor] = {}
        self._sent = self._received = 0

    def send(self, message: torch.Tensor) -> None:
        self._messages[self._sent] = message
        self._sent += 1

    def receive(self, target: torch.Tensor) -> Callable[[], object]:
        """Returns a function that copies the message into the target."""
        number = self._received
        self._received += 1
        return lambda: target.copy_(self._messages.pop(number))


_own: defaultdict[Any, _OwnMessages] = defaultdict(_OwnMessages)  # by process group and tag


class _Request:
    """A message on its way, in other respects `work`, which is None for a message of a rank to itself. `deliver` is
    called once the message has been waited for."""

    def __init__(self, work: Any, deliver: Callable[[], object]) -> None:
        self._work, self._deliver = work, deliver
        self._waits = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def wait(self, *limit: Any, **limits: Any) -> bool:
        if self._waits:  # a second wait of Gloo would be for a second message
            if self._work is not None:
                self._work.wait(*limit, **limits)
            self._waits = False
            self._deliver()
        return True

    def is_completed(self) -> bool:
        """Waits, since a request of Gloo does not learn of its end in any other way."""
        return self.wait()


def stage_messages(
    through_host: Callable[[torch.Tensor], bool] = lambda tensor: tensor.is_cuda, device: str = "CUDA"
) -> None:
    """From now on, process groups send and receive the tensors for which `through_host` is true through host memory,
    and functional all-gathers of tensors on such devices are computed there.

    A sender waits for its current stream before it copies. A receiver copies on its current stream when the request is
    waited for.
    """
    _sent.clear()  # those of the groups before an abort
    _own.clear()
    group: Any = dist.ProcessGroup
    if hasattr(group, "_cp_pool_stages"):
        return
    group._cp_pool_stages = True
    send = group.send

    def staged_send(self: Any, tensors: list[torch.Tensor], *peer_and_tag: Any) -> Any:
        if not through_host(tensors[0]):
            return send(self, tensors, *peer_and_tag)
        if peer_and_tag[0] == self.rank():
            _own[self, peer_and_tag[1]].send(tensors[0].clone())
            return _Request(None, lambda: None)
        if len(_sent) == _SENT_AT_MOST:
            _sent.popleft().wait()
        _sent.append(_Request(send(self, [tensors[0].to("cpu", copy=True)], *peer_and_tag), lambda: None))
        return _sent[-1]

    def staged(receive: Any) -> Any:
        def staged_receive(self: Any, tensors: list[torch.Tensor], *peer_and_tag: Any) -> Any:
            if not through_host(tensors[0]):
                return receive(self, tensors, *peer_and_tag)
            if len(peer_and_tag) == 2 and peer_and_tag[0] == self.rank():
                return _Request(None, _own[self, peer_and_tag[1]].receive(tensors[0]))
            buffer = torch.empty_like(tensors[0], device="cpu")
            return _Request(receive(self, [buffer], *peer_and_tag), lambda: tensors[0].copy_(buffer))

        return staged_receive

    def staged_gather(tensor: torch.Tensor, group_size: int, group_name: Any) -> torch.Tensor:
        host = tensor.cpu()
        out = host.new_empty((group_size * len(host), *host.shape[1:]))
        dist.all_gather_into_tensor(out, host, group=_resolve_process_group(group_name))
        return out.to(tensor.device)

    # Gloo's own one reads the memory of the GPU on the host, and the rank dies of SIGSEGV.
    library: Any = torch.library.Library  # which has no annotations
    _operators.append(library("_c10d_functional", "IMPL"))
    _operators[0].impl("all_gather_into_tensor", staged_gather, device)
    group.send = staged_send
    group.recv, group.recv_anysource = staged(group.recv), staged(group.recv_anysource)

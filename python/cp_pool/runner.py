"""One rank of an adapter as the extension module calls it.

The extension holds the GIL only during these calls. All of them come on the main thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import FrameType
from typing import Any, NoReturn, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from cp_pool.adapter import Adapter, Skip
from cp_pool.calls import Calls, Ranks, is_fail, is_skip
from cp_pool.context import CaseView, Connection, Ctx, Lengths
from cp_pool.delays import Delays
from cp_pool.errors import (
    Failure,
    chain_of,
    is_gone,
    one_line,
    place_of_frame,
    place_of_wait,
    says_peer_is_gone,
    text_of,
    user_traceback,
)
from cp_pool.shard import Convention
from cp_pool.shared_import import own_files
from cp_pool.state import State
from cp_pool.step import Step

__all__ = ["NO_LIMIT", "Native", "Runner", "rehearse"]

# The extension ends waits at the case's deadline, and a group's own timeout must not come before that.
NO_LIMIT = timedelta(days=7)


class Native(Protocol):
    """The functions of the extension module that this module calls."""

    def freed(self) -> int:
        """Why waits of this case are being ended: 0 they are not, 1 another rank has failed, 2 the time is over."""

    def watch_group_operations(self) -> None:
        """Watches from now on whether an operation on a group of torch.distributed begins."""

    def first_group_operation(self) -> str:
        """The first operation that has begun since; empty if none has."""


_NOT_FREED, _ABORTED, _TIMED_OUT = 0, 1, 2


class _Freed(BaseException):
    """Ends Python code that still waits or computes although it should stop. No ``except Exception`` catches it."""


class Runner:
    """One rank of an adapter."""

    def __init__(self, adapter: Adapter, native: Native, interrupt_signal: int, delays: Sequence[str] = ()) -> None:
        """delays: seed and longest delay in ms, as text; empty: nothing is delayed."""
        self.adapter = adapter
        self._native = native
        self._wanted_delays = delays
        self._delays: Delays | None = None
        self._world: Connection | None = None  # the group of all ranks
        self._connection: Connection | None = None  # the group that runs the case
        self._made: dict[str, dist.ProcessGroup | None] = {}  # this rank's group, by the ranks of all groups
        self._state: State | None = None
        self._calls = Calls()
        self._calling = False  # the case is a call
        self._groups_before_call: set[dist.ProcessGroup] | None = None
        self._store: Store | None = None
        self._make_world: Callable[[Store], None]  # makes the group of all ranks
        self._pid = os.getpid()
        self._in_user_code = False
        self._place_when_freed = ""
        self._in_case = False
        self._diagnoses = False
        self._step_number = 0
        self._case_text = ""
        self._case_id = ""
        self._case: CaseView | None = None
        self._interrupt_signal = interrupt_signal
        signal.signal(interrupt_signal, self._on_interrupt)

    # --- What the adapter is ------------------------------------------------------------------------------------------

    def capabilities(self) -> str:
        adapter = self.adapter
        known: dict[str, Any] = {"adapter": adapter.declaration(), "files": own_files(), "calls": True}
        for key, values in (("comm", adapter.comm), ("layouts", adapter.layouts), ("dtypes", adapter.dtypes)):
            if values is not None:
                known[key] = list(values)
        return json.dumps(known)

    def versions(self) -> str:
        return json.dumps({"python": platform.python_version(), "adapter": self.adapter.name})

    def backend(self) -> str:
        return self.adapter.name

    def bound_factor(self) -> float:
        return self.adapter.bound_factor

    def padding(self) -> str:
        return self.adapter.padding

    def head_order(self) -> str:
        return self.adapter.head_order

    def judges_padding(self) -> bool:
        return self.adapter.padding_results

    def survives_abort(self) -> bool:
        return self.adapter.survives_abort

    def promises_bits(self, device: str) -> bool:
        return self.adapter.promises_bits(device)

    def remarks_other_bits(self) -> bool:
        """Whether it is remarked on if a step that need not repeat its bits does not: unless the adapter says so."""
        return self.adapter.repeats_bits is None

    def odd(self) -> bool:
        return self.adapter.odd

    def probe_heads(self) -> int:
        """0: as many as the communication type needs."""
        return self.adapter.probe_heads or 0

    def skip_reason(self, case: str, device: str) -> str:
        return self.adapter.skip_reason(self._view(case), device)

    def convention(self, side: int) -> str:
        """The name of the convention that cuts queries (0) or keys (1); empty if a function lists the rows."""
        rule = self.adapter.shards[side]
        return str(rule) if isinstance(rule, Convention) else ""

    def rows(self, side: int, lengths: list[int], ranks: int, replicated: int) -> list[list[int]]:
        """The rows of each rank, as the adapter's function lists them."""
        rule = self.adapter.shards[side]
        assert not isinstance(rule, Convention)
        arguments = (list(lengths), ranks, replicated) if replicated else (list(lengths), ranks)
        given = self.call(rule, *arguments)
        try:
            rows = [[int(row) for row in (part.tolist() if hasattr(part, "tolist") else part)] for part in given]
        except (TypeError, ValueError) as error:
            raise Failure(
                "exception", f"the shard function of {self.adapter.name} gives no lists of rows: {error}"
            ) from None
        if len(rows) != ranks:
            raise Failure(
                "exception",
                f"the shard function of {self.adapter.name} gives the rows of {len(rows)} ranks, not of {ranks}",
            )
        return rows

    # --- Connecting ---------------------------------------------------------------------------------------------------

    def connect(
        self,
        rank: int,
        world_size: int,
        device: str,
        shares_gpus: bool,
        master_addr: str,
        master_port: int,
        prefix: str,
        generation: int,
        limit_ms: int,
    ) -> None:
        """Makes the group of all ranks, for the first time or after an abort, and calls the adapter's setup."""
        self._in_case = False
        limit = timedelta(milliseconds=limit_ms)
        _use_loopback(master_addr)
        self._store = PrefixStore(
            f"{prefix}py/{generation}",
            TCPStore(master_addr, master_port, is_master=False, timeout=limit, wait_for_workers=False),
        )
        backend = "nccl" if device.startswith("cuda") else "gloo"
        if shares_gpus:
            # NCCL refuses two ranks of one host on one GPU. Ranks that are hosts of their own for it use sockets.
            os.environ["NCCL_HOSTID"] = f"rank {rank} of cp-pool"
            os.environ.setdefault("NCCL_NET", "Socket")

        def make_world(store: Store) -> None:
            if dist.is_initialized():
                dist.destroy_process_group()
            dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=NO_LIMIT)
            group = dist.group.WORLD
            assert group is not None
            self._world = Connection(rank, list(range(world_size)), torch.device(device), group, generation)
            self._connection = self._world
            self._made = {}

        self._make_world = make_world
        make_world(self._store)
        assert self._world is not None
        if self.adapter.setup is not None:
            self.call(self.adapter.setup, Ctx(self._world))
        if self._wanted_delays and self._delays is None:
            seed, max_ms = self._wanted_delays
            self._delays = Delays(int(seed), float(max_ms), rank, self._world.device)
        if self._state is None:
            self._state = State(self.adapter.reset_dynamo)

    # --- Cases --------------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Restores the state of the interpreter. Is called before each case."""
        assert self._state is not None
        if self._calls.changed():  # cp-pool starts other ranks for this case, since it has not begun
            print("cp-pool: this rank ends, because a file of its calls has changed", file=sys.stderr, flush=True)
            os._exit(0)
        self._state.put_back()
        if signal.getsignal(self._interrupt_signal) != self._on_interrupt:
            signal.signal(self._interrupt_signal, self._on_interrupt)
        self._in_case = self._diagnoses = self._calling = False
        self._calls.clean()
        self._destroy_groups_of_call()
        self._step_number = 0
        self._place_when_freed = ""

    def begin(self, case_id: str, groups: list[list[int]], inner: list[list[int]], outer: list[list[int]]) -> None:
        """Makes the process groups that no earlier case has needed. Every rank calls it before anything else of the
        case.

        groups: the ranks of each group if the case has several groups at once; else empty. inner and outer: the ranks
        of the inner and outer groups within these groups, if only some ranks split the heads; else empty.
        """
        self._case_id = case_id
        self._in_case = True
        world = self._world
        assert world is not None
        ranks = next((ranks for ranks in groups if world.global_rank in ranks), world.global_ranks)
        group = self._own_of(groups) or world.group
        self._connection = Connection(world.global_rank, ranks, world.device, group, world.generation)
        self._connection.inner_group = self._own_of(inner)
        self._connection.outer_group = self._own_of(outer)

    def run_call(self, case_id: str, function: str, arguments: str, renew_groups: bool) -> tuple[str, set[str]]:
        """Runs the function of a call. Returns its value as JSON, and what it has left behind. renew_groups: a rank has
        lost the group of all ranks, so that all make it again."""
        self._case_id = case_id
        self._in_case = self._calling = True
        return self.call(self._call, function, arguments, renew_groups)  # type: ignore[no-any-return]

    def _call(self, function: str, arguments: str, renew_groups: bool) -> tuple[str, set[str]]:
        assert self._store is not None
        calls = self._calls
        calls.number += 1
        if renew_groups:
            self._make_world(PrefixStore(f"world/{calls.number}", self._store))
        world = self._world
        assert world is not None
        self._groups_before_call = set(_groups())
        store = PrefixStore(f"call/{calls.number}", self._store)
        ranks = Ranks(world.rank, world.world_size, world.device, world.group, store, calls.number)
        return calls.run(ranks, function, arguments)

    def _destroy_groups_of_call(self) -> None:
        """Destroys the process groups that the last call has made. A rank that has made one may not destroy it before
        its peers have made it too, so this comes after all ranks have ended the call."""
        before, self._groups_before_call = self._groups_before_call, None
        if before is None or self.has_lost_world():
            return
        for group in [group for group in _groups() if group not in before]:
            dist.destroy_process_group(group)

    def has_lost_world(self) -> bool:
        """Whether a call has taken the group of all ranks from this one."""
        return self._world is not None and dist.group.WORLD is not self._world.group

    def close(self) -> None:
        """Is called before the process ends in order."""
        self._calls.clean()

    def begin_diagnosis(self) -> None:
        self._diagnoses = True
        self._native.watch_group_operations()

    def _own_of(self, groups: list[list[int]]) -> dist.ProcessGroup | None:
        """Returns the one of these groups that contains this rank. All are made at the first time, and kept."""
        assert self._world is not None
        if groups and str(groups) not in self._made:
            self._made[str(groups)] = self.call(_own_of, groups, self._world.global_rank)
        return self._made.get(str(groups))

    def make_step(
        self,
        case: str,
        lengths: list[list[int]],
        q: Any,
        k: Any,
        v: Any,
        dout: Any,
        bias: Any,
        sink: Any,
        positions_q: Any,
        sequences_q: Any,
        positions_kv: Any,
        sequences_kv: Any,
    ) -> Step:
        assert self._connection is not None
        self._step_number += 1
        if self._diagnoses:
            self._native.watch_group_operations()
        valid_q, padded_q, valid_kv, padded_kv = lengths
        if self.adapter.padding == "absent":
            padded_q, padded_kv = valid_q, valid_kv
        view = self._view(case)
        ctx = Ctx(
            self._connection,
            view,
            Lengths(valid_q, padded_q, valid_kv, padded_kv),
            (positions_q, sequences_q, positions_kv, sequences_kv),
        )
        return Step(self, view, ctx, {"q": q, "k": k, "v": v, "dout": dout, "bias": bias, "sink": sink})

    def _view(self, text: str) -> CaseView:
        if text != self._case_text or self._case is None or self._case.id != self._case_id:
            self._case = CaseView.from_json(text, self._case_id)
            self._case_text = text
        return self._case

    def delays(self, part: str) -> contextlib.AbstractContextManager[Any]:
        """Delays the adapter's work in this part of the step, if that is wanted."""
        if self._delays is None:
            return contextlib.nullcontext()
        return self._delays.begin(self._case_id, self._step_number, part)

    # --- Calling the adapter ------------------------------------------------------------------------------------------

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs code of the adapter. Whatever it raises becomes a Failure."""
        if self._native.freed() == _ABORTED:
            raise Failure("aborted", "another rank failed")
        try:
            self._in_user_code = True
            try:
                return function(*arguments)
            finally:
                self._in_user_code = False
                if os.getpid() != self._pid:
                    _end_of_forked_child()
        except BaseException as error:  # sys.exit and KeyboardInterrupt are failures of the adapter like any other
            self._in_user_code = False  # an interrupt may have come before the line above
            self._fail(error)

    def _on_interrupt(self, _signal: int, frame: FrameType | None) -> None:
        """The signal handler, which runs on the main thread. The extension sends the signal while it wants the
        adapter's code to stop."""
        if not self._in_user_code or os.getpid() != self._pid or self._native.freed() == _NOT_FREED:
            return
        # The next signal may come while the stack is taken, and must not end in the code that takes it.
        self._in_user_code = False
        if not self._place_when_freed:
            self._place_when_freed = place_of_frame(frame)
        self._in_user_code = True
        raise _Freed

    def _fail(self, error: BaseException) -> NoReturn:
        """Raises the Failure that an exception of the adapter amounts to."""
        if isinstance(error, Failure):
            raise error
        if is_skip(error) if self._calling else isinstance(error, Skip):
            skips = "the function" if self._calling else f"the adapter {self.adapter.name}"
            reason = text_of(error).strip() or f"{skips} skips it"
            raise Failure("unsupported", reason, declined_in=self._place(), reason=reason) from None
        freed = self._native.freed()
        held_up = isinstance(error, _Freed) or says_peer_is_gone(error)
        if held_up and freed != _NOT_FREED:
            wait = place_of_wait([one for one in chain_of(error) if isinstance(one, _Freed) or is_gone(one)])
            where = f"in {wait.place or self._place_when_freed or self._subject()}"
            if freed == _TIMED_OUT:
                summary = f"at 90 % of the case's time still {where}"
                text = f"{summary}\n{wait.stack}".rstrip()
                raise Failure("timeout", summary, text, wait.collective) from None
            raise Failure("aborted", f"freed {where}, because another rank failed") from None
        text = user_traceback(error)
        if held_up:
            raise Failure("communication", one_line(error), text) from None
        summary = one_line(error)
        place = reason = ""
        refusal = self.adapter.is_refusal(error)
        # A question of a diagnosis may be declined with any exception, since its answer decides nothing.
        if self._in_case and not self._calling and (refusal or self._diagnoses):
            begun = self._native.first_group_operation()
            if begun and refusal:
                summary += f" (no refusal, because this rank had begun an operation on a process group before: {begun})"
            elif not begun and freed == _NOT_FREED:
                place, reason = self._place(), text_of(error).strip().partition("\n")[0]
        if self._calling and is_fail(error):
            raise Failure("assertion", summary, text) from None
        if isinstance(error, SystemExit):
            summary = f"{self._subject()} called sys.exit: {summary}"
        raise Failure("exception", summary, f"{summary}\n{text}", declined_in=place, reason=reason) from None

    def _subject(self) -> str:
        """Whose code runs."""
        return "the function" if self._calling else "the adapter"

    def _place(self) -> str:
        """Where this rank declines the case: the same text on all ranks that are equally far. A rank that has made a
        process group which others have not made yet is not as far as they are. Empty outside of a case."""
        if not self._in_case:
            return ""
        return f"step {self._step_number}, with {dist.distributed_c10d._world.group_count} process groups made"


def _groups() -> list[dist.ProcessGroup]:
    """The process groups that there are."""
    return list(dist.distributed_c10d._world.pg_map)


def _own_of(groups: list[list[int]], rank: int) -> dist.ProcessGroup | None:
    """Makes all of these groups, as every rank must, and returns the one that contains this rank."""
    own = None
    for ranks in groups:
        made = dist.new_group(ranks, timeout=NO_LIMIT)
        if rank in ranks:
            own = made
    # No rank may fail in the adapter's code while a peer still makes a group: Gloo does not end the peer's wait for a
    # connection, so the failure would cost the pool.
    dist.barrier()
    return own


def _use_loopback(master_addr: str) -> None:
    """Makes Gloo use the loopback interface if all ranks are on this host, so that it need not resolve the host's
    name."""
    if master_addr in ("127.0.0.1", "localhost") and os.path.isdir("/sys/class/net/lo"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _end_of_forked_child() -> NoReturn:
    """Ends a process that the adapter has forked and that has returned from the adapter's code. It is no rank."""
    print(f"cp-pool: the process {os.getpid()}, which the adapter forked, returned from it, and ends", file=sys.stderr)
    sys.stderr.flush()
    os._exit(1)


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 2


def rehearse(backward: bool) -> float:
    """Does in advance what the first case would have to wait for, such as the imports of the first autograd.Function.
    Returns how many seconds it took. It starts no thread and, without the backward, uses no device."""
    start = time.monotonic()
    with contextlib.suppress(ImportError):  # numpy is optional for torch
        import numpy.random  # noqa: F401  # else it is imported when State first seeds it
    if not backward:
        return time.monotonic() - start
    with torch.enable_grad():
        x = torch.ones(2, requires_grad=True)
        torch.autograd.grad(_Double.apply(x), [x], torch.ones(2))  # type: ignore[no-untyped-call]
    return time.monotonic() - start

"""The faults of a file, by the names that CP_POOL_WRONG has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from right_attention import Attention

Fault = TypeVar("Fault", bound=type[Attention])


class FaultList(dict[str, type[Attention]]):
    def named(self, name: str) -> Callable[[Fault], Fault]:
        """Lists the class below."""

        def add(fault: Fault) -> Fault:
            self[name] = fault
            return fault

        return add

"""A list of faults by name. CP_POOL_WRONG chooses a fault by that name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from right_attention import Attention

Fault = TypeVar("Fault", bound=type[Attention])


class FaultList(dict[str, type[Attention]]):
    def named(self, name: str) -> Callable[[Fault], Fault]:
        """A decorator that adds a class to the list under this name."""

        def add(fault: Fault) -> Fault:
            self[name] = fault
            return fault

        return add

"""Tests your own context-parallel attention with cp-pool.

``import cp_pool`` imports neither torch nor the extension module. Names that need them are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not lazily, so that ``cp_pool.adapter`` is the decorator and not its module.
from cp_pool import shard
from cp_pool.adapter import Adapter, Skip, adapter

if TYPE_CHECKING:
    from cp_pool.pool import Pool
    from cp_pool.rank_tests import on_ranks
    from cp_pool.result import CaseFailed, CaseRefused, CaseSkipped, PoolError, Result

__all__ = [
    "Adapter",
    "CaseFailed",
    "CaseRefused",
    "CaseSkipped",
    "Pool",
    "PoolError",
    "Result",
    "Skip",
    "adapter",
    "on_ranks",
    "shard",
]

_LAZY = {
    "CaseFailed": "cp_pool.result",
    "CaseRefused": "cp_pool.result",
    "CaseSkipped": "cp_pool.result",
    "Pool": "cp_pool.pool",
    "PoolError": "cp_pool.result",
    "Result": "cp_pool.result",
    "on_ranks": "cp_pool.rank_tests",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'cp_pool' has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value

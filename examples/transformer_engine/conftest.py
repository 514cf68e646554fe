"""Runs Transformer Engine's tests/pytorch/attention/test_attention_with_cp.py on warm ranks (docs/functions.md)."""

import os

from cp_pool.call_stream import PooledFunction

TESTS = os.path.join(os.environ.get("TE_PATH", "/opt/transformerengine"), "tests/pytorch/attention")
# The variable tells run_dpa_with_cp to use the process group that there is.
FUNCTION = PooledFunction(f"{TESTS}/run_attention_with_cp.py:run_dpa_with_cp", env={"NVTE_CP_POOL_PG": "1"})


def pytest_collection_finish(session):
    for module in {getattr(item, "module", None) for item in session.items}:
        if hasattr(module, "PoolWorker"):
            module.PoolWorker = FUNCTION.on_ranks

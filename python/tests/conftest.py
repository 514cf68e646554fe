"""Fixtures of the tests. The scripted worker computes nothing and does what the model of a case says. It starts in
milliseconds and can fail in every way. CP_POOL_BINARY names the cp-pool program; ctest sets it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapter_runs import BINARY, environment

ROOT = Path(__file__).resolve().parents[2]
SCRIPTED_WORKER = ROOT / "driver/cli/testing/scripted_worker.py"


@pytest.fixture(scope="session")
def binary() -> Path:
    path = os.environ.get("CP_POOL_BINARY")
    if not path:
        pytest.exit("CP_POOL_BINARY has to name the cp-pool program: run these tests by ctest", returncode=4)
    return Path(path)


@pytest.fixture(scope="session")
def scripted() -> str:
    """The command line of the scripted worker."""
    return shlex.join([sys.executable, str(SCRIPTED_WORKER)])


@pytest.fixture
def service() -> Iterator[dict[str, str]]:
    """The environment of a running service, whose name is default."""
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket must be short
        where = {"XDG_RUNTIME_DIR": folder}
        command = [str(BINARY), "serve", "--slots", "2"]
        with subprocess.Popen(command, env={**environment(), **where}, stderr=subprocess.PIPE, text=True) as serve:
            try:
                assert serve.stderr is not None
                assert " listens on " in serve.stderr.readline()
                yield where
            finally:
                serve.terminate()

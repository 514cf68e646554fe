"""The fixtures of this folder: hosts, and Slurm on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hosts import Cluster, cluster_of, need
from slurm import Slurm, missing_slurm


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Cluster]:
    yield from cluster_of(2)


@pytest.fixture(scope="module")
def slurm(two_hosts: Cluster) -> Slurm:
    need(missing_slurm())
    return Slurm(two_hosts)


@pytest.fixture
def nothing_left(two_hosts: Cluster) -> Iterator[None]:
    """Checks after the test that no host has a process, an open port or shared memory that it did not have before."""
    two_hosts.settle()
    yield
    two_hosts.expect_clean()

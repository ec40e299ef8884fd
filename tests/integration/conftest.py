"""A running cluster for the tests of one module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import ANY_TIMESTAMP, running_cluster, wait_healthy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.localcluster.cluster import LocalCluster


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """3 controllers and 3 brokers, as real processes, for all tests of a module."""
    directory = tmp_path_factory.mktemp("nodes") / "cluster"
    # Groups do not wait for members that may come.
    overrides = {**ANY_TIMESTAMP, "group.initial.rebalance.delay.ms": "0"}
    with running_cluster(directory, overrides=overrides) as running:
        yield running


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    """That cluster, with every node up: no test suffers from one that failed before it."""
    if shared_cluster.start_all():
        wait_healthy(shared_cluster)
    return shared_cluster


@pytest.fixture
def bootstrap(cluster: LocalCluster) -> str:
    """What clients take as their bootstrap servers."""
    return cluster.layout.bootstrap

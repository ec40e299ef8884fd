"""With `flush.on.ack` an acknowledgement is on every replica's disk: real processes (row L8)."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

import pytest

from raftctl.localcluster.processes import wait_gone
from tests.integration.clusters import running_cluster, wait_healthy
from tests.integration.test_local_cluster import SteadyWriter, create, values

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 2
PARTITIONS = 3
"""Each with a producer of its own, which all write while the brokers are killed."""


@pytest.mark.req("L8", "R5", "T1")
@pytest.mark.timeout(240)
def test_killing_all_brokers_at_once_under_load_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with running_cluster(tmp_path, 1, 3, {"flush.on.ack": "true"}) as cluster:
        bootstrap = cluster.layout.bootstrap
        create(bootstrap, "flushed", PARTITIONS)
        writers = [SteadyWriter(bootstrap, "flushed", number) for number in range(PARTITIONS)]
        with contextlib.ExitStack() as writing:
            for writer in writers:
                writing.enter_context(writer.writing())
            for _ in range(ROUNDS):
                for writer in writers:
                    writer.wait_for_more(100)
                processes = [cluster.process(node) for node in cluster.layout.brokers]
                running = [process for process in processes if process is not None]
                assert len(running) == 3
                for process in running:
                    process.send(signal.SIGKILL)
                assert wait_gone(running, 20) == []
                for node in cluster.layout.brokers:
                    cluster.start(node)
                wait_healthy(cluster)
        for number, writer in enumerate(writers):
            assert values(bootstrap, "flushed", number) == writer.written

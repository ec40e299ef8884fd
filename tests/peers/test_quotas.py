"""Quotas beside Apache Kafka's: the same trace has the same throttle times."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.bench.kafka.clusters import kafka_jars
from tests.peers.differential.systems import both
from tests.peers.quota_traces import TRACES
from tests.peers.tools import CACHE, INSTALL_TIMEOUT_S, KAFKA_VERSION, installing, need
from tests.unit.broker.quotas.traces import mismatches

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.req("S5")
@pytest.mark.timeout(INSTALL_TIMEOUT_S + 300)
@pytest.mark.xdist_group("differential")
def test_throttle_times_are_apache_kafkas(tmp_path: Path) -> None:
    need("java", "mvn")
    with installing():
        jars = kafka_jars(KAFKA_VERSION, CACHE)
    with both(tmp_path, jars) as (kafka, ours):
        for name, play in TRACES.items():
            # The machine delays the requests of each by something else, so each is compared with
            # the definition at its own times. Both must agree with that, so they agree.
            for system in (kafka, ours):
                trace = asyncio.run(play(system))
                while not trace.answers[-1][1]:
                    trace.answers.pop()
                assert sum(one[2] > 0 for one in trace.answers) >= 2, (system.name, trace)
                assert mismatches(name, trace) == [], (system.name, trace)

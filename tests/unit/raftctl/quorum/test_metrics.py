"""What a replica of the metadata log measures of itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from raftctl.metrics import Metrics
from raftctl.quorum import RaftMetrics
from raftctl.quorum._metrics import Recent
from tests.unit.raftctl.quorum.parts import Member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.req("N4")
PREFIX = "kafka_server_raftmetrics_"


@pytest.fixture
async def measured() -> AsyncIterator[tuple[Member, Metrics]]:
    """A leader, alone in its quorum, with its metrics."""
    member, metrics = Member(), Metrics()
    RaftMetrics(member.driver, metrics)
    await member.lead()
    yield member, metrics
    await member.stop()


def values(metrics: Metrics) -> dict[tuple[str, ...], Any]:
    return {
        (family.metric.name.removeprefix(PREFIX), *sample.labels): sample.value
        for family in metrics.families()
        for sample in family.samples
    }


async def test_a_leader_shows_its_role_epoch_vote_and_offsets(
    measured: tuple[Member, Metrics],
) -> None:
    member, metrics = measured
    found = values(metrics)
    assert found["current_state", "leader"] == 1
    assert found["current_leader",] == found["current_vote",] == 1
    assert found["current_epoch",] == member.driver.epoch
    assert found["log_end_offset",] == found["high_watermark",] == member.log.end_offset
    assert found["number_of_voters",] == 1
    assert found["raftctl_raft_fsyncs_total",] == member.log.fsyncs > 0
    assert found["raftctl_raft_replica_lag", "1"] == 0


async def test_a_replica_that_knows_nobody_says_so() -> None:
    member, metrics = Member(voters=3), Metrics()
    RaftMetrics(member.driver, metrics)
    found = values(metrics)
    assert (found["current_leader",], found["current_vote",]) == (-1, -1)
    member.driver.start()
    await member.stop()


async def test_appended_records_have_a_rate_and_their_commit_a_latency(
    measured: tuple[Member, Metrics],
) -> None:
    member, metrics = measured
    metrics.tick()
    before = values(metrics)["raftctl_raft_commit_latency_ms",].count
    member.driver.append([b"a", b"b"])
    last = member.driver.append([b"c"])
    await member.until(lambda: member.driver.high_watermark > last)
    metrics.tick()
    found = values(metrics)
    assert found["append_records_rate",] > 0
    assert found["fetch_records_rate",] == 0
    latency = found["raftctl_raft_commit_latency_ms",]
    assert latency.count == before + 1
    assert latency.total > 0
    assert found["commit_latency_avg",] == pytest.approx(latency.total / latency.count, rel=1e-3)


async def test_an_append_that_is_not_committed_has_no_latency(
    measured: tuple[Member, Metrics],
) -> None:
    member, metrics = measured
    before = values(metrics)["raftctl_raft_commit_latency_ms",].count
    member.driver.append([b"a"])
    await member.turn()
    assert values(metrics)["raftctl_raft_commit_latency_ms",].count == before


async def test_an_election_lasts_until_a_leader_is_known() -> None:
    member, metrics = Member(voters=3), Metrics()
    measured = RaftMetrics(member.driver, metrics)
    now = asyncio.get_running_loop().time
    measured.on_leader_changed(4, -1)
    began_s = now()
    await asyncio.sleep(0.02)
    measured.on_leader_changed(5, -1)
    measured.on_leader_changed(5, 2)
    took_ms = (now() - began_s) * 1_000
    found = values(metrics)
    assert 20 <= found["election_latency_max",] <= took_ms + 1
    assert found["election_latency_avg",] == found["election_latency_max",]
    assert found["raftctl_raft_leader_changes_total",] == 1
    measured.on_leader_changed(6, 3)
    assert values(metrics)["raftctl_raft_leader_changes_total",] == 2
    for _ in range(6):
        metrics.tick()
    found = values(metrics)
    assert (found["election_latency_avg",], found["election_latency_max",]) == (0, 0)
    member.driver.start()
    await member.stop()


def test_the_mean_and_the_maximum_are_of_half_a_minute() -> None:
    recent = Recent()
    for value in (1, 5, 3):
        recent.add(value)
    assert (recent.mean, recent.greatest) == (3, 5)
    recent.tick()
    recent.add(7)
    assert (recent.mean, recent.greatest) == (4, 7)
    for _ in range(5):
        recent.tick()
    assert (recent.mean, recent.greatest) == (7, 7)

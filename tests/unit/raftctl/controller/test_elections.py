"""ElectLeaders, eligible leader replicas and the balance of leaders."""

from __future__ import annotations

import pytest

from raftctl.controller import ControllerConfig
from raftctl.errors import ErrorCode
from raftctl.metadata.features import ELR_FEATURE
from raftctl.metadata.records import NO_LEADER, FeatureLevelRecord
from raftctl.metadata.requests.admin import (
    PREFERRED_ELECTION,
    UNCLEAN_ELECTION,
    ElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from raftctl.metadata.requests.cluster import NewTopic
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, SESSION_MS, Cluster


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1, 2 and 3 are active."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    return cluster


def elect(
    cluster: Cluster, election_type: int, *partitions: tuple[str, int]
) -> tuple[ElectionResult, ...]:
    response = cluster.handle(ElectLeadersRequest(election_type, partitions))
    assert isinstance(response, ElectLeadersResponse)
    assert response.error == ErrorCode.NONE
    assert response.offset == cluster.image.offset
    return response.results


def restart(cluster: Cluster, broker_id: int) -> None:
    """The broker is fenced and comes back; the leader takes it into the ISR again."""
    cluster.fence(broker_id)
    cluster.heartbeat(broker_id)


# --- ElectLeaders ---------------------------------------------------------------------------------


@pytest.mark.req("C5")
def test_a_preferred_leader_comes_back(cluster: Cluster) -> None:
    cluster.assign("t", (1, 2, 3))
    restart(cluster, 1)
    assert cluster.state("t") == (2, (2, 3))
    (result,) = elect(cluster, PREFERRED_ELECTION, ("t", 0))
    assert result.error == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "it is not in sync"
    cluster.alter(2, cluster.item("t", 2, 3, 1))
    epoch = cluster.partition("t").leader_epoch
    assert elect(cluster, PREFERRED_ELECTION, ("t", 0)) == (ElectionResult("t", 0, ErrorCode.NONE),)
    assert cluster.state("t") == (1, (2, 3, 1))
    assert cluster.partition("t").leader_epoch == epoch + 1
    (result,) = elect(cluster, PREFERRED_ELECTION, ("t", 0))
    assert result.error == ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.req("C5")
def test_an_unclean_election_takes_any_active_replica_where_nobody_leads(cluster: Cluster) -> None:
    cluster.assign("t", (1, 2))
    cluster.fence(2)
    (result,) = elect(cluster, UNCLEAN_ELECTION, ("t", 0))
    assert result.error == ErrorCode.ELECTION_NOT_NEEDED
    cluster.fence(1)
    (result,) = elect(cluster, UNCLEAN_ELECTION, ("t", 0))
    assert result.error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.heartbeat(2)
    assert cluster.state("t") == (NO_LEADER, (1,))
    (result,) = elect(cluster, UNCLEAN_ELECTION, ("t", 0))
    assert result.error == ErrorCode.NONE
    assert cluster.state("t") == (2, (2,))
    assert cluster.partition("t").leader_recovering


@pytest.mark.req("C5")
def test_elections_that_cannot_be(cluster: Cluster) -> None:
    cluster.assign("t", (1, 2))
    for key in (("u", 0), ("t", 1), ("t", -1)):
        (result,) = elect(cluster, PREFERRED_ELECTION, key)
        assert result.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = cluster.handle(ElectLeadersRequest(7, ()))
    assert isinstance(response, ElectLeadersResponse)
    assert response.error == ErrorCode.INVALID_REQUEST
    assert "election_type" in response.message


# --- eligible leader replicas ---------------------------------------------------------------------


@pytest.fixture
def eligible(cluster: Cluster) -> Cluster:
    """Eligible leaders are enabled; topic t needs 2 of 3 in sync."""
    cluster.append([FeatureLevelRecord(ELR_FEATURE, 1)])
    configs = (("min.insync.replicas", "2"),)
    cluster.create(NewTopic("t", assignments=((0, (1, 2, 3)),), configs=configs))
    return cluster


def members(cluster: Cluster) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """(leader, ISR, ELR)"""
    partition = cluster.partition("t")
    return partition.leader, partition.isr, partition.elr


@pytest.mark.req("C5")
def test_who_leaves_an_isr_that_is_too_small_may_still_lead(eligible: Cluster) -> None:
    eligible.fence(3)
    assert members(eligible) == (1, (1, 2), ())
    eligible.fence(2)
    assert members(eligible) == (1, (1,), (2,))
    eligible.fence(1)
    assert members(eligible) == (NO_LEADER, (), (1, 2))
    eligible.heartbeat(3)
    assert members(eligible) == (NO_LEADER, (), (1, 2)), "it may lack what is committed"
    eligible.heartbeat(2)
    assert members(eligible) == (2, (2,), (1,))
    assert not eligible.partition("t").leader_recovering
    eligible.alter(2, eligible.item("t", 2, 3))
    assert members(eligible) == (2, (2, 3), ()), "what commits now 1 does not have"


@pytest.mark.req("C5")
def test_a_leader_that_shrinks_its_isr_leaves_eligible_replicas(eligible: Cluster) -> None:
    eligible.alter(1, eligible.item("t", 1, 3))
    assert members(eligible) == (1, (1, 3), ())
    eligible.alter(1, eligible.item("t", 1))
    assert members(eligible) == (1, (1,), (3,))


@pytest.mark.req("C5")
def test_a_new_life_is_not_eligible_unless_it_is_the_last(eligible: Cluster) -> None:
    for broker_id in (3, 2, 1):
        eligible.fence(broker_id)
    eligible.now_ms += SESSION_MS
    eligible.register(2, 1)
    assert members(eligible) == (NO_LEADER, (), (1,)), "it may have lost what it had not flushed"
    eligible.register(1, 1)
    assert members(eligible) == (NO_LEADER, (), (1,))
    eligible.heartbeat(1)
    assert members(eligible) == (1, (1,), ())


@pytest.mark.req("C2", "C5")
def test_a_new_life_is_eligible_if_the_last_one_ended_cleanly(eligible: Cluster) -> None:
    for broker_id in (3, 2, 1):
        eligible.fence(broker_id)
    eligible.now_ms += SESSION_MS
    clean = eligible.image.brokers[2].broker_epoch
    eligible.register(2, 1, previous_epoch=clean)
    assert members(eligible) == (NO_LEADER, (), (1, 2)), "it has all that it had (KIP-966)"
    eligible.heartbeat(2, want_shut_down=True)
    eligible.register(2, 2, previous_epoch=clean)
    assert members(eligible) == (NO_LEADER, (), (1,)), "that was the life before the last"


@pytest.mark.req("C2", "C5")
@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("ahead", [-2, -1, 0, 1, 2, None])
def test_only_the_epoch_of_the_very_last_life_tells_of_a_clean_end(
    eligible: Cluster, ahead: int | None, *, fenced: bool
) -> None:
    """No other number does, be it a life before, another broker's, or one that never was."""
    eligible.fence(3)
    eligible.heartbeat(2, want_shut_down=True)
    eligible.register(2, 1, previous_epoch=eligible.image.brokers[2].broker_epoch)
    assert members(eligible) == (1, (1,), (2,))
    if not fenced:
        eligible.heartbeat(2)
    eligible.now_ms += SESSION_MS
    eligible.heartbeat(1)
    assert eligible.image.brokers[2].fenced is fenced
    last = eligible.image.brokers[2].broker_epoch
    told = -1 if ahead is None else last + ahead
    assert eligible.register(2, 2, previous_epoch=told).error is ErrorCode.NONE
    assert members(eligible) == (1, (1,), (2,) if ahead == 0 else ())


@pytest.mark.req("C5")
def test_a_leader_that_restarts_unnoticed_is_not_eligible(eligible: Cluster) -> None:
    eligible.fence(3)
    eligible.fence(2)
    eligible.now_ms += SESSION_MS
    eligible.heartbeat(2)
    eligible.alter(1, eligible.item("t", 1, 2))
    eligible.register(1, 1)
    assert members(eligible) == (2, (2,), ())


@pytest.mark.req("C5")
def test_an_unclean_leader_ends_what_was_eligible(eligible: Cluster) -> None:
    for broker_id in (3, 2, 1):
        eligible.fence(broker_id)
    eligible.heartbeat(3)
    elect(eligible, UNCLEAN_ELECTION, ("t", 0))
    assert members(eligible) == (3, (3,), ())
    assert eligible.partition("t").leader_recovering


# --- balance --------------------------------------------------------------------------------------


def balanced(percentage: int = 10, *, enabled: bool = True) -> Cluster:
    """Brokers 1 and 2 lead five partitions each; then 2 lost its leaders and is in sync again."""
    config = ControllerConfig(
        cluster_id=CLUSTER_ID,
        leader_rebalance=enabled,
        leader_imbalance_check_ms=60_000,
        leader_imbalance_percentage=percentage,
        session_timeout_ms=10**9,
    )
    cluster = Cluster(config)
    cluster.start(1, 2)
    cluster.assign("t", *((1, 2), (2, 1)) * 5)
    restart(cluster, 2)
    for number in range(10):
        cluster.alter(1, cluster.item("t", 1, 2, partition_id=number))
    return cluster


def leaders(cluster: Cluster) -> list[int]:
    return [one.leader for _, one in cluster.topic("t").items()]


@pytest.mark.req("C8")
def test_preferred_leaders_come_back_by_themselves() -> None:
    cluster = balanced()
    cluster.late_tick(59_999)
    assert leaders(cluster) == [1] * 10
    cluster.late_tick(60_000)
    assert leaders(cluster) == [1, 2] * 5
    assert cluster.controller.deadline_ms() == 120_000
    assert cluster.late_tick(120_000) == []


@pytest.mark.req("C8")
def test_a_small_imbalance_stays() -> None:
    cluster = balanced(percentage=40)
    for number in (1, 3, 5):
        elect(cluster, PREFERRED_ELECTION, ("t", number))
    cluster.late_tick(60_000)
    assert leaders(cluster) == [1, 2, 1, 2, 1, 2, 1, 1, 1, 1], "2 of 5 are 40 percent"
    restart(cluster, 2)
    assert leaders(cluster) == [1] * 10
    for number in range(10):
        cluster.alter(1, cluster.item("t", 1, 2, partition_id=number))
    cluster.late_tick(120_000)
    assert leaders(cluster) == [1, 2] * 5


@pytest.mark.req("C8")
def test_leaders_stay_where_they_are_if_so_configured() -> None:
    cluster = balanced(enabled=False)
    assert cluster.late_tick(60_000) == []
    assert leaders(cluster) == [1] * 10


@pytest.mark.req("C8")
def test_a_large_cluster_is_balanced_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftctl.controller.partitions._elections.EXAMINED_MAX", 1)
    cluster = balanced()
    cluster.assign("u", (1,))
    assert cluster.late_tick(60_000) == [], "one of the topics is still to be looked at"
    moved = []
    while cluster.controller.deadline_ms() == 60_000:
        moved.append(len(cluster.late_tick(60_000)))
    assert moved == [1] * 5
    assert leaders(cluster) == [1, 2] * 5


@pytest.mark.req("C8")
def test_a_replica_that_is_not_in_sync_gets_nothing_back() -> None:
    cluster = balanced()
    cluster.alter(1, cluster.item("t", 1, partition_id=3))
    cluster.delete(("gone", None))
    cluster.late_tick(60_000)
    assert leaders(cluster) == [1, 2, 1, 1, 1, 2, 1, 2, 1, 2]

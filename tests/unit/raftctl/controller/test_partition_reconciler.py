"""Partitions follow a broker's start or stop in slices, and no broker gets ahead of them."""

from __future__ import annotations

import pytest

from raftctl.controller import ControllerConfig
from raftctl.errors import ErrorCode
from raftctl.metadata.features import ELR_FEATURE
from raftctl.metadata.records import BROKER_RESOURCE, NO_LEADER, BrokerRegistrationChangeRecord
from raftctl.metadata.requests.admin import (
    UPGRADE,
    AlterConfigsRequest,
    AlterOperation,
    ConfigAlteration,
    ConfigChange,
    FeatureUpdate,
    ItemOutcome,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, SESSION_MS, Cluster

pytestmark = pytest.mark.req("C2", "C13")
PARTITIONS = 7
SLICE = 2
MIN_ISR = "min.insync.replicas"


@pytest.fixture
def cluster() -> Cluster:
    """Broker 1 leads all partitions; two of them are a slice."""
    config = ControllerConfig(
        cluster_id=CLUSTER_ID,
        session_timeout_ms=SESSION_MS,
        leader_rebalance=False,
        slice_changes_max=SLICE,
    )
    cluster = Cluster(config)
    cluster.start(1, 2, 3)
    cluster.assign("a", *[(1, 2)] * PARTITIONS)
    return cluster


def led_by(cluster: Cluster, broker_id: int) -> int:
    return sum(one.leader == broker_id for _, one in cluster.topic("a").items())


def led_in_all(cluster: Cluster, broker_id: int) -> int:
    topics = cluster.image.topics.in_order()
    return sum(one.leader == broker_id for topic in topics for _, one in topic.items())


def followed_in_all(cluster: Cluster, broker_id: int) -> int:
    """Partitions in whose ISR the broker is, and that another leads."""
    partitions = [one for topic in cluster.image.topics.in_order() for _, one in topic.items()]
    return sum(broker_id in one.isr and one.leader != broker_id for one in partitions)


def reconcile(cluster: Cluster) -> int:
    """Ticks until nothing is due at once; returns how many that took."""
    ticks = 0
    while cluster.controller.deadline_ms() == 0:
        assert len(cluster.late_tick(cluster.now_ms)) <= SLICE
        ticks += 1
    return ticks


def test_what_fits_into_a_slice_stands_in_one_batch(cluster: Cluster) -> None:
    cluster.assign("b", (3, 2), (3, 2))
    cluster.fence(3)
    assert cluster.state("b", 0) == cluster.state("b", 1) == (2, (2,))


def test_leaders_and_others_that_fit_into_a_slice_stand_in_one_batch(cluster: Cluster) -> None:
    cluster.delete(("a", None))
    cluster.assign("b", (1, 2))
    cluster.assign("c", (2, 1))
    before = len(cluster.records)
    cluster.fence(1)
    assert len(cluster.records) == before + 3  # the broker, and each partition once
    assert cluster.state("b") == cluster.state("c") == (2, (2,))


def test_leaders_are_moved_before_anything_else(cluster: Cluster) -> None:
    """Whatever the order of topics and partitions: clients wait for leaders alone."""
    mixed = [(2, 1), (1, 2)] * 4
    for name in ("b", "c", "d"):
        cluster.assign(name, *mixed)
    cluster.fence(1)
    ticks = 0
    while led_in_all(cluster, 1):
        assert followed_in_all(cluster, 1) == 3 * 4
        cluster.late_tick(cluster.now_ms)
        ticks += 1
    assert ticks == (PARTITIONS + 3 * 4 - 1) // SLICE
    assert followed_in_all(cluster, 1) >= 3 * 4 - 1  # the last slice may have one of each
    reconcile(cluster)
    assert followed_in_all(cluster, 1) == 0


def test_leaders_of_the_next_broker_do_not_wait_for_what_else_the_last_left(
    cluster: Cluster,
) -> None:
    cluster.assign("b", *[(2, 1)] * 20)
    cluster.assign("c", *[(3, 2)] * 4)
    cluster.fence(1)
    while led_in_all(cluster, 1):
        cluster.late_tick(cluster.now_ms)
    followed = followed_in_all(cluster, 1)
    assert followed >= 20 - 1
    cluster.fence(3)
    assert led_in_all(cluster, 3) == 4 - SLICE
    cluster.late_tick(cluster.now_ms)
    assert led_in_all(cluster, 3) == 0
    assert followed_in_all(cluster, 1) == followed
    assert cluster.heartbeat(1).fenced
    reconcile(cluster)
    assert followed_in_all(cluster, 1) == 0


def test_the_rest_follows_slice_by_slice(cluster: Cluster) -> None:
    cluster.fence(1)
    assert cluster.image.brokers[1].fenced
    assert led_by(cluster, 1) == PARTITIONS - SLICE
    assert reconcile(cluster) == 3
    assert led_by(cluster, 2) == PARTITIONS


def test_a_slice_also_ends_with_what_was_looked_at() -> None:
    config = ControllerConfig(
        cluster_id=CLUSTER_ID, session_timeout_ms=SESSION_MS, slice_examined_max=3
    )
    cluster = Cluster(config)
    cluster.start(1, 2)
    for name in ("a", "b"):
        cluster.assign(name, *[(2, 1)] * 4)
    cluster.assign("c", (1, 2))
    cluster.fence(1)
    ticks = 0
    while cluster.controller.deadline_ms() == 0:
        cluster.late_tick(0)
        ticks += 1
    assert ticks >= 3
    assert cluster.state("c") == (2, (2,))


def test_a_broker_is_not_unfenced_before_partitions_have_given_it_up(cluster: Cluster) -> None:
    cluster.fence(1)
    assert cluster.heartbeat(1).fenced
    reconcile(cluster)
    assert not cluster.heartbeat(1).fenced


def test_a_new_incarnation_waits_until_partitions_have_given_up_the_last(cluster: Cluster) -> None:
    cluster.now_ms = SESSION_MS - 1
    for other in (2, 3):
        cluster.heartbeat(other)
    cluster.now_ms = SESSION_MS
    response = cluster.register(1, 1)
    assert (response.error, response.broker_epoch) == (ErrorCode.DUPLICATE_BROKER_REGISTRATION, -1)
    assert "give up" in response.message
    assert cluster.image.brokers[1].fenced  # it has begun
    reconcile(cluster)
    assert led_by(cluster, 1) == 0
    assert cluster.register(1, 1).error == ErrorCode.NONE


def test_an_unregistered_broker_comes_back_when_its_partitions_are_settled(
    cluster: Cluster,
) -> None:
    cluster.admin(UnregisterBrokerRequest(1))
    assert cluster.register(1, 1).error == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    reconcile(cluster)
    assert cluster.register(1, 1).error == ErrorCode.NONE


def test_a_broker_is_let_go_when_the_last_slice_is_done(cluster: Cluster) -> None:
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    for other in (2, 3):
        cluster.heartbeat(other)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    reconcile(cluster)
    cluster.heartbeat(1, want_shut_down=True)
    for other in (2, 3):
        cluster.heartbeat(other)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert led_by(cluster, 2) == PARTITIONS


def test_what_changes_during_a_pass_is_looked_at_by_the_next(cluster: Cluster) -> None:
    cluster.fence(1)
    cluster.fence(2)
    reconcile(cluster)
    assert led_by(cluster, NO_LEADER) == PARTITIONS
    assert not cluster.heartbeat(2).fenced
    reconcile(cluster)
    assert led_by(cluster, 2) == PARTITIONS


def test_the_next_active_controller_goes_on(cluster: Cluster) -> None:
    cluster.fence(1)
    cluster.controller.committed(cluster.image.offset)
    cluster.controller.renounce()
    assert cluster.controller.deadline_ms() is None
    cluster.claim(cluster.image)
    assert led_by(cluster, 2) == 2 * SLICE
    reconcile(cluster)
    assert led_by(cluster, 2) == PARTITIONS


def test_a_topic_deleted_meanwhile_is_passed_over(cluster: Cluster) -> None:
    cluster.assign("b", *[(1, 2)] * PARTITIONS)
    cluster.fence(1)
    cluster.delete(("a", None))
    reconcile(cluster)
    assert all(one.leader == 2 for _, one in cluster.topic("b").items())


def test_silent_brokers_are_fenced_between_slices(cluster: Cluster) -> None:
    cluster.tick(SESSION_MS - 1)
    cluster.heartbeat(2)
    cluster.fence(1)
    records = cluster.late_tick(SESSION_MS)
    assert [type(one) for one in records] == [BrokerRegistrationChangeRecord]
    assert cluster.image.brokers[3].fenced


def test_a_forgetful_incarnation_is_no_eligible_leader_any_more(cluster: Cluster) -> None:
    update = FeatureUpdate(ELR_FEATURE, 1, UPGRADE)
    cluster.admin(UpdateFeaturesRequest((update,)))
    cluster.create_topic("b", *[(3, 2)] * 5, configs=(("min.insync.replicas", "2"),))
    cluster.fence(2)
    reconcile(cluster)
    assert all(one.elr == (2,) for _, one in cluster.topic("b").items())
    cluster.now_ms = SESSION_MS
    for other in (1, 3):
        cluster.heartbeat(other)
    refused = 0
    while cluster.register(2, 1).error == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        refused += 1
        assert refused <= 2
        reconcile(cluster)
    assert refused == 1
    assert all(one.elr == () for _, one in cluster.topic("b").items())


# --- other rules for all topics -------------------------------------------------------------------


def set_for_all(cluster: Cluster, key: str, value: str) -> ItemOutcome:
    change = ConfigChange(key, AlterOperation.SET, value)
    resource = ConfigAlteration(BROKER_RESOURCE, "", (change,))
    (outcome,) = cluster.admin(AlterConfigsRequest((resource,)))
    return outcome


@pytest.fixture
def eligible(cluster: Cluster) -> Cluster:
    """Brokers 1 and 2 are in sync for all partitions of b, and 3 is eligible: three are needed."""
    cluster.admin(UpdateFeaturesRequest((FeatureUpdate(ELR_FEATURE, 1, UPGRADE),)))
    assert set_for_all(cluster, MIN_ISR, "3") == ItemOutcome()
    reconcile(cluster)
    cluster.delete(("a", None))
    cluster.assign("b", *[(1, 2, 3)] * PARTITIONS)
    cluster.fence(3)
    reconcile(cluster)
    assert eligible_leaders(cluster) == [(3,)] * PARTITIONS
    return cluster


def eligible_leaders(cluster: Cluster) -> list[tuple[int, ...]]:
    return [one.elr for _, one in cluster.topic("b").items()]


@pytest.mark.req("C5", "C9")
def test_unclean_elections_allowed_for_all_topics_are_held_slice_by_slice(cluster: Cluster) -> None:
    cluster.fence(2)
    reconcile(cluster)
    cluster.fence(1)
    reconcile(cluster)
    cluster.heartbeat(2)
    reconcile(cluster)
    assert led_by(cluster, NO_LEADER) == PARTITIONS
    assert set_for_all(cluster, "unclean.leader.election.enable", "true") == ItemOutcome()
    assert led_by(cluster, 2) == SLICE
    reconcile(cluster)
    assert led_by(cluster, 2) == PARTITIONS


@pytest.mark.req("C5", "C9")
def test_a_lower_min_isr_ends_eligible_leaders_slice_by_slice(eligible: Cluster) -> None:
    assert set_for_all(eligible, MIN_ISR, "2") == ItemOutcome()
    assert eligible_leaders(eligible) == [()] * SLICE + [(3,)] * (PARTITIONS - SLICE)
    # Brokers 1 and 2 commit without 3 from here on, also where its turn has not come.
    last = PARTITIONS - 1
    eligible.alter(1, eligible.item("b", 1, partition_id=last))
    assert eligible_leaders(eligible)[last] == (2,)
    reconcile(eligible)
    assert eligible_leaders(eligible) == [()] * last + [(2,)]


@pytest.mark.req("C5", "C9")
def test_min_isr_changes_again_when_all_partitions_have_followed(eligible: Cluster) -> None:
    """Else nothing would tell that 3 was not needed for a while."""
    set_for_all(eligible, MIN_ISR, "2")
    outcome = set_for_all(eligible, MIN_ISR, "3")
    assert outcome.error == ErrorCode.REQUEST_TIMED_OUT
    assert "try again" in outcome.message
    assert eligible.image.config(BROKER_RESOURCE, "")[MIN_ISR] == "2"
    assert set_for_all(eligible, "log.retention.hours", "3") == ItemOutcome()
    reconcile(eligible)
    assert set_for_all(eligible, MIN_ISR, "3") == ItemOutcome()


@pytest.mark.req("C5", "C9")
def test_the_next_active_controller_ends_eligible_leaders(eligible: Cluster) -> None:
    set_for_all(eligible, MIN_ISR, "2")
    eligible.controller.committed(eligible.image.offset)
    eligible.controller.renounce()
    eligible.claim(eligible.image)
    reconcile(eligible)
    assert eligible_leaders(eligible) == [()] * PARTITIONS


@pytest.mark.req("C9")
def test_other_rules_during_a_pass_are_followed_by_the_next(eligible: Cluster) -> None:
    eligible.fence(2)
    assert set_for_all(eligible, MIN_ISR, "2") == ItemOutcome()
    reconcile(eligible)
    assert eligible_leaders(eligible) == [(2, 3)] * SLICE + [(2,)] * (PARTITIONS - SLICE)

"""The life of a broker: registration, sessions, fencing, controlled shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.controller import ControllerConfig
from raftctl.errors import ErrorCode
from raftctl.metadata.records import NO_LEADER, Endpoint, FeatureRange
from raftctl.metadata.requests.cluster import RegisterBrokerRequest, RegisterBrokerResponse
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, ENDPOINTS, SESSION_MS, Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("C2")
TAKEN, FREE = UUID(int=55), UUID(int=56)
LEVELS, BACKWARDS = FeatureRange("f", 0, 1), FeatureRange("f", 2, 1)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


# --- registration ---------------------------------------------------------------------------------


def test_the_broker_epoch_is_the_offset_of_the_registration(cluster: Cluster) -> None:
    for broker_id in (1, 2):
        response = cluster.register(broker_id)
        assert response.error == ErrorCode.NONE
        assert response.broker_epoch == len(cluster.records) - 1
        assert cluster.image.brokers[broker_id].broker_epoch == response.broker_epoch
        assert cluster.image.brokers[broker_id].fenced


@pytest.mark.parametrize(
    ("error", "register"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, lambda it: it.register(1, cluster_id="another")),
        (ErrorCode.INVALID_REGISTRATION, lambda it: it.register(1, endpoints=())),
        (ErrorCode.INVALID_REGISTRATION, lambda it: it.register(1, endpoints=ENDPOINTS * 2)),
        (ErrorCode.INVALID_REGISTRATION, lambda it: it.register(1, directories=(TAKEN,))),
        (ErrorCode.INVALID_REGISTRATION, lambda it: it.register(1, directories=(FREE, FREE))),
        (ErrorCode.INVALID_REGISTRATION, lambda it: it.register(-1)),
        (ErrorCode.INVALID_REGISTRATION, lambda it: it.register(1, features=(LEVELS, LEVELS))),
        (ErrorCode.INVALID_REGISTRATION, lambda it: it.register(1, features=(BACKWARDS,))),
    ],
)
def test_a_bad_registration_is_refused(
    cluster: Cluster, error: ErrorCode, register: Callable[[Cluster], RegisterBrokerResponse]
) -> None:
    cluster.register(2, directories=(TAKEN,))
    before = cluster.image
    response = register(cluster)
    assert (response.error, response.broker_epoch) == (error, -1)
    assert response.message
    assert cluster.image is before


def test_another_incarnation_is_refused_while_the_session_lives(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.now_ms = SESSION_MS - 1
    assert cluster.register(1, 1).error == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms = SESSION_MS
    assert cluster.register(1, 1).error == ErrorCode.NONE


def test_another_incarnation_is_refused_while_a_fenced_one_catches_up(cluster: Cluster) -> None:
    cluster.register(1)
    assert cluster.register(1, 1).error == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.heartbeat(1, metadata_offset=-1).fenced
    assert cluster.register(1, 1).error == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_silent_incarnation_is_fenced_before_it_is_replaced(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    cluster.now_ms = SESSION_MS - 1
    cluster.heartbeat(2)
    cluster.now_ms = SESSION_MS
    response = cluster.register(1, 1)
    assert response.broker_epoch == len(cluster.records) - 1
    assert cluster.image.brokers[1].broker_epoch == response.broker_epoch
    assert cluster.image.brokers[1].fenced
    assert cluster.state("a") == (2, (2,))


def test_a_fenced_broker_without_a_session_is_replaced_at_once(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.tick(SESSION_MS)
    assert cluster.image.brokers[1].fenced
    assert cluster.register(1, 1).error == ErrorCode.NONE


def test_the_same_incarnation_again_keeps_epoch_and_state(cluster: Cluster) -> None:
    cluster.start(1)
    epoch, records = cluster.image.brokers[1].broker_epoch, len(cluster.records)
    assert cluster.register(1).broker_epoch == epoch
    assert len(cluster.records) == records
    moved = (Endpoint("PLAINTEXT", "127.0.0.1", 9999),)
    assert cluster.register(1, endpoints=moved).broker_epoch == epoch
    broker = cluster.image.brokers[1]
    assert (broker.endpoints, broker.broker_epoch, broker.fenced) == (moved, epoch, False)


# --- heartbeats and fencing -----------------------------------------------------------------------


def test_a_broker_is_unfenced_once_it_has_replayed_its_registration(cluster: Cluster) -> None:
    epoch = cluster.register(1).broker_epoch
    behind = cluster.heartbeat(1, metadata_offset=epoch - 1)
    assert (behind.error, behind.caught_up, behind.fenced) == (ErrorCode.NONE, False, True)
    there = cluster.heartbeat(1, metadata_offset=epoch, want_fence=True)
    assert (there.caught_up, there.fenced) == (True, True)
    unfenced = cluster.heartbeat(1, metadata_offset=epoch)
    assert (unfenced.caught_up, unfenced.fenced) == (True, False)
    assert unfenced.session_timeout_ms == SESSION_MS
    assert cluster.image.brokers[1].active


def test_a_heartbeat_of_another_incarnation_is_refused(cluster: Cluster) -> None:
    assert cluster.heartbeat(1, broker_epoch=0).error == ErrorCode.BROKER_ID_NOT_REGISTERED
    epoch = cluster.register(1).broker_epoch
    stale = cluster.heartbeat(1, broker_epoch=epoch - 1)
    assert (stale.error, stale.fenced) == (ErrorCode.STALE_BROKER_EPOCH, True)


def test_a_heartbeat_that_changes_nothing_writes_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    before = len(cluster.records)
    assert not cluster.heartbeat(1).fenced
    assert len(cluster.records) == before


@pytest.mark.req("C5")
def test_silent_brokers_are_fenced_and_their_partitions_move(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3), (2, 3, 1))
    cluster.assign("b", (1,))
    assert cluster.tick(5_000) == []
    cluster.heartbeat(3)
    assert cluster.tick(SESSION_MS - 1) == []
    assert cluster.tick(SESSION_MS) != []
    assert [cluster.image.brokers[i].fenced for i in (1, 2, 3)] == [True, True, False]
    assert cluster.state("a", 0) == (3, (3,))
    assert cluster.state("a", 1) == (3, (3,))
    assert cluster.state("b") == (NO_LEADER, (1,))
    assert cluster.tick(5_000 + SESSION_MS - 1) == []
    assert cluster.tick(5_000 + SESSION_MS) != []


def test_a_fenced_broker_that_falls_silent_only_loses_its_session(cluster: Cluster) -> None:
    cluster.register(1)
    assert cluster.tick(SESSION_MS) == []
    assert cluster.controller.deadline_ms() is None


@pytest.mark.req("C5")
def test_a_partition_comes_back_with_a_member_of_its_isr(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    cluster.fence(1)
    cluster.fence(2)
    assert cluster.state("a") == (NO_LEADER, (2,))
    assert not cluster.heartbeat(1).fenced
    assert cluster.state("a") == (NO_LEADER, (2,)), "1 may lack what 2 acknowledged alone"
    assert not cluster.heartbeat(2).fenced
    assert cluster.state("a") == (2, (2,))


@pytest.mark.req("C5")
def test_members_that_died_together_may_each_bring_the_partition_back(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    cluster.tick(SESSION_MS)
    assert cluster.state("a") == (NO_LEADER, (1, 2))
    assert not cluster.heartbeat(2).fenced
    assert cluster.state("a") == (2, (2,)), "the other is fenced, so it is not in sync"


def test_a_new_incarnation_of_the_last_member_brings_the_partition_back(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.assign("a", (1,))
    cluster.tick(SESSION_MS)
    cluster.register(1, 1)
    assert cluster.state("a") == (NO_LEADER, (1,))
    cluster.heartbeat(1)
    assert cluster.state("a") == (1, (1,))


def test_after_a_failover_every_active_broker_has_a_fresh_session(cluster: Cluster) -> None:
    """Otherwise a broker that dies together with the controller is never fenced: KAFKA-18138."""
    cluster.start(1, 2)
    cluster.fence(2)
    cluster.controller.committed(len(cluster.records))
    cluster.now_ms = 100_000
    cluster.controller.renounce()
    cluster.claim(cluster.controller.committed_image)
    assert cluster.tick(100_000 + SESSION_MS - 1) == []
    assert cluster.register(1, 1).error == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.register(2, 1).error == ErrorCode.NONE, "a fenced broker is gone"
    cluster.tick(100_000 + SESSION_MS)
    assert cluster.image.brokers[1].fenced


def test_a_controller_that_was_held_up_fences_nobody_yet(cluster: Cluster) -> None:
    cluster.start(1)
    late_ms = SESSION_MS + SESSION_MS // 4 + 1
    assert cluster.late_tick(late_ms) == []
    assert cluster.tick(late_ms + SESSION_MS - 1) == []
    assert cluster.tick(late_ms + SESSION_MS) != []


# --- controlled shutdown --------------------------------------------------------------------------


def test_a_broker_that_leads_nothing_may_stop_at_once(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    response = cluster.heartbeat(2, want_shut_down=True)
    assert response.should_shut_down
    assert cluster.image.brokers[2].fenced
    assert cluster.state("a") == (1, (1,))
    assert cluster.heartbeat(2, want_shut_down=True).should_shut_down, "the answer may be lost"


@pytest.mark.req("C5")
def test_a_shutdown_moves_leaders_and_waits_for_the_others_to_see_it(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3), (2, 1, 3))
    before = cluster.image.offset
    response = cluster.heartbeat(1, want_shut_down=True)
    assert not response.should_shut_down
    assert not response.fenced
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert cluster.state("a", 0) == (2, (2, 3))
    assert cluster.state("a", 1) == (2, (2, 3))

    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(2)
    cluster.heartbeat(3, metadata_offset=before)
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.heartbeat(3)
    response = cluster.heartbeat(1, want_shut_down=True)
    assert response.should_shut_down
    assert response.fenced
    assert cluster.image.brokers[1].fenced


def test_a_shutdown_does_not_wait_for_fenced_brokers(cluster: Cluster) -> None:
    cluster.start(1, 2, 3)
    cluster.assign("a", (1, 2, 3))
    cluster.fence(3)
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


@pytest.mark.req("C5")
def test_the_last_member_of_an_isr_may_still_shut_down(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.assign("a", (1,))
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.state("a") == (NO_LEADER, (1,))
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_that_was_let_go_may_come_back_at_once(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    cluster.heartbeat(2, want_shut_down=True)
    assert cluster.register(2, 1).error == ErrorCode.NONE
    assert not cluster.image.brokers[2].in_controlled_shutdown


def test_a_broker_that_is_shutting_down_may_come_back_before_it_is_let_go(
    cluster: Cluster,
) -> None:
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    cluster.heartbeat(1, want_shut_down=True)
    response = cluster.register(1, 1)
    assert response.error == ErrorCode.NONE
    assert cluster.image.brokers[1].fenced
    assert not cluster.image.brokers[1].in_controlled_shutdown
    assert not cluster.heartbeat(1).fenced


def test_a_broker_that_dies_while_shutting_down_is_fenced(cluster: Cluster) -> None:
    cluster.start(1, 2)
    cluster.assign("a", (1, 2))
    cluster.heartbeat(1, want_shut_down=True)
    cluster.tick(SESSION_MS)
    assert cluster.image.brokers[1].fenced


def test_a_fenced_broker_may_stop(cluster: Cluster) -> None:
    cluster.register(1)
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down


@pytest.mark.req("S8")
@pytest.mark.parametrize(
    ("of_broker", "of_controller", "taken"),
    [
        ("standard", "", False),
        ("standard", "standard", True),
        ("", "standard", True),
        ("", "", True),
    ],
)
def test_a_broker_authorizes_only_where_the_controller_does(
    of_broker: str, of_controller: str, taken: bool
) -> None:
    cluster = Cluster(ControllerConfig(cluster_id=CLUSTER_ID, authorizer=of_controller))
    request = RegisterBrokerRequest(
        1, UUID(int=1), CLUSTER_ID, ENDPOINTS, None, (), authorizer=of_broker
    )
    response = cluster.handle(request)
    assert isinstance(response, RegisterBrokerResponse)
    refused = ErrorCode.NONE if taken else ErrorCode.INVALID_REGISTRATION
    assert response.error == refused
    assert taken or "authorizer.class.name" in response.message

"""Log directories of brokers: where replicas are, and who leads when one fails (KIP-858)."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftctl.errors import ErrorCode
from raftctl.metadata.features import ELR_FEATURE, METADATA_VERSION_FEATURE
from raftctl.metadata.records import NO_LEADER, UNASSIGNED, FeatureLevelRecord
from raftctl.metadata.requests.admin import (
    SAFE_DOWNGRADE,
    AdminResponse,
    AlterReassignmentsRequest,
    FeatureUpdate,
    Reassignment,
    UpdateFeaturesRequest,
)
from raftctl.metadata.requests.cluster import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    DirectoryAssignment,
)
from tests.unit.raftctl.controller.cluster import Cluster

pytestmark = pytest.mark.req("C14")

FIRST, SECOND = 1, 2


def directory(broker_id: int, number: int) -> UUID:
    """The id of a broker's n-th log directory."""
    return UUID(int=100 * broker_id + number)


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1 to 3 have two directories each; t-0 is in their first ones, led by broker 1."""
    cluster = Cluster()
    for broker_id in (1, 2, 3):
        start(cluster, broker_id)
    cluster.assign("t", (1, 2, 3), (2, 3, 1))
    for broker_id in (1, 2, 3):
        assert assign(cluster, broker_id, directory(broker_id, FIRST)) == ErrorCode.NONE
    return cluster


def start(cluster: Cluster, broker_id: int, number: int = 0, *directories: UUID) -> None:
    both = directories or (directory(broker_id, FIRST), directory(broker_id, SECOND))
    assert cluster.register(broker_id, number, directories=both).error == ErrorCode.NONE
    assert not cluster.heartbeat(broker_id).fenced


def request(
    cluster: Cluster, broker_id: int, *assignments: DirectoryAssignment, epoch: int | None = None
) -> AssignReplicasToDirsResponse:
    broker = cluster.image.brokers.get(broker_id)
    known = -1 if broker is None else broker.broker_epoch
    response = cluster.handle(
        AssignReplicasToDirsRequest(broker_id, known if epoch is None else epoch, assignments)
    )
    assert isinstance(response, AssignReplicasToDirsResponse)
    return response


def assign(cluster: Cluster, broker_id: int, where: UUID, partition_id: int = 0) -> ErrorCode:
    topic_id = cluster.topic("t").topic_id
    response = request(cluster, broker_id, DirectoryAssignment(topic_id, partition_id, where))
    assert response.error == ErrorCode.NONE
    (error,) = response.results
    return error


def fail(cluster: Cluster, broker_id: int, *failed: UUID) -> BrokerHeartbeatResponse:
    epoch = cluster.image.brokers[broker_id].broker_epoch
    response = cluster.handle(
        BrokerHeartbeatRequest(broker_id, epoch, cluster.image.offset, False, False, failed)
    )
    assert isinstance(response, BrokerHeartbeatResponse)
    assert response.error == ErrorCode.NONE
    return response


def test_a_partition_remembers_the_directory_of_each_replica(cluster: Cluster) -> None:
    partition = cluster.partition("t")
    assert partition.directories == tuple(directory(one, FIRST) for one in (1, 2, 3))
    assert cluster.partition("t", 1).directories == ()
    before = cluster.image
    assert assign(cluster, 1, directory(1, FIRST)) == ErrorCode.NONE
    assert cluster.image is before, "it is known already"
    assert assign(cluster, 2, directory(2, SECOND)) == ErrorCode.NONE
    assert cluster.partition("t").directory_of(2) == directory(2, SECOND)
    assert cluster.state("t") == (1, (1, 2, 3)), "a replica may move between directories"
    assert assign(cluster, 3, UNASSIGNED) == ErrorCode.NONE
    assert cluster.partition("t").directory_of(3) == UNASSIGNED


def test_what_cannot_be_assigned_is_refused_each_on_its_own(cluster: Cluster) -> None:
    cluster.start(4)
    topic_id, here = cluster.topic("t").topic_id, directory(4, FIRST)
    wanted = [
        DirectoryAssignment(UUID(int=9), 0, here),
        DirectoryAssignment(topic_id, 7, here),
        DirectoryAssignment(topic_id, 0, here),
    ]
    assert request(cluster, 4, *wanted).results == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert request(cluster, 4, wanted[0], wanted[0]).error == ErrorCode.INVALID_REQUEST
    assert request(cluster, 4, wanted[0], epoch=0).error == ErrorCode.STALE_BROKER_EPOCH
    assert request(cluster, 9, wanted[0]).error == ErrorCode.BROKER_ID_NOT_REGISTERED
    cluster.append([FeatureLevelRecord(METADATA_VERSION_FEATURE, 2)])
    assert request(cluster, 4, wanted[0]).error == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.req("C5")
def test_leaders_move_away_from_a_directory_that_failed(cluster: Cluster) -> None:
    assert assign(cluster, 1, directory(1, SECOND), partition_id=1) == ErrorCode.NONE
    answer = fail(cluster, 1, directory(1, FIRST))
    assert not answer.fenced
    assert cluster.image.brokers[1].log_directories == (directory(1, SECOND),)
    assert cluster.image.brokers[1].active
    partition = cluster.partition("t")
    assert (partition.leader, partition.leader_epoch, partition.isr) == (2, 1, (2, 3))
    assert cluster.state("t", 1) == (2, (2, 3, 1)), "the other directory is as it was"
    before = cluster.image
    fail(cluster, 1, directory(1, FIRST))
    assert cluster.image is before, "it is told in every heartbeat"


def test_a_follower_in_a_failed_directory_is_not_in_sync_and_may_not_be(cluster: Cluster) -> None:
    fail(cluster, 3, directory(3, FIRST))
    assert cluster.state("t") == (1, (1, 2))
    (result,) = cluster.alter(1, cluster.item("t", 1, 2, 3))
    assert result.error == ErrorCode.INELIGIBLE_REPLICA
    cluster.fence(1)
    cluster.fence(2)
    assert cluster.state("t") == (NO_LEADER, (2,)), "broker 3 has no log of it"


def test_an_assignment_that_comes_after_the_failure_is_understood(cluster: Cluster) -> None:
    fail(cluster, 2, directory(2, SECOND))
    assert cluster.state("t", 1) == (2, (2, 3, 1))
    assert assign(cluster, 2, directory(2, SECOND), partition_id=1) == ErrorCode.NONE
    assert cluster.state("t", 1) == (3, (3, 1))


@pytest.mark.parametrize("eligible", [False, True])
def test_the_last_in_sync_waits_for_its_directory(cluster: Cluster, eligible: bool) -> None:
    cluster.append([FeatureLevelRecord(ELR_FEATURE, int(eligible))])
    cluster.fence(2)
    cluster.fence(3)
    fail(cluster, 1, directory(1, FIRST))
    partition = cluster.partition("t")
    assert partition.leader == NO_LEADER
    assert partition.isr + partition.elr == (1,)
    start(cluster, 2)
    assert cluster.partition("t").leader == NO_LEADER
    # The new incarnation has another directory in the place of the one that failed.
    cluster.heartbeat(1, want_shut_down=True)
    start(cluster, 1, 1, directory(1, SECOND), directory(1, 3))
    assert cluster.partition("t").leader == NO_LEADER
    assert assign(cluster, 1, directory(1, 3)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.partition("t").directory_of(1) == directory(1, FIRST)
    cluster.heartbeat(1, want_shut_down=True)
    start(cluster, 1, 2)
    assert cluster.partition("t").leader == 1, "the directory is back"


def test_who_lost_its_log_does_not_pass_for_in_sync(cluster: Cluster) -> None:
    """Both that were in sync went at once; the one that comes back empty may not lead."""
    cluster.fence(3)
    cluster.tick(100_000)
    assert cluster.state("t") == (NO_LEADER, (1, 2))
    start(cluster, 1, 1, directory(1, SECOND), directory(1, 3))
    assert cluster.state("t") == (NO_LEADER, (1, 2))
    assert assign(cluster, 1, directory(1, 3)) == ErrorCode.NONE
    assert cluster.state("t") == (NO_LEADER, (2,))
    start(cluster, 2, 1)
    assert cluster.state("t") == (2, (2,))


def test_a_topic_may_allow_to_begin_without_the_log(cluster: Cluster) -> None:
    cluster.create_topic("u", (1,), configs=(("unclean.leader.election.enable", "true"),))
    topic_id = cluster.topic("u").topic_id
    where = DirectoryAssignment(topic_id, 0, directory(1, FIRST))
    assert request(cluster, 1, where).results == (ErrorCode.NONE,)
    fail(cluster, 1, directory(1, FIRST))
    assert cluster.state("u") == (NO_LEADER, (1,))
    where = DirectoryAssignment(topic_id, 0, directory(1, SECOND))
    assert request(cluster, 1, where).results == (ErrorCode.NONE,)
    assert cluster.state("u") == (1, (1,))


@pytest.mark.req("C7")
def test_replicas_that_stay_keep_their_directories_when_others_move(cluster: Cluster) -> None:
    start(cluster, 4)

    def move(*replicas: int) -> None:
        wanted = Reassignment("t", 0, replicas)
        (outcome,) = cluster.admin(AlterReassignmentsRequest((wanted,)))
        assert outcome.error == ErrorCode.NONE

    move(4, 3, 1)
    partition = cluster.partition("t")
    assert partition.replicas == (4, 3, 1, 2)
    assert partition.directories == (
        UNASSIGNED,
        directory(3, FIRST),
        directory(1, FIRST),
        directory(2, FIRST),
    )
    cluster.alter(1, cluster.item("t", 1, 2, 3, 4))
    partition = cluster.partition("t")
    assert partition.replicas == (4, 3, 1)
    assert partition.directories == (UNASSIGNED, directory(3, FIRST), directory(1, FIRST))
    assert assign(cluster, 4, directory(4, SECOND)) == ErrorCode.NONE
    fail(cluster, 1, directory(1, FIRST))
    assert cluster.state("t") == (4, (3, 4))


@pytest.mark.req("C11")
def test_levels_below_do_not_know_directories(cluster: Cluster) -> None:
    def lower() -> AdminResponse:
        update = FeatureUpdate(METADATA_VERSION_FEATURE, 2, SAFE_DOWNGRADE)
        response = cluster.handle(UpdateFeaturesRequest((update,)))
        assert isinstance(response, AdminResponse)
        return response

    refused = lower()
    assert refused.error == ErrorCode.INVALID_UPDATE_VERSION
    assert "one log directory each" in refused.message
    for broker_id in (1, 2, 3):
        assert assign(cluster, broker_id, UNASSIGNED) == ErrorCode.NONE
    assert cluster.partition("t").directories == ()
    assert lower().error == ErrorCode.NONE
    fail(cluster, 1, directory(1, FIRST))
    assert cluster.image.brokers[1].log_directories == (directory(1, FIRST), directory(1, SECOND))

"""Reassignment: from the first replica that joins to the last that goes, and what hinders it."""

from __future__ import annotations

import pytest

from raftctl.errors import ErrorCode
from raftctl.metadata.features import ELR_FEATURE
from raftctl.metadata.records import NO_LEADER, FeatureLevelRecord
from raftctl.metadata.requests.admin import (
    UNCLEAN_ELECTION,
    AlterReassignmentsRequest,
    CreatePartitionsRequest,
    ElectLeadersRequest,
    ItemOutcome,
    NewPartitions,
    Reassignment,
)
from tests.unit.raftctl.controller.cluster import Cluster

pytestmark = pytest.mark.req("C7")


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1 to 4 are active; t-0 has the replicas 1 and 2."""
    cluster = Cluster()
    cluster.start(1, 2, 3, 4)
    cluster.assign("t", (1, 2))
    return cluster


def move(cluster: Cluster, *replicas: int, fixed: bool = False, topic: str = "t") -> ErrorCode:
    """No replicas: cancel."""
    wanted = Reassignment(topic, 0, replicas or None)
    (outcome,) = cluster.admin(AlterReassignmentsRequest((wanted,), not fixed))
    assert bool(outcome.message) == bool(outcome.error)
    return outcome.error


def state(cluster: Cluster) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(replicas, adding, removing)"""
    one = cluster.partition("t")
    return one.replicas, one.adding_replicas, one.removing_replicas


def test_a_partition_moves_to_other_brokers(cluster: Cluster) -> None:
    assert move(cluster, 3, 4) == ErrorCode.NONE
    assert state(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
    assert cluster.state("t") == (1, (1, 2)), "it is served as before"
    (result,) = cluster.alter(1, cluster.item("t", 1, 2, 3))
    assert result.error == ErrorCode.NONE
    assert state(cluster) == ((3, 4, 1, 2), (3, 4), (1, 2))
    epoch = cluster.partition("t").leader_epoch
    (result,) = cluster.alter(1, cluster.item("t", 1, 2, 3, 4))
    assert result.error == ErrorCode.NEW_LEADER_ELECTED
    assert state(cluster) == ((3, 4), (), ())
    assert cluster.state("t") == (3, (3, 4))
    assert cluster.partition("t").leader_epoch == epoch + 1


def test_a_leader_that_stays_begins_a_new_epoch_when_a_replica_goes(cluster: Cluster) -> None:
    assert move(cluster, 1, 3) == ErrorCode.NONE
    epoch = cluster.partition("t").leader_epoch
    (result,) = cluster.alter(1, cluster.item("t", 1, 2, 3))
    assert (result.error, result.leader_epoch, result.isr) == (ErrorCode.NONE, epoch + 1, (1, 3))
    partition = cluster.partition("t")
    assert state(cluster) == ((1, 3), (), ())
    assert (partition.leader, partition.leader_epoch) == (1, epoch + 1)
    assert result.partition_epoch == partition.partition_epoch


def test_replicas_may_become_more_or_fewer(cluster: Cluster) -> None:
    assert move(cluster, 1, 2, 3) == ErrorCode.NONE
    assert state(cluster) == ((1, 2, 3), (3,), ())
    epoch = cluster.partition("t").leader_epoch
    cluster.alter(1, cluster.item("t", 1, 2, 3))
    assert state(cluster) == ((1, 2, 3), (), ())
    assert cluster.partition("t").leader_epoch == epoch, "nobody is gone"
    assert move(cluster, 2) == ErrorCode.NONE
    assert state(cluster) == ((2,), (), ()), "who stays is in sync already"
    assert cluster.state("t") == (2, (2,))


def test_the_order_alone_may_change(cluster: Cluster) -> None:
    assert move(cluster, 2, 1) == ErrorCode.NONE
    assert state(cluster) == ((2, 1), (), ())
    assert cluster.state("t") == (1, (1, 2))
    before = cluster.image
    assert move(cluster, 2, 1) == ErrorCode.NONE
    assert cluster.image is before


def test_a_reassignment_is_cancelled(cluster: Cluster) -> None:
    assert move(cluster) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    move(cluster, 3, 4)
    cluster.alter(1, cluster.item("t", 1, 2, 3))
    assert move(cluster) == ErrorCode.NONE
    assert state(cluster) == ((1, 2), (), ())
    assert cluster.state("t") == (1, (1, 2))


def test_a_cancelled_reassignment_whose_new_replica_leads_elects_another(cluster: Cluster) -> None:
    move(cluster, 3, 4)
    cluster.alter(1, cluster.item("t", 1, 2, 3))
    cluster.fence(1)
    assert cluster.state("t") == (3, (2, 3)), "the target comes first"
    assert move(cluster) == ErrorCode.NONE
    assert cluster.state("t") == (2, (2,))


def test_what_only_a_new_replica_has_is_not_thrown_away(cluster: Cluster) -> None:
    move(cluster, 3, 4)
    cluster.alter(1, cluster.item("t", 1, 3))
    cluster.fence(1)
    assert cluster.state("t") == (3, (3,))
    assert move(cluster) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.state("t") == (3, (3,))


def test_a_reassignment_is_replaced_by_another(cluster: Cluster) -> None:
    move(cluster, 3, 4)
    cluster.alter(1, cluster.item("t", 1, 2, 3))
    assert move(cluster, 2, 4) == ErrorCode.NONE
    assert state(cluster) == ((2, 4, 3, 1), (4,), (3, 1))
    (result,) = cluster.alter(1, cluster.item("t", 1, 2, 3, 4))
    assert result.error == ErrorCode.NEW_LEADER_ELECTED
    assert state(cluster) == ((2, 4), (), ())
    assert cluster.state("t") == (2, (2, 4))


def test_brokers_come_and_go_meanwhile(cluster: Cluster) -> None:
    move(cluster, 3, 4)
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.state("t") == (NO_LEADER, (1,))
    cluster.heartbeat(1)
    assert cluster.state("t") == (1, (1,))
    cluster.fence(4)
    (result,) = cluster.alter(1, cluster.item("t", 1, 3, 4))
    assert result.error == ErrorCode.INELIGIBLE_REPLICA
    cluster.heartbeat(4)
    cluster.alter(1, cluster.item("t", 1, 3, 4))
    assert state(cluster) == ((3, 4), (), ())


def test_an_unclean_leader_may_be_all_that_was_waited_for(cluster: Cluster) -> None:
    move(cluster, 3)
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.state("t") == (NO_LEADER, (1,))
    cluster.handle(ElectLeadersRequest(UNCLEAN_ELECTION, (("t", 0),)))
    assert cluster.state("t") == (3, (3,))
    assert state(cluster) == ((3,), (), ())


def test_eligible_leaders_that_are_removed_are_forgotten(cluster: Cluster) -> None:
    cluster.append([FeatureLevelRecord(ELR_FEATURE, 1)])
    configs = (("min.insync.replicas", "2"),)
    cluster.create_topic("e", (1, 2), configs=configs)
    cluster.fence(2)
    assert cluster.partition("e").elr == (2,)
    assert move(cluster, 1, 3, topic="e") == ErrorCode.NONE
    cluster.alter(1, cluster.item("e", 1, 3))
    partition = cluster.partition("e")
    assert (partition.replicas, partition.isr, partition.elr) == ((1, 3), (1, 3), ())


@pytest.mark.parametrize(
    ("error", "replicas"),
    [
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, (1, 1)),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, (1, 9)),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, (1, -1)),
    ],
)
def test_bad_replicas(cluster: Cluster, error: ErrorCode, replicas: tuple[int, ...]) -> None:
    before = cluster.image
    assert move(cluster, *replicas) == error
    assert cluster.image is before


def test_bad_requests(cluster: Cluster) -> None:
    assert move(cluster, 1, 2, topic="u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(cluster, 1, fixed=True) == ErrorCode.INVALID_REPLICATION_FACTOR
    empty = Reassignment("t", 0, ())
    (outcome,) = cluster.admin(AlterReassignmentsRequest((empty,)))
    assert outcome.error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    twice = Reassignment("t", 0, (3, 4))
    outcomes = cluster.admin(AlterReassignmentsRequest((twice, twice)))
    assert [one.error for one in outcomes] == [ErrorCode.INVALID_REQUEST] * 2
    assert state(cluster) == ((1, 2), (), ())


def test_partitions_added_meanwhile_have_as_many_replicas_as_before(cluster: Cluster) -> None:
    move(cluster, 3, 4)
    assert cluster.admin(CreatePartitionsRequest((NewPartitions("t", 2),))) == (ItemOutcome(),)
    assert len(cluster.partition("t", 1).replicas) == 2

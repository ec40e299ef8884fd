"""AlterPartition: which changes of an ISR are made, and the error of each that is not."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from raftctl.errors import ErrorCode
from raftctl.metadata.requests.cluster import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from tests.unit.raftctl.controller.cluster import Cluster

pytestmark = pytest.mark.req("C6")


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1, 2, 3; partition a-0 of replicas 1, 2, 3 led by 1, with epochs above 0."""
    cluster = Cluster()
    cluster.start(1, 2, 3)
    cluster.assign("a", (2, 1, 3))
    cluster.fence(2)
    cluster.heartbeat(2)
    assert cluster.state("a") == (1, (1, 3))
    return cluster


def refused(cluster: Cluster, item: AlterPartitionItem, sender: int = 1) -> ErrorCode:
    before = cluster.image
    (result,) = cluster.alter(sender, item)
    assert cluster.image is before
    assert (result.leader_epoch, result.isr) == (-1, ())
    return result.error


def test_a_leader_expands_and_shrinks_its_isr(cluster: Cluster) -> None:
    for isr in ((1, 3, 2), (1,)):
        before = cluster.partition("a")
        (result,) = cluster.alter(1, cluster.item("a", *isr))
        after = cluster.partition("a")
        assert after.isr == isr
        assert after.leader_epoch == before.leader_epoch
        assert after.partition_epoch == before.partition_epoch + 1
        assert result == (
            dataclasses.replace(
                result,
                error=ErrorCode.NONE,
                leader=1,
                leader_epoch=after.leader_epoch,
                partition_epoch=after.partition_epoch,
                isr=isr,
            )
        )


def test_what_is_so_already_is_confirmed_without_a_record(cluster: Cluster) -> None:
    before = cluster.image
    (result,) = cluster.alter(1, cluster.item("a", 1, 3))
    assert (result.error, result.isr) == (ErrorCode.NONE, (1, 3))
    assert result.partition_epoch == cluster.partition("a").partition_epoch
    assert cluster.image is before


def test_unknown_partitions(cluster: Cluster) -> None:
    item = cluster.item("a", 1)
    unknown = dataclasses.replace(item, topic_id=UUID(int=5))
    assert refused(cluster, unknown) == ErrorCode.UNKNOWN_TOPIC_ID
    unknown = dataclasses.replace(item, partition_id=1)
    assert refused(cluster, unknown) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_epochs(cluster: Cluster) -> None:
    item = cluster.item("a", 1)
    leader, partition = item.leader_epoch, item.partition_epoch
    for leader_epoch, partition_epoch, error in [
        (leader + 1, partition, ErrorCode.NOT_CONTROLLER),
        (leader, partition + 1, ErrorCode.NOT_CONTROLLER),
        (leader - 1, partition + 1, ErrorCode.NOT_CONTROLLER),
        (leader - 1, partition, ErrorCode.FENCED_LEADER_EPOCH),
        (leader, partition - 1, ErrorCode.INVALID_UPDATE_VERSION),
    ]:
        one = dataclasses.replace(item, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
        assert refused(cluster, one) == error


def test_only_the_leader_may_ask(cluster: Cluster) -> None:
    assert refused(cluster, cluster.item("a", 1), sender=3) == ErrorCode.INVALID_REQUEST
    in_sync = cluster.item("a", 1, 2)
    assert refused(cluster, in_sync, sender=2) == ErrorCode.INVALID_REQUEST


def test_members_must_be_replicas_and_the_leader_among_them(cluster: Cluster) -> None:
    cluster.start(4)
    for isr in ((1, 4), (3,), (1, 1), ()):
        assert refused(cluster, cluster.item("a", *isr)) == ErrorCode.INVALID_REQUEST


def test_only_a_recovering_leader_may_stay_so(cluster: Cluster) -> None:
    item = dataclasses.replace(cluster.item("a", 1), leader_recovering=True)
    assert refused(cluster, item) == ErrorCode.INVALID_REQUEST


def test_a_recovering_leader_stays_so_only_as_long_as_it_is_alone(cluster: Cluster) -> None:
    cluster.create_topic("u", (2, 3), configs=(("unclean.leader.election.enable", "true"),))
    cluster.fence(3)
    cluster.fence(2)
    cluster.heartbeat(3)
    assert cluster.state("u") == (3, (3,))
    assert cluster.partition("u").leader_recovering
    cluster.heartbeat(2)
    still = dataclasses.replace(cluster.item("u", 3), leader_recovering=True)
    (result,) = cluster.alter(3, still)
    assert (result.error, result.isr) == (ErrorCode.NONE, (3,))
    assert cluster.partition("u").leader_recovering
    larger = dataclasses.replace(cluster.item("u", 3, 2), leader_recovering=True)
    assert refused(cluster, larger, sender=3) == ErrorCode.INVALID_REQUEST
    (result,) = cluster.alter(3, cluster.item("u", 3))
    assert result.error == ErrorCode.NONE
    assert not cluster.partition("u").leader_recovering


def test_members_must_be_active(cluster: Cluster) -> None:
    cluster.fence(2)
    assert refused(cluster, cluster.item("a", 1, 2)) == ErrorCode.INELIGIBLE_REPLICA


def test_a_member_that_is_shutting_down_is_not_eligible(cluster: Cluster) -> None:
    cluster.assign("b", (2, 1))
    cluster.heartbeat(2, want_shut_down=True)
    assert cluster.image.brokers[2].in_controlled_shutdown
    assert refused(cluster, cluster.item("a", 1, 2)) == ErrorCode.INELIGIBLE_REPLICA


def test_a_member_must_be_of_the_incarnation_that_caught_up(cluster: Cluster) -> None:
    item = cluster.item("a", 1, 2)
    cluster.heartbeat(2, want_shut_down=True)
    cluster.register(2, 1)
    cluster.heartbeat(2)
    assert refused(cluster, item) == ErrorCode.INELIGIBLE_REPLICA
    any_epoch = dataclasses.replace(item, new_isr=((1, -1), (2, -1)))
    (result,) = cluster.alter(1, any_epoch)
    assert result.error == ErrorCode.NONE


def test_a_deposed_leader_changes_nothing(cluster: Cluster) -> None:
    item = cluster.item("a", 1)
    cluster.fence(1)
    cluster.heartbeat(1)
    assert cluster.state("a") == (3, (3,))
    assert refused(cluster, item) == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "error"),
    [
        (9, 0, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (1, 0, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_the_sender_must_be_the_current_incarnation(
    cluster: Cluster, broker_id: int, broker_epoch: int, error: ErrorCode
) -> None:
    request = AlterPartitionRequest(broker_id, broker_epoch, (cluster.item("a", 1),))
    assert cluster.handle(request) == AlterPartitionResponse(error, ())


def test_a_partition_may_be_named_once(cluster: Cluster) -> None:
    items = (cluster.item("a", 1), cluster.item("a", 1, 3))
    request = AlterPartitionRequest(1, cluster.image.brokers[1].broker_epoch, items)
    assert cluster.handle(request) == AlterPartitionResponse(ErrorCode.INVALID_REQUEST, ())


def test_each_partition_is_judged_on_its_own(cluster: Cluster) -> None:
    cluster.assign("b", (1, 2), (3, 2))
    items = [cluster.item("b", 1), cluster.item("b", 3, partition_id=1), cluster.item("a", 1)]
    results = cluster.alter(1, *items)
    assert [one.error for one in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert (cluster.state("b"), cluster.state("a")) == ((1, (1,)), (1, (1,)))

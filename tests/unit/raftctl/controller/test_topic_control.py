"""Topics: create and delete, and Apache Kafka's error for each bad input."""

from __future__ import annotations

from uuid import UUID

import pytest

from raftctl.controller import ControllerConfig
from raftctl.errors import ErrorCode
from raftctl.metadata.records import TOPIC_RESOURCE, PartitionRecord, TopicRecord
from raftctl.metadata.requests.admin import CreatePartitionsRequest, ItemOutcome, NewPartitions
from raftctl.metadata.requests.cluster import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
)
from raftctl.metadata.topic_names import METADATA_TOPIC
from tests.unit.raftctl.controller.cluster import CLUSTER_ID, Cluster

pytestmark = pytest.mark.req("C3")


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1, 2 and 3 are active, 4 is fenced; a topic a.b exists."""
    config = ControllerConfig(
        cluster_id=CLUSTER_ID,
        default_partitions=2,
        default_replication_factor=3,
        request_partitions_max=50,
    )
    cluster = Cluster(config)
    cluster.start(1, 2, 3)
    cluster.register(4)
    cluster.assign("a.b", (1, 2))
    return cluster


def test_counts(cluster: Cluster) -> None:
    (result,) = cluster.create(NewTopic("t", 6, 2))
    assert (result.error, result.partitions, result.replication_factor) == (ErrorCode.NONE, 6, 2)
    topic = cluster.topic("t")
    assert topic.topic_id == result.topic_id
    assert len(topic.partitions) == 6
    for partition in topic.partitions.values():
        assert len(set(partition.replicas)) == 2
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_defaults(cluster: Cluster) -> None:
    (result,) = cluster.create(NewTopic("t"))
    assert (result.partitions, result.replication_factor) == (2, 3)


def test_an_explicit_assignment(cluster: Cluster) -> None:
    (result,) = cluster.create(NewTopic("t", assignments=((1, (2, 3)), (0, (4, 1)))))
    assert (result.partitions, result.replication_factor) == (2, 2)
    assert cluster.partition("t", 0).replicas == (4, 1)
    assert cluster.state("t", 0) == (1, (1,)), "the leader is the first replica that is active"
    assert cluster.state("t", 1) == (2, (2, 3))


def test_configs(cluster: Cluster) -> None:
    cluster.create(NewTopic("t", configs=(("retention.ms", "5"), ("segment.ms", "6"))))
    written = cluster.image.config(TOPIC_RESOURCE, "t")
    assert dict(written) == {"retention.ms": "5", "segment.ms": "6"}


def test_fenced_brokers_get_replicas_only_where_there_are_too_few_others(cluster: Cluster) -> None:
    cluster.create(NewTopic("three", 9, 3), NewTopic("four", 4, 4))
    assert all(4 not in one.replicas for one in cluster.topic("three").partitions.values())
    for partition in cluster.topic("four").partitions.values():
        assert partition.replicas[3] == 4
        assert partition.isr == partition.replicas[:3]


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    before = cluster.image
    good, bad = cluster.create(NewTopic("t", 3, 1), NewTopic("a.b"), validate_only=True)
    assert (good.error, good.partitions, good.replication_factor) == (ErrorCode.NONE, 3, 1)
    assert bad.error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert cluster.image is before


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "x" * 249])
def test_good_names(cluster: Cluster, name: str) -> None:
    (result,) = cluster.create(NewTopic(name))
    assert result.error == ErrorCode.NONE


BAD = [
    (ErrorCode.INVALID_TOPIC_EXCEPTION, NewTopic("")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, NewTopic(".")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, NewTopic("..")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, NewTopic("x" * 250)),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, NewTopic("a b")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, NewTopic("a/b")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, NewTopic("ä")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, NewTopic("a\n")),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, NewTopic("a_b")),
    (ErrorCode.TOPIC_ALREADY_EXISTS, NewTopic("a.b")),
    (ErrorCode.INVALID_REQUEST, NewTopic(METADATA_TOPIC)),
    (ErrorCode.INVALID_REQUEST, NewTopic(METADATA_TOPIC, assignments=((0, (1,)),))),
    (ErrorCode.INVALID_PARTITIONS, NewTopic("t", 0)),
    (ErrorCode.INVALID_PARTITIONS, NewTopic("t", -2)),
    (ErrorCode.POLICY_VIOLATION, NewTopic("t", 51)),
    (ErrorCode.POLICY_VIOLATION, NewTopic("t", assignments=tuple((i, (1,)) for i in range(51)))),
    (ErrorCode.INVALID_REPLICATION_FACTOR, NewTopic("t", 1, 0)),
    (ErrorCode.INVALID_REPLICATION_FACTOR, NewTopic("t", 1, -2)),
    (ErrorCode.INVALID_REPLICATION_FACTOR, NewTopic("t", 1, 5)),
    (ErrorCode.INVALID_REQUEST, NewTopic("t", 1, -1, ((0, (1,)),))),
    (ErrorCode.INVALID_REQUEST, NewTopic("t", -1, 1, ((0, (1,)),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewTopic("t", assignments=((0, ()),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewTopic("t", assignments=((1, (1,)),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewTopic("t", assignments=((0, (1,)), (0, (1,))))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewTopic("t", assignments=((0, (1, 1)),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewTopic("t", assignments=((0, (1, 9)),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewTopic("t", assignments=((0, (4,)),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewTopic("t", assignments=((0, (1, 2)), (1, (1,))))),
    (ErrorCode.INVALID_CONFIG, NewTopic("t", configs=(("no.such.key", "1"),))),
    (ErrorCode.INVALID_CONFIG, NewTopic("t", configs=(("retention.ms", "x"),))),
    (ErrorCode.INVALID_CONFIG, NewTopic("t", configs=(("retention.ms", None),))),
]


@pytest.mark.parametrize(("error", "topic"), BAD, ids=lambda one: getattr(one, "name", "topic"))
def test_bad_topics(cluster: Cluster, error: ErrorCode, topic: NewTopic) -> None:
    before = cluster.image
    (result,) = cluster.create(topic)
    assert (result.name, result.error) == (topic.name, error)
    assert result.message
    assert result.topic_id is None
    assert cluster.image is before


def test_each_topic_is_created_on_its_own(cluster: Cluster) -> None:
    results = cluster.create(
        NewTopic("good"),
        NewTopic("twice"),
        NewTopic("bad", 0),
        NewTopic("twice"),
        NewTopic("good2"),
    )
    assert [one.error for one in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NONE,
    ]
    assert sorted(cluster.image.topics.ids) == ["a.b", "good", "good2"]


def test_names_may_not_collide_within_a_request(cluster: Cluster) -> None:
    first, second = cluster.create(NewTopic("x.y"), NewTopic("x_y"))
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_the_partitions_of_a_request_are_counted_together(cluster: Cluster) -> None:
    first, second, third = cluster.create(NewTopic("x", 30), NewTopic("y", 21), NewTopic("z", 20))
    assert (first.error, third.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert second.error == ErrorCode.POLICY_VIOLATION


def test_nothing_is_placed_while_all_brokers_are_fenced() -> None:
    cluster = Cluster()
    (result,) = cluster.create(NewTopic("t"))
    assert result.error == ErrorCode.INVALID_REPLICATION_FACTOR
    cluster.register(1)
    (result,) = cluster.create(NewTopic("t"))
    assert (result.error, result.message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "All brokers are fenced",
    )


def test_a_reserved_topic_of_an_older_log_gets_no_partitions_and_can_be_deleted(
    cluster: Cluster,
) -> None:
    topic_id = UUID(int=5)
    cluster.append(
        [
            TopicRecord(METADATA_TOPIC, topic_id),
            PartitionRecord(topic_id, 0, (1,), (1,), 1, 0, 0),
        ]
    )
    request = CreatePartitionsRequest((NewPartitions(METADATA_TOPIC, 2),))
    (outcome,) = cluster.admin(request)
    assert outcome.error == ErrorCode.INVALID_REQUEST
    assert METADATA_TOPIC in outcome.message
    (result,) = cluster.delete((METADATA_TOPIC, None))
    assert result.error == ErrorCode.NONE
    assert METADATA_TOPIC not in cluster.image.topics.ids


# --- delete ---------------------------------------------------------------------------------------


def test_delete_by_name_and_by_id(cluster: Cluster) -> None:
    cluster.create(NewTopic("t", configs=(("retention.ms", "5"),)))
    first, second = cluster.topic("t").topic_id, cluster.topic("a.b").topic_id
    results = cluster.delete(("t", None), (None, second))
    assert [(one.name, one.topic_id) for one in results] == [("t", first), ("a.b", second)]
    assert not cluster.image.topics.topics
    assert not cluster.image.configs


def test_a_deleted_name_is_free_again(cluster: Cluster) -> None:
    before = cluster.topic("a.b").topic_id
    cluster.delete(("a.b", None))
    (result,) = cluster.create(NewTopic("a_b"))
    assert result.error == ErrorCode.NONE
    assert result.topic_id != before


def test_bad_deletions(cluster: Cluster) -> None:
    before = cluster.image
    for name, topic_id, error in [
        ("t", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, UUID(int=4), ErrorCode.UNKNOWN_TOPIC_ID),
        (None, None, ErrorCode.INVALID_REQUEST),
        ("a.b", cluster.topic("a.b").topic_id, ErrorCode.INVALID_REQUEST),
    ]:
        (result,) = cluster.delete((name, topic_id))
        assert (result.error, result.name, result.topic_id) == (error, name or "", topic_id)
    assert cluster.image is before


def test_a_topic_that_is_named_twice_is_not_deleted(cluster: Cluster) -> None:
    (refused,) = cluster.delete(("a.b", None), (None, cluster.topic("a.b").topic_id))
    assert (refused.name, refused.error) == ("a.b", ErrorCode.INVALID_REQUEST)
    (deleted,) = cluster.delete(("a.b", None))
    assert deleted.error == ErrorCode.NONE


def test_deletion_may_be_disabled() -> None:
    cluster = Cluster(ControllerConfig(cluster_id=CLUSTER_ID, topic_deletion=False))
    cluster.start(1)
    cluster.assign("t", (1,))
    response = cluster.handle(DeleteTopicsRequest((("t", None), ("missing", None))))
    assert response == DeleteTopicsResponse(ErrorCode.TOPIC_DELETION_DISABLED, ())
    assert cluster.image.topics.by_name("t") is not None


# --- add partitions -------------------------------------------------------------------------------


def add(cluster: Cluster, *topics: NewPartitions, dry: bool = False) -> tuple[ItemOutcome, ...]:
    return cluster.admin(CreatePartitionsRequest(topics, dry))


def test_partitions_are_added(cluster: Cluster) -> None:
    assert add(cluster, NewPartitions("a.b", 3), dry=True) == (ItemOutcome(),)
    assert len(cluster.topic("a.b").partitions) == 1
    assert add(cluster, NewPartitions("a.b", 3)) == (ItemOutcome(),)
    topic = cluster.topic("a.b")
    assert sorted(topic.partitions) == [0, 1, 2]
    for partition_id in (1, 2):
        partition = topic.partitions[partition_id]
        assert len(partition.replicas) == 2, "as many as those that were there"
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]


def test_added_partitions_may_be_assigned(cluster: Cluster) -> None:
    assert add(cluster, NewPartitions("a.b", 3, ((4, 3), (3, 2)))) == (ItemOutcome(),)
    assert cluster.partition("a.b", 1).replicas == (4, 3)
    assert cluster.state("a.b", 1) == (3, (3,))
    assert cluster.state("a.b", 2) == (3, (3, 2))


BAD_ADDITIONS = [
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NewPartitions("nobody", 3)),
    (ErrorCode.INVALID_PARTITIONS, NewPartitions("a.b", 1)),
    (ErrorCode.INVALID_PARTITIONS, NewPartitions("a.b", 0)),
    (ErrorCode.INVALID_PARTITIONS, NewPartitions("a.b", -1)),
    (ErrorCode.POLICY_VIOLATION, NewPartitions("a.b", 52)),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewPartitions("a.b", 3, ())),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewPartitions("a.b", 3, ((1, 2),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewPartitions("a.b", 2, ((1, 2, 3),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewPartitions("a.b", 2, ((1, 1),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewPartitions("a.b", 2, ((1, 9),))),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, NewPartitions("a.b", 2, ((),))),
]


@pytest.mark.parametrize(("error", "topic"), BAD_ADDITIONS)
def test_bad_additions_change_nothing_and_do_not_hinder_good_ones(
    cluster: Cluster, error: ErrorCode, topic: NewPartitions
) -> None:
    cluster.assign("good", (1,))
    before = cluster.topic("a.b")
    bad, good = add(cluster, topic, NewPartitions("good", 2))
    assert (bad.error, good.error) == (error, ErrorCode.NONE)
    assert bad.message
    assert cluster.topic("a.b") is before
    assert len(cluster.topic("good").partitions) == 2


def test_a_topic_named_twice_gets_no_partitions(cluster: Cluster) -> None:
    outcomes = add(cluster, NewPartitions("a.b", 2), NewPartitions("a.b", 3))
    assert [one.error for one in outcomes] == [ErrorCode.INVALID_REQUEST] * 2
    assert len(cluster.topic("a.b").partitions) == 1

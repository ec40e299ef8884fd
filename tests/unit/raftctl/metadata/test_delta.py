"""Replay: every record's effect, what a delta tells, and that bad references stop the program."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.errors import InvariantViolation
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage, PartitionImage
from raftctl.metadata.records import (
    NO_LEADER,
    TOPIC_RESOURCE,
    UNASSIGNED,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    Endpoint,
    EndTransactionRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

TOPIC = UUID(int=7)
OTHER = UUID(int=8)
INCARNATION = UUID(int=99)
ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)


def register(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker_id, INCARNATION, ENDPOINTS, "a")


def partition(partition_id: int, topic_id: UUID = TOPIC) -> PartitionRecord:
    return PartitionRecord(topic_id, partition_id, (1, 2, 3), (1, 2), 1, 5, 6)


def replayed(*records: Record, image: MetadataImage = EMPTY_IMAGE) -> MetadataDelta:
    delta = MetadataDelta(image)
    for offset, record in enumerate(records, start=image.offset + 1):
        delta.replay(record, offset)
    return delta


def applied(*records: Record, image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    return replayed(*records, image=image).apply(image.offset + len(records), 1, 1_000)


def test_apply_notes_where_in_the_log_the_image_is() -> None:
    image = MetadataDelta(EMPTY_IMAGE).apply(41, 3, 1_234)
    assert (image.offset, image.epoch, image.timestamp_ms) == (41, 3, 1_234)


def test_an_image_never_goes_back() -> None:
    image = applied(NoOpRecord(), NoOpRecord())
    with pytest.raises(InvariantViolation):
        MetadataDelta(image).apply(image.offset - 1, 1, 0)


@pytest.mark.req("C2")
def test_the_epoch_of_a_broker_is_the_offset_of_its_record() -> None:
    image = applied(NoOpRecord(), NoOpRecord(), register(1))
    assert image.brokers[1].broker_epoch == 2
    assert image.brokers[1].fenced
    assert not image.brokers[1].active
    assert image.brokers[1].endpoint("PLAINTEXT") == ENDPOINTS[0]
    assert image.brokers[1].endpoint("SSL") is None


def test_a_registration_may_keep_its_epoch() -> None:
    image = applied(NoOpRecord(), RegisterBrokerRecord(1, INCARNATION, ENDPOINTS, None, (), False))
    again = RegisterBrokerRecord(1, INCARNATION, (), "b", (TOPIC,), False, True, 1)
    broker = applied(again, image=image).brokers[1]
    assert (broker.broker_epoch, broker.rack, broker.fenced) == (1, "b", False)
    assert broker.log_directories == (TOPIC,)
    assert broker.in_controlled_shutdown


def test_a_registration_change_leaves_what_is_none() -> None:
    image = applied(register(1))
    image = applied(BrokerRegistrationChangeRecord(1, 0, fenced=False), image=image)
    assert image.brokers[1].active
    image = applied(BrokerRegistrationChangeRecord(1, 0, in_controlled_shutdown=True), image=image)
    assert not image.brokers[1].fenced
    assert image.brokers[1].in_controlled_shutdown
    assert image.brokers[1].endpoints == ENDPOINTS


def test_an_unregistered_broker_is_gone() -> None:
    delta = replayed(UnregisterBrokerRecord(1, 0), image=applied(register(1), register(2)))
    assert delta.changed_brokers == {1: None}
    assert list(delta.apply(2, 1, 0).brokers) == [2]


@pytest.mark.req("C6")
def test_each_change_raises_the_partition_epoch_and_a_leader_change_the_leader_epoch() -> None:
    image = applied(TopicRecord("a", TOPIC), partition(0))
    image = applied(PartitionChangeRecord(TOPIC, 0, isr=(1,)), image=image)
    one = image.topics.topics[TOPIC].partitions[0]
    assert (one.isr, one.leader, one.leader_epoch, one.partition_epoch) == ((1,), 1, 5, 7)
    image = applied(PartitionChangeRecord(TOPIC, 0, leader=NO_LEADER), image=image)
    one = image.topics.topics[TOPIC].partitions[0]
    assert (one.isr, one.leader, one.leader_epoch, one.partition_epoch) == ((1,), -1, 6, 8)


def test_a_partition_change_sets_every_field_it_names() -> None:
    image = applied(
        TopicRecord("a", TOPIC),
        partition(0),
        PartitionChangeRecord(TOPIC, 0, (4,), 4, (4, 5), (5,), (6,), (7,), True),
    )
    one = image.topics.topics[TOPIC].partitions[0]
    assert one == PartitionImage((4, 5), (4,), 4, 6, 7, (5,), (6,), (7,), True)


@pytest.mark.req("C14")
def test_replicas_that_stay_keep_their_directories() -> None:
    first, second = UUID(int=71), UUID(int=72)
    image = applied(
        TopicRecord("a", TOPIC),
        partition(0),
        PartitionChangeRecord(TOPIC, 0, replicas=(1, 2), directories=(first, second)),
    )
    one = image.topics.topics[TOPIC].partitions[0]
    assert one.directories == (first, second)
    assert [one.directory_of(broker_id) for broker_id in (1, 2, 3)] == [first, second, UNASSIGNED]
    image = applied(PartitionChangeRecord(TOPIC, 0, replicas=(3, 2)), image=image)
    assert image.topics.topics[TOPIC].partitions[0].directories == (UNASSIGNED, second)
    image = applied(PartitionChangeRecord(TOPIC, 0, replicas=(3, 1)), image=image)
    assert image.topics.topics[TOPIC].partitions[0].directories == ()


@pytest.mark.req("C14")
def test_a_broker_has_fewer_directories_when_one_fails() -> None:
    image = applied(RegisterBrokerRecord(1, INCARNATION, ENDPOINTS, None, (TOPIC, OTHER), False))
    change = BrokerRegistrationChangeRecord(1, 0, log_directories=(OTHER,))
    broker = applied(change, image=image).brokers[1]
    assert broker.log_directories == (OTHER,)
    assert broker.active


def test_topics_are_found_by_name_and_by_id() -> None:
    image = applied(TopicRecord("b", TOPIC), TopicRecord("a", OTHER), partition(0), partition(1))
    assert [topic.name for topic in image.topics.in_order()] == ["a", "b"]
    topic = image.topics.by_name("b")
    assert topic is not None
    assert topic is image.topics.by_id(TOPIC)
    assert [partition_id for partition_id, _ in topic.items()] == [0, 1]
    assert image.topics.by_name("c") is None
    assert image.topics.by_id(UUID(int=1)) is None


def test_a_delta_names_the_changed_partitions_in_the_order_of_the_records() -> None:
    image = applied(TopicRecord("a", TOPIC), *(partition(i) for i in range(3)))
    changes = [PartitionChangeRecord(TOPIC, i, isr=(1,)) for i in (2, 0)]
    delta = replayed(*changes, TopicRecord("b", OTHER), partition(0, OTHER), image=image)
    assert list(delta.changed_topics) == [TOPIC, OTHER]
    changed, created = delta.changed_topics.values()
    assert list(changed.partitions) == [2, 0]
    assert changed.before is image.topics.topics[TOPIC]
    assert created.before is None
    assert created.name == "b"
    after = delta.apply(10, 1, 0).topics.topics[TOPIC]
    assert after.partitions[1] is image.topics.topics[TOPIC].partitions[1]
    assert after.partitions[2] is changed.partitions[2]


def test_a_deleted_topic_takes_its_configs_with_it() -> None:
    image = applied(
        TopicRecord("a", TOPIC),
        partition(0),
        ConfigRecord(TOPIC_RESOURCE, "a", "retention.ms", "1"),
        ConfigRecord(TOPIC_RESOURCE, "b", "retention.ms", "2"),
    )
    delta = replayed(RemoveTopicRecord(TOPIC), image=image)
    assert delta.deleted_topics == {TOPIC: image.topics.topics[TOPIC]}
    assert delta.changed_topics == {}
    assert delta.changed_configs == {(TOPIC_RESOURCE, "a"): {"retention.ms": None}}
    after = delta.apply(9, 1, 0)
    assert not after.topics.topics
    assert not after.topics.ids
    assert list(after.configs) == [(TOPIC_RESOURCE, "b")]


def test_a_topic_may_come_back_under_its_name_in_the_same_delta() -> None:
    image = applied(
        TopicRecord("a", TOPIC), partition(0), ConfigRecord(TOPIC_RESOURCE, "a", "x", "1")
    )
    records: list[Record] = [RemoveTopicRecord(TOPIC), TopicRecord("a", OTHER), partition(0, OTHER)]
    delta = replayed(*records, ConfigRecord(TOPIC_RESOURCE, "a", "y", "2"), image=image)
    after = delta.apply(9, 1, 0)
    assert after.topics.ids["a"] == OTHER
    assert list(after.topics.topics) == [OTHER]
    assert dict(after.config(TOPIC_RESOURCE, "a")) == {"y": "2"}
    assert list(delta.deleted_topics) == [TOPIC]


def test_a_topic_that_came_and_went_leaves_no_trace() -> None:
    config = ConfigRecord(TOPIC_RESOURCE, "a", "x", "1")
    delta = replayed(TopicRecord("a", TOPIC), partition(0), config, RemoveTopicRecord(TOPIC))
    assert delta.changed_topics == {}
    assert delta.deleted_topics == {}
    assert delta.changed_configs == {}
    after = delta.apply(5, 1, 0)
    assert list(after.records()) == []


def test_a_resource_without_overrides_is_absent() -> None:
    image = applied(ConfigRecord(4, "1", "x", "1"))
    assert dict(image.config(4, "1")) == {"x": "1"}
    image = applied(ConfigRecord(4, "1", "x", None), image=image)
    assert not image.configs
    assert not image.config(4, "1")


def test_control_and_no_op_records_change_nothing() -> None:
    image = applied(register(1))
    after = applied(LeaderChangeRecord(1, (1,), (1,)), NoOpRecord(), image=image)
    assert list(after.records()) == list(image.records())
    assert after.brokers is image.brokers
    assert after.topics is image.topics


@pytest.mark.req("C10")
def test_producer_ids_only_grow() -> None:
    image = applied(ProducerIdsRecord(1, 0, 1_000))
    assert image.next_producer_id == 1_000
    with pytest.raises(InvariantViolation):
        replayed(ProducerIdsRecord(1, 0, 999), image=image)


@pytest.mark.parametrize(
    "record",
    [
        BrokerRegistrationChangeRecord(9, 0),
        BrokerRegistrationChangeRecord(1, 1),
        UnregisterBrokerRecord(9, 0),
        RemoveTopicRecord(OTHER),
        partition(0, OTHER),
        partition(2),
        PartitionChangeRecord(OTHER, 0),
        PartitionChangeRecord(TOPIC, 5),
        TopicRecord("a", OTHER),
        TopicRecord("b", TOPIC),
    ],
    ids=lambda record: f"{type(record).__name__}",
)
def test_a_bad_reference_is_a_bug(record: Record) -> None:
    image = applied(register(1), TopicRecord("a", TOPIC), partition(0))
    with pytest.raises(InvariantViolation):
        replayed(record, image=image)


def test_a_topic_deleted_by_the_delta_is_unknown_to_it() -> None:
    image = applied(TopicRecord("a", TOPIC), partition(0))
    delta = replayed(RemoveTopicRecord(TOPIC), image=image)
    with pytest.raises(InvariantViolation):
        delta.replay(PartitionChangeRecord(TOPIC, 0, isr=(1,)), 9)


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.req("C1")
def test_a_transaction_ends_or_never_was() -> None:
    image = applied(TopicRecord("a", TOPIC), partition(0))
    begun = (BeginTransactionRecord(), RemoveTopicRecord(TOPIC), ConfigRecord(4, "", "x", "1"))
    delta = replayed(*begun, image=image)
    assert delta.in_transaction
    delta.replay(EndTransactionRecord(), 9)
    assert not delta.in_transaction
    assert delta.apply(9, 1, 0).topics.by_name("a") is None

    delta = replayed(*begun, AbortTransactionRecord(), ConfigRecord(4, "", "y", "2"), image=image)
    assert not delta.in_transaction
    after = delta.apply(9, 1, 0)
    assert after.topics.by_name("a") == image.topics.by_name("a")
    assert dict(after.config(4, "")) == {"y": "2"}


@pytest.mark.req("C1")
def test_the_controller_that_aborts_has_seen_nothing_of_the_transaction() -> None:
    delta = replayed(TopicRecord("a", TOPIC), AbortTransactionRecord(), partition(0))
    assert list(delta.changed_topics) == [TOPIC]


@pytest.mark.parametrize(
    "records", [(BeginTransactionRecord(),) * 2, (EndTransactionRecord(),)], ids=["twice", "end"]
)
def test_transactions_do_not_overlap(records: tuple[Record, ...]) -> None:
    with pytest.raises(InvariantViolation):
        replayed(*records)


# --- the image written as records -----------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """Records that some controller could have written."""
    ids, names = st.integers(1, 3), st.sampled_from("abc")
    records: list[Record] = []
    epochs: dict[int, int] = {}
    topics: dict[str, tuple[UUID, int]] = {}
    producer_id = 0
    for _ in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(("broker", "fence", "topic", "change", "config", "other")))
        broker_id, name = draw(ids), draw(names)
        if kind == "broker":
            epochs[broker_id] = len(records)
            rack = draw(st.none() | names)
            records.append(RegisterBrokerRecord(broker_id, INCARNATION, ENDPOINTS, rack, (TOPIC,)))
        elif kind == "fence" and broker_id in epochs:
            flags = st.none() | st.booleans()
            epoch = epochs[broker_id]
            records.append(
                BrokerRegistrationChangeRecord(broker_id, epoch, draw(flags), draw(flags))
            )
        elif kind == "topic" and name in topics:
            records.append(RemoveTopicRecord(topics.pop(name)[0]))
        elif kind == "topic":
            topic_id, count = UUID(int=len(records) + 1), draw(st.integers(1, 3))
            topics[name] = topic_id, count
            records.append(TopicRecord(name, topic_id))
            records += [partition(i, topic_id) for i in range(count)]
        elif kind == "change" and name in topics:
            topic_id, count = topics[name]
            partition_id = draw(st.integers(0, count - 1))
            leader = draw(st.sampled_from((-2, -1, 1, 2)))
            records.append(PartitionChangeRecord(topic_id, partition_id, (2, 1), leader))
        elif kind == "config":
            value = draw(st.none() | names)
            records.append(ConfigRecord(TOPIC_RESOURCE, name, draw(names), value))
        else:
            producer_id += 1_000
            records += [
                ProducerIdsRecord(1, 0, producer_id),
                FeatureLevelRecord(name, draw(ids)),
                NoOpRecord(),
            ]
    return records


@given(histories(), st.integers(1, 7))
def test_an_image_is_its_records_replayed_however_they_are_cut(
    records: list[Record], size: int
) -> None:
    whole = applied(*records)
    in_pieces = EMPTY_IMAGE
    for start in range(0, len(records), size):
        in_pieces = applied(*records[start : start + size], image=in_pieces)
    assert list(in_pieces.records()) == list(whole.records())

    delta = MetadataDelta.between_empty_and(whole)
    again = delta.apply(whole.offset, whole.epoch, whole.timestamp_ms)
    assert again == whole


@given(histories(), histories())
def test_an_image_never_changes(before: list[Record], after: list[Record]) -> None:
    image = applied(*before)
    written = list(image.records())
    delta = MetadataDelta(image)
    for record in after:
        try:
            delta.replay(record, 10_000)
        except InvariantViolation:
            break
    delta.apply(10_000, 1, 0)
    assert list(image.records()) == written

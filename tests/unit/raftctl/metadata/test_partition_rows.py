"""Many partitions at once give the same bytes and the same images as records one by one."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from raftctl.codec import CodecError
from raftctl.errors import InvariantViolation
from raftctl.metadata import codec
from raftctl.metadata.codec import (
    RECORD_CODEC,
    pack_payload,
    pack_records,
    pack_topics,
    replay_payload,
)
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage, PartitionImage
from raftctl.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    UNASSIGNED,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from tests.kit.deltas import delta_between

pytestmark = pytest.mark.req("C13", "Q6")

DIRECTORIES = (UNASSIGNED, UUID(int=7), UUID(int=8))


def partition_image(chance: Random) -> PartitionImage:
    replicas = tuple(chance.sample(range(300), chance.randint(1, 4)))

    def some() -> tuple[int, ...]:
        return tuple(chance.sample(replicas, chance.randint(0, len(replicas))))

    directories = tuple(chance.choices(DIRECTORIES, k=len(replicas)))
    return PartitionImage(
        replicas,
        some(),
        chance.choice([*replicas, NO_LEADER]),
        chance.randrange(1 << 20),
        chance.randrange(1 << 20),
        some(),
        some(),
        some(),
        chance.random() < 0.5,
        directories if chance.random() < 0.5 else (),
    )


def topics(seed: int) -> list[Record]:
    """The records of some topics, as an image writes them."""
    chance = Random(seed)
    records: list[Record] = []
    for number in range(chance.randint(0, 4)):
        topic_id = UUID(int=number * 31 + 1)
        records.append(TopicRecord(f"topic-{number}", topic_id))
        images = [partition_image(chance) for _ in range(chance.randint(1, 12))]
        # Most partitions look like others.
        images *= chance.choice([1, 1, 9])
        records += [PartitionRecord(topic_id, i, *one) for i, one in enumerate(images)]
    return records


def image_of(records: list[Record]) -> MetadataImage:
    """Record by record."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for offset, record in enumerate(records):
        delta.replay(record, offset)
    return delta.apply(len(records), 1, 0)


def replayed(image: MetadataImage, records: list[Record]) -> MetadataImage:
    """As a batch."""
    delta = MetadataDelta(image)
    base_offset = image.offset + 1
    replay_payload(delta, pack_payload(records), len(records), base_offset)
    return delta.apply(base_offset + len(records), 1, 0)


def changes_of(image: MetadataImage, seed: int) -> list[Record]:
    """A change of every partition, each of other fields."""
    chance = Random(seed)
    changes: list[Record] = []
    for topic in image.topics.in_order():
        for number, one in topic.items():
            other = partition_image(chance)
            fields = (one.isr[:1], other.leader, *other[:1], *other[5:9], one.directories[::-1])
            kept = [LEADER_UNCHANGED if at == 1 else None for at in range(len(fields))]
            some: list[Any] = [chance.choice(pair) for pair in zip(fields, kept, strict=True)]
            if some[2] is None or some[-1] is not None:
                some[2] = one.replicas  # directories are those of the replicas
            changes.append(PartitionChangeRecord(topic.topic_id, number, *some))
    return changes


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 32), st.sampled_from([1, 3, 10, 1000]))
def test_topics_are_packed_as_their_records_are(seed: int, piece_records: int) -> None:
    records = topics(seed)
    image = image_of(records)
    before, codec.PIECE_RECORDS = codec.PIECE_RECORDS, piece_records
    try:
        pieces = [*pack_topics(image.topics)]
    finally:
        codec.PIECE_RECORDS = before
    assert b"".join(one for _, one in pieces) == b"".join(pack_records(image.records()))
    assert sum(count for count, _ in pieces) == len(records)
    assert all(count <= 2 * piece_records for count, _ in pieces)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 32))
def test_a_batch_is_replayed_as_its_records_are(seed: int) -> None:
    records = topics(seed)
    image = image_of(records)
    assert replayed(EMPTY_IMAGE, records).topics == image.topics
    changes = [change for change in changes_of(image, seed) for _ in range(2)]
    changed = replayed(image, changes)
    assert changed.topics == image_of([*records, *changes]).topics
    assert delta_between(image, changed).apply(changed.offset, 1, 0).topics == changed.topics
    first = MetadataDelta.between_empty_and(changed)
    assert first.apply(changed.offset, 1, 0).topics == changed.topics
    assert first.changed_topics.keys() == set(image.topics.topics)


@pytest.mark.parametrize("ids", [[1, *range(2, 12)], [*range(5), *range(6, 15)], [*range(9), 3]])
def test_partitions_come_in_the_order_of_their_ids(ids: list[int]) -> None:
    topic_id = UUID(int=1)
    records: list[Record] = [TopicRecord("t", topic_id)]
    records += [PartitionRecord(topic_id, number, (1,), (1,), 1, 0, 0) for number in ids]
    with pytest.raises(InvariantViolation, match="before the one below"):
        replayed(EMPTY_IMAGE, records)


@pytest.mark.parametrize(
    "row",
    [
        (22, bytes(16), 0, (1, "2"), (1,), 1, 0, 0),
        (22, bytes(15), 0, (1,), (1,), 1, 0, 0),
        (22, bytes(16), 0, (1,), (1,), True, 0, 0),
        (22, bytes(16), 0, (1,), 7, 1, 0, 0),
        (True, bytes(16), 0, (1,), (1,), 1, 0, 0),
        (),
    ],
)
def test_a_partition_that_is_none_is_refused(row: tuple[object, ...]) -> None:
    topic = RECORD_CODEC.to_row(TopicRecord("t", UUID(int=0)))
    good = [(22, bytes(16), number, (1,), (1,), 1, 0, 0) for number in range(9)]
    payload = RECORD_CODEC.pack_rows([topic, *good, row])
    with pytest.raises(CodecError):
        replay_payload(MetadataDelta(EMPTY_IMAGE), payload, 11, 0)


def test_equal_sets_of_replicas_are_kept_once() -> None:
    topic_id = UUID(int=1)
    records: list[Record] = [TopicRecord("t", topic_id)]
    records += [PartitionRecord(topic_id, i, (901, 902), (901, 902), 901, 0, 0) for i in range(20)]
    topic = replayed(EMPTY_IMAGE, records).topics.by_name("t")
    assert topic is not None
    assert isinstance(topic.partitions, Map)
    kept = {id(one.replicas) for one in topic.partitions.values()}
    kept |= {id(one.isr) for one in topic.partitions.values()}
    assert len(kept) == 1

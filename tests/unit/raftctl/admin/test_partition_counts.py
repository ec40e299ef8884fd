"""Counts that follow what changes are those of a look at all partitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftctl.admin import PartitionCounts
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.records import (
    NO_LEADER,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("C13")
BROKER_IDS = range(1, 7)


def change_something(chance: Random, delta: MetadataDelta, number: int) -> None:
    """A new topic, a topic deleted, or a partition changed, as the delta has them so far."""
    topic_ids = [*(delta.image.topics.topics), *delta.changed_topics]
    known = sorted(one for one in {*topic_ids} if one not in delta.deleted_topics)
    known = [one for one in known if one in delta.image.topics.topics]
    what = chance.random()
    if not known or what < 0.3:
        topic_id = UUID(int=number + 1)
        delta.replay(TopicRecord(f"topic-{number}", topic_id), number)
        for partition_id in range(chance.randint(1, 4)):
            replicas = tuple(chance.sample(BROKER_IDS, 3))
            delta.replay(
                PartitionRecord(topic_id, partition_id, replicas, replicas, replicas[0], 0, 0),
                number,
            )
    elif what < 0.4:
        delta.replay(RemoveTopicRecord(chance.choice(known)), number)
    else:
        topic = delta.image.topics.topics[chance.choice(known)]
        replicas = tuple(chance.sample(BROKER_IDS, 3))
        isr = replicas[: chance.randint(0, 3)]
        leader = isr[0] if isr else NO_LEADER
        moved = replicas if chance.random() < 0.5 else None
        partition_id = chance.randrange(len(topic.partitions))
        record = PartitionChangeRecord(topic.topic_id, partition_id, isr, leader, moved)
        delta.replay(record, number)


def fails(error: BaseException) -> None:
    raise error


def check(counts: PartitionCounts, image: MetadataImage) -> None:
    partitions = [one for topic in image.topics.in_order() for _, one in topic.items()]
    leaders = Counter(one.leader for one in partitions)
    assert counts.partitions == len(partitions)
    assert counts.offline == leaders.pop(NO_LEADER, 0)
    assert counts.under_replicated == sum(len(one.isr) < len(one.replicas) for one in partitions)
    assert +counts.leaders == leaders
    assert +counts.replicas == Counter(i for one in partitions for i in one.replicas)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 32))
def test_counts_are_those_of_all_partitions(seed: int) -> None:
    asyncio.run(follow_changes(seed))


async def follow_changes(seed: int) -> None:
    chance, image, counts = Random(seed), EMPTY_IMAGE, PartitionCounts(fails)
    for number in range(30):
        delta = MetadataDelta(image)
        for step in range(chance.randint(1, 3)):
            change_something(chance, delta, number * 10 + step)
        image = delta.apply(number, 1, 0)
        counts.publish(delta, image)
        check(counts, image)
    late = PartitionCounts(fails)
    late.publish(MetadataDelta.between_empty_and(image), image)
    check(late, image)


async def test_of_much_a_part_is_counted_in_each_turn(
    slice_steps: Callable[[int], None],
) -> None:
    """And what changes meanwhile after it."""
    slice_steps(1)
    delta = MetadataDelta(EMPTY_IMAGE)
    for number in range(20):
        change_something(Random(number), delta, number)
    image = delta.apply(0, 1, 0)
    counts = PartitionCounts(fails)
    counts.publish(MetadataDelta.between_empty_and(image), image)
    assert 0 < counts.partitions < len(list(image.topics.topics)) * 2
    removed = MetadataDelta(image)
    removed.replay(RemoveTopicRecord(next(iter(image.topics.topics))), 1)
    image = removed.apply(1, 1, 0)
    counts.publish(removed, image)
    for _ in range(20):
        await asyncio.sleep(0)
    check(counts, image)


async def test_what_cannot_be_counted_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    change_something(Random(1), delta, 1)
    failures: list[BaseException] = []
    counts = PartitionCounts(failures.append)
    monkeypatch.setattr(counts, "_add", None)
    counts.publish(delta, delta.apply(0, 1, 0))
    assert [type(one) for one in failures] == [TypeError]


@pytest.mark.req("O1")
@pytest.mark.parametrize("is_active", [True, False])
async def test_the_controller_alone_counts_elections(is_active: bool) -> None:
    """Another leader is one; it is unclean outside of the ISR. None is no leader."""
    counts = PartitionCounts(fails, lambda: is_active)
    topic_id, image = UUID(int=1), EMPTY_IMAGE
    first: list[Any] = [
        TopicRecord("t", topic_id),
        PartitionRecord(topic_id, 0, (1, 2, 3), (1, 2), 1, 0, 0),
    ]
    changes = [
        PartitionChangeRecord(topic_id, 0, (2,), 2),
        PartitionChangeRecord(topic_id, 0, (2,), NO_LEADER),
        PartitionChangeRecord(topic_id, 0, (3,), 3, leader_recovering=True),
    ]
    seen = []
    for records in (first, *([one] for one in changes)):
        delta = MetadataDelta(image)
        for record in records:
            delta.replay(record, image.offset + 1)
        image = delta.apply(image.offset + 1, 1, 0)
        counts.publish(delta, image)
        seen.append((counts.elections.count, counts.unclean_elections.count))
    assert seen == ([(0, 0), (1, 0), (1, 0), (2, 1)] if is_active else [(0, 0)] * 4)

"""Which partitions a broker has: the one place that knows how they are found.

They are found by looking at all partitions. Topics come in the order of their ids' hashes, which
are hashes of numbers and so the same in every process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from raftctl.metadata.image import PartitionImage, TopicImage, TopicsImage


class Found(NamedTuple):
    """A partition and where it belongs."""

    topic: TopicImage
    partition_id: int
    partition: PartitionImage


def partitions_of(topics: TopicsImage, broker_ids: Collection[int]) -> Iterator[Found]:
    """The partitions that have a replica on one of the brokers."""
    wanted = frozenset(broker_ids)
    for topic in topics.topics.values():
        for partition_id, partition in topic.items():
            if not wanted.isdisjoint(partition.replicas):
                yield Found(topic, partition_id, partition)

"""Counts that follow what changes are those of a look at all partitions; at the size of a large
cluster each window is quick."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftctl.console._topic_health import (
    MIN_ISR,
    ClusterHealth,
    Condition,
    TopicHealth,
    conditions,
)
from raftctl.loader import MetadataLoader
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord
from tests.bench.console import PARTITIONS, TOPICS, fill
from tests.unit.raftctl.admin.test_partition_counts import change_something
from tests.unit.raftctl.console.served import Log, Served, fails, serving

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage

pytestmark = pytest.mark.req("W1")
WINDOW_S = 0.05
MARGIN = 4
"""Of a machine that does other work as well."""


def change_config(chance: Random, delta: MetadataDelta, number: int) -> None:
    """Another `min.insync.replicas` of a topic, or of all brokers."""
    names = sorted(delta.image.topics.ids)
    gone = {topic.name for topic in delta.deleted_topics.values()}
    value = chance.choice([None, "1", "2", "3"])
    if names and chance.random() < 0.8:
        name = chance.choice(names)
        if name not in gone:
            delta.replay(ConfigRecord(TOPIC_RESOURCE, name, MIN_ISR, value), number)
    else:
        delta.replay(ConfigRecord(BROKER_RESOURCE, "", MIN_ISR, value), number)


def check(health: ClusterHealth, image: MetadataImage) -> None:
    by_default = int(image.config(BROKER_RESOURCE, "").get(MIN_ISR, "1"))
    total = [0] * len(Condition)
    leaders, replicas = Counter[int](), Counter[int]()
    for topic_id, topic in image.topics.topics.items():
        min_isr = int(image.config(TOPIC_RESOURCE, topic.name).get(MIN_ISR, by_default))
        found = [conditions(one, min_isr) for _, one in topic.items()]
        counts = tuple(sum(column) for column in zip(*found, strict=True))
        first = len(topic.partitions[0].replicas)
        assert health.topics[topic_id] == TopicHealth(len(found), first, min_isr, counts)
        for condition in Condition:
            assert (topic_id in health.since[condition]) == (counts[condition] > 0)
        total = [one + other for one, other in zip(total, counts, strict=True)]
        leaders.update(one.leader for _, one in topic.items())
        replicas.update(broker_id for _, one in topic.items() for broker_id in one.replicas)
    assert len(health.topics) == len(image.topics.topics)
    assert list(health.counts) == total
    assert health.partitions == sum(leaders.values())
    assert (+health.leaders, +health.replicas) == (leaders, replicas)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 32))
def test_counts_are_those_of_all_partitions(seed: int) -> None:
    asyncio.run(follow_changes(seed))


async def follow_changes(seed: int) -> None:
    chance = Random(seed)
    loader = MetadataLoader(Log(), EMPTY_IMAGE)
    health = ClusterHealth(loader, TopicConfig(), fails)
    begins = chance.randrange(4)
    for turn in range(12):
        delta = MetadataDelta(loader.image)
        for number in range(chance.randint(1, 5)):
            change = change_config if chance.random() < 0.3 else change_something
            change(chance, delta, turn * 100 + number)
        loader.publish(delta, delta.apply(turn * 100 + 99, 1, turn))
        if turn >= begins:
            check(health, await health.current())


async def used(served: Served, **query: Any) -> float:
    """The seconds of the processor that a window of topics takes."""
    began = time.process_time()
    await served.get("topics", **query)
    return time.process_time() - began


@pytest.mark.req("A4")
async def test_windows_of_a_large_cluster_are_quick() -> None:
    """Seconds of the processor, so that what else the machine does does not count."""
    async with serving() as served:
        fill(served)
        first_s = await used(served)
        queries: list[dict[str, Any]] = [
            {},
            {"offset": TOPICS - 500, "limit": 500},
            {"sort": "-under_replicated"},
            {"filter": "9-9"},
            {"only": "problems"},
        ]
        times = {str(query): await used(served, **query) for query in queries}
        assert (await served.get("overview"))["partitions"] == TOPICS * PARTITIONS
    assert max(times.values()) <= WINDOW_S * MARGIN, times
    assert first_s <= 6 * WINDOW_S * MARGIN, "the first one counts 100,000 partitions, in slices"

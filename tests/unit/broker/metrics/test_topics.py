"""Counts of topics: each in one series, none ever falls, and they are bounded (rows N4, O1)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from broker.metrics import BROKER, OTHERS, TopicMetrics
from broker.metrics._topics import OF_TOPICS, RANKED_TICKS, RATES
from raftctl.errors import ErrorCode
from raftctl.metrics import Metrics
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from broker.metrics import TopicCounts

Series = dict[tuple[str, str], float]
"""(Metric, topic) to value."""


class Scraped:
    """The counts of topics behind a scrape."""

    def __init__(self, series_max: int = 1_500) -> None:
        self.topics = TopicMetrics()
        self.metrics = Metrics(series_max)
        self.topics.register(self.metrics)
        self.counts: dict[str, TopicCounts] = {}

    def create(self, *names: str) -> None:
        for name in names:
            self.counts[name] = self.topics.hosted(name)

    def delete(self, name: str) -> None:
        del self.counts[name]
        self.topics.dropped(name)

    async def scrape(self) -> Series:
        await self.topics.prepare(Slices())
        found = {
            (family.metric.name, sample.labels[0]): sample.value
            for family in self.metrics.families()
            for sample in family.samples
            if "topic" in family.metric.labels
        }
        self.topics.invariants()
        return {key: float(str(value)) for key, value in found.items()}

    async def bytes_in(self) -> dict[str, float]:
        name = OF_TOPICS["bytes_in"].name
        return {topic: value for (of, topic), value in (await self.scrape()).items() if of == name}


def room_for(topics: int) -> int:
    """The number of series at which so many topics have some of their own, besides the others."""
    plain = sum(len(family.samples) for family in Scraped().metrics.families())
    return plain - len(OF_TOPICS) - 1 + 2 * len(OF_TOPICS) * (topics + 2)


@pytest.mark.req("N4")
async def test_each_count_has_its_series_of_the_topic_and_of_the_broker() -> None:
    world = Scraped()
    world.create("a", "b")
    a = world.counts["a"]
    a.appended(3, 300)
    a.refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    a.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    a.checked(ErrorCode.MESSAGE_TOO_LARGE, 5_000)
    a.checked(ErrorCode.CORRUPT_MESSAGE, 70)
    a.read(ErrorCode.NONE, 100, to_follower=False)
    a.read(ErrorCode.NONE, 20, to_follower=True)
    a.read(ErrorCode.OFFSET_OUT_OF_RANGE, 0, to_follower=False)
    a.read(ErrorCode.CORRUPT_MESSAGE, 0, to_follower=False)
    expected = {
        "messagesin": 3,
        "bytesin": 300,
        "bytesout": 100,
        "bytesrejected": 5_000,
        "totalproducerequests": 3,
        "totalfetchrequests": 4,
        "failedproducerequests": 1,
        "failedfetchrequests": 1,
    }
    found = await world.scrape()
    for name, value in expected.items():
        name = f"kafka_server_brokertopicmetrics_{name}_total"
        assert found[name, "a"] == found[name, BROKER] == value
        assert found[name, "b"] == 0
    assert not any(topic == OTHERS for _, topic in found)
    assert world.topics.broker.replication_bytes_out == 20


@pytest.mark.req("N4")
async def test_rates_are_averages_over_one_five_and_fifteen_minutes() -> None:
    world = Scraped()
    world.create("a")
    world.counts["a"].appended(10, 1_000)
    world.metrics.tick()
    rates = {
        (family.metric, sample.labels): sample.value
        for family in world.metrics.families()
        for sample in family.samples
    }
    for minutes in ("1", "5", "15"):
        assert rates[RATES["messages_in"], (minutes,)] == 2
        assert rates[RATES["bytes_in"], (minutes,)] == 200
        assert rates[RATES["bytes_out"], (minutes,)] == 0


@pytest.mark.req("O1")
async def test_the_busiest_topics_have_series_and_one_series_has_the_rest() -> None:
    world = Scraped(room_for(3))
    world.create(*(f"t{number}" for number in range(10)))
    for number in range(10):
        world.counts[f"t{number}"].appended(1, 10 * number)
    assert await world.bytes_in() == {BROKER: 450, "t9": 90, "t8": 80, "t7": 70, OTHERS: 210}


@pytest.mark.req("O1")
async def test_a_topic_that_gets_a_series_takes_nothing_from_the_others() -> None:
    world = Scraped(room_for(1))
    world.create("idle", "busy", "empty")
    world.counts["idle"].appended(1, 20)
    world.counts["busy"].appended(1, 10)
    assert await world.bytes_in() == {BROKER: 30, "idle": 20, OTHERS: 10}
    world.create("busier")
    world.counts["busier"].appended(1, 1_000)
    world.counts["busy"].appended(1, 100)
    for _ in range(RANKED_TICKS):
        world.metrics.tick()
    # What the new topic counted so far no series has shown; it has been in none.
    assert await world.bytes_in() == {BROKER: 1_130, "busier": 1_000, OTHERS: 110}
    # Back again: it goes on where it ended, and the others keep what they counted meanwhile.
    world.counts["idle"].appended(1, 5_000)
    for _ in range(RANKED_TICKS):
        world.metrics.tick()
    assert await world.bytes_in() == {BROKER: 6_130, "idle": 20, OTHERS: 5_110}
    world.counts["idle"].appended(1, 1)
    assert await world.bytes_in() == {BROKER: 6_131, "idle": 21, OTHERS: 5_110}


@pytest.mark.req("O1")
async def test_a_topic_that_has_a_series_keeps_it_while_it_is_among_the_busier_half() -> None:
    world = Scraped(room_for(1))
    world.create("a", "b", "empty")
    world.counts["a"].appended(1, 20)
    assert "a" in await world.bytes_in()
    world.counts["b"].appended(1, 5)
    for _ in range(RANKED_TICKS):
        world.metrics.tick()
    assert "a" in await world.bytes_in()


@pytest.mark.req("O1")
async def test_a_deleted_topic_leaves_what_it_counted_to_the_broker() -> None:
    world = Scraped()
    world.create("a", "b", "b")
    world.counts["a"].appended(1, 20)
    world.counts["b"].appended(1, 3)
    await world.scrape()
    world.delete("a")
    world.topics.dropped("b")
    assert await world.bytes_in() == {BROKER: 23, "b": 3}


@pytest.mark.req("O1")
@pytest.mark.parametrize("seed", range(20))
async def test_no_series_falls_and_nothing_is_counted_twice(seed: int) -> None:
    chance = random.Random(seed)
    world = Scraped(room_for(3))
    number = 0
    before: Series = {}
    for _ in range(200):
        drawn = chance.random()
        if drawn < 0.1 or not world.counts:
            number += 1
            world.create(f"t{number}")
        elif drawn < 0.15:
            world.delete(chance.choice(list(world.counts)))
        elif drawn < 0.2:
            for _ in range(RANKED_TICKS):
                world.metrics.tick()
        elif drawn < 0.5:
            found = await world.scrape()
            for key, value in found.items():
                assert value >= before.get(key, 0), f"{key} falls"
            for metric in OF_TOPICS.values():
                parts = [
                    value for (name, topic), value in found.items() if name == metric.name and topic
                ]
                assert sum(parts) <= found[metric.name, BROKER]
            # A topic that lost its series shows it no smaller when it comes back.
            before |= found
        else:
            world.counts[chance.choice(list(world.counts))].appended(1, chance.randrange(1_000))

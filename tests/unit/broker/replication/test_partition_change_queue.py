"""Replicas that are new are taken up a few at a time, whatever the number."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from broker.plugin import FIRST_ASKED, KafkaBroker
from broker.protocol._decoder import decoder
from broker.protocol._encoder import encoder
from broker.protocol.versions import SERVED
from broker.replication._partition_changes import PartitionChangeQueue
from broker.types import TopicPartition
from raftctl.metadata.image import PartitionImage
from raftctl.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.unit.broker.replication.world import TOPIC_ID, World, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 20
MANY = 5 * AT_ONCE
IMAGE = PartitionImage((1,), (1,), 1, 0, 0)
NEWER = PartitionImage((1, 2), (1,), 1, 1, 1)


class Taken:
    """What was taken up, in order."""

    def __init__(self) -> None:
        self.all: list[tuple[int, PartitionImage]] = []
        self.arrivals = PartitionChangeQueue(self._take, lambda: None)

    def _take(self, partition: TopicPartition, topic_id: UUID, image: PartitionImage) -> None:
        assert topic_id == TOPIC_ID
        self.all.append((partition.partition, image))

    def add(self, *numbers: int, image: PartitionImage = IMAGE) -> None:
        for number in numbers:
            self.arrivals.add(TopicPartition("t", number), TOPIC_ID, image)


@pytest.mark.req("R1")
async def test_the_first_are_taken_at_once_and_others_have_their_turns_between_the_rest(
    slice_steps: Callable[[int], None],
) -> None:
    slice_steps(AT_ONCE)
    taken = Taken()
    taken.add(*range(MANY))
    taken.arrivals.take_some()
    assert [number for number, _ in taken.all] == list(range(AT_ONCE))
    running = asyncio.ensure_future(taken.arrivals.run())
    turns = 0
    while len(taken.all) < MANY:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= MANY // AT_ONCE - 1
    assert [number for number, _ in taken.all] == list(range(MANY))
    taken.add(7)
    taken.arrivals.take_some()
    assert taken.all[-1] == (7, IMAGE)
    running.cancel()


async def test_the_newest_image_counts_and_what_is_gone_is_not_taken_up() -> None:
    taken = Taken()
    taken.add(0, 1, 2)
    taken.add(1, image=NEWER)
    taken.arrivals.forget(TopicPartition("t", 2), UUID(int=99))
    taken.arrivals.forget(TopicPartition("t", 0), TOPIC_ID)
    taken.arrivals.take_some()
    assert taken.all == [(1, NEWER), (2, IMAGE)]


@pytest.mark.req("R1")
async def test_a_large_topic_is_hosted_over_several_turns_and_a_deleted_one_no_more(
    slice_steps: Callable[[int], None],
) -> None:
    slice_steps(AT_ONCE)
    async with World(brokers=1) as world:
        replicas = world.nodes[1].replicas
        partitions = [PartitionRecord(TOPIC_ID, n, (1,), (1,), 1, 0, 0) for n in range(MANY)]
        world.controller.commit(TopicRecord("t", TOPIC_ID), *partitions)
        assert len(replicas.partitions) == AT_ONCE
        await eventually(lambda: len(replicas.partitions) == MANY)
        other = UUID(int=12)
        partitions = [PartitionRecord(other, n, (1,), (1,), 1, 0, 0) for n in range(MANY)]
        world.controller.commit(TopicRecord("other", other), *partitions)
        world.controller.commit(RemoveTopicRecord(other))
        for _ in range(MANY):
            await asyncio.sleep(0)
        assert {partition.topic for partition in replicas.partitions} == {"t"}


@pytest.mark.req("R1", "C13")
async def test_many_changes_at_once_have_their_turns_and_the_newest_counts(
    slice_steps: Callable[[int], None],
) -> None:
    """But for the partitions of coordinators, which go by the same image."""
    offsets = UUID(int=12)
    async with World(brokers=1) as world:
        replicas = world.nodes[1].replicas

        def led() -> list[int]:
            replica = replicas.partitions.items()
            return sorted(one.partition for one, has in replica if has.state.is_leader)

        def replicated(topic_id: UUID, count: int) -> list[PartitionRecord]:
            return [PartitionRecord(topic_id, n, (1, 2), (1, 2), 2, 0, 0) for n in range(count)]

        names = (("t", TOPIC_ID, 9), ("__consumer_offsets", offsets, 4))
        for name, topic_id, count in names:
            world.controller.commit(TopicRecord(name, topic_id), *replicated(topic_id, count))
        assert len(replicas.partitions) == 13
        assert led() == []
        assert replicas.follows_image
        slice_steps(3)
        world.controller.commit(
            *[PartitionChangeRecord(TOPIC_ID, n, leader=1) for n in range(9)],
            *[PartitionChangeRecord(offsets, n, leader=1) for n in range(4)],
        )
        assert led() == sorted([0, 1, 2, 0, 1, 2, 3])
        assert not replicas.follows_image
        world.controller.commit(
            PartitionChangeRecord(TOPIC_ID, 7, leader=2),
            PartitionChangeRecord(TOPIC_ID, 8, replicas=(2,), isr=(2,), leader=2),
        )
        await eventually(lambda: replicas.follows_image)
        assert led() == sorted([0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3])
        assert len(replicas.partitions) == 12


async def test_a_broker_that_takes_up_an_image_answers_as_one_without_a_session() -> None:
    async with World(brokers=1) as world:
        broker = KafkaBroker(world.nodes[1].context)
        has_session = broker._api_context("PLAINTEXT").has_session
        assert has_session()
        broker.replicas._changed.add(TopicPartition("t", 0), TOPIC_ID, IMAGE)
        assert not has_session()


@pytest.mark.req("N1")
async def test_what_clients_ask_first_is_made_ready_by_a_worker_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first client, and with it all others, waited 0.15 s for the tables of a Produce."""

    async def nothing(*_: object) -> tuple[()]:
        return ()

    async with World(brokers=1) as world:
        broker = KafkaBroker(world.nodes[1].context)
        monkeypatch.setattr(broker._listeners, "bind", nothing)
        monkeypatch.setattr(broker.replicas, "start", nothing)
        decoder.cache_clear()
        encoder.cache_clear()
        await broker.start()
        await broker._requests.submit(lambda: None)
        known = decoder.cache_info().misses, encoder.cache_info().misses
        for api_key in FIRST_ASKED:
            decoder(api_key, SERVED[api_key].stop - 1, "request")
            encoder(api_key, SERVED[api_key].stop - 1, "response")
        assert (decoder.cache_info().misses, encoder.cache_info().misses) == known
        assert known[0] >= len(FIRST_ASKED)

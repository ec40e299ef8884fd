"""Ends of partitions come from their leaders; a partition is shown by its leader alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.lag import EndOffsets, PartitionOffsets
from broker.metrics import OTHERS, BrokerState
from broker.types import TopicPartition
from raftctl.metadata.records import NO_LEADER, PartitionChangeRecord
from raftctl.metrics import Metrics
from raftctl.runtime import Slices
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import P0, TOPIC_ID, World, eventually

if TYPE_CHECKING:
    from tests.unit.broker.replication.world import Node

pytestmark = pytest.mark.req("O1")
P1 = TopicPartition("t", 1)
WAIT_S = 5.0
NOT_SUMMED = ("leader", "current_offset", "oldest_offset")
Series = dict[str, dict[tuple[str, ...], Any]]


def ends_of(node: Node) -> EndOffsets:
    return EndOffsets(
        node.config,
        lambda: node.metadata.image,
        node.replicas.partitions,
        node.failures.append,
        node.replicas.connector,
    )


async def scraped(node: Node, room: int = 1_000) -> Series:
    replicas = node.replicas
    shown = PartitionOffsets(replicas.partitions, replicas.conditions, lambda: node.metadata.image)
    await shown.prepare(Slices())
    return {
        family.metric.name: {sample.labels: sample.value for sample in family.samples}
        for family in shown.collect(room)
    }


async def written(world: World) -> None:
    """Partition 0 is led by broker 1 and has two records, partition 1 by broker 2 and has none."""
    world.create_topic(partitions=2)
    world.controller.commit(PartitionChangeRecord(TOPIC_ID, 1, leader=2))
    leader = world.nodes[1]
    leader.append(make_batch([b"a", b"b"]))
    await eventually(lambda: leader.replica().state.high_watermark == 2)


async def test_ends_are_high_watermarks_of_leaders_here_and_elsewhere() -> None:
    async with World(2, listen=True) as world:
        await written(world)
        for node in world.nodes.values():
            ends = ends_of(node)
            everywhere = [P1, P0, TopicPartition("none", 0)]
            assert await ends.of(everywhere, WAIT_S) == {P0: 2, P1: 0}
            await ends.stop()


async def test_a_partition_without_a_leader_or_with_one_that_is_gone_has_no_end() -> None:
    async with World(2, listen=True) as world:
        await written(world)
        world.controller.commit(PartitionChangeRecord(TOPIC_ID, 0, leader=NO_LEADER))
        node = world.nodes[1]
        await world.nodes[2].stop()
        ends = ends_of(node)
        assert await ends.of([P0, P1], WAIT_S) == {}
        await ends.stop()


async def test_a_partition_is_shown_by_its_leader_and_a_topic_by_that_of_its_first() -> None:
    async with World(2, listen=True) as world:
        await written(world)
        one, two = [await scraped(node) for node in world.nodes.values()]
        assert one["kafka_topic_partitions"] == {("t",): 2}
        assert two["kafka_topic_partitions"] == {}
        assert one["kafka_topic_partition_current_offset"] == {("t", "0"): 2}
        assert one["kafka_topic_partition_oldest_offset"] == {("t", "0"): 0}
        assert one["kafka_topic_partition_leader"] == {("t", "0"): 1}
        assert two["kafka_topic_partition_leader"] == {("t", "1"): 2}
        assert one["kafka_topic_partition_leader_is_preferred"] == {("t", "0"): 1}
        assert two["kafka_topic_partition_leader_is_preferred"] == {("t", "1"): 0}
        assert one["kafka_topic_partition_replicas"] == {("t", "0"): 2}


async def test_a_replica_out_of_sync_shows() -> None:
    async with World(2, listen=True) as world:
        await written(world)
        name = "kafka_topic_partition_under_replicated_partition"
        assert (await scraped(world.nodes[1]))[name] == {("t", "0"): 0}
        world.nodes[2].deaf = True
        world.set_isr(1)
        found = await scraped(world.nodes[1])
        assert found[name] == {("t", "0"): 1}
        assert found["kafka_topic_partition_in_sync_replica"] == {("t", "0"): 1}


@pytest.mark.parametrize("room", [0, 7, 8, 20, 30])
async def test_partitions_without_room_are_summed(room: int) -> None:
    async with World(1) as world:
        world.create_topic(partitions=4)
        whole, found = await scraped(world.nodes[1]), await scraped(world.nodes[1], room)
        assert sum(map(len, found.values())) <= max(room, 7)
        without_sums = {f"kafka_topic_partition_{name}" for name in NOT_SUMMED}
        for name in found.keys() - without_sums:
            assert sum(found[name].values()) == sum(whole[name].values()), name
        if room == 0:
            assert found["kafka_topic_partition_replicas"] == {(OTHERS, ""): 4}


async def test_partitions_with_a_problem_have_the_room_that_there_is() -> None:
    async with World(2) as world:
        world.create_topic(partitions=3)
        node = world.nodes[1]
        room = 5 + 1 + 7
        replicas = "kafka_topic_partition_replicas"
        assert (await scraped(node, room))[replicas] == {("t", "0"): 2, (OTHERS, ""): 4}
        world.controller.commit(PartitionChangeRecord(TOPIC_ID, 2, isr=(1,)))
        found = await scraped(node, room)
        assert found[replicas] == {("t", "2"): 2, (OTHERS, ""): 4}
        assert found["kafka_topic_partition_in_sync_replica"] == {("t", "2"): 1, (OTHERS, ""): 4}
        assert found["kafka_topic_partition_under_replicated_partition"] == {("t", "2"): 1}
        assert found["kafka_topic_partition_current_offset"] == {("t", "2"): 0}


async def test_a_broker_starts_waits_runs_and_shuts_down() -> None:
    async with World(2) as world:
        node, metrics, session = world.nodes[1], Metrics(), [False]
        image = [world.controller.image]
        state = BrokerState(1, "PLAINTEXT", lambda: image[0], lambda: session[0], metrics)

        def shown() -> Series:
            return {
                family.metric.name: {sample.labels: sample.value for sample in family.samples}
                for family in metrics.families()
            }

        name = "kafka_server_kafkaserver_brokerstate"
        assert shown()[name] == {(): 2}
        session[0] = True
        assert shown()[name] == {(): 3}
        assert shown()["kafka_broker_info"] == {("1", f"127.0.0.1:{node.port}"): 1}
        assert shown()["kafka_brokers"] == {(): 2}
        world.fence(2)
        image[0] = world.controller.image
        assert shown()["kafka_brokers"] == {(): 1}
        state.is_stopping = True
        assert shown()[name] == {(): 7}

"""A broker with several log directories: the controller knows what is where, and what failed."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from broker.types import AppendResult, OffsetLookup, TopicPartition
from raftctl.errors import ErrorCode
from raftctl.metadata.features import METADATA_VERSION, METADATA_VERSION_FEATURE
from raftctl.metadata.records import BROKER_RESOURCE, UNASSIGNED, ConfigRecord, FeatureLevelRecord
from raftctl.metadata.requests.cluster import AssignReplicasToDirsRequest
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import (
    P0,
    TOPIC_ID,
    World,
    directory_id,
    eventually,
    fetch_now,
    offsets_now,
    params,
    wanted,
)
from tests.unit.broker.server.fakes import connected

if TYPE_CHECKING:
    from uuid import UUID

    from tests.unit.broker.replication.world import Node

pytestmark = pytest.mark.req("C14")

P1 = TopicPartition("t", 1)
TWO = "/d1,/d2"
BATCH = make_batch([b"v"])


def enable(world: World, level: int = METADATA_VERSION) -> None:
    world.controller.commit(FeatureLevelRecord(METADATA_VERSION_FEATURE, level))


def place(world: World, partition_id: int, broker_id: int) -> UUID:
    return world.controller.partition(TOPIC_ID, partition_id).directory_of(broker_id)


def told(world: World) -> list[AssignReplicasToDirsRequest]:
    requests = world.controller.requests
    return [one for one in requests if isinstance(one, AssignReplicasToDirsRequest)]


async def placed(world: World) -> None:
    """The controller knows where broker 1 has both partitions."""
    await eventually(lambda: UNASSIGNED not in (place(world, 0, 1), place(world, 1, 1)))


async def test_the_controller_is_told_where_replicas_are() -> None:
    async with World(2, log_dirs=TWO) as world:
        enable(world)
        world.create_topic(partitions=2)
        await placed(world)
        assert place(world, 0, 1) == directory_id(1, "/d1")
        assert place(world, 1, 1) == directory_id(1, "/d2")
        await eventually(lambda: place(world, 1, 2) == directory_id(2, "/d2"))
        count = len(told(world))
        world.set_isr(1)
        await asyncio.sleep(0)
        assert len(told(world)) == count, "it is known"


async def test_nothing_is_told_where_there_is_one_directory_or_nobody_understands() -> None:
    async with World(2) as world:
        enable(world)
        world.create_topic()
        await asyncio.sleep(0.02)
        assert told(world) == []
    async with World(2, log_dirs=TWO) as world:
        enable(world, 2)
        world.create_topic(partitions=2)
        await asyncio.sleep(0.02)
        assert told(world) == []
        enable(world)
        await placed(world)


async def test_what_is_not_answered_is_told_again() -> None:
    async with World(1, log_dirs=TWO) as world:
        enable(world)
        world.controller.refuse = [ErrorCode.REQUEST_TIMED_OUT] * 2
        world.create_topic(partitions=2)
        await placed(world)


def break_first(node: Node) -> None:
    """The next one to use the directory of partition 0 finds out that it has failed."""
    node.files.broken_under = "/d1"


def refuses(node: Node) -> None:
    """It sends everybody to who leads now: whatever else, some clients would ask on and on."""
    done = node.append(BATCH)
    assert isinstance(done, AppendResult)
    assert done.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    from_follower = params()._replace(leader_only=False)
    for how in (params(), params(2), from_follower):
        assert fetch_now(node, wanted(0), how).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    (listed,) = offsets_now(node, OffsetLookup(P0, -1, -1))
    assert listed.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    ((error, _),) = node.replicas.offsets_for_leader_epoch([(P0, -1, 0)])
    assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.req("R6")
async def test_a_leader_whose_directory_fails_says_so_and_waits_for_another() -> None:
    async with World(2, log_dirs=TWO) as world:
        node = world.nodes[1]
        enable(world)
        world.create_topic(partitions=2)
        await placed(world)
        waiting = node.append(BATCH, acks=-1)
        assert isinstance(waiting, asyncio.Future)
        break_first(node)
        found = node.append(BATCH)
        assert isinstance(found, AppendResult)
        assert found.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await waiting)[0].error is not ErrorCode.NONE, "nobody else has it"
        refuses(node)
        assert node.failed_directories == [directory_id(1, "/d1")]
        assert not node.replica().state.is_leader
        world.elect(1, (1, 2))
        refuses(node)
        world.elect(2, (2,))
        refuses(node)
        assert node.replica().hint().leader_id == 2
        assert node.replica(P1).state.is_leader
        results = node.replicas.append(1, 1_000, [(P1, BATCH)])
        assert isinstance(results, list)
        assert results[0].error is ErrorCode.NONE
        assert node.failures == []


async def test_a_follower_whose_directory_fails_stops_copying_that_partition() -> None:
    async with World(2, listen=True, log_dirs=TWO) as world:
        leader, follower = world.nodes[1], world.nodes[2]
        enable(world)
        world.create_topic(partitions=2)
        await placed(world)
        leader.append(BATCH)
        await eventually(lambda: follower.replica().log.log_end_offset == 1)
        break_first(follower)
        leader.append(BATCH)
        await eventually(lambda: follower.failed_directories == [directory_id(2, "/d1")])
        assert follower.replica().log.log_end_offset == 1
        leader.replicas.append(1, 1_000, [(P1, BATCH)])
        await eventually(lambda: follower.replica(P1).log.log_end_offset == 1)
        assert follower.failures == []


async def test_without_any_directory_the_broker_ends() -> None:
    world = World(1, log_dirs=TWO)
    node = world.nodes[1]
    await node.start()
    enable(world)
    world.create_topic(partitions=2)
    await placed(world)
    node.files.broken_under = "/d"
    for partition in (P0, P1):
        node.replicas.append(1, 1_000, [(partition, BATCH)])
    assert isinstance(node.failures[0], OSError)
    assert "/d2" in str(node.failures[0]), "it says which"
    await node.kill()


# --- moving replicas ------------------------------------------------------------------------------


async def fill(node: Node, count: int) -> int:
    """Appends with acks=all; returns how many were taken."""
    taken = 0
    for _ in range(count):
        done = node.append(BATCH, acks=-1)
        result = done if isinstance(done, AppendResult) else (await done)[0]
        taken += result.error is ErrorCode.NONE
        await asyncio.sleep(0)
    return taken


@pytest.mark.parametrize("flush_messages", ["1", "9223372036854775807"])
async def test_a_replica_moves_while_it_is_served(flush_messages: str) -> None:
    async with World(
        2, listen=True, log_dirs=TWO, log_flush_interval_messages=flush_messages
    ) as world:
        leader, follower = world.nodes[1], world.nodes[2]
        enable(world)
        world.create_topic(partitions=2)
        await placed(world)
        assert await fill(leader, 3) == 3
        before = leader.replica().log
        for node in (leader, follower):
            assert node.replicas.move_log(P0, "/d2") is ErrorCode.NONE
        taken = await fill(leader, 20)
        await eventually(lambda: place(world, 0, 1) == directory_id(1, "/d2"))
        await eventually(lambda: place(world, 0, 2) == directory_id(2, "/d2"))
        taken += await fill(leader, 5)
        assert taken == 25
        assert leader.replica().log is not before
        for node in (leader, follower):
            log = node.replica().log
            assert (log.directory, log.log_end_offset) == ("/d2/t-0", 28)
            assert "t-0" not in node.files.names("/d1")
        assert fetch_now(leader, wanted(0)).size == leader.replica().log.size


async def test_copying_keeps_to_its_rate() -> None:
    async with World(1, log_dirs=TWO) as world:
        node = world.nodes[1]
        world.create_topic()
        await fill(node, 3)
        key = "replica.alter.log.dirs.io.max.bytes.per.second"
        world.controller.commit(ConfigRecord(BROKER_RESOURCE, "1", key, "100"))
        assert not node.replicas.log_copied(1_000)
        assert node.replicas.log_copied(100)
        world.controller.commit(ConfigRecord(BROKER_RESOURCE, "1", key, None))
        assert not node.replicas.log_copied(0)


def is_in(node: Node, path: str) -> bool:
    return node.replica().log.directory == f"{path}/t-0"


async def test_clients_move_replicas() -> None:
    async with World(1, listen=True, log_dirs=TWO) as world:
        node = world.nodes[1]
        world.create_topic()
        await fill(node, 2)
        async with connected(node) as client:
            for version, path in ((1, "/d2"), (2, "/d1")):
                dirs = [
                    {"path": path, "topics": [{"name": "t", "partitions": [0, 7]}]},
                    {"path": "/elsewhere", "topics": [{"name": "t", "partitions": [0]}]},
                ]
                (topic,) = (await client.ask(34, version, {"dirs": dirs}))["results"]
                told = [(one["partition_index"], one["error_code"]) for one in topic["partitions"]]
                assert told == [
                    (0, ErrorCode.NONE),
                    (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    (0, ErrorCode.LOG_DIR_NOT_FOUND),
                ]
                await eventually(partial(is_in, node, path))


async def test_what_is_in_a_directory_that_is_offline_from_the_start_is_not_made_anew() -> None:
    async with World(2, log_dirs=TWO) as world:
        enable(world)
        world.create_topic(partitions=2)
        await placed(world)
        node = world.nodes[1]
        await node.kill()
        node.files.broken_under = "/d1"
        await node.start()
        await eventually(lambda: node.failed_directories == [directory_id(1, "/d1")])
        assert P0 not in node.replicas.partitions
        assert P1 in node.replicas.partitions
        assert fetch_now(node, wanted(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert not node.files.exists("/d2/t-0"), "an empty log must not pass for it"
        assert node.failures == []


async def test_a_replica_whose_place_nobody_knows_is_made_anew_only_if_it_is_not_in_sync() -> None:
    async with World(2, log_dirs=TWO) as world:
        enable(world, 2)  # Places are not told below that level.
        world.create_topic()
        await eventually(lambda: P0 in world.nodes[1].replicas.partitions)
        node = world.nodes[1]
        home = node.replica().log.directory.rpartition("/")[0]
        await node.kill()
        node.files.broken_under = home
        await node.start()
        assert P0 not in node.replicas.partitions, "it is in sync, with what it had"
        world.elect(2, isr=(2,))
        await eventually(lambda: P0 in node.replicas.partitions)


async def test_a_foreign_directory_costs_its_partition_and_not_the_broker() -> None:
    async with World(1) as world:
        node = world.nodes[1]
        (home,) = node.config.log_dirs
        node.files.make_directories(f"{home}/t-0")
        world.create_topic(partitions=2)
        await eventually(lambda: P1 in node.replicas.partitions)
        assert P0 not in node.replicas.partitions
        assert fetch_now(node, wanted(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert node.failures == []

"""DeleteRecords: the leader hides the beginning of its log and waits for the other replicas."""

from __future__ import annotations

import asyncio
import importlib
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from broker.types import DeletedRecords, TopicPartition
from raftctl.errors import ErrorCode
from raftctl.metadata.records import TOPIC_RESOURCE, ConfigRecord
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import P0, World, eventually, fetch_now, wanted
from tests.unit.broker.server.fakes import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.broker.replication.world import Node

pytestmark = pytest.mark.req("L7")

BATCH = make_batch([b"v"])
RECORDS = 10
TIMEOUT_S = 20


async def fill(world: World) -> Node:
    """The leader has ten records, all committed."""
    world.create_topic()
    leader = world.nodes[1]
    for _ in range(RECORDS):
        leader.append(BATCH)
    await eventually(lambda: leader.replica().state.high_watermark == RECORDS)
    return leader


def delete(
    node: Node, offset: int, *, partition: TopicPartition = P0, timeout_ms: int = 20_000
) -> asyncio.Future[list[DeletedRecords]]:
    done = node.replicas.delete_records(timeout_ms, [(partition, offset)])
    if isinstance(done, asyncio.Future):
        return done
    future: asyncio.Future[list[DeletedRecords]] = asyncio.get_running_loop().create_future()
    future.set_result(done)
    return future


def starts(world: World) -> list[int]:
    return [node.replica().log.log_start_offset for node in world.nodes.values()]


async def test_all_replicas_hide_what_is_deleted_before_it_is_answered() -> None:
    async with World(3, listen=True) as world:
        leader = await fill(world)
        assert await delete(leader, 4) == [DeletedRecords(ErrorCode.NONE, 4)]
        assert starts(world) == [4, 4, 4]
        assert fetch_now(leader, wanted(3)).error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await delete(leader, 2) == [DeletedRecords(ErrorCode.NONE, 4)]
        assert await delete(leader, -1) == [DeletedRecords(ErrorCode.NONE, RECORDS)]
        assert starts(world) == [RECORDS] * 3


async def test_it_waits_for_replicas_on_brokers_that_live() -> None:
    async with World(2, listen=True) as world:
        leader = await fill(world)
        await world.nodes[2].kill()
        pending = delete(leader, 5)
        late = delete(leader, 5, timeout_ms=20)
        assert await late == [DeletedRecords(ErrorCode.REQUEST_TIMED_OUT, 5)]
        assert not pending.done()
        world.fence(2)
        assert await pending == [DeletedRecords(ErrorCode.NONE, 5)]
        await world.nodes[2].start()
        world.elect(1, (1,))
        await eventually(lambda: starts(world) == [5, 5])


async def test_what_cannot_be_deleted_is_refused() -> None:
    async with World(2, listen=True) as world:
        leader = await fill(world)
        for offset in (RECORDS + 1, -2):
            (one,) = await delete(leader, offset)
            assert one == DeletedRecords(ErrorCode.OFFSET_OUT_OF_RANGE)
        (one,) = await delete(world.nodes[2], 1)
        assert one == DeletedRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        (one,) = await delete(leader, 1, partition=TopicPartition("no", 0))
        assert one == DeletedRecords(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "cleanup.policy", "compact"))
        (one,) = await delete(leader, 1)
        assert one == DeletedRecords(ErrorCode.POLICY_VIOLATION)
        assert starts(world) == [0, 0]


async def test_a_leader_that_is_deposed_says_so() -> None:
    async with World(2) as world:
        world.create_topic()
        leader = world.nodes[1]
        leader.append(BATCH)
        pending = delete(leader, 0)
        assert not pending.done(), "nobody has heard of the other replica"
        world.elect(2)
        assert await pending == [DeletedRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)]


async def test_what_waits_is_cancelled_when_the_broker_stops() -> None:
    async with World(2) as world:
        world.create_topic()
        pending = delete(world.nodes[1], 0)
    assert pending.cancelled()


# --- over the wire --------------------------------------------------------------------------------


@pytest.mark.req("N1")
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_version_is_answered(version: int) -> None:
    async with World(2, listen=True) as world:
        leader = await fill(world)
        topics = [
            {"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]},
            {"name": "__consumer_offsets", "partitions": [{"partition_index": 1, "offset": 0}]},
            {"name": "no", "partitions": [{"partition_index": 0, "offset": 3}]},
        ]
        async with connected(leader) as client:
            answer = await client.ask(21, version, {"topics": topics, "timeout_ms": 20_000})
        told = [
            (topic["name"], *(one[name] for name in ("partition_index", "low_watermark")))
            for topic in answer["topics"]
            for one in topic["partitions"]
        ]
        assert told == [("t", 0, 3), ("__consumer_offsets", 1, -1), ("no", 0, -1)]
        errors = [one["error_code"] for topic in answer["topics"] for one in topic["partitions"]]
        assert errors == [
            ErrorCode.NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_confluent_kafka_deletes_records() -> None:
    async with World(2, listen=True) as world:
        leader = await fill(world)

        def administer() -> int:
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{leader.port}"})
            (future,) = admin.delete_records([ConfluentPartition("t", 0, 6)]).values()
            low: int = future.result(TIMEOUT_S).low_watermark
            (future,) = admin.delete_records([ConfluentPartition("t", 0, 99)]).values()
            with pytest.raises(KafkaException) as raised:
                future.result(TIMEOUT_S)
            assert raised.value.args[0].code() == ErrorCode.OFFSET_OUT_OF_RANGE
            return low

        assert await asyncio.to_thread(administer) == 6
        assert starts(world) == [6, 6]


@pytest.fixture
def kafka_python() -> Iterator[Any]:
    """Its modules; it reads its schemas in a way that Python 3.11 deprecates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield importlib.import_module("kafka")


@pytest.mark.req("C14")
async def test_kafka_python_describes_log_directories(kafka_python: Any) -> None:
    admins = importlib.import_module("kafka.admin")
    async with World(1, listen=True, log_dirs="/d1,/d2") as world:
        leader = await fill(world)
        size = leader.replica().log.size
        leader.files.broken_under = "/d2"

        def administer() -> Any:
            admin = admins.KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{leader.port}")
            try:
                return admin.describe_log_dirs()
            finally:
                admin.close()

        told = await asyncio.to_thread(administer)
        assert str(size) in str(told)
        async with connected(leader) as client:
            for version in (1, 2, 3, 4):
                answer = await client.ask(35, version, {"topics": None})
                first, second = answer["results"]
                assert (first["error_code"], first["log_dir"]) == (ErrorCode.NONE, "/d1")
                (topic,) = first["topics"]
                (partition,) = topic["partitions"]
                assert (topic["name"], partition["partition_size"]) == ("t", size)
                assert second["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR
                assert second["topics"] == []
                if version == 4:
                    assert (first["total_bytes"], first["usable_bytes"]) == (1_000, 10)
            asked = [{"topic": "t", "partitions": [1]}]
            answer = await client.ask(35, 4, {"topics": asked})
            assert answer["results"][0]["topics"] == []

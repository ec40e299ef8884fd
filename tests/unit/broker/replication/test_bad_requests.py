"""Bad data requests over a connection: Kafka's error code, the log and the connection stay."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from broker.types import TopicPartition
from raftctl.errors import ErrorCode
from raftctl.metadata.records import TOPIC_RESOURCE, ConfigRecord
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import TOPIC_ID, Node, World, eventually
from tests.unit.broker.server.fakes import Client, connected, fetch_message, produce_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.req("N3", "L2")
PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS, END_OFFSETS = 0, 1, 2, 18, 23
_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION
GOOD = make_batch([b"first", b"second"])
_LAST_OFFSET_DELTA_AT, _MAGIC_AT, _LENGTH_AT = 23, 16, 8


def patched(batch: bytes, position: int, layout: str, value: int) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    return bytes(changed)


def sequenced(sequence: int, count: int = 1, epoch: int = 0) -> bytes:
    values = [b"v"] * count
    return make_batch(values, producer_id=9, producer_epoch=epoch, sequence=sequence)


BAD_BATCHES = {
    "corrupt CRC": (GOOD[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
    "corrupt header": (patched(GOOD, _LAST_OFFSET_DELTA_AT, ">i", 7), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (patched(GOOD, _MAGIC_AT, ">b", 0), ErrorCode.INVALID_RECORD),
    "magic 1": (patched(GOOD, _MAGIC_AT, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 3": (patched(GOOD, _MAGIC_AT, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "count above delta": (make_batch([b"a", b"b"], count=3), ErrorCode.INVALID_RECORD),
    "count below delta": (make_batch([b"a", b"b"], count=1), ErrorCode.INVALID_RECORD),
    "count negative": (make_batch([b"a"], count=-1), ErrorCode.INVALID_RECORD),
    "no records": (make_batch([]), ErrorCode.INVALID_RECORD),
    "several batches": (GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "control batch": (make_batch([b"a"], attributes=0x20), ErrorCode.INVALID_RECORD),
    "oversized": (make_batch([b"x" * 2_000]), ErrorCode.MESSAGE_TOO_LARGE),
    "length negative": (patched(GOOD, _LENGTH_AT, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "length too long": (patched(GOOD, _LENGTH_AT, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    "cut short": (GOOD[:-3], ErrorCode.INVALID_RECORD),
    "less than a header": (GOOD[:60], ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "sequence gap": (sequenced(5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "sequence goes back": (sequenced(0, count=1), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "no sequence": (sequenced(-1), ErrorCode.INVALID_RECORD),
    "epoch goes back": (sequenced(2, epoch=2), ErrorCode.INVALID_PRODUCER_EPOCH),
}


@asynccontextmanager
async def broker_with_records() -> AsyncIterator[tuple[Node, Client]]:
    """A broker with some records, and a connection to it."""
    async with World(1, listen=True, message_max_bytes="1000") as world:
        world.create_topic()
        node = world.nodes[1]
        for batch in (GOOD, sequenced(0, count=2, epoch=3)):
            node.append(batch)
        async with connected(node) as client:
            yield node, client


def files(node: Node) -> dict[str, bytes]:
    """Whatever requests write into the partition's directory."""
    # The epochs are written down from time to time, requests or not.
    nodes = {p: n for p, n in node.files.files.items() if not p.endswith("-checkpoint")}
    return {path: bytes(one.seen) for path, one in nodes.items() if path.startswith("/logs/t-0/")}


async def lives(client: Client) -> bool:
    return bool((await client.ask(API_VERSIONS, 0, {}))["api_keys"])


@pytest.mark.parametrize("bad", BAD_BATCHES)
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_bad_batch_gets_its_error_and_the_log_stays(bad: str, acks: int) -> None:
    batch, error = BAD_BATCHES[bad]
    if bad in ("sequence gap", "sequence goes back"):
        batch = patched_epoch(batch)
    async with broker_with_records() as (node, client):
        node.replicas.delete_records(0, [(TopicPartition("t", 0), 3)])
        before = files(node)
        answer = await client.ask(PRODUCE, 9, produce_message("t", batch, acks))
        (partition,) = answer["responses"][0]["partition_responses"]
        assert (ErrorCode(partition["error_code"]), partition["base_offset"]) == (error, -1)
        assert partition["log_start_offset"] == (-1 if _says_little(bad, error) else 3)
        assert files(node) == before
        assert await lives(client)
        good = await client.ask(PRODUCE, 9, produce_message("t", GOOD, acks))
        assert good["responses"][0]["partition_responses"][0]["base_offset"] == 4
        assert node.failures == []


@pytest.mark.req("R5")
async def test_the_records_to_blame_are_named() -> None:
    async with World(1, listen=True) as world:
        world.create_topic()
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "cleanup.policy", "compact"))
        async with connected(world.nodes[1]) as client:
            message = produce_message("t", make_batch([b"v"] * 3), 1)
            answer = await client.ask(PRODUCE, 9, message)
    (partition,) = answer["responses"][0]["partition_responses"]
    assert partition["error_code"] == ErrorCode.INVALID_RECORD
    assert [one["batch_index"] for one in partition["record_errors"]] == [0, 1, 2]
    assert all("key" in one["batch_index_error_message"] for one in partition["record_errors"])
    assert "3 records" in partition["error_message"]


def _says_little(bad: str, error: ErrorCode) -> bool:
    """What Apache Kafka refuses before it looks at the log, or for another reason than its own."""
    none = ("several batches", "less than a header", "empty", "length too long", "cut short")
    is_none = bad.startswith("magic") or bad in none
    return is_none or error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


def patched_epoch(batch: bytes) -> bytes:
    """The same of the producer's current epoch."""
    (sequence,) = struct.unpack_from(">i", batch, 53)
    return sequenced(sequence, epoch=3)


def fetch_of(offset: int, **fields: Any) -> dict[str, Any]:
    message = fetch_message("t", offset)
    (topic,) = message["topics"]
    (partition,) = topic["partitions"]
    partition |= {k: v for k, v in fields.items() if k in ("partition_max_bytes", "partition")}
    topic["topic_id"] = fields.pop("topic_id", TOPIC_ID)
    return message | {k: v for k, v in fields.items() if k not in partition}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (fetch_of(5), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_of(2**63 - 1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_of(-1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_of(-(2**63)), ErrorCode.OFFSET_OUT_OF_RANGE),
        (fetch_of(0, topic_id=UUID(int=99)), ErrorCode.UNKNOWN_TOPIC_ID),
        (fetch_of(0, topic_id=None), ErrorCode.UNKNOWN_TOPIC_ID),
        (fetch_of(0, partition=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_of(0, partition=-7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (fetch_of(0, replica_state={"replica_id": 9, "replica_epoch": 1}), ErrorCode(6)),
        (fetch_of(0, max_bytes=-1, partition_max_bytes=0), ErrorCode.NONE),
        (fetch_of(0, partition_max_bytes=-1), ErrorCode.INVALID_REQUEST),
        (fetch_of(0, replica_state={"replica_id": -2, "replica_epoch": -1}), ErrorCode.NONE),
        (fetch_of(0, max_wait_ms=-1, min_bytes=-1), ErrorCode.NONE),
    ],
)
async def test_a_bad_fetch_gets_its_error_and_the_log_stays(
    message: dict[str, Any], error: ErrorCode
) -> None:
    async with broker_with_records() as (node, client):
        before = files(node)
        answer = await client.ask(FETCH, 17, message)
        (partition,) = answer["responses"][0]["partitions"]
        assert partition["error_code"] == error
        # Whatever the limits say, a client gets on: the first batch is always sent.
        assert bool(partition["records"]) == (error is ErrorCode.NONE)
        assert files(node) == before
        assert await lives(client)


async def test_bad_lookups_get_their_errors() -> None:
    async with broker_with_records() as (node, client):
        for timestamp, error in ((-(2**63), _UNSUPPORTED), (-99, _UNSUPPORTED), (2**63 - 1, 0)):
            asked = {"partition_index": 0, "timestamp": timestamp}
            topics = [{"name": "t", "partitions": [asked]}]
            message = {"replica_id": -1, "isolation_level": 0, "topics": topics}
            answer = await client.ask(LIST_OFFSETS, 7, message)
            (found,) = answer["topics"][0]["partitions"]
            assert (found["error_code"], found["offset"]) == (error, -1)
        older = (-(2**31), 0)
        for epoch, end in ((-1, (-1, -1)), (7, (-1, -1)), (-(2**31), older)):
            asked = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": -1}
            message = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [asked]}]}
            answer = await client.ask(END_OFFSETS, 4, message)
            (found,) = answer["topics"][0]["partitions"]
            assert (found["leader_epoch"], found["end_offset"]) == end
        assert await lives(client)
        assert node.failures == []


@pytest.mark.parametrize("keep", [0, 3, 8, 30])
async def test_a_truncated_request_closes_its_connection_only(keep: int) -> None:
    async with broker_with_records() as (node, client):
        before = files(node)
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        frame = bytearray(200)
        struct.pack_into(">ihhih", frame, 0, keep, PRODUCE, 9, 1, -1)
        writer.write(frame[: 4 + keep])
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await eventually(lambda: len(node._limits._connections) == 1)
        assert files(node) == before
        assert await lives(client)

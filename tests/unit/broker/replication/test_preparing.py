"""Large produced batches are prepared off the event loop, and nothing overtakes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker.log.batches import _scanning as scanning
from broker.log.batches import validation
from broker.log.batches.compression import CODECS
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.metadata.records import TOPIC_RESOURCE, ConfigRecord
from tests.unit.broker.log.batches import keyed_batch, make_batch
from tests.unit.broker.replication.world import World
from tests.unit.broker.server.fakes import connected, produce_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.log.batches._scanning import Scan
    from raftctl.runtime.api import Buffer

pytestmark = pytest.mark.req("N3", "R5")
PRODUCE = 0
MANY = validation.AT_ONCE_RECORDS_MAX + 1
LONG = [b"v" * (validation.AT_ONCE_OPENED_BYTES_MAX + 1)]


def zstd(values: list[bytes]) -> bytes:
    return keyed_batch([(b"k", value) for value in values], codec=CODECS["zstd"])


LARGE = {
    "many records": make_batch([b"v"] * MANY),
    "many packed records": zstd([b"v"] * MANY),
    "unpacks to much": zstd(LONG),
    "damaged, may unpack to much": make_batch([b"v"], attributes=CODECS["zstd"]),
    "large": make_batch([bytes(validation.AT_ONCE_BYTES_MAX)]),
}


@pytest.fixture
def walked_by(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who walked each of the batches: only a worker's walk pauses."""
    walks: list[str] = []

    def scan(records: Buffer, count: int, wanted: Scan, pause: Callable[[], None] | None) -> None:
        walks.append("loop" if pause is None else "worker")
        scanning.scan(records, count, wanted, pause)

    monkeypatch.setattr(validation, "scan", scan)
    return walks


@pytest.mark.parametrize("what", LARGE)
def test_what_may_take_long_is_not_prepared_at_once(what: str) -> None:
    config = TopicConfig(max_message_bytes=100 << 20)
    assert validation.prepared_at_once(LARGE[what], config, 0) is None


def test_what_must_be_packed_anew_is_prepared_at_once_if_it_is_small() -> None:
    config = TopicConfig(compression_type="gzip", max_message_bytes=100 << 20)
    assert validation.prepared_at_once(make_batch([b"v"]), config, 0) is not None
    assert validation.prepared_at_once(make_batch(LONG), config, 0) is None
    assert validation.prepared_at_once(make_batch(LONG), TopicConfig(), 0) is not None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("topic_codec", ["producer", "gzip", "uncompressed"])
def test_both_ways_agree(codec: str, topic_codec: str) -> None:
    config = TopicConfig(compression_type=topic_codec)
    batch: Buffer = keyed_batch([(b"k", b"v"), (b"l", None)], codec=CODECS[codec])
    assert validation.prepared_at_once(batch, config, 2_000) == validation.prepared(
        batch, config, 2_000
    )


def test_a_long_walk_pauses() -> None:
    pauses: list[None] = []
    batch = make_batch([b"v"] * 3_500)
    validation.prepared(batch, TopicConfig(), 0, pause=lambda: pauses.append(None))
    assert len(pauses) == 3


def sequenced(first: int, count: int) -> bytes:
    return make_batch([b"v"] * count, producer_id=9, producer_epoch=0, sequence=first)


@pytest.mark.parametrize("acks", [1, -1])
async def test_requests_behind_a_large_one_are_appended_after_it(
    acks: int, walked_by: list[str]
) -> None:
    async with World(1, listen=True) as world:
        world.create_topic()
        async with connected(world.nodes[1]) as client:
            batches = [sequenced(0, 2), sequenced(2, MANY), sequenced(2 + MANY, 3)]
            for batch in batches:
                client.send(PRODUCE, 9, produce_message("t", batch, acks))
            offsets = []
            for _ in batches:
                _, answer = await client.receive(PRODUCE, 9)
                (partition,) = answer["responses"][0]["partition_responses"]
                offsets.append((ErrorCode(partition["error_code"]), partition["base_offset"]))
    # The one in the middle would be out of order, had the last overtaken it.
    assert offsets == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 2), (ErrorCode.NONE, 2 + MANY)]
    assert walked_by == ["loop", "worker", "loop"]


async def test_a_large_batch_of_a_topic_with_a_codec_is_packed_off_the_loop(
    walked_by: list[str],
) -> None:
    async with World(1, listen=True) as world:
        world.create_topic()
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "compression.type", "gzip"))
        async with connected(world.nodes[1]) as client:
            answer = await client.ask(PRODUCE, 9, produce_message("t", make_batch(LONG), 1))
        (partition,) = answer["responses"][0]["partition_responses"]
        assert (partition["error_code"], partition["base_offset"]) == (0, 0)
        assert world.nodes[1].replica().log.size < len(LONG[0]) // 100
    assert walked_by == ["worker"]


async def test_a_large_batch_that_is_refused_has_its_error() -> None:
    async with World(1, listen=True) as world:
        world.create_topic()
        world.controller.commit(ConfigRecord(TOPIC_RESOURCE, "t", "cleanup.policy", "compact"))
        async with connected(world.nodes[1]) as client:
            large = await client.ask(PRODUCE, 9, produce_message("t", LARGE["many records"], 1))
            small = await client.ask(PRODUCE, 9, produce_message("t", make_batch([b"v"]), 1))
    for answer in (large, small):
        (partition,) = answer["responses"][0]["partition_responses"]
        assert partition["error_code"] == ErrorCode.INVALID_RECORD
        assert partition["log_start_offset"] == 0
        assert partition["record_errors"][0]["batch_index"] == 0


async def test_who_does_not_lead_prepares_nothing(walked_by: list[str]) -> None:
    async with World() as world:
        world.create_topic(leader=2)
        entries = [(world.nodes[1].replica().partition, LARGE["many records"])]
        (refused,) = world.nodes[1].replicas.preparing.prepare(entries)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert walked_by == []

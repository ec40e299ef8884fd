"""Brings the markers of a decided transaction to the leaders of its partitions (row T2).

A partition whose leader does not answer, or is none any more, is tried again with the one that
leads then, until all have their marker, or the coordinator is one no more: who follows it begins
again. Each leader's partitions are tried by themselves, so that a silent leader holds up only its
own. A transactional id has one decided transaction at most, which bounds how much is on its way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from broker.background import Background
from broker.protocol.versions import ApiKey
from broker.transactions._broker_queues import BrokerQueues, Form
from broker.transactions._core import MarkersWritten
from broker.types import EndMarker, TopicPartition, by_topic
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.coordinator import Shard
    from broker.protocol.messages import transactional as wire
    from broker.transactions._core import WriteMarkers
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage

RETRY_S = 0.1
_VERSION = 2
_FINAL = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
"""The partition has its marker, or a later one of the producer."""
Errors = dict[TopicPartition, ErrorCode]


class _Entry(NamedTuple):
    """A marker for partitions of one leader."""

    marker: EndMarker
    partitions: frozenset[TopicPartition]


class MarkerSender:
    """Of one broker. Markers for partitions that it leads itself take the same way."""

    def __init__(
        self,
        config: NodeConfig,
        image: Callable[[], MetadataImage],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._image = image
        self._background = Background(fail)
        self._queues = BrokerQueues(_FORM, config, image, fail)

    def send(self, shard: Shard, command: WriteMarkers) -> None:
        """Begins to send; the shard gets MarkersWritten when every partition has its marker."""
        self._background.start(self._bring(shard, command))

    async def stop(self) -> None:
        """Lets go of everything."""
        await self._background.stop()
        await self._queues.stop()

    async def _bring(self, shard: Shard, command: WriteMarkers) -> None:
        marker = EndMarker(
            command.producer_id,
            command.producer_epoch,
            command.commit,
            command.coordinator_epoch,
            command.client_version,
        )
        await self._until_written(shard, marker, command.partitions)
        written = MarkersWritten(
            command.transactional_id, marker.producer_id, marker.producer_epoch
        )
        while not shard.is_closed:
            try:
                await shard.ask(written)
                return
            except KafkaError:
                await asyncio.sleep(RETRY_S)

    async def _until_written(
        self, shard: Shard, marker: EndMarker, partitions: frozenset[TopicPartition]
    ) -> None:
        """Send the marker until every partition has it, or another coordinator is responsible.

        Partitions are grouped by their leaders, and each group is tried by itself. Leadership may
        move between two attempts, so groups are made again each time.
        """
        left = partitions
        while left and not shard.is_closed:
            groups = self._by_leader(left)
            if len(groups) > 1:
                each = groups.values()
                await asyncio.gather(*(self._until_written(shard, marker, one) for one in each))
                return
            left = frozenset[TopicPartition]()
            for leader, led in groups.items():
                left = await self._write(leader, marker, led)
            if left:
                await asyncio.sleep(RETRY_S)

    def _by_leader(
        self, partitions: frozenset[TopicPartition]
    ) -> dict[int, frozenset[TopicPartition]]:
        """Without partitions that are none any more."""
        topics = self._image().topics
        groups: dict[int, set[TopicPartition]] = {}
        for one in sorted(partitions):
            found = topics.partition(*one)
            if found is not None:
                groups.setdefault(found.leader, set()).add(one)
        return {leader: frozenset(led) for leader, led in groups.items()}

    async def _write(
        self, leader: int, marker: EndMarker, partitions: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Sends once; returns the partitions that have no marker yet."""
        if leader == NO_LEADER:
            return partitions
        try:
            errors: Errors = await self._queues.ask(leader, _Entry(marker, partitions))
        except KafkaError:
            return partitions
        return frozenset(one for one in partitions if errors.get(one) not in _FINAL)


def _message(entries: Sequence[_Entry]) -> wire.WriteTxnMarkersRequest:
    return {"markers": [_marker(*entry) for entry in entries]}


def _marker(marker: EndMarker, partitions: frozenset[TopicPartition]) -> wire.WritableTxnMarker:
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.commit,
        "topics": [
            {"name": name, "partition_indexes": numbers}
            for name, numbers in by_topic(partitions).items()
        ],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
    }


def _answers(message: wire.WriteTxnMarkersResponse) -> list[Errors]:
    return [
        {
            TopicPartition(topic["name"], found["partition_index"]): ErrorCode(found["error_code"])
            for topic in marker["topics"]
            for found in topic["partitions"]
        }
        for marker in message["markers"]
    ]


_FORM = Form(ApiKey.WRITE_TXN_MARKERS, _VERSION, "transactions", _message, _answers)

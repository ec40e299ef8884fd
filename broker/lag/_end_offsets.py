"""The ends of partitions: of those led here at once, of others by their leaders."""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any

from broker.coordinator import BrokerQueues, Form
from broker.protocol.versions import ApiKey
from broker.types import CONSUMER, TopicPartition
from raftctl.metadata.records import NO_LEADER
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from broker.replication.fetcher import Connector
    from broker.replication.partition import Partition
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage

_VERSION = 5
_LATEST = -1
ASKED_MAX = 10_000
"""Partitions of other leaders in one round."""


class EndOffsets:
    """Asks for high watermarks; one broker's, `stop` it."""

    def __init__(
        self,
        config: NodeConfig,
        image: Callable[[], MetadataImage],
        partitions: Mapping[TopicPartition, Partition],
        fail: Callable[[BaseException], None],
        connector: Connector,
    ) -> None:
        """`partitions` are those of which this broker has a replica."""
        self._broker_id = config.node_id
        self._image = image
        self._partitions = partitions
        self._queues = BrokerQueues(_FORM, config, image, fail, connector)

    async def of(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return the ends that are known in time; of a partition without a leader there is none."""
        slices = Slices()
        known: dict[TopicPartition, int] = {}
        asked: dict[asyncio.Future[int | None], TopicPartition] = {}
        for partition in sorted(partitions):
            leader = self._leader(partition)
            replica = self._partitions.get(partition)
            if leader == self._broker_id and replica is not None:
                known[partition] = replica.state.high_watermark
            elif leader not in (NO_LEADER, self._broker_id) and len(asked) < ASKED_MAX:
                asked[self._queues.ask(leader, partition)] = partition
            await slices.rest()
        if asked:
            await asyncio.wait(asked, timeout=timeout_s)
        for future, partition in asked.items():
            if not future.done():
                future.cancel()
            elif future.exception() is None and (end := future.result()) is not None:
                known[partition] = end
        return known

    async def stop(self) -> None:
        """Close the connections."""
        await self._queues.stop()

    def _leader(self, partition: TopicPartition) -> int:
        found = self._image().topics.partition(partition.topic, partition.partition)
        return NO_LEADER if found is None else found.leader


def _message(asked: Sequence[TopicPartition]) -> dict[str, Any]:
    """ListOffsets for partitions, of which those of a topic stand together."""
    return {
        "replica_id": CONSUMER,
        "isolation_level": 0,
        "topics": [
            {"name": topic, "partitions": [_lookup(one.partition) for one in partitions]}
            for topic, partitions in groupby(asked, lambda one: one.topic)
        ],
    }


def _lookup(partition: int) -> dict[str, int]:
    return {"partition_index": partition, "current_leader_epoch": -1, "timestamp": _LATEST}


def _answers(answer: Any) -> list[int | None]:
    """The offsets, in the order of the request; None of a partition that is refused."""
    return [
        None if partition["error_code"] else partition["offset"]
        for topic in answer["topics"]
        for partition in topic["partitions"]
    ]


_FORM = Form(ApiKey.LIST_OFFSETS, _VERSION, "lag", _message, _answers)

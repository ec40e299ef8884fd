"""Brings the markers of a decided transaction to the leaders of its partitions (row T2).

Each leader has a queue, and one request to it is under way at a time, which takes along all that
has come meanwhile. A partition whose leader does not answer, or is none any more, is tried again
with whoever leads then, until all have their marker, or the coordinator is one no more: who follows
it begins again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.coordinator.transactions import MarkersWritten
from broker.protocol.versions import ApiKey
from broker.replication.background import Background
from broker.replication.connection import BrokerConnection, connect
from broker.replication.partition import NO_LEADER
from broker.types import EndMarker, TopicPartition, by_topic
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.coordinator.shard import Shard
    from broker.coordinator.transactions import WriteMarkers
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage

RETRY_S = 0.1
_VERSION = 2
_ENTRIES_AT_ONCE = 1_000
_FINAL = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
"""The partition has its marker, or a later one of the producer."""


class _Entry(NamedTuple):
    """A marker for partitions of one leader, and who waits for their errors."""

    marker: EndMarker
    partitions: frozenset[TopicPartition]
    done: asyncio.Future[dict[TopicPartition, ErrorCode]]


class MarkerSender:
    """Of one broker. Markers for partitions that it leads itself take the same way."""

    def __init__(
        self,
        config: NodeConfig,
        image: Callable[[], MetadataImage],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._image = image
        self._background = Background(fail)
        self._peers: dict[int, _Peer] = {}

    def send(self, shard: Shard, errand: WriteMarkers) -> None:
        """Begins to send; the shard is told when every partition has its marker."""
        self._background.start(self._bring(shard, errand))

    async def stop(self) -> None:
        """Lets go of everything."""
        await self._background.stop()
        for peer in self._peers.values():
            peer.close()

    async def _bring(self, shard: Shard, errand: WriteMarkers) -> None:
        marker = EndMarker(
            errand.producer_id,
            errand.producer_epoch,
            errand.commit,
            errand.coordinator_epoch,
            errand.client_version,
        )
        left = errand.partitions
        while left and not shard.is_closed:
            left = await self._round(marker, left)
            if left:
                await asyncio.sleep(RETRY_S)
        written = MarkersWritten(errand.transactional_id, marker.producer_id, marker.producer_epoch)
        while not shard.is_closed:
            try:
                await shard.ask(written)
                return
            except KafkaError:
                await asyncio.sleep(RETRY_S)

    async def _round(
        self, marker: EndMarker, partitions: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """Sends to each leader once; returns the partitions that have no marker yet."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for one in sorted(partitions):
            leader = self._leader(one)
            if leader is not None:
                by_leader.setdefault(leader, []).append(one)
        calls = [
            self._peer(leader).put(marker, frozenset(led))
            for leader, led in by_leader.items()
            if leader != NO_LEADER
        ]
        left = list(by_leader.get(NO_LEADER, ()))
        for errors in await asyncio.gather(*calls):
            left += [one for one, error in errors.items() if error not in _FINAL]
        return frozenset(left)

    def _leader(self, partition: TopicPartition) -> int | None:
        """The broker that leads it; -1 while none does, None if there is no such partition."""
        found = self._image().topics.partition(*partition)
        return None if found is None else found.leader

    def _peer(self, broker_id: int) -> _Peer:
        peer = self._peers.get(broker_id)
        if peer is None:
            peer = self._peers[broker_id] = _Peer(self._config, broker_id, self._image)
            self._background.start(peer.run())
        return peer


class _Peer:
    """The queue of one broker."""

    def __init__(
        self, config: NodeConfig, broker_id: int, image: Callable[[], MetadataImage]
    ) -> None:
        self._config = config
        self._broker_id = broker_id
        self._image = image
        self._waiting: asyncio.Queue[_Entry] = asyncio.Queue()
        self._connection: BrokerConnection | None = None

    def put(
        self, marker: EndMarker, partitions: frozenset[TopicPartition]
    ) -> asyncio.Future[dict[TopicPartition, ErrorCode]]:
        """The error of each partition, when the broker has answered or failed to."""
        done: asyncio.Future[dict[TopicPartition, ErrorCode]] = (
            asyncio.get_running_loop().create_future()
        )
        self._waiting.put_nowait(_Entry(marker, partitions, done))
        return done

    async def run(self) -> None:
        """Sends what waits, again and again."""
        while True:
            entries = [await self._waiting.get()]
            while len(entries) < _ENTRIES_AT_ONCE and not self._waiting.empty():
                entries.append(self._waiting.get_nowait())
            try:
                answer = await self._call(entries)
                for entry, marker in zip(entries, answer["markers"], strict=True):
                    _settle(entry, _errors(marker))
            except (KafkaError, ValueError):
                self.close()
                for entry in entries:
                    _settle(entry, {})

    def close(self) -> None:
        """Drops the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _call(self, entries: Sequence[_Entry]) -> dict[str, Any]:
        timeout_ms = self._config.replica_socket_timeout_ms
        if self._connection is None:
            broker = self._image().brokers.get(self._broker_id)
            listener = self._config.inter_broker_listener
            endpoint = None if broker is None else broker.endpoint(listener)
            if endpoint is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the leader has no address")
            self._connection = await connect(
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._config.node_id}-transactions",
                response_bytes_max=self._config.socket_request_max_bytes,
                timeout_ms=timeout_ms,
            )
        message = {"markers": [_message(entry) for entry in entries]}
        return await self._connection.call(ApiKey.WRITE_TXN_MARKERS, _VERSION, message, timeout_ms)


def _settle(entry: _Entry, errors: dict[TopicPartition, ErrorCode]) -> None:
    if not entry.done.done():
        unknown = ErrorCode.NETWORK_EXCEPTION
        entry.done.set_result({one: errors.get(one, unknown) for one in entry.partitions})


def _message(entry: _Entry) -> dict[str, Any]:
    marker = entry.marker
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "transaction_result": marker.commit,
        "topics": [
            {"name": name, "partition_indexes": numbers}
            for name, numbers in by_topic(entry.partitions).items()
        ],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
    }


def _errors(marker: dict[str, Any]) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic["name"], found["partition_index"]): ErrorCode(found["error_code"])
        for topic in marker["topics"]
        for found in topic["partitions"]
    }

"""The transaction coordinator of one broker: shards of `__transaction_state`, and their markers.

The markers of a decided transaction go to the leaders of its partitions (row T2). A partition whose
leader does not answer, or has lost the leadership, is tried again with the leader of then. That
ends when all partitions have their marker, or another coordinator is responsible, which begins
again. Each leader's partitions are tried by themselves, so that a silent leader holds up only its
own. A transactional id has one decided transaction at most, which bounds how much is on its way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from broker.background import Background
from broker.coordinator import BrokerQueues, Coordinator, Form
from broker.protocol.versions import ApiKey
from broker.transactions._core import MarkersWritten, Settings, TransactionCore
from broker.types import TRANSACTION_STATE, EndMarker, TopicPartition, by_topic
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.image import EMPTY_IMAGE
from raftctl.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from broker.coordinator import Replicas, Shard
    from broker.protocol.messages import transactional as wire
    from broker.replication.fetcher import Connector
    from broker.transactions._core import Request, WriteMarkers
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage

# --- markers -------------------------------------------------------------------------------------

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
    """Sender of one broker's markers.

    Those for partitions that the broker leads itself take the same way. A second way around the
    network would have its own errors and its own order.
    """

    def __init__(
        self,
        config: NodeConfig,
        image: Callable[[], MetadataImage],
        fail: Callable[[BaseException], None],
        connector: Connector,
    ) -> None:
        self._image = image
        self._background = Background(fail)
        self._queues = BrokerQueues(_FORM, config, image, fail, connector)

    def send(self, shard: Shard, command: WriteMarkers) -> None:
        """Begin to send; the shard gets MarkersWritten when every partition has its marker."""
        self._background.start(self._bring(shard, command))

    async def stop(self) -> None:
        """Stop sending. Markers that are not written yet are for the next coordinator to send."""
        await self._background.stop()
        await self._queues.stop()

    async def _bring(self, shard: Shard, command: WriteMarkers) -> None:
        """Write all markers, then report that until the shard has written it or is closed.

        A report that is refused is not lost: the shard may have too few replicas in sync for a
        moment, and the producer waits for COMPLETE.
        """
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
        # One task a leader from the first division on. A silent leader, asked again every 100 ms
        # until it is replaced, must not hold up the markers of others: consumers wait for these.
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
        """Partitions by the leaders that the newest image names.

        Partitions of deleted topics are left out. They have no log that a marker could end, and a
        transaction that waited for them would never be complete.
        """
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
        """Send once; return the partitions that have no marker yet.

        Whatever the error says, the marker is sent again: it may have been written and its response
        lost. INVALID_PRODUCER_EPOCH is final, since the partition has a marker with a later epoch.
        """
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


# --- the coordinator -----------------------------------------------------------------------------


class TransactionCoordinator:
    """The transactional ids of the partitions of `__transaction_state` that this broker leads.

    Publish images, ask, then `stop`.
    """

    def __init__(
        self,
        config: NodeConfig,
        replicas: Replicas,
        wall_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
        log: FilteringBoundLogger,
        connector: Connector,
    ) -> None:
        settings = _settings(config)
        self._image = EMPTY_IMAGE
        self._sender = MarkerSender(config, lambda: self._image, fail, connector)
        self.shards = Coordinator(
            TRANSACTION_STATE,
            config.node_id,
            lambda journal, epoch: TransactionCore(journal, epoch, settings),
            replicas,
            config,
            wall_ms,
            fail,
            log.bind(logger="broker.transactions", node_id=config.node_id),
        )
        """The shards, which hold the transactional ids."""
        self.shards.on_command = self._sender.send

    def publish(self, image: MetadataImage) -> None:
        """Take up what this broker leads now, once the ReplicaManager has done so.

        A shard that opened before its log is led would find the log refused, and wait to retry.
        """
        self._image = image
        self.shards.publish(image)

    async def stop(self) -> None:
        """Close every shard, and stop sending markers."""
        await self.shards.stop()
        await self._sender.stop()

    def ask(self, request: Request) -> asyncio.Future[Any]:
        """Return the response of the id's shard; see `Shard.ask`.

        Raises INVALID_REQUEST if the transactional id is empty, NOT_COORDINATOR if another broker
        holds it, COORDINATOR_NOT_AVAILABLE while `__transaction_state` does not exist.
        """
        _check_name(request.transactional_id)
        return self.shards.ask(request.transactional_id, request)

    def core_of(self, transactional_id: str) -> TransactionCore:
        """Return the core of the id, to be read only; KafkaError as of `ask`, also if another
        broker holds it.
        """
        _check_name(transactional_id)
        core = self.shards.shard_of(transactional_id).look()
        assert isinstance(core, TransactionCore)
        return core

    def cores(self) -> list[TransactionCore]:
        """Return all cores led here; KafkaError(COORDINATOR_LOAD_IN_PROGRESS) while one loads."""
        found = [shard.look() for shard in self.shards.shards()]
        return [core for core in found if isinstance(core, TransactionCore)]


def _check_name(transactional_id: str) -> None:
    """Every broker refuses an empty id alike, so no coordinator is looked for."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")


def _settings(config: NodeConfig) -> Settings:
    return Settings(
        timeout_max_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        patience_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
    )

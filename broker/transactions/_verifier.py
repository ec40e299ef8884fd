"""Asks a transaction's coordinator whether partitions belong to it (row T3; KIP-890).

A batch of a producer that was fenced may arrive after the marker that ended its transaction. It was
appended as the first batch of another transaction, once: one that no coordinator knew and no marker
ended. Consumers with `read_committed` then waited for ever. So the first batch in a partition is
appended only after the coordinator has said that the transaction is ongoing.

The question takes a round trip, in which a marker may come. A guard is set up at the partition
before the question is asked, and a marker removes it: what the coordinator said may be outdated
then. The batch is refused with NOT_ENOUGH_REPLICAS, and the producer sends it again.

For a producer of transaction version 2 the partition's leader adds the partition, which such
clients do not do any more; for an older one it only asks, since the client has added it before. A
coordinator on this broker is asked directly.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator import BrokerQueues, Form
from broker.coordinator.internal_topics import partition_of
from broker.protocol.versions import ApiKey
from broker.transactions._core import AddPartitions
from broker.types import TRANSACTION_STATE, TopicPartition, by_topic
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from broker.protocol.messages import transactional as wire
    from broker.replication.fetcher import Connector
    from broker.replication.partition import Guard, Partition, Sender
    from broker.transactions._coordinator import TransactionCoordinator
    from raftctl.config import NodeConfig
    from raftctl.metadata.image import MetadataImage

_VERSION = 5
_MAY_CHANGE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""What says nothing about the transaction: it is asked again when the client sends again."""
Errors = dict[TopicPartition, ErrorCode]


class Check(NamedTuple):
    """A batch that may begin its producer's transaction in a partition."""

    partition: TopicPartition
    sender: Sender
    guard: Guard
    adds: bool
    """True if the producer is of transaction version 2."""


class TransactionVerifier:
    """Verifier of one broker, for the partitions that it leads."""

    def __init__(
        self,
        config: NodeConfig,
        image: Callable[[], MetadataImage],
        replicas: Mapping[TopicPartition, Partition],
        transactions: TransactionCoordinator,
        fail: Callable[[BaseException], None],
        connector: Connector,
    ) -> None:
        self._config = config
        self._image = image
        self._replicas = replicas
        self._transactions = transactions
        self._queues = BrokerQueues(_FORM, config, image, fail, connector)

    async def stop(self) -> None:
        """Stop asking."""
        await self._queues.stop()

    def begin(self, partition: TopicPartition, sender: Sender, *, adds: bool) -> Check | None:
        """Return what must be asked before the sender's batch is appended; None if nothing.

        `adds`: the producer is of transaction version 2. Others are asked about only with
        `transaction.partition.verification.enable`.
        """
        replica = self._replicas.get(partition)
        if replica is None or not (adds or self._config.transaction_partition_verification_enable):
            return None
        guard = replica.begin_check(sender)
        return None if guard is None else Check(partition, sender, guard, adds)

    async def ask(self, transactional_id: str, checks: Sequence[Check], *, adds: bool) -> Errors:
        """Why a partition does not belong to the transaction: NONE if it does, NOT_ENOUGH_REPLICAS
        if that cannot be said now, INVALID_PRODUCER_ID_MAPPING of records of several producers.
        """
        # The transactional id is the request's, and one id has one producer: batches of two are
        # those of a client that mixes them up.
        partitions = frozenset(check.partition for check in checks)
        if len({check.sender[:2] for check in checks}) > 1:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        producer_id, producer_epoch, _ = checks[0].sender
        asked = AddPartitions(
            transactional_id, producer_id, producer_epoch, partitions, verify_only=not adds
        )
        errors = await self._answered(asked)
        for check in checks:
            if errors[check.partition] in _MAY_CHANGE:
                errors[check.partition] = ErrorCode.NOT_ENOUGH_REPLICAS
            elif errors[check.partition] is not ErrorCode.NONE:
                # The answer is final. A guard that stayed would let a batch of the producer in
                # that nobody has asked about.
                self._drop(check)
        return errors

    def end(self, check: Check) -> None:
        """See `Partition.end_check`, of what `ask` has found nothing wrong with."""
        replica = self._replicas.get(check.partition)
        if replica is not None:
            replica.end_check(check.sender, check.guard, own_epoch=check.adds)

    def _drop(self, check: Check) -> None:
        replica = self._replicas.get(check.partition)
        if replica is not None:
            replica.guards.drop(check.sender)

    async def _answered(self, asked: AddPartitions) -> Errors:
        """Ask until the markers of the producer's last transaction are written, for a moment.

        A client of version 2 goes on as soon as the outcome is decided. Nearly every first batch of
        its next transaction comes before COMPLETE: refused, each would cost a retry backoff.
        """
        config = self._config
        delay_ms = config.add_partitions_to_txn_retry_backoff_ms
        left_ms = 0 if asked.verify_only else config.add_partitions_to_txn_retry_backoff_max_ms
        while True:
            errors = await self._asked(asked)
            if ErrorCode.CONCURRENT_TRANSACTIONS not in errors.values() or left_ms < delay_ms:
                return errors
            left_ms -= delay_ms
            await asyncio.sleep(delay_ms / 1000)

    async def _asked(self, asked: AddPartitions) -> Errors:
        try:
            leader = self._coordinator_of(asked.transactional_id)
            if leader == self._config.node_id:
                here: Errors = await self._transactions.ask(asked)
                return dict(here)
            there: Errors = await self._queues.ask(leader, asked)
        except KafkaError as error:
            return dict.fromkeys(asked.partitions, error.code)
        return {one: there.get(one, ErrorCode.NETWORK_EXCEPTION) for one in asked.partitions}

    def _coordinator_of(self, transactional_id: str) -> int:
        """The broker that leads the id's partition. Raises COORDINATOR_NOT_AVAILABLE if none does
        at present, or nobody has created the topic.
        """
        topic = self._image().topics.by_name(TRANSACTION_STATE)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader


def _message(entries: Sequence[AddPartitions]) -> wire.AddPartitionsToTxnRequest:
    return {
        "transactions": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "verify_only": one.verify_only,
                "topics": _topics(one.partitions),
            }
            for one in entries
        ]
    }


def _topics(partitions: Collection[TopicPartition]) -> list[wire.AddPartitionsToTxnTopic]:
    return [{"name": name, "partitions": numbers} for name, numbers in by_topic(partitions).items()]


def _answers(message: wire.AddPartitionsToTxnResponse) -> list[Errors]:
    if message["error_code"] != ErrorCode.NONE:
        raise KafkaError(ErrorCode(message["error_code"]))
    return [
        {
            TopicPartition(topic["name"], one["partition_index"]): ErrorCode(
                one["partition_error_code"]
            )
            for topic in found["topic_results"]
            for one in topic["results_by_partition"]
        }
        for found in message["results_by_transaction"]
    ]


_FORM = Form(ApiKey.ADD_PARTITIONS_TO_TXN, _VERSION, "verification", _message, _answers)

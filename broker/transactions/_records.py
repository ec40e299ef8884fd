"""The records of `__transaction_state`: Apache Kafka's TransactionLogKey and TransactionLogValue.

The value of version 1 has tagged fields that older brokers skip. Source: Apache Kafka's message
files of these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

from broker.coordinator.core import KeyValue
from broker.coordinator.record_format import RecordFormat, field, table
from broker.transactions._state import Transaction, TransactionState
from broker.types import TopicPartition, by_topic

if TYPE_CHECKING:
    from broker.protocol import Field, Struct
    from broker.protocol.codec import Message

_NONE = -1


def _partitions(*, flexible: bool) -> Struct:
    ids = field("partition_ids", "int32", array=True)
    return table("PartitionsSchema", field("topic", "string"), ids, flexible=flexible)


def _value(*tagged: Field, flexible: bool) -> Struct:
    partitions = _partitions(flexible=flexible)
    return table(
        "TransactionLogValue",
        field("producer_id", "int64"),
        field("producer_epoch", "int16"),
        field("transaction_timeout_ms", "int32"),
        field("transaction_status", "int8"),
        field("transaction_partitions", "struct", None, nullable=True, array_of=partitions),
        field("transaction_last_update_timestamp_ms", "int64"),
        field("transaction_start_timestamp_ms", "int64"),
        *tagged,
        flexible=flexible,
    )


_TAGGED = (
    field("previous_producer_id", "int64", _NONE, tag=0),
    field("next_producer_id", "int64", _NONE, tag=1),
    field("client_transaction_version", "int16", 0, tag=2),
)
KEY: RecordFormat[Message] = RecordFormat(
    "TransactionLogKey",
    {0: table("TransactionLogKey", field("transactional_id", "string"))},
    written=0,
)
VALUE: RecordFormat[TransactionValue] = RecordFormat(
    "TransactionLogValue",
    {0: _value(flexible=False), 1: _value(*_TAGGED, flexible=True)},
    written=1,
)


class TransactionPartitions(TypedDict):
    """Part of TransactionLogValue."""

    topic: str
    partition_ids: list[int]


class TransactionValue(TypedDict):
    """TransactionLogValue, versions 0 and 1."""

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: list[TransactionPartitions] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    previous_producer_id: NotRequired[int]
    next_producer_id: NotRequired[int]
    client_transaction_version: NotRequired[int]


def written(transactional_id: str, transaction: Transaction | None) -> KeyValue:
    """Return the record of a transactional id's state; a tombstone when it is forgotten."""
    key = KEY.encode({"transactional_id": transactional_id})
    return KeyValue(key, None if transaction is None else VALUE.encode(_message(transaction)))


def _message(transaction: Transaction) -> TransactionValue:
    topics = by_topic(transaction.partitions)
    return {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": transaction.state,
        "transaction_partitions": [
            {"topic": topic, "partition_ids": ids} for topic, ids in topics.items()
        ]
        if transaction.state is not TransactionState.EMPTY
        else None,
        "transaction_last_update_timestamp_ms": transaction.updated_ms,
        "transaction_start_timestamp_ms": transaction.started_ms,
        "previous_producer_id": transaction.previous_producer_id,
        "next_producer_id": transaction.next_producer_id,
        "client_transaction_version": transaction.client_version,
    }


def read(key: bytes, value: bytes | None) -> tuple[str, Transaction | None]:
    """Return a transactional id and its state; ValueError if the record cannot be understood."""
    transactional_id: str = KEY.decode(key)["transactional_id"]
    if value is None:
        return transactional_id, None
    found = VALUE.decode(value)
    return transactional_id, Transaction(
        producer_id=found["producer_id"],
        producer_epoch=found["producer_epoch"],
        timeout_ms=found["transaction_timeout_ms"],
        state=TransactionState(found["transaction_status"]),
        partitions=frozenset(
            TopicPartition(topic["topic"], partition)
            for topic in found["transaction_partitions"] or ()
            for partition in topic["partition_ids"]
        ),
        updated_ms=found["transaction_last_update_timestamp_ms"],
        started_ms=found["transaction_start_timestamp_ms"],
        previous_producer_id=found.get("previous_producer_id", _NONE),
        next_producer_id=found.get("next_producer_id", _NONE),
        client_version=found.get("client_transaction_version", 0),
    )

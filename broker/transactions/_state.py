"""What a transactional id has come to, and how it goes on: pure.

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -> ONGOING -> ...
                     -> PREPARE_ABORT  -> COMPLETE_ABORT  -> ONGOING -> ...

With PREPARE the outcome is decided; COMPLETE says that every partition has its marker. A producer
that starts again leads to EMPTY with the next epoch, which fences those before it.

An epoch has 15 bits. The last one but one ends a producer id: a transaction that is ended then gets
`next_producer_id`, with which the producer goes on at epoch 0. The last epoch is kept for fencing:
without it a producer at the end of its epochs could not be fenced any more.

In `__transaction_state` it is written as Apache Kafka's TransactionLogKey and TransactionLogValue.
The value of version 1 has tagged fields that older brokers skip.

Source: KIP-98, KIP-360 (epochs), KIP-890 (an epoch for each transaction); the message files of
Apache Kafka for the records.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NotRequired, TypedDict

from broker.coordinator.core import KeyValue
from broker.coordinator.record_format import RecordFormat, field, table
from broker.types import TopicPartition, by_topic
from raftctl.errors import invariant

if TYPE_CHECKING:
    from broker.protocol import Field, Struct
    from broker.protocol.codec import Message

NO_ID = -1
NO_TIME = -1
EPOCH_MAX = 2**15 - 1
TRANSACTION_V2 = 2
"""The client version from which on each transaction ends with the next epoch (KIP-890)."""


class TransactionState(enum.IntEnum):
    """The numbers are those of Apache Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def text(self) -> str:
        """The name for clients, such as PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """True if the outcome is decided and markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """True if every partition of the last transaction has its marker."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_commit(self) -> bool:
        """True if the outcome is, or is to be, a commit."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


_SUCCESSORS = {
    TransactionState.EMPTY: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.ONGOING: {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {TransactionState.COMPLETE_ABORT},
    TransactionState.COMPLETE_COMMIT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
    TransactionState.COMPLETE_ABORT: {
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_ABORT,
    },
}
"""The states that may follow each state. PREPARE_ABORT may follow one without a transaction: a
client of version 2 aborts what it has not begun, to get the next epoch (KIP-890).
"""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id and its newest transaction. Times are wall clock, in milliseconds."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    updated_ms: int
    started_ms: int = NO_TIME
    previous_producer_id: int = NO_ID
    """The one before, whose epochs were used up."""
    next_producer_id: int = NO_ID
    """The one that comes with COMPLETE, since the epochs of this are used up."""
    client_version: int = 0
    """The transaction version of the client that ended it."""

    @property
    def is_exhausted(self) -> bool:
        """True if the next epoch is kept for fencing."""
        return self.producer_epoch >= EPOCH_MAX - 1

    @property
    def ends_ms(self) -> int:
        """The time at which an ongoing transaction has taken too long. Its start counts, not its
        last partition: a producer that keeps adding some must not hold back consumers for ever.
        """
        return self.started_ms + self.timeout_ms

    @property
    def next_producer(self) -> tuple[int, int]:
        """(producer id, epoch) with which the producer goes on."""
        if self.next_producer_id != NO_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def goes_on_as(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the producer may go on so as soon as every partition has its marker."""
        return self.state.is_prepared and self.next_producer == (producer_id, producer_epoch)

    def has_ended_for(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the transaction of this id and epoch is the one that is complete, and its
        producer goes on with the next epoch (KIP-890).

        So a request of version 2 that is sent again is distinguished from the next one. A
        transaction that took too long has ended so, too: its producer may agree with that, and goes
        on. An epoch that is kept for fencing is given to nobody.
        """
        if not self.state.is_complete or self.producer_epoch == EPOCH_MAX:
            return False
        if producer_id == self.producer_id:
            return producer_epoch + 1 == self.producer_epoch
        return self.follows(producer_id, producer_epoch)

    def follows(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether its id came when the epochs of this one were used up."""
        moved = producer_id == self.previous_producer_id and self.producer_epoch == 0
        return moved and producer_id != NO_ID and producer_epoch == EPOCH_MAX - 1

    def renewed(self, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Return the state of a producer that starts again, with the next epoch or another id."""
        same = producer_id == self.producer_id
        return Transaction(
            producer_id=producer_id,
            producer_epoch=self.producer_epoch + 1 if same else 0,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            updated_ms=now_ms,
            previous_producer_id=NO_ID if same else self.producer_id,
        )

    def joined(self, partitions: frozenset[TopicPartition], now_ms: int) -> Transaction:
        """Return the transaction with these partitions added; it may begin so."""
        is_open = self.state is TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions | partitions if is_open else partitions,
            updated_ms=now_ms,
            started_ms=self.started_ms if is_open else now_ms,
        )

    def decided(
        self, *, commit: bool, now_ms: int, bump: bool, client_version: int, next_id: int = NO_ID
    ) -> Transaction:
        """Return the outcome; with `bump` its markers bear the next epoch, which fences the
        producer, or is that of its next transaction.
        """
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        is_open = self.state is TransactionState.ONGOING
        return replace(
            self,
            producer_epoch=self.producer_epoch + 1 if bump else self.producer_epoch,
            state=state,
            partitions=self.partitions if is_open else frozenset(),
            updated_ms=now_ms,
            started_ms=self.started_ms if is_open else now_ms,
            next_producer_id=next_id,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return the state when every partition has its marker."""
        commit = self.state is TransactionState.PREPARE_COMMIT
        producer_id, producer_epoch = self.next_producer
        moved = producer_id != self.producer_id
        return replace(
            self,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            state=TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
            previous_producer_id=self.producer_id if moved else self.previous_producer_id,
            next_producer_id=NO_ID,
        )


def check_succession(before: Transaction | None, after: Transaction) -> None:
    """Stop the program unless `after` may follow `before`, the newest record of the same id.

    None: the id is new. Cheap, so it is checked at each write, before a record is in the log that
    no later coordinator could take back.
    """
    invariant(0 <= after.producer_epoch <= EPOCH_MAX, "a producer epoch is within its bounds")
    if before is None:
        invariant(after.state is TransactionState.EMPTY, "a new id begins without a transaction")
        invariant(after.producer_epoch == 0, "a new id begins with epoch 0")
        return
    invariant(after.state in _SUCCESSORS[before.state], "a transaction takes a step there is")
    if after.producer_id == before.producer_id:
        step = after.producer_epoch - before.producer_epoch
        invariant(step in (0, 1), "the epoch of a producer grows by one at most")
        fences = after.state is TransactionState.EMPTY
        invariant(not fences or step == 1, "a producer that starts again fences the one before")
    else:
        moves = after.state is TransactionState.EMPTY or after.state.is_complete
        invariant(moves, "a producer gets another id between transactions only")
        invariant(after.producer_epoch == 0, "another id begins with epoch 0")
        invariant(before.is_exhausted or before.next_producer_id != NO_ID, "an id is used up")
        invariant(after.previous_producer_id == before.producer_id, "the id before is kept")
    if before.state is TransactionState.ONGOING:
        invariant(before.started_ms == after.started_ms, "a transaction keeps the time it began")
        kept = before.partitions <= after.partitions
        invariant(kept, "a partition stays in its transaction until it has its marker")
    if after.state.is_prepared:
        open_ = before.partitions if before.state is TransactionState.ONGOING else frozenset()
        invariant(after.partitions == open_, "markers go to the partitions of the transaction")
    if after.state.is_complete:
        invariant(not after.partitions, "a complete transaction waits for no marker")
        invariant(after.next_producer_id == NO_ID, "the id that was to come has come")


# --- records --------------------------------------------------------------------------------------


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
    field("previous_producer_id", "int64", NO_ID, tag=0),
    field("next_producer_id", "int64", NO_ID, tag=1),
    field("client_transaction_version", "int16", 0, tag=2),
)
RECORD_KEY: RecordFormat[Message] = RecordFormat(
    "TransactionLogKey",
    {0: table("TransactionLogKey", field("transactional_id", "string"))},
    written=0,
)
RECORD_VALUE: RecordFormat[TransactionValue] = RecordFormat(
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


def record_of(transactional_id: str, transaction: Transaction | None) -> KeyValue:
    """Return the record of a transactional id's state; a tombstone when it is forgotten."""
    key = RECORD_KEY.encode({"transactional_id": transactional_id})
    return KeyValue(
        key, None if transaction is None else RECORD_VALUE.encode(_message(transaction))
    )


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


def read_record(key: bytes, value: bytes | None) -> tuple[str, Transaction | None]:
    """Return a transactional id and its state; ValueError if the record cannot be understood."""
    transactional_id: str = RECORD_KEY.decode(key)["transactional_id"]
    if value is None:
        return transactional_id, None
    found = RECORD_VALUE.decode(value)
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
        previous_producer_id=found.get("previous_producer_id", NO_ID),
        next_producer_id=found.get("next_producer_id", NO_ID),
        client_version=found.get("client_transaction_version", 0),
    )

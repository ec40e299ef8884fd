"""What the idempotent producers of one partition sent last (row T1).

Decides whether a batch is next, a repetition of one of the last five, or neither. Leaders check;
followers and recovery only note what the log says. Truncation takes notes back exactly: each note
keeps the state before it until the high watermark, below which no log is cut, has passed it.
Source: KIP-98 and Apache Kafka's broker behaviour.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from broker.log.record_batch import NO_PRODUCER, SEQUENCE_MAX, BatchHeader
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REMEMBERED_BATCHES = 5
_UNDO_ENTRIES_MAX = 100_000


class SentBatch(NamedTuple):
    """A batch in the log, as far as its repetition must be recognised."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer(NamedTuple):
    """A producer's newest epoch and its last batches in it, oldest first; immutable."""

    epoch: int
    batches: tuple[SentBatch, ...]


class _Undo(NamedTuple):
    base_offset: int
    producer_id: int
    before: Producer | None


class ProducerStates:
    """The producers of one partition, by producer id."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._undo: deque[_Undo] = deque()
        self._exact_from = 0
        """`truncate_to` an offset below this needs a rebuild."""

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """What is known of a producer."""
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader) -> SentBatch | None:
        """None if the batch is the next one; the batch in the log if it is a repetition.

        Raises KafkaError: INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER. A producer of
        which nothing is known may begin anywhere: its state may have expired.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            text = f"producer epoch {header.producer_epoch} is older than {producer.epoch}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
        if header.producer_epoch > producer.epoch:
            self._expect(header, 0)
            return None
        first, last = header.base_sequence, header.last_sequence
        for sent in producer.batches:
            if sent.first_sequence == first and sent.last_sequence == last:
                return sent
        before = producer.batches[-1].last_sequence
        self._expect(header, 0 if before == SEQUENCE_MAX else before + 1)
        return None

    def note(self, header: BatchHeader) -> None:
        """Remembers a batch that is in the log now, whatever its sequence."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER or header.is_control:
            return
        before = self._producers.get(producer_id)
        sent = SentBatch(
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
        )
        if before is not None and before.epoch == header.producer_epoch:
            batches = (*before.batches[1 - _REMEMBERED_BATCHES :], sent)
        else:
            batches = (sent,)
        self._producers[producer_id] = Producer(header.producer_epoch, batches)
        self._undo.append(_Undo(header.base_offset, producer_id, before))
        if len(self._undo) > _UNDO_ENTRIES_MAX:
            self._forget_oldest()

    def settle(self, high_watermark: int) -> None:
        """Drops what is kept for truncation below the high watermark."""
        while self._undo and self._undo[0].base_offset < high_watermark:
            self._forget_oldest()

    def truncate_to(self, end_offset: int) -> bool:
        """Takes back the batches at or above `end_offset`; False if a rebuild is needed for it."""
        if end_offset < self._exact_from:
            return False
        while self._undo and self._undo[-1].base_offset >= end_offset:
            undo = self._undo.pop()
            if undo.before is None:
                del self._producers[undo.producer_id]
            else:
                self._producers[undo.producer_id] = undo.before
        return True

    def rebuild(
        self,
        headers: Iterable[BatchHeader],
        base: Mapping[int, Producer] | None = None,
        base_offset: int = 0,
    ) -> None:
        """Starts again from `base`, as of `base_offset`, and the batches after it, oldest first."""
        self._producers = dict(base or {})
        self._undo.clear()
        self._exact_from = base_offset
        for header in headers:
            self.note(header)

    def snapshot(self) -> Mapping[int, Producer]:
        """The producers as they are now, for a snapshot that is written later."""
        return dict(self._producers)

    def last_offsets(self) -> frozenset[int]:
        """The last offset of each producer's newest batch."""
        return frozenset(one.batches[-1].last_offset for one in self._producers.values())

    def expire(self, before_ms: int) -> int:
        """Forgets who sent nothing since `before_ms`, a record timestamp; returns how many.

        Those with batches above the high watermark stay, since these may be taken back.
        """
        held = {undo.producer_id for undo in self._undo}
        silent = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.batches[-1].timestamp < before_ms and producer_id not in held
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def _forget_oldest(self) -> None:
        self._exact_from = self._undo.popleft().base_offset + 1

    @staticmethod
    def _expect(header: BatchHeader, sequence: int) -> None:
        if header.base_sequence != sequence:
            text = (
                f"producer {header.producer_id} sent sequence {header.base_sequence}, "
                f"{sequence} is next"
            )
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, text)

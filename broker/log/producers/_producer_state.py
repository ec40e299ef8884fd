"""The last batches of one partition's idempotent producers, and their transactions (rows T1, T4).

Decides whether a batch is the next one, a repetition of one of the last five, or neither; and where
the first transaction begins that may yet end otherwise. Leaders check a batch first; followers and
recovery only note it.

A truncation takes notes back exactly. Each note keeps the state before it until the high watermark
has passed it: below that, no log is cut. Source: KIP-98 and Apache Kafka's broker.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from broker.log.batches.markers import Marker, MarkerKind
from broker.log.batches.record_batch import NO_PRODUCER, NO_SEQUENCE, SEQUENCE_MAX, BatchHeader
from broker.log.segments.aborted_index import AbortedTransaction
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from broker.types import EndMarker

_REMEMBERED_BATCHES = 5
_UNDO_ENTRIES_MAX = 100_000
NO_OFFSET = -1
NO_COORDINATOR = -1


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
    """None if the newest epoch came with a marker."""
    timestamp: int
    """Of its newest batch or marker."""
    coordinator_epoch: int = NO_COORDINATOR
    """Of the newest marker."""
    open_from: int = NO_OFFSET
    """The first offset of the transaction that is open, or NO_OFFSET."""

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest batch in this epoch; -1 if there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def has_open(self, epoch: int) -> bool:
        """Return whether a transaction of this epoch is open."""
        return self.open_from != NO_OFFSET and self.epoch == epoch


class _Undo(NamedTuple):
    base_offset: int
    producer_id: int
    before: Producer | None


class _Ended(NamedTuple):
    """A transaction whose marker may still be cut off."""

    marker_offset: int
    first: tuple[int, int]


class ProducerStates:
    """The producers of one partition, by producer id."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._undo: deque[_Undo] = deque()
        self._unstable: list[tuple[int, int]] = []
        """(first offset, producer id) of the transactions that may yet end otherwise, in order."""
        self._ended: deque[_Ended] = deque()
        """Those of them that have a marker, in order of the markers."""
        self._exact_from = 0
        """`truncate_to` an offset below this needs a rebuild."""

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> Producer | None:
        """Return the state of a producer."""
        return self._producers.get(producer_id)

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the first transaction that is open, or whose marker may still be cut off."""
        return self._unstable[0][0] if self._unstable else None

    @property
    def markers_are_final(self) -> bool:
        """True if no marker may be cut off any more.

        Only then may a snapshot be taken: it has no room for a transaction whose end may be undone.
        """
        return not self._ended

    def items(self) -> Iterable[tuple[int, Producer]]:
        """Return all producers, by id."""
        return self._producers.items()

    def invariants(self, log_end_offset: int) -> None:
        """Check that the open transactions and the undo entries agree with the producers.

        A transaction that is missing from the unstable ones would let readers of committed records
        see its records before its end; one too many would stop them for ever.
        """
        known = self._producers
        ended = {one.first for one in self._ended}
        opened = {
            (one.open_from, producer_id)
            for producer_id, one in known.items()
            if one.open_from != NO_OFFSET
        }
        invariant(self._unstable == sorted(self._unstable), "open transactions are in order")
        invariant(set(self._unstable) == opened | ended, "what is unstable is open, or just ended")
        invariant(not opened & ended, "a transaction that has ended is not open")
        in_log = not self._unstable or self._unstable[-1][0] < log_end_offset
        invariant(in_log, "a transaction begins within the log")
        undone = [one.base_offset for one in self._undo]
        invariant(undone == sorted(undone), "notes are taken back in the order of the log")
        markers = [one.marker_offset for one in self._ended]
        invariant(markers == sorted(markers), "markers are in the order of the log")
        for one in known.values():
            offsets = [sent.last_offset for sent in one.batches]
            invariant(offsets == sorted(set(offsets)), "a producer's batches are in order")
            within = not offsets or offsets[-1] < log_end_offset
            invariant(within, "a producer's last batch is in the log")
            invariant(len(offsets) <= _REMEMBERED_BATCHES, "few batches of a producer are known")

    def check(self, header: BatchHeader) -> SentBatch | None:
        """Return None for the next batch, or the batch in the log that this one repeats.

        Raises KafkaError: INVALID_PRODUCER_EPOCH for an older epoch, OUT_OF_ORDER_SEQUENCE_NUMBER
        for a gap, INVALID_TXN_STATE for a plain batch within a transaction. An unknown producer may
        begin with any sequence, because its state may have expired.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            text = f"producer epoch {header.producer_epoch} is older than {producer.epoch}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
        if header.base_sequence == NO_SEQUENCE:
            return None
        if header.producer_epoch > producer.epoch:
            self._expect(header, 0)
            return None
        if producer.open_from != NO_OFFSET and not header.is_transactional:
            text = f"producer {header.producer_id} has a transaction open here"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)
        first, last = header.base_sequence, header.last_sequence
        for sent in producer.batches:
            if sent.first_sequence == first and sent.last_sequence == last:
                return sent
        before = producer.last_sequence
        self._expect(header, 0 if before == SEQUENCE_MAX else before + 1)
        return None

    def check_marker(self, marker: EndMarker) -> bool:
        """Return whether the log has this marker already; in doubt it is written again.

        Before version 2 the next transaction has the same epoch, so the two look the same.
        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        known = self._producers.get(marker.producer_id)
        if known is None:
            return False
        if marker.producer_epoch < known.epoch:
            text = f"a marker of epoch {marker.producer_epoch}, the producer is at {known.epoch}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
        if marker.coordinator_epoch < known.coordinator_epoch:
            found = f"{marker.coordinator_epoch} is older than {known.coordinator_epoch}"
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, f"coordinator epoch {found}")
        return marker.bears_next_epoch and marker.producer_epoch == known.epoch

    def note(self, header: BatchHeader) -> None:
        """Note a batch of records that is in the log now, whatever its sequence."""
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
        coordinator_epoch = NO_COORDINATOR if before is None else before.coordinator_epoch
        open_from = NO_OFFSET if before is None else before.open_from
        if header.is_transactional and open_from == NO_OFFSET:
            open_from = header.base_offset
            insort(self._unstable, (open_from, producer_id))
        after = Producer(
            header.producer_epoch, batches, header.max_timestamp, coordinator_epoch, open_from
        )
        self._put(header, before, after)

    def note_marker(self, header: BatchHeader, marker: Marker) -> AbortedTransaction | None:
        """Note a marker that is in the log now; return the transaction if it was aborted."""
        producer_id = header.producer_id
        before = self._producers.get(producer_id)
        same_epoch = before is not None and before.epoch == header.producer_epoch
        batches = before.batches if before is not None and same_epoch else ()
        after = Producer(
            header.producer_epoch, batches, header.max_timestamp, marker.coordinator_epoch
        )
        self._put(header, before, after)
        if before is None or before.open_from == NO_OFFSET:
            return None
        first = (before.open_from, producer_id)
        self._ended.append(_Ended(header.base_offset, first))
        if marker.kind is MarkerKind.COMMIT:
            return None
        stable = min((one.open_from for one in self._open()), default=header.last_offset + 1)
        return AbortedTransaction(producer_id, before.open_from, header.last_offset, stable)

    def _open(self) -> Iterator[Producer]:
        """Return the producers that have a transaction open."""
        for _, producer_id in self._unstable:
            producer = self._producers[producer_id]
            if producer.open_from != NO_OFFSET:
                yield producer

    def _put(self, header: BatchHeader, before: Producer | None, after: Producer) -> None:
        newest = self._undo[-1].base_offset if self._undo else -1
        invariant(newest <= header.base_offset, "batches are noted in the order of the log")
        self._producers[header.producer_id] = after
        self._undo.append(_Undo(header.base_offset, header.producer_id, before))
        if len(self._undo) > _UNDO_ENTRIES_MAX:
            self._forget_oldest()

    def prune_undo(self, high_watermark: int) -> None:
        """Drop the undo entries below the high watermark, and make the markers there final."""
        while self._undo and self._undo[0].base_offset < high_watermark:
            self._forget_oldest()
        while self._ended and self._ended[0].marker_offset < high_watermark:
            self._unstable.remove(self._ended.popleft().first)

    def truncate_to(self, end_offset: int) -> bool:
        """Take back the batches at or above `end_offset`; return False if a rebuild is needed."""
        if end_offset < self._exact_from:
            return False
        while self._ended and self._ended[-1].marker_offset >= end_offset:
            self._ended.pop()
        del self._unstable[bisect_left(self._unstable, (end_offset, -1)) :]
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
        """Start again from `base`, as of `base_offset`, and the batches after it, oldest first."""
        self._producers = dict(base or {})
        self._undo.clear()
        self._ended.clear()
        self._unstable = sorted(
            (producer.open_from, producer_id)
            for producer_id, producer in self._producers.items()
            if producer.open_from != NO_OFFSET
        )
        self._exact_from = base_offset
        for header in headers:
            self.note(header)

    def snapshot(self) -> Mapping[int, Producer]:
        """Return the producers as they are now, for a snapshot that is written later."""
        return dict(self._producers)

    def last_offsets(self) -> frozenset[int]:
        """Return the last offset of each producer's newest batch, which compaction keeps."""
        known = self._producers.values()
        return frozenset(one.batches[-1].last_offset for one in known if one.batches)

    def without_batches(self) -> frozenset[tuple[int, int]]:
        """Return (producer id, epoch) of the producers whose epoch only a marker has."""
        known = self._producers.items()
        return frozenset((number, one.epoch) for number, one in known if not one.batches)

    def expire(self, before_ms: int) -> int:
        """Forget producers without a batch since `before_ms`, a record timestamp; return how many.

        Producers with batches above the high watermark stay, since these may be taken back. So do
        those with an open transaction.
        """
        held = {undo.producer_id for undo in self._undo}
        silent = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.timestamp < before_ms
            and producer.open_from == NO_OFFSET
            and producer_id not in held
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

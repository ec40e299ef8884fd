"""Records on their way into the log: appends that follow each other share batches.

A batch costs a CRC, a write and a round of replication whatever it holds, so appends of one turn of
the event loop are gathered first (Kafka's `BatchAccumulator`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.raft.events import Proposed
from raftctl.raft.messages import Offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHARED_BATCH_BYTES_MAX = 1024 * 1024
"""Appends share a batch up to this size."""


class Append(NamedTuple):
    """Packed records, one after the other, that stand in one batch."""

    payload: bytes
    record_count: int
    timestamp_ms: int
    """The wall clock's time when it was appended; a batch that is shared has that of the last."""
    alone: bool = False
    """True if it shares its batch with no other append."""


class BatchAccumulator:
    """The appends of one turn of the event loop, with the offsets they will stand at."""

    def __init__(self) -> None:
        self._pending: list[Append] = []
        self._end_offset = Offset(0)

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def bytes(self) -> int:
        """The size of what is pending."""
        return sum(len(append.payload) for append in self._pending)

    def add(self, append: Append, log_end_offset: Offset) -> Offset:
        """Add records and return the offset of the last.

        `log_end_offset` counts for the first append only: the caller drains before the log grows.
        """
        if not self._pending:
            self._end_offset = log_end_offset
        self._pending.append(append)
        self._end_offset = Offset(self._end_offset + append.record_count)
        return Offset(self._end_offset - 1)

    def drain(self) -> Iterator[Proposed]:
        """Take all that is pending as proposals, one for each batch."""
        pending, self._pending = self._pending, []
        for append in shared(pending):
            yield Proposed(append.payload, append.record_count, append.timestamp_ms)

    def clear(self) -> None:
        """Drop what is pending."""
        self._pending.clear()


def shared(appends: Sequence[Append]) -> Iterator[Append]:
    """Join appends that follow each other up to the size of a shared batch; split none."""
    payloads: list[bytes] = []
    size = count = timestamp_ms = 0
    alone = False
    for append in appends:
        full = size + len(append.payload) > SHARED_BATCH_BYTES_MAX
        if payloads and (full or alone or append.alone):
            yield Append(b"".join(payloads), count, timestamp_ms)
            payloads, size, count = [], 0, 0
        alone, timestamp_ms = append.alone, append.timestamp_ms
        payloads.append(append.payload)
        size += len(append.payload)
        count += append.record_count
    if payloads:
        yield Append(b"".join(payloads), count, timestamp_ms)

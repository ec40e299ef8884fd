"""Records on their way into the log: appends that follow each other share batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
    """Whether it shares its batch with nothing."""


def shared(appends: Sequence[Append]) -> Iterator[Append]:
    """Joins appends that follow each other up to the size of a shared batch; splits none."""
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

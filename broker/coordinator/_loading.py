"""Reads the log of a partition of an internal topic, to replay it into a core.

It reads as a consumer does, in slices and up to the high watermark, so that a coordinator never
shows what may yet be cut off; what is cold comes through the broker's cold reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.log.batches import markers
from broker.log.batches.markers import MarkerKind
from broker.log.batches.record_batch import NO_PRODUCER, split_fetched
from broker.log.batches.records import keys_and_values
from broker.types import CONSUMER, EARLIEST, LATEST, FetchParams, FetchPartition, OffsetLookup
from raftctl.errors import ErrorCode, invariant

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from broker.coordinator._cooperative import TurnQueue
    from broker.types import FetchResult, OffsetResult, TopicPartition
    from raftctl.runtime.api import Piece

RECORDS_AT_ONCE = 500
"""After so many replayed records others have their turn: some milliseconds."""
_WAIT_MS = 500
_LOG_END = -2
"""Any replica id but a consumer's: LATEST is the end of the log then, not the high watermark."""


class LogReader(Protocol):
    """What loading needs of the ReplicaManager."""

    def fetch(
        self, params: FetchParams, partitions: list[FetchPartition]
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        """Reads from each partition."""

    def list_offsets(
        self, lookups: Sequence[OffsetLookup], replica_id: int
    ) -> list[OffsetResult] | asyncio.Future[list[OffsetResult]]:
        """Results in order of the lookups."""


class LoadError(Exception):
    """The log cannot be read now."""


async def bounds(reader: LogReader, partition: TopicPartition, leader_epoch: int) -> range:
    """From the start of the log to its end, committed or not. LoadError if not the leader."""
    start = await _offset(reader, OffsetLookup(partition, leader_epoch, EARLIEST))
    end = await _offset(reader, OffsetLookup(partition, leader_epoch, LATEST))
    invariant(0 <= start <= end, "a log begins before it ends")
    return range(start, end)


async def _offset(reader: LogReader, lookup: OffsetLookup) -> int:
    found = reader.list_offsets([lookup], _LOG_END)
    (result,) = found if isinstance(found, list) else await found
    _check(result.error)
    return result.offset


def is_committed(reader: LogReader, partition: TopicPartition, end: int) -> bool:
    """Whether the high watermark has reached `end`."""
    found = reader.list_offsets([OffsetLookup(partition, -1, LATEST)], CONSUMER)
    return isinstance(found, list) and not found[0].error and found[0].offset >= end


async def replay_log(
    reader: LogReader,
    partition: TopicPartition,
    leader_epoch: int,
    slice_bytes: int,
    replay: Callable[[Sequence[tuple[bytes | None, bytes | None]], int], None],
    ended: Callable[[int, bool], None],
    turns: TurnQueue,
) -> int:
    """Replays what the log holds now, once that is committed; returns how many records these are.

    Keys and values come some at a time, those of a transaction with its producer's id; `ended` is
    called for markers, with whether they commit. LoadError or KafkaError if the log cannot be read.
    """
    found = await bounds(reader, partition, leader_epoch)
    offset, count = found.start, 0
    while offset < found.stop:
        data = await _slice(reader, partition, leader_epoch, offset, slice_bytes)
        turn = 0
        for header, batch in split_fetched(data):
            if header.next_offset <= offset:
                continue
            offset = header.next_offset
            if header.is_control:
                if (marker := markers.parse(batch, header)) is not None:
                    ended(header.producer_id, marker.kind is MarkerKind.COMMIT)
                continue
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            records = keys_and_values(batch, header)
            for start in range(0, len(records), RECORDS_AT_ONCE):
                part = records[start : start + RECORDS_AT_ONCE]
                replay(part, producer_id)
                turn += len(part)
                if turn >= RECORDS_AT_ONCE:
                    count, turn = count + turn, 0
                    await turns.next()
        count += turn
    return count


async def _slice(
    reader: LogReader, partition: TopicPartition, leader_epoch: int, offset: int, size: int
) -> bytes:
    """Whole batches from `offset` on; nothing if none is committed within a while."""
    params = FetchParams(CONSUMER, -1, _WAIT_MS, 1, size, read_committed=False)
    wanted = FetchPartition(partition, None, leader_epoch, offset, -1, 0, size)
    found = reader.fetch(params, [wanted])
    (result,) = found if isinstance(found, list) else await found
    _check(result.error)
    return b"".join(map(_bytes, result.records))


def _bytes(piece: Piece) -> bytes | bytearray | memoryview:
    if isinstance(piece, bytes | bytearray | memoryview):
        return piece
    return piece.read(0, len(piece))


def _check(error: ErrorCode) -> None:
    if error is not ErrorCode.NONE:
        raise LoadError(error.name)

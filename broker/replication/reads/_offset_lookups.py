"""Look-ups of timestamps and leader epochs in the logs of a broker's partitions.

Leader epochs and the ends of logs are in memory. A timestamp may have to be looked up in pages that
are not. A worker reads those first, so that the disk does not stall the event loop. It also opens
batches that are compressed or have many records.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from broker.log.batches import records
from broker.log.batches.validation import AT_ONCE_RECORDS_MAX
from broker.replication.reads.cold_reads import WARMINGS_MAX
from broker.types import EpochEndOffset, OffsetResult
from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.log.batches.record_batch import BatchHeader
    from broker.log.batches.records import TimestampOffset
    from broker.replication.partition import Partition
    from broker.types import OffsetLookup, TopicPartition
    from raftctl.errors import ErrorCode
    from raftctl.runtime.api import Buffer, Worker

    _Call = Callable[[], TimestampOffset | KafkaError | None]

_NO_EPOCH = EpochEndOffset(-1, -1)


class _ToOpenError(Exception):
    """A batch that a worker must search before the lookup can go on."""

    def __init__(self, key: tuple[object, ...], call: _Call) -> None:
        super().__init__()
        self.key = key
        self.call = call


class _Searches:
    """The worker's findings in the batches of one lookup."""

    def __init__(self) -> None:
        self.found: dict[tuple[object, ...], TimestampOffset | KafkaError | None] = {}

    def search(
        self, batch: Buffer, header: BatchHeader, timestamp: int, offset: int
    ) -> TimestampOffset | None:
        """See `records.Search`; raises _ToOpenError for what it does not know and may take long."""
        if not header.codec and header.record_count <= AT_ONCE_RECORDS_MAX:
            return records.first_at_or_after(batch, header, timestamp, offset)
        key = (header, timestamp, offset)
        if key not in self.found:
            # The log may be cut meanwhile: these bytes are the worker's own.
            raise _ToOpenError(key, partial(_searched, bytes(batch), header, timestamp, offset))
        found = self.found[key]
        if isinstance(found, KafkaError):
            raise found
        return found


def _searched(
    batch: bytes, header: BatchHeader, timestamp: int, offset: int
) -> TimestampOffset | KafkaError | None:
    try:
        return records.first_at_or_after(batch, header, timestamp, offset)
    except KafkaError as error:
        return error


class OffsetLookups:
    """The lookups of one broker."""

    def __init__(
        self,
        worker: Worker,
        replicas: Mapping[TopicPartition, Partition],
        absence: Callable[[TopicPartition], ErrorCode],
    ) -> None:
        """`replicas` is the broker's own table; `absence` says why a partition is not in it."""
        self._worker = worker
        self._replicas = replicas
        self._absence = absence

    def by_time(
        self, lookups: Sequence[OffsetLookup], replica_id: int
    ) -> list[OffsetResult] | asyncio.Future[list[OffsetResult]]:
        """Return results in the order of the lookups, later if a worker has to read first."""
        if self._cold(lookups) is None:
            with contextlib.suppress(_ToOpenError):
                return [self._find(lookup, replica_id, _Searches()) for lookup in lookups]
        # A task, so that a client that leaves ends it.
        return asyncio.get_running_loop().create_task(self._warmed(lookups, replica_id))

    def by_leader_epoch(
        self, lookups: Sequence[tuple[TopicPartition, int, int]]
    ) -> list[tuple[ErrorCode, EpochEndOffset]]:
        """Return the end of each (partition, current leader epoch, leader epoch), in order."""
        results = []
        for partition, current_leader_epoch, leader_epoch in lookups:
            replica = self._replicas.get(partition)
            if replica is None:
                results.append((self._absence(partition), _NO_EPOCH))
            else:
                results.append(replica.end_offset_for_epoch(current_leader_epoch, leader_epoch))
        return results

    def _find(self, lookup: OffsetLookup, replica_id: int, searches: _Searches) -> OffsetResult:
        replica = self._replicas.get(lookup.partition)
        if replica is None:
            return OffsetResult(self._absence(lookup.partition))
        return replica.find_offset(lookup, replica_id, searches.search)

    async def _warmed(self, lookups: Sequence[OffsetLookup], replica_id: int) -> list[OffsetResult]:
        for _ in range(WARMINGS_MAX):
            call = self._cold(lookups)
            if call is None:
                break
            # If the disk refuses, so it will when it is read.
            with contextlib.suppress(OSError):
                await self._worker.submit(call)
        return [await self._found(lookup, replica_id) for lookup in lookups]

    async def _found(self, lookup: OffsetLookup, replica_id: int) -> OffsetResult:
        searches = _Searches()
        while True:
            try:
                return self._find(lookup, replica_id, searches)
            except _ToOpenError as wanted:
                searches.found[wanted.key] = await self._worker.submit(wanted.call)

    def _cold(self, lookups: Sequence[OffsetLookup]) -> Callable[[], None] | None:
        """Return the worker's next call; None if everything is in memory."""
        for lookup in lookups:
            replica = self._replicas.get(lookup.partition)
            call = None if replica is None else replica.warm_lookup(lookup)
            if call is not None:
                return call
        return None

    def close(self) -> None:
        """Ends the worker."""
        self._worker.close()

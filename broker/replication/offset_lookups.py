"""Answers where times and leader epochs are in the logs of a broker's partitions.

Leader epochs and the ends of logs are in memory. A time may have to be looked up in pages that are
not: a worker reads them first, so that the disk does not stall the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from broker.replication.cold_reads import WARMINGS_MAX
from broker.types import EpochEndOffset, OffsetResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.replication.hosted import HostedPartition
    from broker.types import OffsetLookup, TopicPartition
    from raftctl.errors import ErrorCode
    from raftctl.runtime.api import Worker

_NO_EPOCH = EpochEndOffset(-1, -1)


class OffsetLookups:
    """The lookups of one broker."""

    def __init__(
        self,
        worker: Worker,
        hosted: Mapping[TopicPartition, HostedPartition],
        absence: Callable[[TopicPartition], ErrorCode],
    ) -> None:
        """`hosted` is the broker's own table; `absence` says why a partition is not in it."""
        self._worker = worker
        self._hosted = hosted
        self._absence = absence

    def by_time(
        self, lookups: Sequence[OffsetLookup], replica_id: int
    ) -> list[OffsetResult] | asyncio.Future[list[OffsetResult]]:
        """Results in order of the lookups, later if a worker has to read first."""
        if self._cold(lookups) is None:
            return self._find(lookups, replica_id)
        # A task, so that a client that leaves ends it.
        return asyncio.get_running_loop().create_task(self._warmed(lookups, replica_id))

    def by_leader_epoch(
        self, lookups: Sequence[tuple[TopicPartition, int, int]]
    ) -> list[tuple[ErrorCode, EpochEndOffset]]:
        """Of (partition, current leader epoch, leader epoch); results in order."""
        results = []
        for partition, current_leader_epoch, leader_epoch in lookups:
            hosted = self._hosted.get(partition)
            if hosted is None:
                results.append((self._absence(partition), _NO_EPOCH))
            else:
                results.append(hosted.end_offset_for_epoch(current_leader_epoch, leader_epoch))
        return results

    def _find(self, lookups: Sequence[OffsetLookup], replica_id: int) -> list[OffsetResult]:
        results = []
        for lookup in lookups:
            hosted = self._hosted.get(lookup.partition)
            if hosted is None:
                results.append(OffsetResult(self._absence(lookup.partition)))
            else:
                results.append(hosted.find_offset(lookup, replica_id))
        return results

    async def _warmed(self, lookups: Sequence[OffsetLookup], replica_id: int) -> list[OffsetResult]:
        for _ in range(WARMINGS_MAX):
            call = self._cold(lookups)
            if call is None:
                break
            # If the disk refuses, so it will when it is read.
            with contextlib.suppress(OSError):
                await self._worker.submit(call)
        return self._find(lookups, replica_id)

    def _cold(self, lookups: Sequence[OffsetLookup]) -> Callable[[], None] | None:
        """What a worker must call next; None if all is in memory."""
        for lookup in lookups:
            hosted = self._hosted.get(lookup.partition)
            call = None if hosted is None else hosted.warm_lookup(lookup)
            if call is not None:
                return call
        return None

    def close(self) -> None:
        """Ends the worker."""
        self._worker.close()

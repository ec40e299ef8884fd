"""Brings the pages of a fetch into memory on workers: a disk must not stall the event loop.

A reader of old batches is catching up and soon reads on. So more is read ahead while its response
is on the way.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from broker.log.segments import Segment
    from broker.replication.partition import Partition
    from broker.types import FetchParams, FetchPartition, TopicPartition
    from raftctl.runtime.api import Worker

WARMINGS_MAX = 64
"""The number of cold pieces of one response; more are read on the event loop."""
WORKERS = 4
"""The number of parallel reads, which disks like; those of one partition follow each other."""


class _Cold(NamedTuple):
    """What is not in memory, and whose it is."""

    replica: Partition
    call: Callable[[], None]


class ColdReads:
    """The reads from disk of one broker."""

    def __init__(
        self, workers: Sequence[Worker], replicas: Mapping[TopicPartition, Partition]
    ) -> None:
        """`replicas` is the broker's own table."""
        self._workers = workers
        self._replicas = replicas
        self._ahead: dict[TopicPartition, asyncio.Future[None]] = {}
        """Reads ahead that are under way, one a partition."""

    def is_cold(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> bool:
        """Return whether the fetch must wait for `warm`."""
        return self._find(params, partitions) is not None

    async def warm(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> None:
        """Wait until the pages of the fetch are in memory."""
        for _ in range(WARMINGS_MAX):
            cold = self._find(params, partitions)
            if cold is None:
                return
            ahead = self._ahead.get(cold.replica.partition)
            if ahead is not None:
                # It is just being read.
                await asyncio.wait([ahead])
                continue
            try:
                await self._worker(cold.replica).submit(cold.call)
            except OSError as error:
                self._failed(cold.replica, error)

    def read_ahead(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> None:
        """Start reading the pages that follow, unless they are in memory; does not wait."""
        for replica, segment, wanted, size in self._reads(params, partitions):
            if replica.partition in self._ahead:
                continue
            call = segment.warm_ahead(wanted.fetch_offset, size)
            if call is not None:
                self._start(replica, call)

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.close()

    def _find(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> _Cold | None:
        for replica, segment, wanted, size in self._reads(params, partitions):
            call = segment.warm(wanted.fetch_offset, size)
            if call is not None:
                return _Cold(replica, call)
        return None

    def _reads(
        self, params: FetchParams, partitions: Sequence[FetchPartition]
    ) -> Iterator[tuple[Partition, Segment, FetchPartition, int]]:
        """Yield the reads of a fetch: the segment, and at most how many bytes of it."""
        left = params.max_bytes
        for step in range(len(partitions)):
            wanted = partitions[(params.first + step) % len(partitions)]
            replica = self._replicas.get(wanted.partition)
            if replica is None or replica.log.offline is not None or left <= 0:
                continue
            records = replica.log.log_end_offset - wanted.fetch_offset
            if records <= 0:
                continue
            size = max(min(left, wanted.max_bytes), 1)
            yield replica, replica.log.segment_at(wanted.fetch_offset), wanted, size
            # Each record has a byte at least.
            left -= min(size, records)

    def _start(self, replica: Partition, call: Callable[[], None]) -> None:
        try:
            future = self._worker(replica).submit(call)
        except KafkaError:
            # The disk is far behind: who needs these bytes will wait for them.
            return
        invariant(replica.partition not in self._ahead, "a partition is read ahead once")
        self._ahead[replica.partition] = future

        def done(future: asyncio.Future[None]) -> None:
            del self._ahead[replica.partition]
            if not future.cancelled() and isinstance(error := future.exception(), OSError):
                self._failed(replica, error)

        future.add_done_callback(done)

    def _failed(self, replica: Partition, error: OSError) -> None:
        if self._replicas.get(replica.partition) is replica:
            replica.log.failed(error)

    def _worker(self, replica: Partition) -> Worker:
        # Python's own hash differs from run to run.
        return self._workers[zlib.crc32(str(replica.partition).encode()) % len(self._workers)]

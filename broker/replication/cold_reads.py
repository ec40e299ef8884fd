"""Brings what a fetch is about to read into memory, on a worker: a disk must not stall the loop."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.replication.hosted import HostedPartition
    from broker.types import FetchParams, FetchPartition, TopicPartition
    from raftctl.runtime.api import Worker

WARMINGS_MAX = 64
"""More cold pieces than that in one answer are waited for on the loop."""


class ColdReads:
    """The reads from disk of one broker, one after the other."""

    def __init__(self, worker: Worker, hosted: Mapping[TopicPartition, HostedPartition]) -> None:
        """`hosted` is the broker's own table."""
        self._worker = worker
        self._hosted = hosted

    def find(
        self, params: FetchParams, partitions: Sequence[FetchPartition]
    ) -> Callable[[], None] | None:
        """What a worker must call first; None if all that the fetch reads is in memory."""
        left = params.max_bytes
        for step in range(len(partitions)):
            wanted = partitions[(params.first + step) % len(partitions)]
            hosted = self._hosted.get(wanted.partition)
            if hosted is None or left <= 0:
                continue
            size = max(min(left, wanted.max_bytes), 1)
            call = hosted.log.segment_at(wanted.fetch_offset).warm(wanted.fetch_offset, size)
            if call is not None:
                return call
            # Each record has a byte at least.
            left -= max(0, min(size, hosted.log.log_end_offset - wanted.fetch_offset))
        return None

    async def warm(self, params: FetchParams, partitions: Sequence[FetchPartition]) -> None:
        """Waits until what the fetch reads is in memory."""
        for _ in range(WARMINGS_MAX):
            call = self.find(params, partitions)
            if call is None:
                return
            # If the disk refuses, so it will when it is read.
            with contextlib.suppress(OSError):
                await self._worker.submit(call)

    def close(self) -> None:
        """Ends the worker."""
        self._worker.close()

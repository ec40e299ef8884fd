"""Where `flush.on.ack` is set, acks=all means fsynced on every in-sync replica (row L8).

A leader counts its own log only as far as it is durable, so that the high watermark, and with it
acks=all and what consumers see, waits for its disk. A follower fetches from its log end only when
all below is durable, so that what it asks for still says what it has after a loss of power.

One flush of a partition is under way at a time: what is appended meanwhile shares the next one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.replication.hosted import HostedPartition


class AckFlusher:
    """Flushes the partitions that a broker leads."""

    def __init__(self, flushed: Callable[[HostedPartition], None]) -> None:
        """`flushed` is told of each partition of which more is durable."""
        self._flushed = flushed
        self._running: dict[HostedPartition, None] = {}

    def request(self, hosted: HostedPartition) -> None:
        """Flushes what the partition's log has, if its acknowledgements wait for that."""
        if hosted in self._running or not hosted.awaits_flush:
            return
        self._running[hosted] = None
        done = hosted.log.flush_through(hosted.log.log_end_offset)
        done.add_done_callback(partial(self._finished, hosted, hosted.log.recovery_point))

    def _finished(
        self, hosted: HostedPartition, durable_before: int, done: asyncio.Future[None]
    ) -> None:
        del self._running[hosted]
        # A disk that refuses is the log directory's affair; nothing is acknowledged meanwhile.
        if done.cancelled() or done.exception() is not None:
            return
        if hosted.log.recovery_point > durable_before:
            self._flushed(hosted)
            self.request(hosted)

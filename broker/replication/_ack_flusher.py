"""Flushes that acknowledgements wait for (row L8).

With `flush.messages` no replica has more unflushed records than that when it answers, whatever the
acks. Where `flush.on.ack` is set, acks=all means fsynced on every in-sync replica.

A leader counts its own log only up to its durable end. So the high watermark, and with it acks=all
and what consumers see, waits for its disk. A follower fetches from its log end only when all below
is durable, so that its position is still true after a loss of power.

One flush of a partition is under way at a time; batches appended meanwhile share the next one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.replication.partition import Partition
    from broker.types import AppendResult


class AckFlusher:
    """Flushes the partitions that a broker leads."""

    def __init__(self, flushed: Callable[[Partition], None]) -> None:
        """`flushed` is called with each partition of which more is durable."""
        self._flushed = flushed
        self._running: dict[Partition, None] = {}

    def answer(
        self, results: list[AppendResult], appended: Sequence[Partition | None]
    ) -> list[AppendResult] | asyncio.Future[list[AppendResult]]:
        """Return the results of acks=1, once the flushes that are due are done."""
        flushes = {
            index: replica.log.flush_through(replica.log.log_end_offset)
            for index, replica in enumerate(appended)
            if replica is not None and replica.is_flush_due and not results[index].error
        }
        if not flushes:
            return results
        return asyncio.get_running_loop().create_task(_flushed_first(results, flushes))

    def request(self, replica: Partition) -> None:
        """Flush a partition's log if its acknowledgements wait for that."""
        if replica in self._running or not replica.awaits_flush:
            return
        self._running[replica] = None
        done = replica.log.flush_through(replica.log.log_end_offset)
        done.add_done_callback(partial(self._finished, replica, replica.log.recovery_point))

    def _finished(
        self, replica: Partition, durable_before: int, done: asyncio.Future[None]
    ) -> None:
        del self._running[replica]
        # A disk that refuses is the log directory's affair; nothing is acknowledged meanwhile.
        if done.cancelled() or done.exception() is not None:
            return
        if replica.log.recovery_point > durable_before:
            self._flushed(replica)
            self.request(replica)


async def _flushed_first(
    results: list[AppendResult], flushes: Mapping[int, asyncio.Future[None]]
) -> list[AppendResult]:
    for index, flush in flushes.items():
        try:
            await flush
        except KafkaError as error:
            results[index] = replace(results[index], error=error.code, message=error.message)
    return results

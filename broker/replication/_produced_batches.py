"""Produced batches: prepared before a leader appends them, flushed before it acknowledges them.

`Preparing` checks batches, and repacks them as their topics want. A batch that takes long, such as
one of many thousand records, is left to a worker, so that one client does not stall the event loop.
Its request is appended once all of it is prepared.

`AckFlusher` runs the flushes that acknowledgements wait for (row L8). With `flush.messages` no
replica has more unflushed records than that when it answers, whatever the acks. Where
`flush.on.ack` is set, acks=all means fsynced on every in-sync replica.

A leader counts its own log only up to its durable end. So the high watermark, and with it acks=all
and what consumers see, waits for its disk. A follower fetches from its log end only when all below
is durable, so that its position is still true after a loss of power.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from broker.log.batches import validation
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.log.partition_log import PartitionLog
    from broker.replication.partition import Partition
    from broker.replication.purgatory import Awaited
    from broker.types import Appendable, AppendResult, TopicPartition
    from raftctl.runtime.api import Buffer, Worker


class Preparing:
    """The preparation of one broker's batches: on the event loop, or in turn on its worker."""

    def __init__(
        self,
        worker: Worker,
        replicas: Mapping[TopicPartition, Partition],
        wall_ms: Callable[[], int],
    ) -> None:
        """`replicas` is the broker's own table."""
        self._worker = worker
        self._replicas = replicas
        self._wall_ms = wall_ms

    def prepare(
        self, entries: Sequence[tuple[TopicPartition, Buffer]]
    ) -> list[Appendable] | asyncio.Future[list[Appendable]]:
        """Return what to append for each entry, later if a worker has to prepare some of it.

        For a refused entry that is the KafkaError, NOT_LEADER_OR_FOLLOWER unless this broker leads
        the partition. It stays so if the broker takes the lead before `append`: a batch that no one
        has looked at may begin a transaction, of which the coordinator must be asked first.
        """
        wall_ms = self._wall_ms()
        ready: list[Appendable] = []
        left: list[int] = []
        for index, (partition, batch) in enumerate(entries):
            replica = self._replicas.get(partition)
            if replica is None or not replica.state.is_leader:
                ready.append(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                continue
            prepared: Appendable | None
            try:
                prepared = validation.prepared_at_once(batch, replica.log.config, wall_ms)
            except KafkaError as error:
                replica.counts.checked(error.code, len(batch))
                prepared = error
            if prepared is None:
                left.append(index)
            ready.append(batch if prepared is None else prepared)
        if not left:
            return ready
        # A task, so that a client that leaves ends it.
        return asyncio.get_running_loop().create_task(self._prepare_left(entries, ready, left))

    async def _prepare_left(
        self,
        entries: Sequence[tuple[TopicPartition, Buffer]],
        ready: list[Appendable],
        left: Sequence[int],
    ) -> list[Appendable]:
        """Have the worker prepare the entries at the indexes `left`, in order."""
        for index in left:
            ready[index] = await self._on_worker(*entries[index])
        return ready

    async def _on_worker(self, partition: TopicPartition, batch: Buffer) -> Appendable:
        # It may have left while earlier batches were prepared.
        replica = self._replicas.get(partition)
        if replica is None:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        pause = self._worker.pause
        call = partial(validation.prepared, batch, replica.log.config, self._wall_ms(), pause=pause)
        try:
            return await self._worker.submit(call)
        except KafkaError as error:
            replica.counts.checked(error.code, len(batch))
            return error

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


class AckFlusher:
    """Flushes the partitions that a broker leads.

    One flush of a partition is under way at a time; batches appended meanwhile share the next one.
    A flush for each batch would make every producer wait for the fsyncs of all others.
    """

    def __init__(self, flushed: Callable[[Partition], None]) -> None:
        """`flushed` is called with each partition of which more is durable."""
        self._flushed = flushed
        self._running: dict[Partition, None] = {}

    def answer(
        self, results: list[AppendResult], appended: Mapping[int, Awaited]
    ) -> list[AppendResult] | asyncio.Future[list[AppendResult]]:
        """Return the results of acks=1, once the flushes that are due are done.

        `appended` has the partitions without an error, by index into the results.
        """
        flushes = {
            index: one.replica.log.flush_through(one.replica.log.log_end_offset)
            for index, one in appended.items()
            if one.replica.log.is_flush_due
        }
        if not flushes:
            return results
        return asyncio.get_running_loop().create_task(_flushed_first(results, flushes))

    def request(self, replica: Partition) -> None:
        """Flush a partition's log if its acknowledgements wait for that."""
        if replica in self._running or not replica.awaits_flush:
            return
        self._running[replica] = None
        log = replica.log
        before = log.recovery_point, log.truncations
        done = log.flush_through(log.log_end_offset)
        done.add_done_callback(partial(self._finished, replica, log, before))

    def _finished(
        self,
        replica: Partition,
        log: PartitionLog,
        before: tuple[int, int],
        done: asyncio.Future[None],
    ) -> None:
        """Go on after a flush; `before` has the log's recovery point and truncations then."""
        del self._running[replica]
        durable_before, truncations = before
        kept = log.recovery_point >= durable_before or log.truncations > truncations
        invariant(kept, "what is durable stays durable, unless it is cut")
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
            results[index] = results[index]._replace(error=error.code, message=error.message)
    return results

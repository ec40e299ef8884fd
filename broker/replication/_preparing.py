"""Checks produced batches, and repacks them as their topics want, before they are appended.

A batch that takes long, such as one of many thousand records, is left to a worker, so that one
client does not stall the event loop. Its request is appended once all of it is prepared.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from broker.log.batches import validation
from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.replication.partition import Partition
    from broker.types import Appendable, TopicPartition
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
        self, acks: int, entries: Sequence[tuple[TopicPartition, Buffer]]
    ) -> list[Appendable] | asyncio.Future[list[Appendable]]:
        """Return what to append for each entry, later if a worker has to prepare some of it.

        For a refused entry that is the KafkaError. The batch of a partition that is not here is
        unchanged.
        """
        ready = [self._at_once(partition, batch, acks) for partition, batch in entries]
        if all(one is not None for one in ready):
            return [one for one in ready if one is not None]
        # A task, so that a client that leaves ends it.
        return asyncio.get_running_loop().create_task(self._later(entries, ready))

    def _at_once(self, partition: TopicPartition, batch: Buffer, acks: int) -> Appendable | None:
        replica = self._replicas.get(partition)
        if replica is None:
            return batch
        try:
            return replica.prepared_at_once(batch, acks, self._wall_ms())
        except KafkaError as error:
            return error

    async def _later(
        self,
        entries: Sequence[tuple[TopicPartition, Buffer]],
        ready: Sequence[Appendable | None],
    ) -> list[Appendable]:
        found = []
        for (partition, batch), one in zip(entries, ready, strict=True):
            found.append(await self._on_worker(partition, batch) if one is None else one)
        return found

    async def _on_worker(self, partition: TopicPartition, batch: Buffer) -> Appendable:
        replica = self._replicas.get(partition)
        if replica is None:
            return batch
        pause = self._worker.pause
        call = partial(validation.prepared, batch, replica.log.config, self._wall_ms(), pause=pause)
        try:
            return await self._worker.submit(call)
        except KafkaError as error:
            return error

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

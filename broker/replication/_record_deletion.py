"""DeleteRecords: hides the beginning of logs, and waits until no replica shows it any more (L7).

The leader moves its log start at once. Its followers learn of it with their fetches, and report
their own log start with the next ones. The response has the low watermark, the least log start of
all replicas whose brokers are alive. A replica that is away catches up before anyone reads from it.

Source: KIP-107.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from broker.replication.purgatory import DelayedOperation, Purgatory
from broker.types import DeletedRecords
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from broker.replication.partition import Partition
    from broker.types import TopicPartition


class _DelayedDelete(DelayedOperation["list[DeletedRecords]"]):
    """A request that is done at the leader, and not yet at all replicas."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        results: list[DeletedRecords],
        awaited: dict[int, tuple[Partition, int]],
        lives: Callable[[int], bool],
    ) -> None:
        """`absence` returns why a partition is not here; `lives`: registered and not fenced."""
        super().__init__(loop)
        self._results = results
        self._awaited = awaited
        self._lives = lives

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that it waits for."""
        return [replica.partition for replica, _ in self._awaited.values()]

    def complete_at_once(self) -> bool:
        """Take the results that are known already; return whether those are all."""
        for partition in self.partitions:
            self.is_complete_after(partition)
        return not self._awaited

    def is_complete_after(self, partition: TopicPartition) -> bool:
        """Take the result of this partition, if it is known now; return whether all are."""
        for index, (replica, offset) in list(self._awaited.items()):
            if replica.partition != partition:
                continue
            error, low_watermark = replica.low_watermark(self._lives)
            if error is not ErrorCode.NONE or low_watermark >= offset:
                del self._awaited[index]
                self._results[index] = DeletedRecords(error, low_watermark)
        return not self._awaited

    def answer(self) -> list[DeletedRecords]:
        """Return the results. Those still awaited have timed out, but are deleted at the leader."""
        for index in self._awaited:
            late = replace(self._results[index], error=ErrorCode.REQUEST_TIMED_OUT)
            self._results[index] = late
        self._awaited.clear()
        return self._results


class RecordDeletion:
    """The DeleteRecords requests of a broker, those that wait included."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        replicas: Mapping[TopicPartition, Partition],
        absence: Callable[[TopicPartition], ErrorCode],
        lives: Callable[[int], bool],
    ) -> None:
        """`absence` returns why a partition is not here; `lives`: registered and not fenced."""
        self._loop = loop
        self._replicas = replicas
        self._absence = absence
        self._lives = lives
        self._waiting: Purgatory[list[DeletedRecords]] = Purgatory(loop)

    def invariants(self) -> None:
        """Check the requests that wait."""
        self._waiting.invariants()

    def __len__(self) -> int:
        return len(self._waiting)

    def delete(
        self, timeout_ms: int, entries: Sequence[tuple[TopicPartition, int]]
    ) -> list[DeletedRecords] | asyncio.Future[list[DeletedRecords]]:
        """Hide the records below each offset; return results in the order of the entries."""
        results: list[DeletedRecords] = []
        awaited: dict[int, tuple[Partition, int]] = {}
        for index, (partition, offset) in enumerate(entries):
            replica = self._replicas.get(partition)
            if replica is None:
                results.append(DeletedRecords(self._absence(partition)))
                continue
            try:
                start = replica.delete_records(offset)
            except KafkaError as error:
                results.append(DeletedRecords(error.code))
                continue
            results.append(DeletedRecords(ErrorCode.NONE, start))
            awaited[index] = replica, start
        operation = _DelayedDelete(self._loop, results, awaited, self._lives)
        if operation.complete_at_once():
            return results
        return self._waiting.wait(operation, operation.partitions, timeout_ms)

    def wake(self, partition: TopicPartition) -> None:
        """Note that a replica moved its log start, or that another one leads."""
        self._waiting.wake(partition)

    def wake_all(self) -> None:
        """Note that brokers came or went."""
        if self._waiting:
            for partition in list(self._replicas):
                self._waiting.wake(partition)

    def close(self) -> None:
        """Cancel the waiting requests."""
        self._waiting.close()

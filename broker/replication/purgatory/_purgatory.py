"""Operations that wait for a partition to change, each until a deadline (row R8).

An operation watches partitions; a change of one wakes those that watch it. An operation is answered
exactly once and then watched nowhere. The number of waiting ones is bounded by the connections,
each of which has a bounded number of requests. Deadlines are on a timing wheel. The event loop has
one timer for each purgatory, for the next time at which the wheel has work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import ceil
from typing import TYPE_CHECKING, Generic, TypeVar

from broker.replication.purgatory._timing_wheel import Timer, TimingWheel
from raftctl.errors import invariant

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from broker.types import TopicPartition

R = TypeVar("R")


class DelayedOperation(ABC, Generic[R]):
    """A request that waits; `future` gets its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[R] = loop.create_future()

    @abstractmethod
    def is_complete_after(self, partition: TopicPartition) -> bool:
        """Whether it can be answered, now that this partition has changed."""

    @abstractmethod
    def answer(self) -> R:
        """The answer as things stand, be it on completion or at the deadline."""


class Purgatory(Generic[R]):
    """The waiting operations of one kind."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Dicts for their order: operations are woken in the order in which they came.
        self._watchers: dict[TopicPartition, dict[DelayedOperation[R], None]] = {}
        self._timers: dict[DelayedOperation[R], Timer[DelayedOperation[R]]] = {}
        self._watched: dict[DelayedOperation[R], list[TopicPartition]] = {}
        self._wheel: TimingWheel[DelayedOperation[R]] = TimingWheel(int(loop.time() * 1000))
        self._armed_ms: int | None = None
        self._handle: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._timers)

    def invariants(self) -> None:
        """Check that each waiting operation has a timer and is found by what it watches.

        One without a timer would wait for ever; one that stays listed would be answered twice.
        """
        invariant(self._timers.keys() == self._watched.keys(), "what waits has a deadline")
        by_key = {(key, one) for key, found in self._watchers.items() for one in found}
        by_operation = {(key, one) for one, keys in self._watched.items() for key in keys}
        invariant(by_key == by_operation, "an operation is listed where it watches")
        invariant(all(self._watchers.values()), "a partition that nothing watches is forgotten")
        places = (timer.place for timer in self._timers.values())
        invariant(None not in places, "the timer of what waits has not fired")
        invariant(self._armed_ms == self._wheel.deadline_ms(), "the loop's timer is the wheel's")
        self._wheel.invariants()

    def wait(
        self, operation: DelayedOperation[R], keys: Iterable[TopicPartition], timeout_ms: int
    ) -> asyncio.Future[R]:
        """Keep an operation until it is complete, cancelled by its caller, or out of time."""
        watched = self._watched[operation] = list(dict.fromkeys(keys))
        for key in watched:
            self._watchers.setdefault(key, {})[operation] = None
        # Rounded up, so that nobody waits for less than was asked.
        expires_ms = ceil(self._loop.time() * 1000) + timeout_ms
        self._timers[operation] = self._wheel.add(operation, expires_ms)
        self._arm()
        operation.future.add_done_callback(lambda _: self._forget(operation))
        return operation.future

    def watch(self, operation: DelayedOperation[R], key: TopicPartition) -> None:
        """Have a waiting operation watch one more partition."""
        watched = self._watched.get(operation)
        if watched is not None and operation not in self._watchers.setdefault(key, {}):
            self._watchers[key][operation] = None
            watched.append(key)

    def wake(self, partition: TopicPartition) -> None:
        """Answer the operations that the change of this partition completes."""
        watchers = self._watchers.get(partition)
        if not watchers:
            return
        for operation in list(watchers):
            if operation.is_complete_after(partition):
                self._finish(operation)

    def close(self) -> None:
        """Cancel the waiting operations."""
        for operation in list(self._timers):
            operation.future.cancel()
            self._forget(operation)

    def _finish(self, operation: DelayedOperation[R]) -> None:
        self._forget(operation)
        if not operation.future.done():
            operation.future.set_result(operation.answer())

    def _forget(self, operation: DelayedOperation[R]) -> None:
        timer = self._timers.pop(operation, None)
        if timer is None:
            return
        timer.cancel()
        for key in self._watched.pop(operation):
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        self._arm()

    def _arm(self) -> None:
        """Sets the event loop's timer to the wheel's next deadline, if it is not."""
        deadline_ms = self._wheel.deadline_ms()
        if deadline_ms == self._armed_ms:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._armed_ms, self._handle = deadline_ms, None
        if deadline_ms is not None:
            self._handle = self._loop.call_at(deadline_ms / 1000, self._turn, deadline_ms)

    def _turn(self, deadline_ms: int) -> None:
        self._armed_ms = self._handle = None
        # The loop may call a timer its clock's resolution too early.
        for operation in self._wheel.advance(max(deadline_ms, int(self._loop.time() * 1000))):
            self._finish(operation)
        self._arm()

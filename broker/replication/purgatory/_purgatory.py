"""Operations that wait for a partition to change, each until a deadline (row R8).

An operation watches partitions; a change of one wakes those that watch it. An operation is answered
exactly once and then watched nowhere. The number of waiting ones is bounded by the connections,
each of which has a bounded number of requests.

Deadlines are on a hierarchical timing wheel: insert and cancel in O(1), where a heap of deadlines
costs O(log n) and keeps what is cancelled. Nearly all are cancelled, since requests rarely time
out. A wheel has `wheel_size` buckets of `tick_ms` each. What lies beyond its interval goes to a
wheel whose tick is that interval, and comes down again when its bucket there is due. Non-empty
buckets are in a heap by the time at which they are due, so that the clock goes straight to the next
one. Each bucket is in it once at most: its size is bounded by the buckets, not by the timers.
Levels are made when first needed: eight hold every timeout of 31 bits at size 20.

The wheel is pure: `advance` gets the time. The event loop has one timer for each purgatory, never
later than the next time at which the wheel has work. It is not moved when an operation is answered,
as nearly all are before their deadline: it fires in vain once, and is set again.

Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987), scheme 7; Apache Kafka's
purgatory, which adds the queue of buckets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from heapq import heappop, heappush
from math import ceil
from typing import TYPE_CHECKING, Generic, TypeVar

from broker.turns import TurnFuture
from raftctl.errors import invariant
from raftctl.runtime import Deadline

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from broker.turns import Turn
    from broker.types import TopicPartition

R = TypeVar("R")
V = TypeVar("V")

TICK_MS = 1
_EARLY_MS = 0.1
"""The loop may call a timer its clock's resolution too early."""
WHEEL_SIZE = 20


class Timer(Generic[V]):
    """A value that is due at a time; made by `TimingWheel.add`."""

    __slots__ = ("_bucket", "expires_ms", "value")

    def __init__(self, value: V, expires_ms: int) -> None:
        self.value = value
        self.expires_ms = expires_ms
        self._bucket: _Bucket[V] | None = None

    @property
    def place(self) -> tuple[int, int] | None:
        """(level, slot), levels counted from 1; None once it has fired or is cancelled."""
        return None if self._bucket is None else (self._bucket.level, self._bucket.slot)

    def move_to(self, bucket: _Bucket[V]) -> None:
        """Put the timer at the end of a bucket; it must be in none."""
        invariant(self._bucket is None, "a timer is in one bucket")
        self._bucket = bucket
        if not bucket.timers or self.expires_ms < bucket.earliest_ms:
            bucket.earliest_ms = self.expires_ms
        bucket.timers[self] = None

    def cancel(self) -> bool:
        """Take the timer out, wherever it is; return whether it was still waiting."""
        if self._bucket is None:
            return False
        del self._bucket.timers[self]
        self._bucket = None
        return True


class _Bucket(Generic[V]):
    """The timers of one slot, in the order in which they came."""

    __slots__ = ("due_ms", "earliest_ms", "level", "queued", "slot", "timers")

    def __init__(self, level: int, slot: int) -> None:
        self.level = level
        self.slot = slot
        self.due_ms = -1
        self.earliest_ms = -1
        """No timer in it expires before; one that did may have been cancelled."""
        self.queued = False
        self.timers: dict[Timer[V], None] = {}


class _Level(Generic[V]):
    """One wheel of the hierarchy."""

    def __init__(self, number: int, tick_ms: int, wheel_size: int) -> None:
        self.tick_ms = tick_ms
        self.buckets: list[_Bucket[V]] = [_Bucket(number, slot) for slot in range(wheel_size)]

    def reaches(self, now_ms: int, expires_ms: int) -> bool:
        """Return whether the wheel has a bucket for that time: less than one turn away."""
        turn_ms = self.tick_ms * len(self.buckets)
        return expires_ms < now_ms - now_ms % self.tick_ms + turn_ms

    def bucket_for(self, expires_ms: int) -> _Bucket[V]:
        """Return the bucket, due when its tick begins."""
        ticks = expires_ms // self.tick_ms
        bucket = self.buckets[ticks % len(self.buckets)]
        due_ms = ticks * self.tick_ms
        invariant(bucket.due_ms == due_ms or not bucket.timers, "a bucket is of one turn")
        bucket.due_ms = due_ms
        return bucket


class TimingWheel(Generic[V]):
    """The timers of one owner. Times are any clock's milliseconds and never go back."""

    def __init__(
        self, now_ms: int, *, tick_ms: int = TICK_MS, wheel_size: int = WHEEL_SIZE
    ) -> None:
        invariant(tick_ms > 0 and wheel_size > 1, "a wheel turns")
        self._now_ms = now_ms
        self._tick_ms = tick_ms
        self._wheel_size = wheel_size
        self._levels: list[_Level[V]] = [_Level(1, tick_ms, wheel_size)]
        self._queue: list[tuple[int, int, _Bucket[V]]] = []

    def invariants(self) -> None:
        """Check that each bucket with timers is in the queue, once, and not overdue.

        A bucket that is not queued never fires, and the requests in it wait for ever.
        """
        invariant(
            self._queue[:1] == sorted(self._queue)[:1], "the queue's first bucket is due first"
        )
        queued = [id(bucket) for _, _, bucket in self._queue]
        invariant(len(queued) == len(set(queued)), "a bucket is in the queue once")
        for level in self._levels:
            for bucket in level.buckets:
                invariant(bucket.queued == (id(bucket) in queued), "a bucket knows of the queue")
                invariant(bucket.queued or not bucket.timers, "a bucket with timers is queued")
                for timer in bucket.timers:
                    in_tick = 0 <= timer.expires_ms - bucket.due_ms < level.tick_ms
                    invariant(in_tick, "a timer is in the bucket of its tick")
                    late = timer.expires_ms < bucket.earliest_ms
                    invariant(not late, "no timer expires before its bucket is looked at")

    def add(self, value: V, expires_ms: int) -> Timer[V]:
        """Start a timer; one that is due already fires a tick from now."""
        timer = Timer(value, max(expires_ms, self._now_ms + self._tick_ms))
        self._place(timer)
        return timer

    def deadline_ms(self) -> int | None:
        """Return when to advance; None if nothing waits. No timer expires before.

        A bucket that is due first need not come down before one of its timers expires, or another
        bucket is due: so a timer that waits alone is met once, and not on each level.
        """
        queue = self._queue
        while queue and not queue[0][2].timers:
            heappop(queue)[2].queued = False
        if not queue:
            return None
        # The second entry of a heap is one of these.
        return min([queue[0][2].earliest_ms, *(due_ms for due_ms, _, _ in queue[1:3])])

    def advance(self, now_ms: int) -> list[V]:
        """Turn the wheels to `now_ms`; return what is due by then, in order of time."""
        due: list[V] = []
        while self._queue and self._queue[0][0] <= now_ms:
            due_ms, _, bucket = heappop(self._queue)
            bucket.queued = False
            self._now_ms = max(self._now_ms, due_ms)
            for timer in list(bucket.timers):
                timer.cancel()
                if timer.expires_ms < self._now_ms + self._tick_ms:
                    due.append(timer.value)
                else:
                    self._place(timer)
        self._now_ms = max(self._now_ms, now_ms)
        return due

    def _place(self, timer: Timer[V]) -> None:
        number = 0
        while not (level := self._level(number)).reaches(self._now_ms, timer.expires_ms):
            number += 1
        bucket = level.bucket_for(timer.expires_ms)
        timer.move_to(bucket)
        if not bucket.queued:
            bucket.queued = True
            # Two buckets of one level are never due together, so the heap compares no buckets.
            heappush(self._queue, (bucket.due_ms, number, bucket))

    def _level(self, number: int) -> _Level[V]:
        if number == len(self._levels):
            tick_ms = self._tick_ms * self._wheel_size**number
            self._levels.append(_Level(number + 1, tick_ms, self._wheel_size))
        return self._levels[number]


class DelayedOperation(ABC, Generic[R]):
    """A request that waits; `future` gets its answer."""

    def __init__(self, turn: Turn) -> None:
        """`turn` is the broker's: at its end the listener of the answer is called."""
        self.future: TurnFuture[R] = TurnFuture(turn)

    @abstractmethod
    def is_complete_after(self, partition: TopicPartition) -> bool:
        """Return whether it can be answered, now that this partition has changed."""

    @abstractmethod
    def answer(self) -> R:
        """Return the answer as things stand, on completion or at the deadline."""


class Purgatory(Generic[R]):
    """The waiting operations of one kind."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Dicts for their order: operations are woken in the order in which they came.
        self._watchers: dict[TopicPartition, dict[DelayedOperation[R], None]] = {}
        self._timers: dict[DelayedOperation[R], Timer[DelayedOperation[R]]] = {}
        self._watched: dict[DelayedOperation[R], list[TopicPartition]] = {}
        self._wheel: TimingWheel[DelayedOperation[R]] = TimingWheel(int(loop.time() * 1000))
        self._timer = Deadline(loop, self._turn)

    def __len__(self) -> int:
        return len(self._timers)

    @property
    def watches(self) -> int:
        """How many partitions the waiting operations watch, each as often as it is watched."""
        return sum(map(len, self._watched.values()))

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
        deadline_s, at_s = self._deadline_s(), self._timer.at_s
        in_time = deadline_s is None or (at_s is not None and at_s <= deadline_s)
        invariant(in_time, "the loop's timer is not later than the wheel's")
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
        self._timer.set_at_latest(self._deadline_s())
        operation.future.given_up = partial(self._forget, operation)
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
        self._timer.set(None)

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
        operation.future.given_up = None

    def _deadline_s(self) -> float | None:
        deadline_ms = self._wheel.deadline_ms()
        return None if deadline_ms is None else deadline_ms / 1000

    def _turn(self) -> None:
        for operation in self._wheel.advance(int(self._loop.time() * 1000 + _EARLY_MS)):
            self._finish(operation)
        self._timer.set(self._deadline_s())

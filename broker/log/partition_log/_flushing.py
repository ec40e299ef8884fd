"""When a log reaches the disk: plans made on the event loop and carried out on a worker.

A `FlushPlan` names what to sync; whoever runs it says so to the log, which then moves its recovery
point. `Flusher` is the group commit of one log directory (row L8): all who wait for a log while a
flush of it is under way share the next one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.log.segments import Segment
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from broker.log.partition_log._partition_log import PartitionLog
    from raftctl.runtime.api import Worker


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """What to make durable: call `run` on the worker, then give it to `PartitionLog.flushed`."""

    end_offset: int
    truncations: int
    """How often the log had been truncated when the plan was made."""
    whole: tuple[Segment, ...]
    """The segments that are flushed with their indexes."""
    run: Callable[[], None]
    done: Callable[[], None]
    """Notes that it was: for `PartitionLog.flushed`."""


class Flusher:
    """Makes logs durable up to an offset, one flush at a time for each log."""

    def __init__(self, worker: Worker, failed: Callable[[BaseException], None]) -> None:
        """`failed` hears of a disk that refused; those who waited get KAFKA_STORAGE_ERROR."""
        self._worker = worker
        self._failed = failed
        self._waiting: dict[PartitionLog, deque[tuple[int, asyncio.Future[None]]]] = {}

    def through(self, log: PartitionLog, offset: int) -> asyncio.Future[None]:
        """Done when all of `log` below `offset` is durable, or was truncated away.

        KafkaError(KAFKA_STORAGE_ERROR) if the disk refuses: what was appended may be lost.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if log.recovery_point >= offset:
            future.set_result(None)
            return future
        queue = self._waiting.get(log)
        if queue is not None:
            queue.append((offset, future))
        else:
            self._waiting[log] = deque([(offset, future)])
            self._flush(log)
        return future

    def invariants(self) -> None:
        """Check that whoever waits for a log waits for something that is not durable yet."""
        for log, queue in self._waiting.items():
            invariant(bool(queue), "a flush that is under way has somebody waiting")
            invariant(log.flusher is self, "a log is flushed by its directory")

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for any log."""
        return bool(self._waiting)

    def is_flushing(self, log: PartitionLog) -> bool:
        """Whether somebody waits for the log."""
        return log in self._waiting

    def _flush(self, log: PartitionLog) -> None:
        plan = log.flush_plan(rolled_only=False)
        if plan is None:
            self._settle(log, log.log_end_offset)
            return
        try:
            running = self._worker.submit(plan.run)
        except KafkaError as error:
            self._refuse(log, error)
            return
        running.add_done_callback(lambda done: self._flushed(log, plan, done))

    def _flushed(self, log: PartitionLog, plan: FlushPlan, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            text = f"cannot flush {log.directory}: {error or 'stopped'}"
            self._refuse(log, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text))
            if error is not None:
                self._failed(error)
            return
        if log.offline is not None:
            # Another flush failed before: what this one synced may have been lost by then.
            self._refuse(log, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.offline))
            return
        log.flushed(plan)
        self._settle(log, log.recovery_point)

    def _settle(self, log: PartitionLog, durable: int) -> None:
        """Answers whose offset is durable; the others wait for the next flush."""
        queue = self._waiting.pop(log)
        # A truncation may have taken away what somebody waits for: there is nothing left to flush.
        reached = min(log.log_end_offset, durable)
        left = deque[tuple[int, "asyncio.Future[None]"]]()
        for offset, future in queue:
            if offset > reached and offset <= log.log_end_offset:
                left.append((offset, future))
            elif not future.done():
                future.set_result(None)
        if left:
            self._waiting[log] = left
            self._flush(log)

    def _refuse(self, log: PartitionLog, error: KafkaError) -> None:
        for _, future in self._waiting.pop(log):
            if not future.done():
                future.set_exception(error)
                # Whoever waited may be gone: an exception that nobody fetches is no defect here.
                future.exception()

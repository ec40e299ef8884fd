"""The `Runtime` of a simulated process: its seeded randomness, clock, disk, workers and logger.

The random source is derived from the world's seed, the node's name and the number of this life of
it, so one node's draws do not shift another's, and a restarted node does not repeat itself.
"""

from __future__ import annotations

import contextvars
import functools
import math
import random
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from jepsen.simulator.disk import PowerCut
from jepsen.simulator.kernel import complete, wall_ms
from jepsen.simulator.kernel.process import current_process
from jepsen.simulator.network import SimSender, SimTransport
from raftctl.errors import ErrorCode, KafkaError
from raftctl.failures import CallOutcome, outcome_of
from raftctl.loggers import Level, LogLevels
from raftctl.runtime.api import ProcessUsage
from raftctl.runtime.real import AVERAGED_CALLS, SHORT_CALL_S
from raftctl.tracing import add_request_id

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

    from jepsen.simulator.disk import SimDisk
    from jepsen.simulator.kernel import SimLoop, Trace
    from jepsen.simulator.kernel.process import Process

T = TypeVar("T")

CALLS_MAX = 10_000
HAND_OVER_MAX_S = 0.000_1
HANGS_AT_ONCE_CHANCE = 0.5
"""Calls of a disk that hangs do so before their first operation, or after their last."""
QUICK_DISKS_SHARE = 0.5
"""The share of nodes, drawn by seed, that run short calls at once; the others use the worker."""


def stream(seed: int, *parts: object) -> random.Random:
    """Return an independent random source, the same in every process for equal parts."""
    return random.Random("/".join(map(str, (seed, *parts))))


class SimWorker:
    """One worker thread, played by timers: calls run in order, each takes its time.

    A call waits a little to be picked up, runs at one instant, and its result arrives after the
    time its syncs cost. A kill in between leaves the effect without the answer. Power may go at any
    operation of a call (`SimDisk.cut_within`), which then has no end.

    With `short_calls` a call runs at once, within `submit`, as long as calls have been short
    lately: as in `raftctl.runtime.real`, of which the rule is. One that takes long all the same
    stalls the event loop.
    """

    def __init__(
        self, loop: SimLoop, disk: SimDisk, source: random.Random, *, short_calls: bool = False
    ) -> None:
        self._loop = loop
        self._disk = disk
        self._random = source
        self._queue: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self._busy = False
        self._closed = False
        self._used: set[str] = set()
        """The operations of its calls on the disk; a call without any never hangs."""
        self._short_calls = short_calls
        self._average_s = SHORT_CALL_S * 2

    def pause(self) -> None:
        """Do nothing: no thread waits for the interpreter here."""

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Queue the call; KafkaError (KAFKA_STORAGE_ERROR) after `close` or if it is full."""
        if self._closed or len(self._queue) >= CALLS_MAX:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the worker takes no calls")
        future: asyncio.Future[T] = self._loop.create_future()
        if self._short_calls and not self._busy and self._average_s < SHORT_CALL_S:
            self._run_at_once(future, call)
            return future
        self._queue.append((future, call))
        if not self._busy:
            self._pick_up()
        return future

    def close(self) -> None:
        """Take no more calls; those queued still run."""
        self._closed = True

    def _pick_up(self) -> None:
        self._busy = bool(self._queue)
        if self._busy:
            self._loop.call_in_thread(self._random.uniform(0, HAND_OVER_MAX_S), self._run)

    def _run(self) -> None:
        disk = self._disk
        if self._used.intersection(disk.hanging) and self._random.random() < HANGS_AT_ONCE_CHANCE:
            # At its first operation: nothing of it is done before the disk is well.
            self._wait_for_disk(self._run)
            return
        future, call = self._queue.popleft()
        outcome, took_s = self._perform(call)
        if disk.take_hung():
            # At its last one.
            self._wait_for_disk(functools.partial(self._hand_over, future, outcome))
        elif not isinstance(outcome.error, PowerCut):
            delay_s = took_s + self._random.uniform(0, HAND_OVER_MAX_S)
            self._loop.call_in_thread(delay_s, self._hand_over, future, outcome)

    def _run_at_once(self, future: asyncio.Future[Any], call: Callable[[], Any]) -> None:
        outcome, took_s = self._perform(call)
        if isinstance(outcome.error, PowerCut):
            return
        complete(future, outcome)
        if self._disk.take_hung():
            self._disk.on_wait(math.inf)
        elif took_s >= SHORT_CALL_S:
            self._disk.on_wait(took_s)

    def _wait_for_disk(self, go_on: Callable[[], None]) -> None:
        where = contextvars.copy_context()

        def run() -> None:
            self._loop.run_in_thread_of(where, go_on)

        self._disk.when_healed(run)

    def _perform(self, call: Callable[[], Any]) -> tuple[CallOutcome, float]:
        disk = self._disk
        disk.take_cost_s()
        disk.take_hung()
        disk.used.clear()
        disk.in_thread = True
        try:
            outcome = outcome_of(call)
        finally:
            disk.in_thread = False
        self._used |= disk.used
        took_s = disk.take_cost_s()
        self._average_s += (took_s - self._average_s) / AVERAGED_CALLS
        return outcome, took_s

    def _hand_over(self, future: asyncio.Future[Any], outcome: CallOutcome) -> None:
        process = current_process.get()
        if process is None or process.running:
            complete(future, outcome)
        else:  # The thread goes on; the loop gets the result when the process runs again.
            self._loop.call_soon(complete, future, outcome)
        self._pick_up()


class SimRuntime:
    """The world as one simulated process sees it; see `raftctl.runtime.api.Runtime`."""

    def __init__(self, loop: SimLoop, process: Process, trace: Trace, seed: int) -> None:
        self._loop = loop
        self._process = process
        self._seed = seed
        node = process.node
        self.files = node.disk
        self.random = stream(seed, "runtime", node.name, process.incarnation)
        self._sending = stream(seed, "sending", node.name, process.incarnation)
        self.log: FilteringBoundLogger = LogLevels(Level.DEBUG).logger(
            trace,
            [
                add_request_id,
                structlog.processors.format_exc_info,
                functools.partial(_write_to, trace, node.name),
            ],
        )

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 by this node's clock."""
        return int(wall_ms(self._loop.now_s, self._process))

    def uuid(self) -> uuid.UUID:
        """Return a version 4 UUID from the node's random source."""
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    def usage(self) -> ProcessUsage:
        """Return nothing: all nodes share one process, which is not part of the world."""
        return ProcessUsage()

    def idle_s(self) -> float:
        """Return the virtual time: none of it passes while code runs."""
        return self._loop.now_s

    def sender(self, transport: asyncio.BaseTransport) -> SimSender | None:
        """Return the sender of a simulated connection; None for any other."""
        if not isinstance(transport, SimTransport):
            return None
        return SimSender(transport, self._sending)

    def worker(self, name: str, *, short_calls: bool = False) -> SimWorker:
        """Return a worker that belongs to this process."""
        node = self._process.node
        source = stream(self._seed, "worker", node.name, self._process.incarnation, name)
        disks = stream(self._seed, "short calls", node.name)
        quick = short_calls and disks.random() < QUICK_DISKS_SHARE
        return SimWorker(self._loop, node.disk, source, short_calls=quick)


def _write_to(
    trace: Trace, node: str, logger: WrappedLogger, method: str, event: EventDict
) -> EventDict:
    fields = " ".join(f"{key}={value!r}" for key, value in event.items() if key != "event")
    trace.add(node, "log", f"{method} {event.get('event')} {fields}".rstrip())
    raise structlog.DropEvent

"""Nodes (machines) with their clocks, processes (one life of a node's program), and which one runs.

Every handle, timer and task runs in a context that names its process. That tag is how a process is
killed, paused, or given a clock of its own although all share one event loop. Code outside every
process (the network, a scenario) runs with the tag unset.

Programs see CLOCK_MONOTONIC as `loop.time()` and CLOCK_BOOTTIME as `loop.lease_time()`: only the
second goes on while the machine is suspended (clock_gettime(2)). Both run at the node's rate.
Timers follow the first. The wall clock is virtual time since a fixed date, plus the node's error.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import enum
import math
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from jepsen.simulator.disk import SimDisk


class NodeClock:
    """The clocks of one node, as functions of the world's time. All times are in seconds."""

    def __init__(self) -> None:
        self.rate = 1.0
        """Seconds of the node for each second of the world."""
        self._world_s = 0.0
        self._monotonic_s = 0.0
        """The reading of the clock at that time of the world; since then it has gone at its
        rate."""
        self._asleep_s = 0.0
        """The seconds by which CLOCK_BOOTTIME is ahead."""
        self.suspended = False

    def monotonic_s(self, now_s: float) -> float:
        """Return the reading of CLOCK_MONOTONIC at a time of the world."""
        if self.suspended:
            return self._monotonic_s
        return self._monotonic_s + (now_s - self._world_s) * self.rate

    def boottime_s(self, now_s: float) -> float:
        """Return the reading of CLOCK_BOOTTIME at a time of the world."""
        going = self._monotonic_s + (now_s - self._world_s) * self.rate
        return going + self._asleep_s

    def world_s(self, when_s: float) -> float:
        """Return the first world time at which CLOCK_MONOTONIC is no less; inf if suspended."""
        if self.suspended:
            return math.inf
        world_s = self._world_s + (when_s - self._monotonic_s) / self.rate
        # A timer that comes too early by a rounding error would be set again and again.
        while self.monotonic_s(world_s) < when_s:
            world_s = math.nextafter(world_s, math.inf)
        return world_s

    def set_rate(self, now_s: float, rate: float) -> None:
        """Let the clocks go at this rate from now on."""
        self._anchor(now_s)
        self.rate = rate

    def suspend(self, now_s: float) -> None:
        """CLOCK_MONOTONIC stands still from now on."""
        self._anchor(now_s)
        self.suspended = True

    def wake(self, now_s: float) -> None:
        """CLOCK_MONOTONIC goes on; CLOCK_BOOTTIME shows how long it stood still."""
        self._anchor(now_s)
        self.suspended = False

    def _anchor(self, now_s: float) -> None:
        """Notes what both clocks show now, to go on from there."""
        boottime_s = self.boottime_s(now_s)
        self._monotonic_s = self.monotonic_s(now_s)
        self._asleep_s = boottime_s - self._monotonic_s
        self._world_s = now_s


EPHEMERAL_PORT_FIRST = 32_768
EPHEMERAL_PORT_LAST = 60_999

current_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar(
    "current_process", default=None
)


def keep_forever(remains: object) -> None:
    """Make an object and all it refers to immortal.

    A suspended coroutine that is collected as garbage gets GeneratorExit and runs its `finally`
    blocks, which the kill of a real process does not do. The reference counted here is never given
    back, so that holds at the interpreter's exit too.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(remains))


class ThreadCall(asyncio.TimerHandle):
    """A call in another thread of a process than that of its event loop."""

    __slots__ = ()


class ProcessKilled(Exception):
    """The process was killed before its main coroutine ended."""


class ProcessState(enum.Enum):
    """Running, paused and stalled alternate; dead is final."""

    RUNNING = "running"
    PAUSED = "paused"
    STALLED = "stalled"
    """Its event loop is held up by one long step; its other threads go on."""
    DEAD = "dead"


class Process:
    """One life of a node's program: from `World.start` to its end or its death."""

    def __init__(self, node: SimNode, incarnation: int, done: asyncio.Future[Any]) -> None:
        self.node = node
        self.incarnation = incarnation
        self.state = ProcessState.RUNNING
        self.done = done
        self.context = contextvars.Context()
        self.context.run(current_process.set, self)
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.sockets: object = None
        """The sockets of the network, which makes them when the process first uses it."""
        self.main: asyncio.Task[Any] | None = None
        self.terminating = False
        """True once it was asked to end; its end is then no failure."""
        self.watch: Callable[[], None] | None = None
        """The function that the loop calls after each handle of this process; it may look, and
        raise."""
        self.on_exit: Callable[[], None] | None = None
        """The function to call when its main coroutine has ended well, or as asked; it may look."""
        self.stalls = 0
        """The number of times that its event loop was held up."""
        self._held: list[asyncio.Handle] = []
        self._buried: list[object] = []

    def __repr__(self) -> str:
        return f"<process {self.node.name}/{self.incarnation} {self.state.value}>"

    @property
    def running(self) -> bool:
        """True if its handles may run now."""
        return self.state is ProcessState.RUNNING

    def lets_run(self, handle: asyncio.Handle) -> bool:
        """Return True if a handle's turn may come although the process does not run."""
        return self.state is ProcessState.STALLED and isinstance(handle, ThreadCall)

    def hold(self, handle: asyncio.Handle) -> None:
        """Take a handle whose turn came while the process could not run."""
        if self.state is ProcessState.DEAD:
            self._buried.append(handle)
        else:
            self._held.append(handle)

    def release(self, *, timers_last: bool = False) -> list[asyncio.Handle]:
        """Return the held handles, in the order in which they came.

        With `timers_last` as an event loop goes on after a long step: first what threads and the
        network have brought, then the timers that are due.
        """
        held, self._held = self._held, []
        if timers_last:
            held.sort(key=lambda handle: isinstance(handle, asyncio.TimerHandle))
        return held

    def bury(self, *remains: object) -> None:
        """End the process so that nothing of it ever runs again, not even a `finally`."""
        self.state = ProcessState.DEAD
        self._buried.extend((list(self.tasks), self.release(), remains))
        keep_forever(self)


class SimNode:
    """One machine: a name, an address, a disk, a clock and at most one process at a time."""

    def __init__(self, name: str, address: str, disk: SimDisk) -> None:
        self.name = name
        self.address = address
        self.disk = disk
        self.clock_offset_ms = 0
        """The error of the wall clock."""
        self.clock = NodeClock()
        # False while the machine is off or unplugged: nothing reaches it and no peer notices.
        self.reachable = True
        self.process: Process | None = None
        self.forgiven: tuple[type[BaseException], ...] = ()
        """The errors with which its process may end, because of the faults it suffers."""
        self.last_error: BaseException | None = None
        """The error with which a process of it ended last."""
        self.incarnations = 0
        self._port_next = EPHEMERAL_PORT_FIRST

    def __repr__(self) -> str:
        return f"<node {self.name} {self.address}>"

    def ephemeral_port(self, in_use: Container[int]) -> int:
        """Return a port that is not in use, in rising order until the range wraps."""
        while True:
            port = self._port_next
            wrapped = port == EPHEMERAL_PORT_LAST
            self._port_next = EPHEMERAL_PORT_FIRST if wrapped else port + 1
            if port not in in_use:
                return port


EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def wall_ms(now_s: float, process: Process | None) -> float:
    """Return milliseconds since 1970 at the virtual time `now_s`, by a process's node's clock."""
    offset_ms = process.node.clock_offset_ms if process is not None else 0
    return EPOCH_MS + now_s * 1000 + offset_ms

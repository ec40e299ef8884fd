"""Nodes (machines) and processes (one life of a node's program), and whose turn it is.

Every handle, timer and task runs in a context that names its process. That tag is how a process is
killed, paused, or given a clock of its own although all share one event loop. Code that belongs to
no process (the network, the scenario) runs with the tag unset.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import enum
import weakref
from typing import TYPE_CHECKING, Any

from jepsen.simulator.kernel._clock import NodeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from jepsen.simulator.disk import SimDisk

EPHEMERAL_PORT_FIRST = 32_768
EPHEMERAL_PORT_LAST = 60_999

current_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar(
    "current_process", default=None
)


def keep_forever(remains: object) -> None:
    """Makes an object and all it refers to immortal.

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
        """Of the network, which makes them when the process first uses it."""
        self.main: asyncio.Task[Any] | None = None
        self.terminating = False
        """Whether it was asked to end; that it does is then no failure."""
        self.watch: Callable[[], None] | None = None
        """Called by the loop after each handle of this process; it may look, and raise."""
        self.on_exit: Callable[[], None] | None = None
        """Called when its main coroutine has ended well, or as it was asked to; it may look."""
        self.stalls = 0
        """How often its event loop was held up."""
        self._held: list[asyncio.Handle] = []
        self._buried: list[object] = []

    def __repr__(self) -> str:
        return f"<process {self.node.name}/{self.incarnation} {self.state.value}>"

    @property
    def running(self) -> bool:
        """Whether its handles may run now."""
        return self.state is ProcessState.RUNNING

    def lets_run(self, handle: asyncio.Handle) -> bool:
        """Whether a handle's turn may come although the process does not run."""
        return self.state is ProcessState.STALLED and isinstance(handle, ThreadCall)

    def hold(self, handle: asyncio.Handle) -> None:
        """Takes a handle whose turn came while the process could not run."""
        if self.state is ProcessState.DEAD:
            self._buried.append(handle)
        else:
            self._held.append(handle)

    def release(self, *, timers_last: bool = False) -> list[asyncio.Handle]:
        """Gives back what was held, in the order it came.

        With `timers_last` as an event loop goes on after a long step: first what threads and the
        network have brought, then the timers that are due.
        """
        held, self._held = self._held, []
        if timers_last:
            held.sort(key=lambda handle: isinstance(handle, asyncio.TimerHandle))
        return held

    def bury(self, *remains: object) -> None:
        """Ends the process so that nothing of it ever runs again, not even a `finally`."""
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
        """How wrong the wall clock is."""
        self.clock = NodeClock()
        # False while the machine is off or unplugged: nothing reaches it and nobody is told.
        self.reachable = True
        self.process: Process | None = None
        self.forgiven: tuple[type[BaseException], ...] = ()
        """What its process may end with, because of what is done to it."""
        self.last_error: BaseException | None = None
        """What a process of it ended with last."""
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

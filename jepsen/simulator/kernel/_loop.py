"""The event loop of a world: virtual time, one queue, every handle tagged with its process.

Nothing here waits: when no handle is ready, time jumps to the next timer. Handles run in the order
they became ready, timers in the order of their time and then of their making, so the order depends
on nothing but the program and the seed. Tasks and futures hash by serial number instead of by
address, because asyncio and libraries iterate over sets of them.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import heapq
import itertools
import math
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple, cast

from jepsen.simulator.kernel.process import Process, ProcessState, ThreadCall, current_process
from raftctl.failures import CallOutcome, outcome_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Sequence

    from jepsen.simulator.kernel.process import SimNode

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

START_S = 1_000.0
RUNNING = ProcessState.RUNNING
HANDLES_PER_INSTANT_MAX = 200_000
HANDLES_PER_LOOK = 200_000
SLICE_STEPS_MAX = 100
"""Steps of long work in one turn of the loop; how many is drawn for each slice."""
CANCELLED_TIMERS_MIN = 1_000
EXECUTOR_DELAY_MAX_S = 0.002


class Net(Protocol):
    """The network as an event loop uses it, always for the process that runs."""

    def resolve(self, host: str | None, process: Process | None) -> str:
        """Return the address of a host name; `socket.gaierror` if there is none."""

    def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None,
        port: int,
        *,
        start: bool,
    ) -> asyncio.Server:
        """Return a server on addresses of the process's node."""

    async def connect(
        self, protocol_factory: Callable[[], ProtocolT], host: str | None, port: int | None
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Open a connection. OSError if it cannot be made."""


class WorldStuck(RuntimeError):
    """Deadlock: nothing is left to run although the awaited result is not there."""


class Livelock(RuntimeError):
    """Too many handles ran, in all or without time passing."""


class SimTask(asyncio.Task[T]):
    """A task that knows its process and hashes by serial number."""

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        serial: int,
        loop: asyncio.AbstractEventLoop,
        name: str | None,
        context: contextvars.Context,
    ) -> None:
        self._serial = serial
        self.process = context.get(current_process)
        super().__init__(coroutine, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._serial


class SimFuture(asyncio.Future[T]):
    """A future that hashes by serial number, which it gets when it is first asked for its hash."""

    _serial = 0

    def __hash__(self) -> int:
        if not self._serial:
            self._serial = cast("SimLoop", self.get_loop()).next_serial()
        return self._serial


class Delivery(asyncio.Handle):
    """A call of the network's own, which belongs to no process; nothing of a handle but the call.

    Segments belong to no process either: those of a killed one still arrive.
    What it raises ends the run: that is a bug of the simulation, or what a watcher has found.
    """

    __slots__ = ()

    def __init__(self, callback: Callable[[T], object], argument: T) -> None:
        # Deliveries are many, and cost half as much without what a handle keeps for others.
        self._callback = callback
        self._args = (argument,)
        self._cancelled = False

    def _run(self) -> None:
        self._callback(*self._args)


class SimLoop(asyncio.BaseEventLoop):
    """An asyncio event loop on virtual time. `network` is set by the world that owns it."""

    network: Net
    _stopping: bool

    def __init__(self, random: random.Random, slices: random.Random, *, handles_max: int) -> None:
        """`random` decides what threads cost, `slices` how long work goes on in one turn."""
        super().__init__()
        self._random = random
        self._slices = slices
        self.now_s = START_S
        """The world's time, whatever the clocks of nodes show."""
        self._clocks_differ = False
        """True once the clock of any node was changed."""
        self._over = False
        self._queue: deque[tuple[Process | None, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, Process | None, Any]] = []
        """Times of the world; an `asyncio.TimerHandle` each, or a `Delivery` of no process."""
        self._timers_cancelled = 0
        self._serials = itertools.count(1)
        self._handles_max = handles_max
        self._handles_at_instant = 0
        self._handles_to_look = min(handles_max + 1, HANDLES_PER_LOOK)
        self.handles_run = 0
        self.timers_fired = 0

    # Time and handles

    def time(self) -> float:
        """Virtual seconds, by the clock of the node that asks; starts at `START_S`."""
        process = current_process.get() if self._clocks_differ else None
        return self.now_s if process is None else process.node.clock.monotonic_s(self.now_s)

    def lease_time(self) -> float:
        """See `raftctl.runtime.lease_clock`."""
        process = current_process.get() if self._clocks_differ else None
        return self.now_s if process is None else process.node.clock.boottime_s(self.now_s)

    def begin_slice(self) -> Callable[[], bool]:
        """See `raftctl.runtime.Slices`."""
        left = self._slices.randint(1, SLICE_STEPS_MAX)

        def is_over() -> bool:
            nonlocal left
            left -= 1
            return left <= 0

        return is_over

    def clock_changed(self, node: SimNode) -> None:
        """Schedule the timers of a node again, whose clock has changed its rate or time."""
        self._clocks_differ = True
        self._timers = [
            (node.clock.world_s(handle.when()), serial, process, handle)
            if process is not None and process.node is node
            else (when, serial, process, handle)
            for when, serial, process, handle in self._timers
        ]
        heapq.heapify(self._timers)

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Queue a callback behind all that are ready."""
        if self._over:
            raise RuntimeError("the world is over")
        where = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, where)
        self._queue.append((where.get(current_process), handle))
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Queue a callback as `call_soon` does: there are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Queue a callback for `delay` virtual seconds from now.

        A delay too small to be seen beside the time of the clock still lets time pass: a caller
        that waits for the rest of a pause again and again would else wait for ever.
        """
        return self.call_at(self._after(delay), callback, *args, context=context)

    def _after(self, delay: float) -> float:
        now_s = self.time()
        when = now_s + delay
        return max(when, math.nextafter(now_s, math.inf)) if delay > 0 else when

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Queue a callback for the virtual time `when`; equal times keep their order.

        The time is by the clock of the node that the callback's context belongs to.
        """
        where = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, where)
        self._set_timer(handle, where.get(current_process))
        return handle

    def call_in_thread(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Schedule like `call_later` in a thread of the process: it goes on while the loop is
        stalled.
        """
        where = contextvars.copy_context()
        handle = ThreadCall(self._after(delay), callback, args, self, where)
        self._set_timer(handle, where.get(current_process))
        return handle

    def run_in_thread_of(self, where: contextvars.Context, callback: Callable[[], object]) -> None:
        """Queue a callback for now, in a thread of the process of that context."""
        process = where.get(current_process)
        handle = ThreadCall(self.now_s, callback, (), self, where)
        self._queue.append((process, handle))

    def _set_timer(self, handle: asyncio.TimerHandle, process: Process | None) -> None:
        if self._over:
            raise RuntimeError("the world is over")
        when = handle.when()
        if self._clocks_differ and process is not None:
            when = process.node.clock.world_s(when)
        heapq.heappush(self._timers, (when, next(self._serials), process, handle))

    def deliver_at(self, when: float, callback: Callable[[T], object], argument: T) -> None:
        """Call `callback(argument)` for the network at the virtual time `when`, in no process."""
        if self._over:
            raise RuntimeError("the world is over")
        delivery = Delivery(callback, argument)
        heapq.heappush(self._timers, (when, next(self._serials), None, delivery))

    def create_future(self) -> asyncio.Future[Any]:
        """Create a future whose hash does not depend on its address."""
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        """Create a task that belongs to the process of its context."""
        if self._over:
            raise RuntimeError("the world is over")
        serial = next(self._serials)
        where = contextvars.copy_context() if context is None else context
        label = f"task-{serial}" if name is None else str(name)
        task = SimTask(coro, serial=serial, loop=self, name=label, context=where)
        if task.process is not None:
            task.process.tasks.add(task)
        return task

    def next_serial(self) -> int:
        """Return a number that this loop has not given to anything yet."""
        return next(self._serials)

    def close(self) -> None:
        """End the loop: nothing can be queued any more."""
        self._over = True
        super().close()

    # Running

    def _run_once(self) -> None:
        """Runs turn after turn until it is stopped; the hook that `run_forever` calls.

        A turn is what is ready when it begins.
        """
        queue = self._queue
        while True:
            self._take_due_timers()
            for _ in range(len(queue)):
                process, handle = queue.popleft()
                if handle.cancelled():
                    continue
                if process is None:
                    self.handles_run += 1
                    handle._run()
                elif process.state is not RUNNING and not process.lets_run(handle):
                    process.hold(handle)
                else:
                    self.handles_run += 1
                    handle._run()
                    if process.watch is not None:
                        process.watch()
            if self.handles_run >= self._handles_to_look:
                self._look_after_turn()
            if self._stopping:
                return

    def _take_due_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][3].cancelled():
            heapq.heappop(timers)
        if not self._queue:
            if not timers:
                raise WorldStuck("nothing is left to run: no ready handle and no timer")
            if timers[0][0] > self.now_s:
                if math.isinf(timers[0][0]):
                    raise WorldStuck("nothing is left to run: all timers are of suspended nodes")
                self.now_s = timers[0][0]
                self._handles_at_instant = self.handles_run
        while timers and timers[0][0] <= self.now_s:
            _, _, process, handle = heapq.heappop(timers)
            if not handle.cancelled():
                self.timers_fired += 1
                self._queue.append((process, handle))

    def _look_after_turn(self) -> None:
        """Every so many handles: ends a world that goes round in circles, collects garbage."""
        self._handles_to_look = min(self._handles_max + 1, self.handles_run + HANDLES_PER_LOOK)
        if self.handles_run > self._handles_max:
            raise Livelock(f"{self.handles_run} handles ran, more than this world allows")
        if self.handles_run - self._handles_at_instant > HANDLES_PER_INSTANT_MAX:
            raise Livelock(f"{HANDLES_PER_INSTANT_MAX} handles ran without time passing")
        # Where the collector's own moments are switched off, it runs at these.
        if not gc.isenabled():
            gc.collect()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by `TimerHandle.cancel`: sweeps when most timers are cancelled ones."""
        self._timers_cancelled += 1
        if self._timers_cancelled > max(CANCELLED_TIMERS_MIN, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if not entry[3].cancelled()]
            heapq.heapify(self._timers)
            self._timers_cancelled = 0

    def take_timers(self, process: Process) -> list[asyncio.Handle]:
        """Remove and return the timers of a process that died; its ready handles get buried."""
        taken: list[asyncio.Handle] = [item[3] for item in self._timers if item[2] is process]
        self._timers = [item for item in self._timers if item[2] is not process]
        heapq.heapify(self._timers)
        return taken

    def requeue(self, process: Process, handles: Sequence[asyncio.Handle]) -> None:
        """Make handles that were held while the process was paused ready again."""
        self._queue.extend((process, handle) for handle in handles)

    # Threads that are not there

    def run_in_executor(
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run the call inline after a short seeded delay; belongs to the calling process."""
        future: asyncio.Future[T] = self.create_future()
        delay_s = self._random.uniform(0, EXECUTOR_DELAY_MAX_S)
        self.call_in_thread(delay_s, resolve, future, functools.partial(func, *args))
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing: there is no executor to shut down."""

    # Network

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        **hints: int,
    ) -> Any:
        """Resolve names and addresses of nodes, IPv4 only; raises `socket.gaierror` for others."""
        del hints
        name = host.decode() if isinstance(host, bytes) else host
        address = self.network.resolve(name, current_process.get())
        entry = (
            socket.AF_INET,
            socket.SOCK_STREAM,
            socket.IPPROTO_TCP,
            "",
            (address, int(port or 0)),
        )
        return [entry]

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """Return the numeric form of an address."""
        return sockaddr[0], str(sockaddr[1])

    async def create_connection(
        self,
        protocol_factory: Callable[[], ProtocolT],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Connect to a simulated listener; sockets and TLS are not there."""
        _refuse_options(options, "ssl", "sock", "local_addr")
        return await self.network.connect(protocol_factory, host, port)

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None = None,
        port: int | None = None,
        *,
        start_serving: bool = True,
        **options: Any,
    ) -> asyncio.Server:
        """Listen on simulated addresses of the calling process's node; port 0 gets a free one."""
        _refuse_options(options, "ssl", "sock")
        return self.network.listen(protocol_factory, host, port or 0, start=start_serving)


def complete(future: asyncio.Future[Any], outcome: CallOutcome) -> None:
    """Give a future its result or exception, unless its waiter has gone."""
    if future.cancelled():
        return
    if outcome.error is None:
        future.set_result(outcome.result)
    else:
        future.set_exception(outcome.error)


def resolve(future: asyncio.Future[T], call: Callable[[], T]) -> None:
    """Run a call and hand its result or exception to the future."""
    complete(future, outcome_of(call))


def _refuse_options(options: dict[str, Any], *names: str) -> None:
    for name in names:
        if options.get(name):
            raise ValueError(f"the simulated network has no {name!r}")

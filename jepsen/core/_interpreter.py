"""The interpreter: performs the operations of a generator, and records them.

Each thread is a worker with a client. All operations are recorded here, with one monotonic clock,
in the order in which they begin and end. A thread whose operation ends with `info` continues as
another process with a new client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jepsen.client import Client, Completion, failed, unknown
from jepsen.generator.core import NEMESIS, OBSERVER, SECOND_NS, Context, Processes, Thread, Todo
from jepsen.history import Op, OpType

if TYPE_CHECKING:
    from jepsen.generator.core import Generator

logger = logging.getLogger(__name__)

POLL_S = 0.01
"""How soon a generator that has nothing to do is asked again if nothing happens."""
CLOSE_S = 5.0
"""How long a client may take to end."""


@dataclass
class Interpreter:
    """One run of a generator."""

    concurrency: int
    """Client threads."""
    client_of: Callable[[int], Client]
    """A client for a process."""
    nemesis: Client
    note: Callable[[Op], object]
    """Called with each line of the history, in order."""
    random: random.Random
    op_timeout_s: float = 10.0
    """An operation of a client that takes longer ends with `info`."""
    count: int = field(default=0, init=False)
    stopped: bool = field(default=False, init=False)
    """Set to end early: nothing more is invoked, what is under way is waited for."""

    def __post_init__(self) -> None:
        threads: list[Thread] = [*range(self.concurrency), NEMESIS]
        self._processes = Processes({thread: thread for thread in threads})
        self._free: dict[Thread, None] = dict.fromkeys(threads)
        self._clients: dict[Thread, Client] = {}
        self._completed: deque[tuple[Thread, Op, Completion]] = deque()
        self._woken: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock: Callable[[], float] | None = None
        self._begin = 0.0

    @property
    def elapsed_s(self) -> float:
        """Duration of the test so far."""
        return 0.0 if self._clock is None else self._now() / SECOND_NS

    async def run(self, generator: Generator) -> None:
        """Run the generator to its end; may be called again, with the clock and the processes going
        on.
        """
        while not self.stopped:
            found = generator.next_op(self._context())
            if found is None:
                break
            todo, after = found
            wait_s = (todo.time - self._now()) / SECOND_NS if isinstance(todo, Todo) else POLL_S
            if isinstance(todo, Todo) and wait_s <= 0:
                generator = self._begin_op(todo, after)
                continue
            if not isinstance(todo, Todo):
                generator = after
            generator = await self._wait(generator, wait_s)
        while len(self._free) < len(self._processes):
            generator = await self._wait(generator, None)

    async def close(self) -> None:
        """End all clients."""
        for client in self._clients.values():
            self._spawn(_close(client))
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self, generator: Generator, wait_s: float | None) -> Generator:
        """Wait until an operation has ended, or so long; returns the updated generator."""
        if not self._completed:
            await self._sleep(wait_s)
        return self._updated(generator) if self._completed else generator

    async def _sleep(self, wait_s: float | None) -> None:
        # A future and a timer: `asyncio.timeout` around a queue costs several times as much.
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        timer = None if wait_s is None else loop.call_later(wait_s, self._wake)
        try:
            await self._woken
        finally:
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _updated(self, generator: Generator) -> Generator:
        """The generator after what has ended first."""
        thread, op, (kind, value, error) = self._completed.popleft()
        event = self._note(op.process, kind, op.f, value, op.key, error)
        self._free[thread] = None
        after = generator.updated(self._context(), event)
        if kind is OpType.INFO and isinstance(thread, int):
            self._retire(thread)
        return after

    def _begin_op(self, todo: Todo, generator: Generator) -> Generator:
        if todo.thread is None:
            raise ValueError(f"{todo} names no thread")
        process = self._processes[todo.thread]
        op = self._note(process, OpType.INVOKE, todo.f, todo.value, todo.key)
        del self._free[todo.thread]
        self._spawn(self._work(todo.thread, op))
        return generator.updated(self._context(), op)

    def observe(self, f: str, value: Any, node: str = OBSERVER, key: Any = None) -> None:
        """Record an observation of the cluster, or a report of a node."""
        self._note(node, OpType.INFO, f, value, key)

    def _note(
        self,
        process: int | str,
        kind: OpType,
        f: str,
        value: Any,
        key: Any,
        error: str | None = None,
    ) -> Op:
        op = Op(self.count, self._now(), process, kind, f, value, key, error)
        self.count += 1
        self.note(op)
        return op

    async def _work(self, thread: Thread, op: Op) -> None:
        completion = await (
            self._nemesis_op(op) if thread == NEMESIS else self._client_op(op, thread)
        )
        self._completed.append((thread, op, completion))
        self._wake()

    async def _nemesis_op(self, op: Op) -> Completion:
        try:
            return await self.nemesis.invoke(op)
        except Exception as error:
            logger.debug("a fault that could not be done", exc_info=True)
            return unknown(op.value, repr(error))

    async def _client_op(self, op: Op, thread: Thread) -> Completion:
        client = self._clients.get(thread)
        if client is None:
            try:
                async with asyncio.timeout(self.op_timeout_s):
                    client = await self._opened(thread, op)
            except Exception as error:
                logger.debug("what hinders a client to begin has asked nothing", exc_info=True)
                return failed(op.value, f"no client: {error!r}")
        try:
            async with asyncio.timeout(self.op_timeout_s):
                return await client.invoke(op)
        except Exception as error:
            logger.debug("what a client does not understand may have happened", exc_info=True)
            return unknown(op.value, repr(error))

    async def _opened(self, thread: Thread, op: Op) -> Client:
        client = self.client_of(int(op.process))
        try:
            await client.open()
        except BaseException:
            self._spawn(_close(client))
            raise
        self._clients[thread] = client
        return client

    def _retire(self, thread: Thread) -> None:
        plays = int(self._processes[thread]) + self.concurrency
        self._processes = Processes({**self._processes, thread: plays})
        client = self._clients.pop(thread, None)
        if client is not None:
            self._spawn(_close(client))

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _context(self) -> Context:
        return Context(self._now(), tuple(self._free), self._processes, self.random)

    def _now(self) -> int:
        if self._clock is None:
            self._clock = asyncio.get_running_loop().time
            self._begin = self._clock()
        return int((self._clock() - self._begin) * SECOND_NS)


async def _close(client: Client) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(CLOSE_S):
            await client.close()

"""Answers that come later, and the turn of the event loop at whose end listeners are called.

A future calls its callbacks in the next turn of the loop, each by a handle of its own. A
`TurnFuture` calls the connection that waits for it at the end of the turn in which it is there. So
what a follower's Fetch commits is acknowledged in the pass that has read the Fetch. That comes
last, when the work that completed it is done: it may begin the next request of its connection.

Who works in a turn enters it (`with turn:`); listeners are called when the outermost leaves.
Outside of a turn they are called in the loop's next one. Their order is that in which the answers
came; each is called in the context of its own request, by which lines of the log are named.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

R = TypeVar("R")


class Turn:
    """What is to be done at the end of a turn of the loop; one a broker."""

    def __init__(self) -> None:
        self._entered = 0
        self._calls: deque[tuple[Callable[[], None], Context]] = deque()
        self._is_scheduled = False

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which it is used first, and from then on."""
        return asyncio.get_running_loop()

    @property
    def is_entered(self) -> bool:
        """True if what is added is called in this turn."""
        return self._entered > 0

    def __enter__(self) -> None:
        self._entered += 1

    def __exit__(self, *_: object) -> None:
        try:
            while self._entered == 1 and self._calls:
                call, context = self._calls.popleft()
                context.run(call)
        finally:
            self._entered -= 1
            if self._calls:
                self._schedule()

    def at_end(self, call: Callable[[], None], context: Context | None = None) -> None:
        """Have `call` called at the end of the turn, in this context or another."""
        self._calls.append((call, context or copy_context()))
        self._schedule()

    def _schedule(self) -> None:
        if not (self._entered or self._is_scheduled):
            self._is_scheduled = True
            self.loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        with self:
            pass


class TurnFuture(asyncio.Future[R], Generic[R]):
    """A future that calls one listener at the end of the turn in which it is done."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(loop=turn.loop)
        self.given_up: Callable[[], None] | None = None
        """Called at once when it is cancelled."""
        self._turn = turn
        self._listener: tuple[Callable[[asyncio.Future[Any]], None], Context] | None = None

    def listen(self, listener: Callable[[asyncio.Future[Any]], None]) -> None:
        """Have `listener` called with this future when it is done or cancelled."""
        invariant(self._listener is None, "it has one listener")
        self._listener = listener, copy_context()
        if self.done():
            self._call_listener()

    def set_result(self, result: R) -> None:
        """Have the listener called at the end of this turn."""
        super().set_result(result)
        self._call_listener()

    def cancel(self, msg: Any | None = None) -> bool:
        """Call who would give the answer, and the listener."""
        cancelled = super().cancel(msg)
        if cancelled and self.given_up is not None:
            self.given_up()
        if cancelled:
            self._call_listener()
        return cancelled

    def _call_listener(self) -> None:
        if self._listener is not None:
            # Let go of it: it holds what holds this answer.
            (listener, context), self._listener = self._listener, None
            self._turn.at_end(partial(listener, self), context)

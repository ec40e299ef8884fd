"""`Reply`: the result of a request, where a future must be done first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from broker.turns import TurnFuture

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Result = TypeVar("Result", covariant=True)
Other = TypeVar("Other")


class Reply(Generic[Result]):
    """A result that can be had once `is_done`, and is computed from the future then.

    A handler returns one instead of a message. Dispatch puts the encoding on top of it (`then`), so
    the connection gets one object of the same type, and no task runs for it.
    """

    __slots__ = ("_compute", "_future", "has_acted")

    def __init__(
        self, future: asyncio.Future[Any], compute: Callable[[], Result], *, has_acted: bool = True
    ) -> None:
        """`compute` is called when `future` is done; it raises what becomes of a failure."""
        self._future = future
        self._compute = compute
        self.has_acted = has_acted
        """True if the effects of the request are complete, and only its response is later."""

    @classmethod
    def run(cls, work: Coroutine[Any, Any, Result]) -> Reply[Result]:
        """Start a task whose result is the reply; it has not acted until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        return cls(task, task.result, has_acted=False)

    def then(self, step: Callable[[Callable[[], Result]], Other]) -> Reply[Other]:
        """Return a reply whose result `step` makes; it is given the call for this one's result.

        The call raises what this reply fails with, so `step` may turn an error into a result.
        """
        compute = self._compute
        return Reply(self._future, lambda: step(compute), has_acted=self.has_acted)

    @property
    def is_done(self) -> bool:
        """True if the result can be had, or the error."""
        return self._future.done()

    def result(self) -> Result:
        """Compute the result; raise the error of the future or of the computation."""
        return self._compute()

    async def wait(self) -> Result:
        """Return the result as soon as it can be had; errors as of `result`."""
        await self.wait_until_done()
        return self._compute()

    async def wait_until_done(self) -> None:
        """Return when `is_done`, whatever comes of it.

        A caller that is cancelled meanwhile leaves the future as it is: others may wait for it.
        """
        await asyncio.wait([self._future])

    def on_done(self, callback: Callable[[asyncio.Future[Any]], None]) -> None:
        """Have `callback` called with the future when it is done, but not before this returns.

        It is called at the end of the turn for a `TurnFuture`, else in the next one.
        """
        if isinstance(self._future, TurnFuture):
            self._future.listen(callback)
        else:
            self._future.add_done_callback(callback)

    def cancel(self) -> None:
        """Stop the task behind the reply. Effects in progress elsewhere, such as an append that
        waits for replication, go on: they cannot be taken back.
        """
        if isinstance(self._future, asyncio.Task):
            self._future.cancel()

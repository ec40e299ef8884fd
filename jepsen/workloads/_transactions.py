"""A process that has a transactional session: what it did not commit has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.client import Completion, failed, ok, unknown
from jepsen.workloads._logs import LogClient
from jepsen.workloads.sessions import SessionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jepsen.history import Op

ABORT = "abort"
ON_PURPOSE = "aborted on purpose"


class TransactionClient(LogClient):
    """`in_transaction` does some work in one; only a commit leaves doubt."""

    async def in_transaction(
        self, op: Op, work: Callable[[], Awaitable[Any]], *, commit: bool = True
    ) -> Completion:
        """The work's result if it is committed; without `commit` it is aborted on purpose."""
        try:
            await self.session.begin()
        except SessionError as error:
            await self.session.renew_producer()
            return failed(op.value, str(error))
        try:
            done = await work()
        except SessionError as error:
            return await self._aborted(op, str(error))
        if not commit:
            return await self._aborted(op, ON_PURPOSE)
        try:
            await self.session.commit()
        except SessionError as error:
            return unknown(done, str(error))
        return ok(done)

    async def _aborted(self, op: Op, why: str) -> Completion:
        """Nobody has asked for a commit, so it has failed however the abort ends."""
        try:
            await self.session.abort()
        except SessionError as error:
            await self.session.renew_producer()
            why = f"{why}; {error}"
        return failed(op.value, why)

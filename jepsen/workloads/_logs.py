"""Clients of logs: records of a session as values of a history, and transactions.

A key is the number of a partition, as text. A value is a number that is sent once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from jepsen.client import Client, Completion, failed, ok, unknown
from jepsen.generator.core import Todo
from jepsen.workloads.sessions import SessionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from jepsen.history import Op
    from jepsen.workloads.sessions import Batch, LogSession


READ_S = 8.0
"""How long a read to the end may take."""

LAST_VALUES = 1_000_000_000
"""The first value of the final phase: beyond all that were written before."""

Pairs = list[list[int]]


def pairs_of(batch: Batch) -> dict[str, Pairs]:
    """Return the records of a poll as `[offset, value]`."""
    return {key: [[offset, int(body)] for offset, body in found] for key, found in batch.items()}


def add(found: dict[str, Pairs], more: Mapping[str, Pairs]) -> None:
    """Put the records of another poll behind those of the polls before."""
    for key, pairs in more.items():
        found.setdefault(key, []).extend(pairs)


def send_of(number: int, keys: int) -> Todo:
    """The send of a value of its own."""
    return Todo("send", [["send", str(number % keys), number]])


def all_keys(count: int) -> list[str]:
    """Return the keys of a topic."""
    return [str(number) for number in range(count)]


class LogClient(Client):
    """A process that has a session; what it does is in `does`, by the operation's function."""

    def __init__(self, session: LogSession) -> None:
        self.session = session
        self.does: dict[str, Callable[[Op], Awaitable[Completion]]] = {}

    async def open(self) -> None:
        """Nothing is connected before it is needed."""

    async def close(self) -> None:
        await self.session.close()

    async def invoke(self, op: Op) -> Completion:
        try:
            return await self.does[op.f](op)
        except SessionError as error:
            return (failed if error.certain else unknown)(op.value, str(error))


async def read_to_end(
    session: LogSession, positions: dict[str, int], ends: Mapping[str, int]
) -> dict[str, Pairs]:
    """Return the records from the positions, which move on, to the ends. Raises SessionError."""
    found: dict[str, Pairs] = {}
    await session.assign(positions)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + READ_S
    while any(positions[key] < end for key, end in ends.items()):
        if loop.time() > deadline_s:
            why = f"not at the end {dict(ends)} in time: {positions}"
            raise SessionError(why, certain=True)
        add(found, pairs_of(await session.poll()))
        # Not what the records tell: the end may be a marker, which nobody is shown.
        positions.update(await session.positions(list(positions)))
    return found


ABORT = "abort"
ON_PURPOSE = "aborted on purpose"


class TransactionClient(LogClient):
    """`in_transaction` does some work in one; only a commit leaves doubt."""

    async def in_transaction(
        self, op: Op, work: Callable[[], Awaitable[Any]], *, commit: bool = True
    ) -> Completion:
        """Return the work's result if it commits; without `commit` it is aborted on purpose."""
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

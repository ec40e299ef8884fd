"""What the workloads on logs have in common: records of a session as values of a history.

A key is a partition, as text. Values are numbers that nobody sends twice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jepsen.client import Completion, failed, unknown
from jepsen.workloads.sessions import SessionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from jepsen.history import Op
    from jepsen.workloads.sessions import Batch, LogSession

READ_S = 8.0
"""How long a read to the end may take."""

Pairs = list[list[int]]


def pairs_of(batch: Batch) -> dict[str, Pairs]:
    """The records of a poll as `[offset, value]`."""
    return {key: [[offset, int(body)] for offset, body in found] for key, found in batch.items()}


def add(found: dict[str, Pairs], more: Mapping[str, Pairs]) -> None:
    """Puts the records of another poll behind those of the polls before."""
    for key, pairs in more.items():
        found.setdefault(key, []).extend(pairs)


def all_keys(count: int) -> list[str]:
    """The keys of a topic."""
    return [str(number) for number in range(count)]


class LogClient:
    """A process that has a session; what it does is in `does`, by the operation's function."""

    def __init__(self, session: LogSession) -> None:
        self.session = session
        self.does: dict[str, Callable[[Op], Awaitable[Completion]]] = {}

    async def open(self) -> None:
        """Nothing is connected before it is needed."""

    async def close(self) -> None:
        """See `Client`."""
        await self.session.close()

    async def invoke(self, op: Op) -> Completion:
        """See `Client`."""
        try:
            return await self.does[op.f](op)
        except SessionError as error:
            return (failed if error.certain else unknown)(op.value, str(error))


async def read_to_end(
    session: LogSession, positions: dict[str, int], ends: Mapping[str, int]
) -> dict[str, Pairs]:
    """The records from the positions, which move on, to the ends. SessionError."""
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

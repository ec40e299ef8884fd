"""Locks and elections: fair queues whose holder has a fencing token.

A lock says that nobody else holds it only as long as its session is open, and a client may learn
late that it is not. So every write under a lock takes the token along (`guard=`), and systems other
than this one compare it with the greatest that they have seen.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from raftctl.client._session import Session
from raftctl.client._transport import value_of
from raftctl.errors import ErrorCode, KafkaError
from raftctl.json_values import value_fields

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator
    from types import TracebackType

    from raftctl.client._transport import Transport

WAIT_S = 10.0
"""How long one request waits for the lock before it is asked again."""
UNLOCK_TIMEOUT_S = 3.0


class Fence(NamedTuple):
    """A lock and the token that it must be held with, for a write on behalf of its holder."""

    lock: str
    token: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of a lock."""

    token: int
    session_id: str
    value: bytes


class Lock:
    """A lock, or the leadership of an election; use it with `async with`, which waits for it."""

    def __init__(
        self,
        transport: Transport,
        name: str,
        value: bytes,
        session: Session | None,
        session_timeout_s: float,
    ) -> None:
        self._transport = transport
        self._value = value
        self._owns_session = session is None
        self.name = name
        self.session = session or Session(transport, session_timeout_s)
        """The lock is held no more once this is lost."""
        self.token = -1
        """The fencing token; -1 while it has none."""

    @property
    def lost(self) -> asyncio.Event:
        """Set when the lock is held no more because its session is over."""
        return self.session.lost

    async def __aenter__(self) -> Lock:
        if self._owns_session:
            await self.session.__aenter__()
        try:
            await self._acquire()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._leave()

    async def _acquire(self) -> None:
        """Wait until it is held; KafkaError(UNKNOWN_MEMBER_ID) if the session ends before."""
        body = {
            "lock": self.name,
            "session": self.session.session_id,
            **value_fields(self._value),
        }
        held = False
        wait_s = 0.0  # the place is known first, so that it can be given back
        while not held:
            self.session.check()
            waiting = {**body, "wait_ms": int(wait_s * 1000)}
            place = await self._transport.post("/lock", waiting, repeat=True, wait_s=wait_s)
            self.token, held = place["token"], place["held"]
            wait_s = WAIT_S
        self.session.check()

    async def _leave(self) -> None:
        if self._owns_session:
            await self.session.__aexit__(None, None, None)
        elif self.token >= 0 and not self.lost.is_set():
            body = {"lock": self.name, "token": self.token}
            with contextlib.suppress(KafkaError):  # then it goes with the session
                await self._transport.post("/unlock", body, repeat=True, timeout_s=UNLOCK_TIMEOUT_S)
        self.token = -1


async def holder_of(transport: Transport, name: str) -> Holder | None:
    """Return the present holder of the lock."""
    return _holder(await transport.get("/lock", lock=name))


async def holders(transport: Transport, name: str) -> AsyncIterator[Holder | None]:
    """Yield the holder of the lock, and each later one; None while there is none.

    Holders that come and go between two looks are not seen.
    """
    document = await transport.get("/lock", lock=name)
    while True:
        holder = _holder(document)
        yield holder
        token = -1 if holder is None else holder.token
        while _token(document) == token:
            document = await transport.get(
                "/lock", wait_s=WAIT_S, lock=name, other_than=token, wait_ms=int(WAIT_S * 1000)
            )


def _token(document: dict[str, object]) -> int:
    holder = _holder(document)
    return -1 if holder is None else holder.token


def _holder(document: dict[str, object]) -> Holder | None:
    held = document.get("holder")
    if held is None:
        return None
    if not isinstance(held, dict):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "holder: an object is expected")
    return Holder(held["token"], held["session"], value_of(held))

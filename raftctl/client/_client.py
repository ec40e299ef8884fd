"""Keys and values from a program: gets, writes, lists, sessions, locks, elections, watches."""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raftctl.client._locks import Lock, holder_of, holders
from raftctl.client._session import Session
from raftctl.client._transport import RefusedError, Transport, parse_addresses, value_of
from raftctl.client._watch import watch
from raftctl.errors import ErrorCode
from raftctl.json_values import value_fields
from raftctl.runtime.lease_clock import counts_suspension

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence
    from types import TracebackType

    from raftctl.client._locks import Holder
    from raftctl.client._watch import Event

TIMEOUT_S = 10.0
SESSION_TIMEOUT_S = 10.0
PAGE = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value; `version` is the offset of the record that set it."""

    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the keys, in order, as they were at `offset`."""

    entries: tuple[Entry, ...]
    offset: int
    """A watch from the offset after this one sees every later change."""
    next: str | None
    """The page after this one begins after this key; None if there is none."""


def connect(
    controllers: str | Sequence[str],
    *,
    timeout_s: float = TIMEOUT_S,
    rng: random.Random | None = None,
) -> Client:
    """A client of the cluster that has these controllers, any of them; use it with `async with`.

    Raises ConfigError for what is no `host:port`. Calls give up after `timeout_s`. Warns where the
    system has no clock that counts for sessions while the machine is suspended.
    """
    if not counts_suspension:
        why = "no CLOCK_BOOTTIME here: sessions are not known to be lost while suspended"
        warnings.warn(why, RuntimeWarning, stacklevel=2)
    return Client(parse_addresses(controllers), timeout_s, rng or random.Random())


class Client:
    """Every call raises KafkaError; of a write, `OutcomeUnknownError` if nobody knows whether it

    was done, and else nothing was done. Guards are locks that must be held, or the write is refused
    with FENCED_MEMBER_EPOCH.
    """

    def __init__(self, controllers: Sequence[str], timeout_s: float, rng: random.Random) -> None:
        self._controllers = controllers
        self._timeout_s = timeout_s
        self._rng = rng
        self._made: Transport | None = None

    async def __aenter__(self) -> Client:
        self._made = Transport(self._controllers, self._timeout_s, self._rng)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._transport.close()

    @property
    def _transport(self) -> Transport:
        if self._made is None:
            raise RuntimeError("use the client with `async with`")
        return self._made

    # --- keys -------------------------------------------------------------------------------------

    async def get(self, key: str) -> Entry | None:
        """The key's entry, no older than any write that was answered before; None if none."""
        try:
            return _entry(await self._transport.get("/get", key=key))
        except RefusedError as error:
            if error.code is ErrorCode.RESOURCE_NOT_FOUND:
                return None
            raise

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        session: Session | None = None,
        guard: Lock | None = None,
    ) -> int:
        """Set a key, ephemeral with a session; return its version."""
        return await self._write("/put", key, value_fields(value), session, guard)

    async def cas(
        self,
        key: str,
        value: bytes,
        *,
        version: int | None = None,
        expected: bytes | None = None,
        absent: bool = False,
        session: Session | None = None,
        guard: Lock | None = None,
    ) -> int | None:
        """Set a key if it has this version and value, or is absent; None if it is not so."""
        body: dict[str, Any] = value_fields(value)
        if version is not None:
            body["expected_version"] = version
        if expected is not None:
            body.update(value_fields(expected, "expected_value"))
        if absent:
            body["expected_absent"] = True
        return await self._unless(
            ErrorCode.INVALID_UPDATE_VERSION, "/cas", key, body, session, guard
        )

    async def delete(self, key: str, *, guard: Lock | None = None) -> int | None:
        """Remove a key; return the offset of that, None if there is no such key."""
        return await self._unless(ErrorCode.RESOURCE_NOT_FOUND, "/delete", key, {}, None, guard)

    async def page(self, prefix: str = "", *, after: str = "", limit: int = PAGE) -> Page:
        """Keys with that prefix after the key `after`; a page may have fewer than `limit`."""
        document = await self._transport.get("/list", prefix=prefix, after=after, limit=limit)
        entries = tuple(_entry(one) for one in document["keys"])
        return Page(entries, document["offset"], document.get("next"))

    async def list(self, prefix: str = "") -> AsyncIterator[Entry]:
        """All keys with that prefix, in order, each page as it is when it is read."""
        page = await self.page(prefix)
        while True:
            for entry in page.entries:
                yield entry
            if page.next is None:
                return
            page = await self.page(prefix, after=page.next)

    def watch(
        self, key: str | None = None, *, prefix: str | None = None, start: int | None = None
    ) -> AsyncGenerator[Event]:
        """See `raftctl.client._watch.watch`: changes of a key or a prefix, or of all keys."""
        return watch(self._transport, key, prefix, start)

    # --- sessions and locks -----------------------------------------------------------------------

    def session(self, timeout_s: float = SESSION_TIMEOUT_S) -> Session:
        """A session, to be used with `async with`."""
        return Session(self._transport, timeout_s)

    def lock(
        self,
        name: str,
        *,
        value: bytes = b"",
        session: Session | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
    ) -> Lock:
        """A lock, to be used with `async with`, in a session of its own unless one is given.

        `value` shows others who holds it: an election is a lock whose holder leads.
        """
        return Lock(self._transport, name, value, session, session_timeout_s)

    elect = lock

    async def holder(self, name: str) -> Holder | None:
        """Who holds the lock, or leads."""
        return await holder_of(self._transport, name)

    def holders(self, name: str) -> AsyncIterator[Holder | None]:
        """See `raftctl.client._locks.holders`."""
        return holders(self._transport, name)

    # --- internals --------------------------------------------------------------------------------

    async def _write(
        self,
        path: str,
        key: str,
        body: dict[str, Any],
        session: Session | None,
        guard: Lock | None,
    ) -> int:
        whole = {"key": key, **body}
        if session is not None:
            session.check()
            whole["session"] = session.session_id
        if guard is not None:
            guard.session.check()
            whole.update(lock=guard.name, token=guard.token)
        version: int = (await self._transport.post(path, whole, repeat=False))["version"]
        return version

    async def _unless(
        self,
        code: ErrorCode,
        path: str,
        key: str,
        body: dict[str, Any],
        session: Session | None,
        guard: Lock | None,
    ) -> int | None:
        try:
            return await self._write(path, key, body, session, guard)
        except RefusedError as error:
            if error.code is code:
                return None
            raise


def _entry(document: dict[str, Any]) -> Entry:
    return Entry(document["key"], value_of(document), document["version"])

"""Keys and values from a program: gets, writes, lists, sessions, locks, elections, watches."""

from __future__ import annotations

import contextlib
import random
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.client._locks import Fence, Lock, holder_of, holders
from raftctl.client._session import Session
from raftctl.client._transport import RefusedError, Transport, parse_addresses, value_of
from raftctl.client._watch import watch
from raftctl.errors import ErrorCode
from raftctl.http_security import HttpSecurity
from raftctl.json_values import value_fields
from raftctl.runtime.lease_clock import counts_suspension

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
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


class Expectation(NamedTuple):
    """Condition on a key for a write; None or False expects nothing."""

    version: int | None = None
    value: bytes | None = None
    absent: bool = False

    def fields(self) -> dict[str, Any]:
        """The fields of a request."""
        version = {} if self.version is None else {"expected_version": self.version}
        value = {} if self.value is None else value_fields(self.value, "expected_value")
        return {**version, **value, **({"expected_absent": True} if self.absent else {})}


def connect(
    controllers: str | Sequence[str],
    *,
    timeout_s: float = TIMEOUT_S,
    rng: random.Random | None = None,
    tls: ssl.SSLContext | None = None,
    login: tuple[str, str] | None = None,
    token: str | None = None,
) -> Client:
    """Return a client of the cluster of these controllers; use it with `async with`.

    `tls` is there where they speak it. Where they have clients log in, one has either `login` (user
    and password) or `token`.
    Raises ConfigError for what is no `host:port`, and for both a login and a token. Calls give up
    after `timeout_s`. Warns where the system has no clock that counts for sessions while the
    machine is suspended.
    """
    if not counts_suspension:
        why = "no CLOCK_BOOTTIME here: sessions are not known to be lost while suspended"
        warnings.warn(why, RuntimeWarning, stacklevel=2)
    addresses, security = parse_addresses(controllers), HttpSecurity(tls, login, token)
    return Client(partial(Transport, addresses, timeout_s, rng or random.Random(), security))


class Client:
    """Every call raises KafkaError; of a write, `OutcomeUnknownError` if nobody knows whether it

    was done, and else nothing was done. Guards are locks that must be held, or the write is refused
    with FENCED_MEMBER_EPOCH.
    """

    def __init__(self, make_transport: Callable[[], Transport]) -> None:
        self._make_transport = make_transport
        self._made: Transport | None = None

    async def __aenter__(self) -> Client:
        self._made = self._make_transport()
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
        """Return the key's entry, no older than any answered write; None if none."""
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
        guard: Lock | Fence | None = None,
    ) -> int:
        """Set a key, ephemeral with a session; return its version."""
        return await self.write(key, value, session=session, guard=guard)

    async def cas(
        self,
        key: str,
        value: bytes,
        *,
        version: int | None = None,
        expected: bytes | None = None,
        absent: bool = False,
        session: Session | None = None,
        guard: Lock | Fence | None = None,
    ) -> int | None:
        """Set a key if it has this version and value, or is absent; None if it is not so."""
        expectation = Expectation(version, expected, absent)
        with _unless(ErrorCode.INVALID_UPDATE_VERSION):
            return await self.write(key, value, expectation, session=session, guard=guard)
        return None

    async def delete(self, key: str, *, guard: Lock | Fence | None = None) -> int | None:
        """Remove a key; return the offset of that, None if there is no such key."""
        with _unless(ErrorCode.RESOURCE_NOT_FOUND):
            return await self.write(key, None, guard=guard)
        return None

    async def write(
        self,
        key: str,
        value: bytes | None,
        expectation: Expectation | None = None,
        *,
        session: Session | None = None,
        guard: Lock | Fence | None = None,
    ) -> int:
        """Set a key, or remove it (None), if it is as expected; return the version.

        Raises RefusedError with what was found, if the key or the lock is not as expected.
        """
        body: dict[str, Any] = {"key": key}
        if value is not None:
            body |= value_fields(value)
        if expectation is not None:
            body |= expectation.fields()
        if session is not None:
            session.check()
            body["session"] = session.session_id
        if isinstance(guard, Lock):
            guard.session.check()
            guard = Fence(guard.name, guard.token)
        if guard is not None:
            body |= guard._asdict()
        path = "/delete" if value is None else "/put" if expectation is None else "/cas"
        version: int = (await self._transport.post(path, body, repeat=False))["version"]
        return version

    async def page(self, prefix: str = "", *, after: str = "", limit: int = PAGE) -> Page:
        """Return keys with that prefix after the key `after`; perhaps fewer than `limit`."""
        document = await self._transport.get("/list", prefix=prefix, after=after, limit=limit)
        entries = tuple(_entry(one) for one in document["keys"])
        return Page(entries, document["offset"], document.get("next"))

    async def list(self, prefix: str = "") -> AsyncIterator[Entry]:
        """Return all keys with that prefix, in order, each page as it is when it is read."""
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
        """Return a session, to be used with `async with`."""
        return Session(self._transport, timeout_s)

    def lock(
        self,
        name: str,
        *,
        value: bytes = b"",
        session: Session | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
    ) -> Lock:
        """Return a lock, to be used with `async with`, in a session of its own unless one is given.

        `value` shows others who holds it: an election is a lock whose holder leads.
        """
        return Lock(self._transport, name, value, session, session_timeout_s)

    elect = lock

    async def holder(self, name: str) -> Holder | None:
        """Return the holder of the lock, or the leader."""
        return await holder_of(self._transport, name)

    def holders(self, name: str) -> AsyncIterator[Holder | None]:
        """See `raftctl.client._locks.holders`."""
        return holders(self._transport, name)

    # --- rules ------------------------------------------------------------------------------------

    async def rules(self, wanted: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """Return the rules on keys that match; fields as in `GET /rules`."""
        given: dict[str, Any] = {**wanted}
        rules: Sequence[Mapping[str, Any]] = (await self._transport.get("/rules", **given))["rules"]
        return rules

    async def add_rule(self, rule: Mapping[str, str]) -> Mapping[str, Any]:
        """Add a rule on keys, and return it; fields as in `POST /rules/add`."""
        answer = await self._transport.post("/rules/add", rule, repeat=True)
        added: Mapping[str, Any] = answer["rule"]
        return added

    async def remove_rules(self, wanted: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        """Remove the rules on keys that match, and return them.

        `OutcomeUnknownError` if nobody knows whether it was done.
        """
        answer = await self._transport.post("/rules/remove", wanted, repeat=False)
        removed: Sequence[Mapping[str, Any]] = answer["removed"]
        return removed


@contextlib.contextmanager
def _unless(code: ErrorCode) -> Iterator[None]:
    """The block ends if the controller refuses what it asks for with this code."""
    try:
        yield
    except RefusedError as error:
        if error.code is not code:
            raise


def _entry(document: dict[str, Any]) -> Entry:
    return Entry(document["key"], value_of(document), document["version"])

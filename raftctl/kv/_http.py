"""The HTTP API of keys and values on every controller (row Q10); see docs/reference/http-kv.md.

What changes or must be confirmed goes to the active controller, from another one in one hop;
waiting and listing happen here, on the committed image of this node, once that shows all that was
answered before the request came. Nothing is tried twice: a client knows better what it may repeat.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError, Fields, error_response
from raftctl.ids import uuid_text
from raftctl.integers import LONG_MAX
from raftctl.json_values import value_fields
from raftctl.kv._rights import READ, WRITE, KeyRights
from raftctl.kv._rules import KvRules
from raftctl.metadata.requests.kv import (
    ANY_VERSION,
    NO_TOKEN,
    NO_VERSION,
    KvBarrierRequest,
    KvCloseSessionRequest,
    KvGetRequest,
    KvGuardedWriteRequest,
    KvHeartbeatRequest,
    KvLockRequest,
    KvOpenSessionRequest,
    KvUnlockRequest,
    unguarded,
)
from raftctl.rpc import RpcError, RpcNotConnected, RpcRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from uuid import UUID

    from raftctl.kv._follower import KvFollower
    from raftctl.kv._index import KeyIndex
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.image.types import KvEntry
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.metadata.requests.kv import KvWriteResponse
    from raftctl.quorum import RaftDriver
    from raftctl.rpc import RpcClient
    from raftctl.runtime.api import Runtime
    from raftctl.security import Authorizer, Requester

    Endpoint = Callable[[Fields, KeyRights], Awaitable[dict[str, Any]]]

PATH = "/api/v1/kv"
TIMEOUT_MS = 10_000
"""How long the active controller may take."""
SESSION_TIMEOUT_MS = 10_000
WAIT_MS_MAX = 60_000
PAGE_MAX = 1_000
PAGE_BYTES_MAX = 4 * 1024 * 1024
"""A page of values ends after the key that passes this size."""


class RefusedWriteError(KafkaError):
    """Nothing was changed; `version` is what was found, or the token of the lock's holder."""

    def __init__(self, code: ErrorCode, message: str, version: int) -> None:
        super().__init__(code, message)
        self.version = version


class LocalController(Protocol):
    """The controller of this node (`raftctl.node.ControllerService`)."""

    def handle(self, request: ControllerRequest) -> asyncio.Future[ControllerResponse]:
        """Decide on the request; the future fails with KafkaError."""


class KvApi:
    """Answers for one node."""

    def __init__(
        self,
        *,
        service: LocalController,
        driver: RaftDriver,
        peers: Mapping[int, RpcClient],
        follower: KvFollower,
        index: KeyIndex,
        runtime: Runtime,
        authorizer: Authorizer | None,
        requester: Callable[[web.Request], Requester],
    ) -> None:
        """Without an authorizer everybody may use all keys. `requester` returns who asks."""
        self._requester = requester
        self._authorizer = authorizer
        self._service = service
        self._driver = driver
        self._peers = peers
        self._follower = follower
        self._index = index
        self._runtime = runtime

    def routes(self) -> list[web.RouteDef]:
        """Return what to mount in the node's application."""
        rules = KvRules(self._ask, lambda: self._follower.image)
        return [
            web.get(f"{PATH}/get", self._answering(self._get)),
            web.get(f"{PATH}/list", self._answering(self._list)),
            web.post(f"{PATH}/put", self._answering(self._put)),
            web.post(f"{PATH}/cas", self._answering(self._cas)),
            web.post(f"{PATH}/delete", self._answering(self._delete)),
            web.post(f"{PATH}/session/open", self._answering(self._open_session)),
            web.post(f"{PATH}/session/heartbeat", self._answering(self._heartbeat)),
            web.post(f"{PATH}/session/close", self._answering(self._close_session)),
            web.get(f"{PATH}/session", self._answering(self._session)),
            web.post(f"{PATH}/lock", self._answering(self._lock)),
            web.post(f"{PATH}/unlock", self._answering(self._unlock)),
            web.get(f"{PATH}/lock", self._answering(self._holder)),
            web.get(f"{PATH}/rules", self._answering(rules.list)),
            web.post(f"{PATH}/rules/add", self._answering(rules.add)),
            web.post(f"{PATH}/rules/remove", self._answering(rules.remove)),
        ]

    def _answering(
        self, endpoint: Endpoint
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                rights = self.rights(request)
                return web.json_response(await endpoint(await Fields.of(request), rights))
            except RefusedWriteError as error:
                return error_response(error, version=error.version)
            except (BadFieldError, KafkaError) as error:
                return error_response(error)

        return answer

    def rights(self, request: web.Request) -> KeyRights:
        """Return what the client may do that has sent a request."""
        return KeyRights(self._authorizer, self._requester(request), self.confirmed_image)

    async def _ask(self, request: ControllerRequest, *, writes: bool = True) -> Any:
        """The active controller's answer.

        Raises KafkaError: NOT_CONTROLLER if it was certainly not done, REQUEST_TIMED_OUT if nobody
        knows, and what the controller refuses it with.
        """
        if self._driver.is_leader:
            try:
                async with asyncio.timeout(TIMEOUT_MS / 1000):
                    return await self._service.handle(request)
            except TimeoutError:
                raise _not_answered("no commit in time", writes=writes) from None
        leader = self._peers.get(self._driver.leader_id)
        if leader is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is active; ask again")
        try:
            return await leader.call(request, TIMEOUT_MS)
        except RpcRefused as error:
            if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                why = f"the active controller failed: {error.message}"
                raise _not_answered(why, writes=writes) from error
            raise KafkaError(error.code, error.message) from error
        except RpcNotConnected as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        except RpcError as error:
            raise _not_answered(str(error), writes=writes) from error

    async def confirmed_image(self) -> MetadataImage:
        """Return an image that shows all that was answered before this was asked."""
        barrier = await self._ask(KvBarrierRequest(), writes=False)
        return await self._within(self._follower.reached(barrier.offset))

    async def _within(self, waiting: Awaitable[MetadataImage]) -> MetadataImage:
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                return await waiting
        except TimeoutError:
            raise _not_answered("this node is behind", writes=False) from None

    # --- keys -------------------------------------------------------------------------------------

    async def _get(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        key = fields.text("key")
        fields.end()
        await rights.require(READ, key)
        found = await self._ask(KvGetRequest(key), writes=False)
        if found.value is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"key: there is no {key}")
        return {"key": key, **value_fields(found.value), "version": found.version}

    async def _list(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        prefix, after = fields.text("prefix", ""), fields.text("after", "")
        limit = fields.number("limit", 100, 1, PAGE_MAX)
        fields.end()
        await rights.require_prefix(READ, prefix)
        await rights.confirm()
        keys, image = await self._index.page(prefix, after, limit + 1)
        entries: list[dict[str, Any]] = []
        size = 0
        for key in keys[:limit]:
            entry: KvEntry = image.kv[key]
            size += len(entry.value)
            entries.append({"key": key, **value_fields(entry.value), "version": entry.version})
            if size >= PAGE_BYTES_MAX:
                break
        more = len(entries) < len(keys)
        page = {"keys": entries, "offset": image.offset}
        return {**page, "next": entries[-1]["key"]} if more else page

    async def _put(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        key, value = fields.text("key"), _value(fields)
        guard = _guard(fields)
        fields.end()
        await _require_write(rights, key, guard)
        return _written(key, await self._ask(_write(key, value, guard)))

    async def _cas(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        key, value = fields.text("key"), _value(fields)
        version, expected = _expectation(fields)
        guard = _guard(fields)
        fields.end()
        await _require_write(rights, key, guard, expected)
        request = _write(key, value, guard, version, expected)
        return _written(key, await self._ask(request))

    async def _delete(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        key = fields.text("key")
        version = fields.number("expected_version", ANY_VERSION, 0, LONG_MAX)
        expected = fields.bytes_or_none("expected_value")
        guard = _guard(fields)
        fields.end()
        await _require_write(rights, key, guard, expected)
        return _written(key, await self._ask(_write(key, None, guard, version, expected)))

    # --- sessions ---------------------------------------------------------------------------------

    async def _open_session(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        session_id = fields.id_or_none("session") or self._runtime.uuid()
        timeout_ms = fields.number("timeout_ms", SESSION_TIMEOUT_MS, 0, LONG_MAX)
        fields.end()
        await rights.require_some(WRITE)
        opened = await self._ask(KvOpenSessionRequest(session_id, timeout_ms))
        return {"session": uuid_text(session_id), "timeout_ms": opened.timeout_ms}

    async def _heartbeat(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        session_id = fields.id("session")
        fields.end()
        await rights.require_some(WRITE)
        beaten = await self._ask(KvHeartbeatRequest(session_id))
        _check_session(session_id, beaten.error)
        return {"session": uuid_text(session_id), "timeout_ms": beaten.timeout_ms}

    async def _close_session(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        """Its keys and locks go with it: who may not write them may not close it."""
        session_id = fields.id("session")
        fields.end()
        await rights.require_some(WRITE)
        session = self._follower.image.coordination.sessions.get(session_id)
        if session is not None:
            await rights.require(WRITE, *session.keys, *session.locks)
        closed = await self._ask(KvCloseSessionRequest(session_id))
        _check_session(session_id, closed.error)
        return {"session": uuid_text(session_id)}

    async def _session(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        session_id = fields.id("session")
        fields.end()
        await rights.require_some(READ)
        await rights.confirm()
        image = self._follower.image
        session = image.coordination.sessions.get(session_id)
        if session is None:
            raise _over(session_id)
        return {
            "session": uuid_text(session_id),
            "timeout_ms": session.timeout_ms,
            "keys": rights.allowed(READ, session.keys),
            "locks": rights.allowed(READ, session.locks),
        }

    # --- locks ------------------------------------------------------------------------------------

    async def _lock(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        lock, session_id = fields.text("lock"), fields.id("session")
        value = fields.bytes_or_none("value") or b""
        wait_ms = fields.number("wait_ms", 0, 0, WAIT_MS_MAX)
        fields.end()
        await rights.require(WRITE, lock)
        place = await self._ask(KvLockRequest(lock, session_id, value))
        _check_session(session_id, place.error)
        holder = place.holder
        if holder != place.token and wait_ms:
            holder = await self._turn(lock, place.token, wait_ms / 1000)
        return {"lock": lock, "token": place.token, "held": holder == place.token}

    async def _turn(self, lock: str, token: int, wait_s: float) -> int:
        """The holder's token when it is this one, or the time is over, or the place is gone."""
        try:
            async with asyncio.timeout(wait_s):
                holder = await self._follower.turn(lock, token)
        except TimeoutError:
            return NO_TOKEN
        if holder is None or holder.token != token:
            why = "session: it is over, or has given its place back"
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, why)
        return token

    async def _unlock(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        lock, token = fields.text("lock"), fields.number("token", NO_TOKEN, 0, LONG_MAX)
        fields.end()
        if token == NO_TOKEN:
            raise BadFieldError("token", "is missing")
        await rights.require(WRITE, lock)
        released = await self._ask(KvUnlockRequest(lock, token))
        if released.error != ErrorCode.NONE:
            raise KafkaError(released.error, f"token: {token} neither holds {lock} nor waits")
        return {"lock": lock}

    async def _holder(self, fields: Fields, rights: KeyRights) -> dict[str, Any]:
        lock = fields.text("lock")
        other_than = fields.number("other_than", ANY_VERSION, NO_TOKEN, LONG_MAX)
        wait_ms = fields.number("wait_ms", 0, 0, WAIT_MS_MAX)
        fields.end()
        await rights.require(READ, lock)
        await rights.confirm()
        image = self._follower.image
        if wait_ms and other_than != ANY_VERSION:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._follower.another_holder(lock, other_than)
            except TimeoutError:
                pass
            image = self._follower.image
            rights.check(READ, lock)
        queue = image.coordination.queue(lock)
        document: dict[str, Any] = {"lock": lock, "waiting": max(0, len(queue) - 1)}
        if queue:
            token, session_id, value = queue[0]
            holder = {"token": token, **value_fields(value)}
            if rights.allowed(WRITE, [lock]):
                # Who has the id may end the session, and the lock with it.
                holder["session"] = uuid_text(session_id)
            document["holder"] = holder
        return {**document, "offset": image.offset}


async def _require_write(
    rights: KeyRights, key: str, guard: Guard, expected: bytes | None = None
) -> None:
    """WRITE on the key; READ on what the answer says something of: the value, the lock's holder."""
    await rights.require(WRITE, key)
    seen = (*(() if expected is None else (key,)), *(() if guard[1] is None else (guard[1],)))
    if seen:
        await rights.require(READ, *seen)


def _not_answered(why: str, *, writes: bool) -> KafkaError:
    if writes:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{why}; nobody knows whether it was done")
    return KafkaError(ErrorCode.NOT_CONTROLLER, f"{why}; ask again")


# --- fields ---------------------------------------------------------------------------------------

Guard = tuple["UUID | None", "str | None", int]
"""Session to bind the key to, the lock that must be held, the token it must be held with."""


def _value(fields: Fields) -> bytes:
    value = fields.bytes_or_none("value")
    if value is None:
        raise BadFieldError("value", "is missing (or value_base64)")
    return value


def _guard(fields: Fields) -> Guard:
    session_id, lock = fields.id_or_none("session"), fields.text_or_none("lock")
    token = fields.number("token", NO_TOKEN, 0, LONG_MAX)
    if (lock is None) != (token == NO_TOKEN):
        raise BadFieldError("token" if lock else "lock", "lock and token go together")
    return session_id, lock, token


def _write(
    key: str,
    value: bytes | None,
    guard: Guard,
    version: int = ANY_VERSION,
    expected: bytes | None = None,
) -> ControllerRequest:
    request = KvGuardedWriteRequest(key, value, version, expected, *guard)
    return unguarded(request) if guard == (None, None, NO_TOKEN) else request


def _expectation(fields: Fields) -> tuple[int, bytes | None]:
    version = fields.number("expected_version", ANY_VERSION, 0, LONG_MAX)
    expected = fields.bytes_or_none("expected_value")
    absent = fields.flag("expected_absent")
    if absent and (version, expected) != (ANY_VERSION, None):
        raise BadFieldError("expected_absent", "goes with no other expectation")
    if not absent and (version, expected) == (ANY_VERSION, None):
        remedy = "give it, expected_value or expected_absent"
        raise BadFieldError("expected_version", remedy)
    return NO_VERSION if absent else version, expected


def _written(key: str, answer: KvWriteResponse) -> dict[str, Any]:
    """What a write came to; KafkaError if nothing was changed."""
    if answer.error == ErrorCode.NONE:
        return {"key": key, "version": answer.version}
    raise RefusedWriteError(answer.error, _why_not(key, answer), answer.version)


def _why_not(key: str, answer: KvWriteResponse) -> str:
    match answer.error:
        case ErrorCode.FENCED_MEMBER_EPOCH:
            by = "nobody" if answer.version == NO_TOKEN else f"token {answer.version}"
            return f"token: the lock is held by {by}"
        case ErrorCode.UNKNOWN_MEMBER_ID:
            return "session: it is over"
        case _ if answer.version == NO_VERSION:
            return f"key: {key} does not exist; nothing was changed"
        case _:
            return f"key: {key} has version {answer.version}; nothing was changed"


def _check_session(session_id: UUID, error: ErrorCode) -> None:
    if error != ErrorCode.NONE:
        raise _over(session_id)


def _over(session_id: UUID) -> KafkaError:
    why = f"session: {uuid_text(session_id)} is over; open another"
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, why)

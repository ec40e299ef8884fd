"""Sessions, ephemeral keys, locks, and writes that a lock guards (row Q10).

Only the active controller decides that a session has expired, and says so by a record, so all
replicas agree. What is bound to a session goes in the same batch as the session: nobody sees the
one without the other. A lock is a queue in the order of the log; its holder is the first, and a
guarded write is refused unless its token is the holder's at that very place in the log, so a client
that has lost a lock unawares changes nothing any more.
Sources: ZooKeeper's sessions and ephemeral nodes; etcd's leases and transactions on a lock's key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller._config import KV_BYTES_MAX
from raftctl.controller._result import ControllerResult
from raftctl.controller.kv._kv_control import check_key, check_room, handle_kv
from raftctl.controller.kv._kv_sessions import KvSessions
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import COORDINATION_LEVEL, require_level
from raftctl.metadata.image import kv_size
from raftctl.metadata.records import (
    KvLockRecord,
    KvOwnerRecord,
    KvRecord,
    KvSessionRecord,
    RemoveKvLockRecord,
    RemoveKvSessionRecord,
)
from raftctl.metadata.requests.cluster import (
    KvCasRequest,
    KvDeleteRequest,
    KvPutRequest,
    KvWriteResponse,
)
from raftctl.metadata.requests.kv import (
    ANY_VERSION,
    NO_TOKEN,
    NO_VERSION,
    CoordinationRequest,
    KvBarrierRequest,
    KvBarrierResponse,
    KvCloseSessionRequest,
    KvGuardedWriteRequest,
    KvHeartbeatRequest,
    KvLockRequest,
    KvLockResponse,
    KvOpenSessionRequest,
    KvSessionResponse,
    KvUnlockRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from raftctl.metadata.image import Coordination, KvSession, MetadataImage
    from raftctl.metadata.records import Record

    KvAnswer = KvSessionResponse | KvLockResponse

SESSION_TIMEOUT_MIN_MS = 1_000
SESSION_TIMEOUT_MAX_MS = 600_000
SESSIONS_MAX = 10_000
KEYS_MAX = 1_000
"""Ephemeral keys of a session; they go in one batch."""
LOCKS_MAX = 100
"""Locks that a session holds or waits for."""
WAITERS_MAX = 1_000
"""Sessions that hold or wait for the same lock."""
LOCK_VALUE_BYTES_MAX = 4_096
EXPIRY_RECORDS_MAX = 2_000
"""Sessions expire together up to about this many records, the others at the next look."""


class KvCoordination:
    """The sessions of clients on one controller; active between `claim` and `renounce`."""

    def __init__(self, kv_bytes_max: int = KV_BYTES_MAX) -> None:
        self._kv_bytes_max = kv_bytes_max
        self._sessions = KvSessions()

    def claim(self, image: MetadataImage, now_ms: int) -> None:
        """Watches every session from now on, each with a full timeout."""
        self._sessions.clear()
        for session_id, session in image.coordination.sessions.items():
            self._sessions.open(session_id, session.timeout_ms, now_ms)

    def renounce(self) -> None:
        """Forgets who was heard of."""
        self._sessions.clear()

    def deadline_ms(self) -> int | None:
        """When `expire` has something to do."""
        return self._sessions.deadline_ms()

    def expire(self, image: MetadataImage, now_ms: int) -> list[Record]:
        """Closes the sessions that were silent for too long."""
        if not image.coordination.sessions:
            self._sessions.clear()
            return []
        self._sessions.look(now_ms)
        records: list[Record] = []
        while len(records) < EXPIRY_RECORDS_MAX:
            session_id = self._sessions.next_expired(now_ms)
            if session_id is None:
                break
            session = image.coordination.sessions.get(session_id)
            if session is not None:
                records += closing_records(image.coordination, session)
        return records

    def handle(
        self, image: MetadataImage, request: CoordinationRequest, now_ms: int
    ) -> ControllerResult:
        """What becomes of a request.

        Raises KafkaError: INVALID_REQUEST and MESSAGE_TOO_LARGE name the field;
        INVALID_SESSION_TIMEOUT; POLICY_VIOLATION for one too many of what is bounded;
        UNSUPPORTED_VERSION below the level of the metadata that knows sessions.
        """
        match request:
            case KvBarrierRequest():
                return ControllerResult((), KvBarrierResponse(image.offset), confirm=True)
            case KvHeartbeatRequest():
                return self._heartbeat(image, request, now_ms)
            case KvCloseSessionRequest():
                return self._close(image, request)
            case KvUnlockRequest():
                return unlock(image, request)
        require_level(image, COORDINATION_LEVEL)
        match request:
            case KvGuardedWriteRequest():
                return guarded_write(image, request, self._kv_bytes_max)
            case KvOpenSessionRequest():
                return self._open(image, request, now_ms)
            case KvLockRequest():
                return enqueue(image, request, self._kv_bytes_max)

    def _open(
        self, image: MetadataImage, request: KvOpenSessionRequest, now_ms: int
    ) -> ControllerResult:
        timeout_ms, session_id = request.timeout_ms, request.session_id
        if not SESSION_TIMEOUT_MIN_MS <= timeout_ms <= SESSION_TIMEOUT_MAX_MS:
            allowed = f"{SESSION_TIMEOUT_MIN_MS} to {SESSION_TIMEOUT_MAX_MS}"
            why = f"timeout_ms must be {allowed}, not {timeout_ms}"
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT, why)
        session = image.coordination.sessions.get(session_id)
        if session is not None:
            self._sessions.touch(session_id, now_ms)
            return _confirmed(KvSessionResponse(ErrorCode.NONE, session.timeout_ms))
        if len(image.coordination.sessions) >= SESSIONS_MAX:
            why = f"there are {SESSIONS_MAX} sessions already: close some"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
        self._sessions.open(session_id, timeout_ms, now_ms)
        response = KvSessionResponse(ErrorCode.NONE, timeout_ms)
        return _written((KvSessionRecord(session_id, timeout_ms),), response)

    def _heartbeat(
        self, image: MetadataImage, request: KvHeartbeatRequest, now_ms: int
    ) -> ControllerResult:
        """Confirmed: a deposed controller's word would make a client believe in its session."""
        session = image.coordination.sessions.get(request.session_id)
        if session is None:
            return _confirmed(KvSessionResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        self._sessions.touch(request.session_id, now_ms)
        return _confirmed(KvSessionResponse(ErrorCode.NONE, session.timeout_ms))

    def _close(self, image: MetadataImage, request: KvCloseSessionRequest) -> ControllerResult:
        session = image.coordination.sessions.get(request.session_id)
        if session is None:
            return _confirmed(KvSessionResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        self._sessions.close(request.session_id)
        records = tuple(closing_records(image.coordination, session))
        return _written(records, KvSessionResponse(ErrorCode.NONE, session.timeout_ms))


def closing_records(coordination: Coordination, session: KvSession) -> list[Record]:
    """What ends a session: first all that is bound to it goes."""
    records: list[Record] = [KvRecord(key, None) for key in session.keys]
    for lock in session.locks:
        place = _place(coordination, lock, session.session_id)
        records.append(RemoveKvLockRecord(lock, place))
    return [*records, RemoveKvSessionRecord(session.session_id)]


def _place(coordination: Coordination, lock: str, session_id: UUID) -> int:
    """The session's token in the queue for the lock, or `NO_TOKEN`."""
    tokens = (one.token for one in coordination.queue(lock) if one.session_id == session_id)
    return next(tokens, NO_TOKEN)


# --- writes ---------------------------------------------------------------------------------------


def guarded_write(
    image: MetadataImage, request: KvGuardedWriteRequest, kv_bytes_max: int = KV_BYTES_MAX
) -> ControllerResult:
    """Writes if the lock is held with the token and the session is open."""
    check_key(request.key)
    if (request.lock is None) != (request.token == NO_TOKEN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "lock and token go together")
    if request.session_id is not None and request.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "session: a key that is removed needs none")
    if request.lock is not None:
        held_by = holder_token(image.coordination, request.lock)
        if held_by != request.token:
            return _confirmed(KvWriteResponse(ErrorCode.FENCED_MEMBER_EPOCH, held_by))
    binding: tuple[Record, ...] = ()
    if request.session_id is not None:
        session = image.coordination.sessions.get(request.session_id)
        if session is None:
            return _confirmed(KvWriteResponse(ErrorCode.UNKNOWN_MEMBER_ID, NO_VERSION))
        binding = _binding(request.key, session)
    result = handle_kv(image, unguarded(request), kv_bytes_max)
    return result._replace(records=(*result.records, *binding)) if result.records else result


def holder_token(coordination: Coordination, lock: str) -> int:
    """The token with which the lock is held, or `NO_TOKEN`."""
    holder = coordination.holder(lock)
    return NO_TOKEN if holder is None else holder.token


def _binding(key: str, session: KvSession) -> tuple[Record, ...]:
    if key in session.keys:
        return ()
    if len(session.keys) >= KEYS_MAX:
        why = f"the session has {KEYS_MAX} keys already: delete some, or open another"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
    return (KvOwnerRecord(key, session.session_id),)


def unguarded(
    request: KvGuardedWriteRequest,
) -> KvPutRequest | KvCasRequest | KvDeleteRequest:
    """The write without its session and its lock."""
    key, value = request.key, request.value
    if request.expected_version != ANY_VERSION or request.expected_value is not None:
        return KvCasRequest(key, value, request.expected_version, request.expected_value)
    return KvDeleteRequest(key) if value is None else KvPutRequest(key, value)


# --- locks ----------------------------------------------------------------------------------------


def enqueue(
    image: MetadataImage, request: KvLockRequest, kv_bytes_max: int = KV_BYTES_MAX
) -> ControllerResult:
    """The session's place in the queue, the one it has or one at the end.

    KafkaError(POLICY_VIOLATION) if there is no room for one more.
    """
    lock, coordination = request.lock, image.coordination
    check_key(lock, "lock")
    if len(request.value) > LOCK_VALUE_BYTES_MAX:
        why = f"value of a lock has at most {LOCK_VALUE_BYTES_MAX} bytes"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, why)
    session = coordination.sessions.get(request.session_id)
    if session is None:
        return _confirmed(KvLockResponse(ErrorCode.UNKNOWN_MEMBER_ID))
    holder = holder_token(coordination, lock)
    place = _place(coordination, lock, request.session_id)
    if place != NO_TOKEN:
        return _confirmed(KvLockResponse(ErrorCode.NONE, place, holder))
    if len(session.locks) >= LOCKS_MAX or len(coordination.queue(lock)) >= WAITERS_MAX:
        why = f"a session waits for {LOCKS_MAX} locks, and {WAITERS_MAX} for one lock, at most"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
    check_room(kv_size(lock, request.value), kv_bytes_max - image.kv_bytes, kv_bytes_max)
    return _written(
        (KvLockRecord(lock, request.session_id, request.value),),
        lambda offset: KvLockResponse(
            ErrorCode.NONE, offset, offset if holder == NO_TOKEN else holder
        ),
    )


def unlock(image: MetadataImage, request: KvUnlockRequest) -> ControllerResult:
    """Gives a place in the queue back."""
    check_key(request.lock, "lock")
    queue = image.coordination.queue(request.lock)
    if request.token not in [waiter.token for waiter in queue]:
        holder = holder_token(image.coordination, request.lock)
        return _confirmed(KvLockResponse(ErrorCode.RESOURCE_NOT_FOUND, NO_TOKEN, holder))
    left = [waiter.token for waiter in queue if waiter.token != request.token]
    response = KvLockResponse(ErrorCode.NONE, request.token, left[0] if left else NO_TOKEN)
    return _written((RemoveKvLockRecord(request.lock, request.token),), response)


def _written(
    records: tuple[Record, ...], response: KvAnswer | Callable[[int], KvAnswer]
) -> ControllerResult:
    """What is lost on the way may have been done: the caller must not take it for undone."""
    return ControllerResult(records, response, lost=ErrorCode.REQUEST_TIMED_OUT)


def _confirmed(
    response: KvSessionResponse | KvLockResponse | KvWriteResponse,
) -> ControllerResult:
    """An answer that writes nothing; see `ControllerResult.confirm`."""
    return ControllerResult((), response, confirm=True)

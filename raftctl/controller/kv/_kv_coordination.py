"""Sessions, ephemeral keys, locks, and writes that a lock guards (row Q10).

Only the active controller decides that a session has expired. It writes a record for that, so all
replicas agree. Keys and locks of a session are removed in the batch that closes it: no reader sees
the one without the other. A lock is a queue in the order of the log, and its holder is the first. A
guarded write is refused unless it names the token of the holder at that offset of the log. So a
client that has lost a lock without noticing changes nothing any more.

An open session stands in the log; the time of its last heartbeat is soft state. A controller that
becomes active gives every session a full timeout, since it does not know the heartbeats that its
predecessor answered. A controller that was itself held up cannot tell which sessions were silent.
So it checks often, and when a check is late it gives every session a full timeout again.

Sources: ZooKeeper's sessions and ephemeral nodes; etcd's leases and transactions on a lock's key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.controller._config import KV_BYTES_MAX
from raftctl.controller._result import ControllerResult
from raftctl.controller.kv._kv_control import check_key, check_room, handle_kv
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.features import COORDINATION_LEVEL, require_level
from raftctl.metadata.image.types import kv_size
from raftctl.metadata.records import (
    KvLockRecord,
    KvOwnerRecord,
    KvRecord,
    KvSessionRecord,
    RemoveKvLockRecord,
    RemoveKvSessionRecord,
)
from raftctl.metadata.requests.kv import (
    NO_TOKEN,
    NO_VERSION,
    SESSION_TIMEOUT_MAX_MS,
    SESSION_TIMEOUT_MIN_MS,
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
    KvWriteResponse,
    unguarded,
)
from raftctl.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.image.coordination import Coordination, KvSession
    from raftctl.metadata.records import Record

    KvAnswer = KvSessionResponse | KvLockResponse

SESSIONS_MAX = 10_000
KEYS_MAX = 1_000
"""Ephemeral keys of a session; they go in one batch."""
LOCKS_MAX = 100
"""Locks that a session holds or waits for."""
WAITERS_MAX = 1_000
"""Sessions that hold or wait for the same lock."""
LOCK_VALUE_BYTES_MAX = 4_096
EXPIRY_RECORDS_MAX = 2_000
"""Sessions expire together up to about this many records, the others at the next check."""
CHECK_MS = 250
"""A check is due after this long. One that is later by as much again means that the controller was
held up."""


class KvSessions:
    """Deadlines of sessions by id; each session has a timeout of its own."""

    def __init__(self) -> None:
        self._timeouts: dict[UUID, int] = {}
        self._deadlines: Timers[UUID] = Timers()
        self._checked_ms = 0

    def open(self, session_id: UUID, timeout_ms: int, now_ms: int) -> None:
        """Start the timeout of a session, or restart it."""
        if not self._timeouts:
            self._checked_ms = now_ms
        self._timeouts[session_id] = timeout_ms
        self._deadlines.set(session_id, now_ms + timeout_ms)

    def touch(self, session_id: UUID, now_ms: int) -> None:
        """Restart the timeout at a heartbeat; a session without a deadline stays without."""
        timeout_ms = self._timeouts.get(session_id)
        if timeout_ms is not None:
            self._deadlines.set(session_id, now_ms + timeout_ms)

    def invariants(self) -> None:
        """Check that a session has a deadline as long as it has a timeout, and no longer."""
        timed = all(session_id in self._deadlines for session_id in self._timeouts)
        invariant(timed, "a session with a timeout has a deadline")
        # A deadline that stays behind would close the next session under the same id early.
        invariant(len(self._deadlines) == len(self._timeouts), "a deadline is that of a session")

    def session_ids(self) -> set[UUID]:
        """Return the sessions that have a deadline."""
        return {*self._timeouts}

    def close(self, session_id: UUID) -> None:
        """Drop the session's deadline, if it has one."""
        self._timeouts.pop(session_id, None)
        self._deadlines.cancel(session_id)

    def clear(self) -> None:
        """Drop all deadlines."""
        self._timeouts.clear()
        self._deadlines = Timers()

    def check(self, now_ms: int) -> None:
        """Note a check at `deadline_ms`; one that is much later restarts every timeout.

        A controller that was held up has not read the heartbeats that arrived meanwhile.
        """
        if now_ms - self._checked_ms > 2 * CHECK_MS:
            for session_id, timeout_ms in self._timeouts.items():
                self._deadlines.set(session_id, now_ms + timeout_ms)
        self._checked_ms = now_ms

    def next_expired(self, now_ms: int) -> UUID | None:
        """Drop the deadline of an expired session and return its id; None if none has expired."""
        session_id = next(self._deadlines.due(now_ms), None)
        if session_id is not None:
            self.close(session_id)
        return session_id

    def deadline_ms(self) -> int | None:
        """Return when to check next (ms); None while there is no session."""
        first_ms = self._deadlines.next_ms()
        return None if first_ms is None else min(first_ms, self._checked_ms + CHECK_MS)


class KvCoordination:
    """Sessions and locks on one controller; active between `claim` and `renounce`."""

    def __init__(self, kv_bytes_max: int = KV_BYTES_MAX) -> None:
        self._kv_bytes_max = kv_bytes_max
        self._sessions = KvSessions()

    def claim(self, image: MetadataImage, now_ms: int) -> None:
        """Give every session of the image a full timeout."""
        self._sessions.clear()
        for session_id, session in image.coordination.sessions.items():
            self._sessions.open(session_id, session.timeout_ms, now_ms)

    def renounce(self) -> None:
        """Drop all deadlines."""
        self._sessions.clear()

    def invariants(self, image: MetadataImage) -> None:
        """Check that each open session of the newest image has a deadline.

        Others may have one: a session whose record was refused by the log expires without a trace.
        """
        self._sessions.invariants()
        watched = self._sessions.session_ids()
        invariant(watched >= {*image.coordination.sessions}, "an open session has a deadline")

    def deadline_ms(self) -> int | None:
        """Return when `expire` has something to do (ms); None without sessions."""
        return self._sessions.deadline_ms()

    def expire(self, image: MetadataImage, now_ms: int) -> list[Record]:
        """Return the records that close expired sessions, about `EXPIRY_RECORDS_MAX` of them."""
        if not image.coordination.sessions:
            self._sessions.clear()
            return []
        self._sessions.check(now_ms)
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
        """Decide a request of a session, a lock or a guarded write.

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
        """Extend the session; the response is confirmed.

        A deposed controller does not know that its successor has closed the session. On its word
        the client would go on to trust its locks.
        """
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
    """Return the records that close a session, after those that remove what it owns."""
    records: list[Record] = [KvRecord(key, None) for key in session.keys]
    for lock in session.locks:
        place = _place(coordination, lock, session.session_id)
        invariant(place != NO_TOKEN, "a session that closes is in the queues that it lists")
        records.append(RemoveKvLockRecord(lock, place))
    return [*records, RemoveKvSessionRecord(session.session_id)]


def _place(coordination: Coordination, lock: str, session_id: UUID) -> int:
    """Return the session's token in the queue for the lock, or `NO_TOKEN`."""
    tokens = (
        waiter.token for waiter in coordination.queue(lock) if waiter.session_id == session_id
    )
    return next(tokens, NO_TOKEN)


# --- writes ---------------------------------------------------------------------------------------


def guarded_write(
    image: MetadataImage, request: KvGuardedWriteRequest, kv_bytes_max: int = KV_BYTES_MAX
) -> ControllerResult:
    """Write if the lock is held with the token and the session is open.

    Errors in the response: FENCED_MEMBER_EPOCH with the holder's token; UNKNOWN_MEMBER_ID if the
    session is closed. KafkaError(INVALID_REQUEST) for fields that contradict each other.
    """
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
    """Return the token of the lock's holder, or `NO_TOKEN`."""
    holder = coordination.holder(lock)
    return NO_TOKEN if holder is None else holder.token


def _binding(key: str, session: KvSession) -> tuple[Record, ...]:
    if key in session.keys:
        return ()
    if len(session.keys) >= KEYS_MAX:
        why = f"the session has {KEYS_MAX} keys already: delete some, or open another"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
    return (KvOwnerRecord(key, session.session_id),)


# --- locks ----------------------------------------------------------------------------------------


def enqueue(
    image: MetadataImage, request: KvLockRequest, kv_bytes_max: int = KV_BYTES_MAX
) -> ControllerResult:
    """Return the session's place in the queue for a lock; without one, add it at the end.

    Error in the response: UNKNOWN_MEMBER_ID if the session is closed. Raises KafkaError:
    INVALID_REQUEST and MESSAGE_TOO_LARGE name the field; POLICY_VIOLATION if the session, the queue
    or the memory for keys and locks is full.
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
    """Remove a place from the queue; the next one, if any, then holds the lock.

    Error in the response: RESOURCE_NOT_FOUND if no place has the token.
    """
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
    """Return a result whose loss leaves the outcome unknown: the records may commit yet."""
    return ControllerResult(records, response, lost=ErrorCode.REQUEST_TIMED_OUT)


def _confirmed(
    response: KvSessionResponse | KvLockResponse | KvWriteResponse,
) -> ControllerResult:
    """Return a confirmed response without records; see `ControllerResult.confirm`."""
    return ControllerResult((), response, confirm=True)

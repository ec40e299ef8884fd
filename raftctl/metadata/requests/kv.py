"""Requests for keys and values, sessions, ephemeral keys, locks and guarded writes (row Q10).

The version of a key and the token of a lock are offsets of the metadata log, so both grow over all
keys and locks: the greater of two was given later. A write whose response is lost is not repeated:
its outcome is unknown, and a second put could undo the write of another client.

Sources: ZooKeeper's sessions and versions; etcd's compare-and-set, leases and locks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raftctl.errors import ErrorCode

ANY_VERSION = -2
"""Expectation of a version that any version meets."""
NO_VERSION = -1
"""Version of a key that does not exist."""
NO_TOKEN = -1
"""Token of a lock without a holder."""
SESSION_TIMEOUT_MIN_MS = 1_000
SESSION_TIMEOUT_MAX_MS = 600_000


@dataclass(frozen=True, slots=True)
class KvGetRequest:
    """Read of a key, linearizable: it returns no older value than any write answered before."""

    TYPE_ID: ClassVar[int] = 140
    key: str


@dataclass(frozen=True, slots=True)
class KvGetResponse:
    """Value and version; None and `NO_VERSION` if the key does not exist."""

    TYPE_ID: ClassVar[int] = 141
    value: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class KvPutRequest:
    """Sets the value of the key, whatever it was."""

    TYPE_ID: ClassVar[int] = 142
    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class KvWriteResponse:
    """Outcome of a write, and the new version of the key.

    Errors: INVALID_UPDATE_VERSION if the expectation does not hold; RESOURCE_NOT_FOUND for the
    deletion of a key that does not exist. Nothing has changed then, and `version` is the present
    one.
    """

    TYPE_ID: ClassVar[int] = 143
    error: ErrorCode
    version: int


@dataclass(frozen=True, slots=True)
class KvCasRequest:
    """Sets the value, or removes the key (None), if its version and value are the expected ones."""

    TYPE_ID: ClassVar[int] = 144
    key: str
    value: bytes | None
    expected_version: int
    """Version; `NO_VERSION` if the key must not exist; `ANY_VERSION` for no expectation."""
    expected_value: bytes | None = None
    """None: the value does not matter."""


@dataclass(frozen=True, slots=True)
class KvDeleteRequest:
    """Removes the key, whatever its value is."""

    TYPE_ID: ClassVar[int] = 146
    key: str


@dataclass(frozen=True, slots=True)
class KvGuardedWriteRequest:
    """Put, compare-and-set or delete of an ephemeral key, or under a lock.

    Errors of the `KvWriteResponse` besides: FENCED_MEMBER_EPOCH if the lock is not held with that
    token (`version` is the holder's), UNKNOWN_MEMBER_ID if the session is over. Nothing has changed
    then.
    """

    TYPE_ID: ClassVar[int] = 147
    key: str
    value: bytes | None
    """None removes the key."""
    expected_version: int = ANY_VERSION
    """See `KvCasRequest`."""
    expected_value: bytes | None = None
    session_id: UUID | None = None
    """Session that owns the key from now on. None: an existing key keeps its owner."""
    lock: str | None = None
    """Lock that must be held with `token`."""
    token: int = NO_TOKEN


@dataclass(frozen=True, slots=True)
class KvOpenSessionRequest:
    """Opens a session under an id of the client's choice; a repetition changes nothing."""

    TYPE_ID: ClassVar[int] = 148
    session_id: UUID
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class KvHeartbeatRequest:
    """Heartbeat of a session; its full timeout begins again."""

    TYPE_ID: ClassVar[int] = 149
    session_id: UUID


@dataclass(frozen=True, slots=True)
class KvCloseSessionRequest:
    """Ends the session and removes what is bound to it."""

    TYPE_ID: ClassVar[int] = 150
    session_id: UUID


@dataclass(frozen=True, slots=True)
class KvSessionResponse:
    """Timeout of the session in ms. Error: UNKNOWN_MEMBER_ID if it is not open."""

    TYPE_ID: ClassVar[int] = 151
    error: ErrorCode
    timeout_ms: int = -1


@dataclass(frozen=True, slots=True)
class KvLockRequest:
    """Request for a place in the queue for a lock; a session that has one keeps it."""

    TYPE_ID: ClassVar[int] = 152
    lock: str
    session_id: UUID
    value: bytes


@dataclass(frozen=True, slots=True)
class KvUnlockRequest:
    """Returns the place with this token, which holds the lock or waits for it."""

    TYPE_ID: ClassVar[int] = 153
    lock: str
    token: int


@dataclass(frozen=True, slots=True)
class KvLockResponse:
    """Token of the session's place in the queue, and of the lock's holder.

    Errors: UNKNOWN_MEMBER_ID if the session is over, RESOURCE_NOT_FOUND if no place has the token
    that is to be given back.
    """

    TYPE_ID: ClassVar[int] = 154
    error: ErrorCode
    token: int = NO_TOKEN
    holder: int = NO_TOKEN
    """Token of the holder."""


@dataclass(frozen=True, slots=True)
class KvBarrierRequest:
    """Request for the offset from which on an image shows every write answered before it."""

    TYPE_ID: ClassVar[int] = 155


@dataclass(frozen=True, slots=True)
class KvBarrierResponse:
    """Offset that an image must have reached to be up to date."""

    TYPE_ID: ClassVar[int] = 156
    offset: int


KvRequest = KvPutRequest | KvGetRequest | KvCasRequest | KvDeleteRequest
CoordinationRequest = (
    KvGuardedWriteRequest
    | KvOpenSessionRequest
    | KvHeartbeatRequest
    | KvCloseSessionRequest
    | KvLockRequest
    | KvUnlockRequest
    | KvBarrierRequest
)
Request = KvRequest | CoordinationRequest
Response = KvGetResponse | KvWriteResponse | KvSessionResponse | KvLockResponse | KvBarrierResponse


def unguarded(
    request: KvGuardedWriteRequest,
) -> KvPutRequest | KvCasRequest | KvDeleteRequest:
    """Return the write without its session and its lock."""
    key, value = request.key, request.value
    if request.expected_version != ANY_VERSION or request.expected_value is not None:
        return KvCasRequest(key, value, request.expected_version, request.expected_value)
    return KvDeleteRequest(key) if value is None else KvPutRequest(key, value)

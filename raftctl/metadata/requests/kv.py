"""What clients of keys and values ask of the active controller beyond gets and puts (row Q10).

Sessions, ephemeral keys, locks, and writes that a lock guards. See `raftctl.metadata.requests` for
how they travel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from raftctl.errors import ErrorCode

ANY_VERSION = -2
"""Of a key that is to be compared: the version does not matter."""
NO_VERSION = -1
"""The version of a key that does not exist."""
NO_TOKEN = -1
"""The token of a lock that nobody holds."""
SESSION_TIMEOUT_MIN_MS = 1_000
SESSION_TIMEOUT_MAX_MS = 600_000


@dataclass(frozen=True, slots=True)
class KvGetRequest:
    """What is the value of the key? Linearizable: no older than any write answered before."""

    TYPE_ID: ClassVar[int] = 140
    key: str


@dataclass(frozen=True, slots=True)
class KvGetResponse:
    """The value; None and `NO_VERSION` if there is no such key."""

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
    """What a write came to. A version is the offset of a record, so it grows over all keys.

    Errors: INVALID_UPDATE_VERSION if the expectation does not hold; RESOURCE_NOT_FOUND for the
    deletion of what does not exist. Nothing has changed then, and `version` is what was found.
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
    """A version, `NO_VERSION` for "must not exist", or `ANY_VERSION`."""
    expected_value: bytes | None = None
    """None: the value does not matter."""


@dataclass(frozen=True, slots=True)
class KvDeleteRequest:
    """Removes the key, whatever its value is."""

    TYPE_ID: ClassVar[int] = 146
    key: str


@dataclass(frozen=True, slots=True)
class KvGuardedWriteRequest:
    """A put, cas or delete of an ephemeral key, or under a lock; a `KvWriteResponse`.

    Further errors: FENCED_MEMBER_EPOCH if the lock is not held with that token (`version` is the
    holder's), UNKNOWN_MEMBER_ID if the session is over. Nothing has changed then.
    """

    TYPE_ID: ClassVar[int] = 147
    key: str
    value: bytes | None
    """None removes the key."""
    expected_version: int = ANY_VERSION
    """As in a `KvCasRequest`."""
    expected_value: bytes | None = None
    session_id: UUID | None = None
    """The session that the key goes with. None: a key that exists stays bound as it is."""
    lock: str | None = None
    """The lock that must be held with this token."""
    token: int = NO_TOKEN


@dataclass(frozen=True, slots=True)
class KvOpenSessionRequest:
    """Opens a session under an id that the client has made up; again is the same as once."""

    TYPE_ID: ClassVar[int] = 148
    session_id: UUID
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class KvHeartbeatRequest:
    """The session lives: a full timeout begins."""

    TYPE_ID: ClassVar[int] = 149
    session_id: UUID


@dataclass(frozen=True, slots=True)
class KvCloseSessionRequest:
    """Ends the session and removes what is bound to it."""

    TYPE_ID: ClassVar[int] = 150
    session_id: UUID


@dataclass(frozen=True, slots=True)
class KvSessionResponse:
    """The session's timeout. Error: UNKNOWN_MEMBER_ID if it is over, or never was."""

    TYPE_ID: ClassVar[int] = 151
    error: ErrorCode
    timeout_ms: int = -1


@dataclass(frozen=True, slots=True)
class KvLockRequest:
    """A place in the queue for the lock; a session that has one keeps it."""

    TYPE_ID: ClassVar[int] = 152
    lock: str
    session_id: UUID
    value: bytes


@dataclass(frozen=True, slots=True)
class KvUnlockRequest:
    """Gives the place with this token back, whether it holds the lock or waits for it."""

    TYPE_ID: ClassVar[int] = 153
    lock: str
    token: int


@dataclass(frozen=True, slots=True)
class KvLockResponse:
    """The own place and who holds the lock now.

    Errors: UNKNOWN_MEMBER_ID if the session is over, RESOURCE_NOT_FOUND if there is no place with
    the token that is to be given back.
    """

    TYPE_ID: ClassVar[int] = 154
    error: ErrorCode
    token: int = NO_TOKEN
    holder: int = NO_TOKEN
    """The holder's token."""


@dataclass(frozen=True, slots=True)
class KvBarrierRequest:
    """From which offset on does an image show all that was answered before this was asked?"""

    TYPE_ID: ClassVar[int] = 155


@dataclass(frozen=True, slots=True)
class KvBarrierResponse:
    """An image of this offset or a later one."""

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


def unguarded(
    request: KvGuardedWriteRequest,
) -> KvPutRequest | KvCasRequest | KvDeleteRequest:
    """The write without its session and its lock."""
    key, value = request.key, request.value
    if request.expected_version != ANY_VERSION or request.expected_value is not None:
        return KvCasRequest(key, value, request.expected_version, request.expected_value)
    return KvDeleteRequest(key) if value is None else KvPutRequest(key, value)

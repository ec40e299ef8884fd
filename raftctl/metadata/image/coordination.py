"""Sessions, their ephemeral keys and the queues for locks: a part of the image.

A session owns ephemeral keys and places in the queues for locks; all are removed when it closes. A
place has a token, the offset of the record that made it. The place with the smallest token holds
the lock. Tokens grow from holder to holder, so each serves as a fencing token: a store that has
seen a later holder's refuses an earlier one.

Sources: ZooKeeper's ephemeral nodes, etcd's leases and its queues ordered by revision.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from immutables import Map

from raftctl.errors import InvariantViolation, invariant
from raftctl.metadata.image._maps import updated
from raftctl.metadata.records import (
    KvLockRecord,
    KvOwnerRecord,
    KvSessionRecord,
    RemoveKvLockRecord,
    RemoveKvSessionRecord,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from raftctl.metadata.records import Record


class KvWaiter(NamedTuple):
    """A place in the queue for a lock.

    A session has at most one in each queue. `value` is what the session says of itself to others.
    """

    token: int
    session_id: UUID
    value: bytes


@dataclass(frozen=True, slots=True)
class KvSession:
    """An open session with its keys and locks."""

    session_id: UUID
    timeout_ms: int
    keys: tuple[str, ...] = ()
    """Ephemeral keys, sorted."""
    locks: tuple[str, ...] = ()
    """Locks that it holds or waits for, sorted."""


@dataclass(frozen=True, slots=True)
class Coordination:
    """All sessions and queues at one offset; immutable like the image it is part of."""

    sessions: Map[UUID, KvSession] = field(default_factory=Map)
    owners: Map[str, UUID] = field(default_factory=Map)
    """Ephemeral key to its session."""
    queues: Map[str, tuple[KvWaiter, ...]] = field(default_factory=Map)
    """Lock to its places by token, the holder first; a lock without any is absent."""

    def invariants(self, keys: Collection[str], offset: int) -> None:
        """Check sessions, owners and queues against each other, and against the `keys` there are.

        Both ends of each binding name the other: a session that closes finds all it owns, and
        nothing is left behind that no session would ever remove.
        """
        for key, session_id in self.owners.items():
            invariant(key in keys, "an ephemeral key exists")
            session = self.sessions.get(session_id)
            bound = session is not None and key in session.keys
            invariant(bound, "the owner of an ephemeral key is an open session that lists it")
        for session_id, session in self.sessions.items():
            owned = all(self.owners.get(key) == session_id for key in session.keys)
            invariant(owned, "a session owns the keys that it lists")
            for lock in session.locks:
                waiting = [waiter.session_id for waiter in self.queue(lock)]
                invariant(session_id in waiting, "a session is in the queues that it lists")
        for lock, queue in self.queues.items():
            tokens = [waiter.token for waiter in queue]
            ascending = tokens == sorted({*tokens}) and len(tokens) > 0
            invariant(ascending, "a queue is in the order of its tokens, and is not empty")
            invariant(tokens[-1] <= offset, "a token is an offset of the log")
            for waiter in queue:
                session = self.sessions.get(waiter.session_id)
                listed = session is not None and lock in session.locks
                invariant(listed, "a place in a queue belongs to an open session that lists it")

    def queue(self, lock: str) -> tuple[KvWaiter, ...]:
        """Return the places in the queue for a lock, the holder first."""
        return self.queues.get(lock, ())

    def holder(self, lock: str) -> KvWaiter | None:
        """Return the place that holds the lock, if any."""
        queue = self.queue(lock)
        return queue[0] if queue else None

    def records(self) -> Iterator[Record]:
        """Return sessions and queues as records, in a fixed order.

        The keys must be replayed before them, since owners refer to them.
        """
        for session_id in sorted(self.sessions):
            yield KvSessionRecord(session_id, self.sessions[session_id].timeout_ms)
        for key in sorted(self.owners):
            yield KvOwnerRecord(key, self.owners[key])
        for lock in sorted(self.queues):
            for token, session_id, value in self.queues[lock]:
                yield KvLockRecord(lock, session_id, value, token)

    def removals(self, new: Coordination) -> Iterator[Record]:
        """Return the records that remove all that `new` lacks."""
        for key in sorted(self.owners):
            if key not in new.owners:
                yield KvOwnerRecord(key, None)
        for lock in sorted(self.queues):
            kept = new.queue(lock)
            for waiter in self.queues[lock]:
                if waiter not in kept:
                    yield RemoveKvLockRecord(lock, waiter.token)
        for session_id in sorted(self.sessions):
            if session_id not in new.sessions:
                yield RemoveKvSessionRecord(session_id)


class CoordinationDelta:
    """Records on top of a `Coordination`."""

    __slots__ = ("before", "changed_owners", "changed_queues", "changed_sessions")

    def __init__(self, before: Coordination) -> None:
        self.before = before
        self.changed_sessions: dict[UUID, KvSession | None] = {}
        self.changed_owners: dict[str, UUID | None] = {}
        self.changed_queues: dict[str, tuple[KvWaiter, ...]] = {}
        """Lock to its queue after the change; empty if no place is left."""

    def apply(self) -> Coordination:
        """Return the sessions and queues after the change."""
        queues = {lock: queue or None for lock, queue in self.changed_queues.items()}
        return Coordination(
            updated(self.before.sessions, self.changed_sessions),
            updated(self.before.owners, self.changed_owners),
            updated(self.before.queues, queues),
        )

    # --- replay -----------------------------------------------------------------------------------

    def open_session(self, record: KvSessionRecord) -> None:
        """Open a session, or change the timeout of an open one."""
        session = self._session(record.session_id) or KvSession(record.session_id, 0)
        self._put(replace(session, timeout_ms=record.timeout_ms))

    def close_session(self, record: RemoveKvSessionRecord) -> None:
        """Close a session; the records that free its keys and locks come before."""
        self.changed_sessions[record.session_id] = None

    def own(self, record: KvOwnerRecord) -> None:
        """Bind a key to a session instead of the one before."""
        self.disown(record.key)
        if record.session_id is not None:
            session = self._known(record.session_id)
            self._put(replace(session, keys=_with(session.keys, record.key)))
            self.changed_owners[record.key] = record.session_id

    def disown(self, key: str) -> None:
        """Free a key from its session, if it has one."""
        owner = self._owner(key)
        if owner is None:
            return
        session = self._session(owner)
        if session is not None:
            self._put(replace(session, keys=_without(session.keys, key)))
        self.changed_owners[key] = None

    def enqueue(self, record: KvLockRecord, offset: int) -> None:
        """Add a place for a session to the queue for a lock."""
        session = self._known(record.session_id)
        queue = list(self._queue(record.lock))
        token = offset if record.token < 0 else record.token
        insort(queue, KvWaiter(token, record.session_id, record.value))
        self.changed_queues[record.lock] = tuple(queue)
        self._put(replace(session, locks=_with(session.locks, record.lock)))

    def dequeue(self, record: RemoveKvLockRecord) -> KvWaiter:
        """Remove the place with this token from the queue and return it."""
        lock, queue = record.lock, self._queue(record.lock)
        gone = next((waiter for waiter in queue if waiter.token == record.token), None)
        if gone is None:
            raise InvariantViolation(f"a record names token {record.token} of {lock}: {queue}")
        self.changed_queues[lock] = tuple(waiter for waiter in queue if waiter is not gone)
        session = self._session(gone.session_id)
        if session is not None:
            self._put(replace(session, locks=_without(session.locks, lock)))
        return gone

    # --- what the records so far have -------------------------------------------------------------

    def _session(self, session_id: UUID) -> KvSession | None:
        if session_id in self.changed_sessions:
            return self.changed_sessions[session_id]
        return self.before.sessions.get(session_id)

    def _known(self, session_id: UUID) -> KvSession:
        session = self._session(session_id)
        if session is None:
            raise InvariantViolation(f"a record names the unknown session {session_id}")
        return session

    def _put(self, session: KvSession) -> None:
        self.changed_sessions[session.session_id] = session

    def _owner(self, key: str) -> UUID | None:
        if key in self.changed_owners:
            return self.changed_owners[key]
        return self.before.owners.get(key)

    def _queue(self, lock: str) -> tuple[KvWaiter, ...]:
        changed = self.changed_queues.get(lock)
        return self.before.queue(lock) if changed is None else changed


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    at = bisect_left(names, name)
    return names if names[at : at + 1] == (name,) else (*names[:at], name, *names[at:])


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    at = bisect_left(names, name)
    return (*names[:at], *names[at + 1 :]) if names[at : at + 1] == (name,) else names


NO_COORDINATION = Coordination()

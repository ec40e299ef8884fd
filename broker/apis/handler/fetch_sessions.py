"""Fetch sessions (KIP-227): a client sends only what changed, and is sent only what changed.

A session remembers the partitions that a client or follower fetches. Its rounds are numbered by
epochs, so that a lost answer cannot go unnoticed: a client out of step is refused and opens a new
session. Pure: time is an argument. Sessions are bounded by
`max.incremental.fetch.session.cache.slots`, and the partitions in all of them by `PARTITIONS_MAX`;
a client that finds no room sends all its partitions each time, as it would without sessions.

Who makes room: first a session unused for two minutes; else, for a session that ranks higher
(followers before consumers, then more partitions before fewer), the lowest of those that are
consumers' where a follower comes, or are older than two minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.replication.partition import FetchSessionIndex
from raftctl.errors import ErrorCode, invariant
from raftctl.security import ANONYMOUS, Principal

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from broker.types import FetchKey as Key
    from broker.types import FetchResult

NO_SESSION = 0
FIRST_EPOCH = 0
"""Asks for a new session."""
FINAL_EPOCH = -1
"""Ends the session, if there is one, and wants none."""
EVICTION_MS = 120_000
PARTITIONS_MAX = 1_000_000
_INT32_MAX = 2**31 - 1


class Wanted(NamedTuple):
    """One partition as a client wants it; see `FetchPartition`."""

    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class Reader(NamedTuple):
    """The client or follower that reads: it decides how much is visible."""

    replica_id: int = -1
    replica_epoch: int = -1
    isolation_level: int = 0
    rack: str = ""


CONSUMER_READER = Reader()


class SessionRequest(NamedTuple):
    """The part of a Fetch that concerns its session."""

    session_id: int
    epoch: int
    by_topic_id: bool
    is_follower: bool
    wanted: dict[Key, Wanted]
    forgotten: Sequence[Key] = ()
    reader: Reader = CONSUMER_READER
    owner: Principal = ANONYMOUS
    """Whose request it is: nobody goes on with a session of another principal, or ends it."""
    rules: object = None
    """The rules of access in force: when they change, each partition is looked at again."""


class _Cached:
    """A partition of a session, and the last result that its client got."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_changed_by(self, result: FetchResult) -> bool:
        """Return True if the response must name the result, and note that it does."""
        changed = (
            bool(result.records)
            or result.error is not ErrorCode.NONE
            or result.diverging is not None
            or result.preferred_read_replica >= 0
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
        )
        # After an error the client must also see that it is over.
        failed = result.error is not ErrorCode.NONE
        self.high_watermark = -1 if failed else result.high_watermark
        self.log_start_offset = result.log_start_offset
        return changed


class FetchSession:
    """The partitions that one client fetches, with the last results that it got (KIP-227)."""

    __slots__ = (
        "by_topic_id",
        "created_ms",
        "dirty",
        "epoch",
        "id",
        "is_follower",
        "owner",
        "partitions",
        "reader",
        "rules",
        "used_ms",
    )

    def __init__(self, session_id: int, request: SessionRequest, now_ms: int) -> None:
        self.id = session_id
        self.by_topic_id = request.by_topic_id
        self.is_follower = request.is_follower
        self.created_ms = self.used_ms = now_ms
        self.epoch = 1
        """The epoch that the next Fetch must bear."""
        self.partitions = {key: _Cached(wanted) for key, wanted in request.wanted.items()}
        self.reader = request.reader
        self.owner = request.owner
        self.rules = request.rules
        self.dirty = FetchSessionIndex()
        """Those of them that are worth reading. Of these, those that had records longest ago are
        read first, so that none starves (R10)."""
        for key in self.partitions:
            self.dirty.want(key)

    @property
    def rank(self) -> tuple[bool, int]:
        """Sessions of a higher rank may replace those of a lower one."""
        return self.is_follower, len(self.partitions)

    def update(self, request: SessionRequest) -> None:
        """Begin the next round: apply the changes that the client asks for."""
        if request.reader != self.reader or request.rules is not self.rules:
            self.reader, self.rules = request.reader, request.rules
            for key in self.partitions:
                self.dirty.want(key)
        for key in request.forgotten:
            self.partitions.pop(key, None)
            self.dirty.forget(key)
        for key, wanted in request.wanted.items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = _Cached(wanted)
            else:
                cached.wanted = wanted
            self.dirty.want(key)
        self.epoch = 1 if self.epoch == _INT32_MAX else self.epoch + 1

    def note(self, key: Key, result: FetchResult) -> bool:
        """Note the result as sent; return True if the response must name it."""
        cached = self.partitions.get(key)
        if cached is None:
            return False
        if result.records:
            self.dirty.had_records(key)
        return cached.is_changed_by(result)


class Round(NamedTuple):
    """One Fetch: what to read, and what of it to answer.

    Partitions of a session that have not changed are left out.
    """

    partitions: Sequence[tuple[Key, Wanted]]
    first: int = 0
    """Index of the partition to read first."""
    error: ErrorCode = ErrorCode.NONE
    """Refuses the whole Fetch."""
    session: FetchSession | None = None
    epoch: int = FINAL_EPOCH
    """The epoch of the session's next round."""
    incremental: bool = False

    @property
    def session_id(self) -> int:
        """The id to answer."""
        return NO_SESSION if self.session is None else self.session.id

    @property
    def dirty(self) -> FetchSessionIndex | None:
        """The index of the session's changed partitions; None without a session."""
        return None if self.session is None else self.session.dirty

    def of_all(self) -> Round:
        """Return the round over all partitions of the session, also those that did not change."""
        if self.session is None:
            return self
        known = self.session.partitions
        return self._replace(partitions=[(key, one.wanted) for key, one in known.items()])

    def answer(
        self, results: Sequence[FetchResult], added: Sequence[Key] = ()
    ) -> tuple[ErrorCode, list[tuple[Key, FetchResult]]]:
        """Return the error of the whole answer, and the results to send.

        `results` are those of all partitions in order, then of those `added` since they changed.
        """
        keys = [*(key for key, _ in self.partitions), *added]
        pairs = list(zip(keys, results, strict=True))
        session = self.session
        if session is None:
            return self.error, pairs
        if session.epoch != self.epoch:
            # The client has gone on without waiting for this answer.
            for key in keys:
                session.dirty.mark_dirty(key)
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, []
        changed = [pair for pair in pairs if session.note(*pair)]
        return ErrorCode.NONE, changed if self.incremental else pairs


class FetchSessions:
    """The sessions of one broker. Times are any clock's milliseconds."""

    def __init__(self, slots: int, random: random.Random) -> None:
        self._slots = slots
        self._random = random
        # In order of their last use, the oldest first.
        self._sessions: dict[int, FetchSession] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def invariants(self) -> None:
        """Stop the program if the counts or the order of the sessions are not theirs.

        Looks at every session, so it is for tests: after each round. The bounds are checked always.
        """
        counted = sum(len(session.partitions) for session in self._sessions.values())
        invariant(self._partitions == counted, "the partitions of all sessions are counted")
        used = [session.used_ms for session in self._sessions.values()]
        invariant(used == sorted(used), "the session that is unused for longest comes first")
        for session_id, session in self._sessions.items():
            invariant(session.id == session_id, "a session is found by its id")
            invariant(bool(session.partitions), "a session without partitions has ended")
            known = set(session.dirty) <= session.partitions.keys()
            invariant(known, "a session reads its own partitions")

    def begin(self, request: SessionRequest, now_ms: int) -> Round:
        """Start a round; one that is out of step has an error and no partitions."""
        found = self._begin(request, now_ms)
        invariant(len(self._sessions) <= self._slots, "the sessions of a broker are bounded")
        invariant(0 <= self._partitions <= PARTITIONS_MAX, "the partitions of sessions are bounded")
        return found

    def withhold(self, turn: Round, added: Sequence[Key] = ()) -> tuple[ErrorCode, int]:
        """Return the error and the session id of an answer that names no partition (KIP-219).

        The client is throttled. A session goes on, and what was read is read again in its next
        round. A new one ends: its client has not seen its partitions, and asks for all again.
        """
        session = turn.session
        if session is None:
            return turn.error, NO_SESSION
        if not turn.incremental:
            if self._sessions.get(session.id) is session:
                self._remove(session.id)
            return ErrorCode.NONE, NO_SESSION
        for key in (*(key for key, _ in turn.partitions), *added):
            session.dirty.mark_dirty(key)
        if session.epoch != turn.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION
        return ErrorCode.NONE, session.id

    def _begin(self, request: SessionRequest, now_ms: int) -> Round:
        if request.epoch not in (FIRST_EPOCH, FINAL_EPOCH):
            return self._continue(request, now_ms)
        ended = self._sessions.get(request.session_id)
        if ended is not None and ended.owner == request.owner:
            self._remove(ended.id)
        wanted = list(request.wanted.items())
        # Without a session only chance can see to it that each partition comes first at times.
        first = self._random.randrange(len(wanted)) if len(wanted) > 1 else 0
        if request.epoch == FINAL_EPOCH or not wanted:
            return Round(wanted, first)
        session = self._create(request, now_ms)
        return Round(wanted, first, session=session, epoch=1)

    def _continue(self, request: SessionRequest, now_ms: int) -> Round:
        session = self._sessions.get(request.session_id)
        if session is None or session.owner != request.owner:
            return Round((), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.epoch:
            return Round((), error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_topic_id != request.by_topic_id:
            return Round((), error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        size = len(session.partitions)
        session.update(request)
        self._partitions += len(session.partitions) - size
        if not session.partitions:
            self._remove(session.id)
            return Round(())
        if self._partitions > PARTITIONS_MAX:
            self._remove(session.id)
            return Round((), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        asked = [(key, session.partitions[key].wanted) for key in session.dirty]
        return Round(asked, session=session, epoch=session.epoch, incremental=True)

    def _create(self, request: SessionRequest, now_ms: int) -> FetchSession | None:
        session = FetchSession(self._unused_id(), request, now_ms)
        if self._partitions + len(session.partitions) > PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._slots and not self._make_room(session, now_ms):
            return None
        self._sessions[session.id] = session
        self._partitions += len(session.partitions)
        return session

    def _unused_id(self) -> int:
        while (found := self._random.randint(1, _INT32_MAX)) in self._sessions:
            pass
        return found

    def _make_room(self, new: FetchSession, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        weakest = oldest
        if now_ms - oldest.used_ms <= EVICTION_MS:
            lower = [s for s in self._replaceable(new, now_ms) if s.rank < new.rank]
            if not lower:
                return False
            weakest = min(lower, key=lambda session: session.rank)
        self._remove(weakest.id)
        return True

    def _replaceable(self, new: FetchSession, now_ms: int) -> Iterable[FetchSession]:
        for session in self._sessions.values():
            consumer_for_follower = new.is_follower and not session.is_follower
            if consumer_for_follower or now_ms - session.created_ms > EVICTION_MS:
                yield session

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.partitions)
            session.dirty.close()

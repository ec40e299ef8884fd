"""`FetchSessionIndex`: the partitions of a fetch session that a Fetch must look at (KIP-227).

A partition is *idle* while its reader has everything that it may see, and *dirty* otherwise. An
idle partition keeps the reader's index. Every change of it (records, its high watermark or log
start, its leader or in-sync replicas) marks it dirty: last in line, so that no other partition
starves (row R10). While a follower's partition is idle, each Fetch of the session repeats that the
follower has everything. Pure; the ReplicaManager marks partitions, the session adds and drops them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.replication.partition._partition_state import FollowerState, LastFetch
from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.types import FetchKey, FetchPartition


class Watchable(Protocol):
    """A partition that keeps the sessions for which it is idle."""

    @property
    def idle_sessions(self) -> dict[tuple[FetchSessionIndex, FetchKey], None]:
        """The indexes to mark, each with the key under which its session knows the partition."""


class _Idle(NamedTuple):
    """A partition of which the reader has everything."""

    replica: Watchable
    wanted: FetchPartition
    follower: FollowerState | None


class FetchSessionIndex:
    """The partitions of one session; each is dirty or idle."""

    def __init__(self) -> None:
        # In the order in which they are read.
        self._dirty: dict[FetchKey, None] = {}
        self._idle: dict[FetchKey, _Idle] = {}
        self._last_fetch = LastFetch()
        self._asked: list[FetchPartition] | None = None
        """The partitions that the Fetch under way reads."""
        self._on_more: Callable[[FetchPartition], None] | None = None

    def __iter__(self) -> Iterator[FetchKey]:
        """Yield the dirty partitions, in the order of reading."""
        return iter(self._dirty)

    @property
    def has_idle(self) -> bool:
        """True if a Fetch may wait for more than the dirty partitions."""
        return bool(self._idle)

    def invariants(self) -> None:
        """Check that a partition is dirty or idle, and that an idle one keeps this index.

        Without the way back, a change of the partition would never reach the reader.
        """
        both = self._dirty.keys() & self._idle.keys()
        invariant(not both, "a partition is dirty or idle, not both")
        for key, one in self._idle.items():
            invariant((self, key) in one.replica.idle_sessions, "an idle partition keeps the index")
            invariant(one.wanted.key == key, "a partition is idle under its own key")

    # --- called by the session --------------------------------------------------------------------

    def want(self, key: FetchKey) -> None:
        """Add a partition, or take a changed request for it: it is read next, idle or not."""
        self._take_idle(key)
        self._dirty.setdefault(key)

    def forget(self, key: FetchKey) -> None:
        """Remove a partition that the client no longer asks for."""
        self._take_idle(key)
        self._dirty.pop(key, None)

    def had_records(self, key: FetchKey) -> None:
        """Move a partition behind all others that are dirty now."""
        if key in self._dirty:
            self._dirty[key] = self._dirty.pop(key)

    def close(self) -> None:
        """End the session: no partition keeps this index any more."""
        self._asked = self._on_more = None
        for key in list(self._idle):
            self._take_idle(key)

    # --- called by the ReplicaManager -------------------------------------------------------------

    def begin(self, asked: list[FetchPartition], now_ms: int) -> None:
        """Note a Fetch that reads these; partitions that become dirty are added to the list."""
        self._asked, self._on_more = asked, None
        self._last_fetch.ms = now_ms

    def wait(self, on_more: Callable[[FetchPartition], None]) -> None:
        """Note that the Fetch waits; `on_more` is called with each partition that is added."""
        self._on_more = on_more

    def end(self, asked: list[FetchPartition]) -> bool:
        """Note that the Fetch that reads these is answered; return whether it is the newest."""
        if asked is not self._asked:
            return False
        self._asked = self._on_more = None
        return True

    def mark_idle(
        self, replica: Watchable, wanted: FetchPartition, follower: FollowerState | None
    ) -> None:
        """Mark a partition idle, unless the session no longer has it. None: a consumer's."""
        key = wanted.key
        if key not in self._dirty:
            return
        del self._dirty[key]
        self._idle[key] = _Idle(replica, wanted, follower)
        replica.idle_sessions[self, key] = None
        if follower is not None:
            follower.mark_idle(self._last_fetch)

    def mark_dirty(self, key: FetchKey) -> None:
        """Mark an idle partition dirty; a Fetch that waits reads it, too."""
        idle = self._take_idle(key)
        if idle is None:
            return
        self._dirty[key] = None
        if self._asked is not None:
            self._asked.append(idle.wanted)
        if self._on_more is not None:
            self._on_more(idle.wanted)

    def _take_idle(self, key: FetchKey) -> _Idle | None:
        idle = self._idle.pop(key, None)
        if idle is not None:
            idle.replica.idle_sessions.pop((self, key), None)
            if idle.follower is not None:
                idle.follower.mark_dirty(self._last_fetch)
        return idle

"""Which partitions of a fetch session have news for its reader: only these does a Fetch touch.

A partition whose reader has all that it may see *rests*. It keeps the reader in mind, and whatever
changes it (records, its high watermark or log start, its leader or in-sync replicas) puts it back
in line: last, so that no other starves (row R10). While a follower rests, each Fetch of its session
says again that it has all. Pure; the ReplicaManager says what rests, the session what is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.replication.partition._partition_state import FollowerState, LastFetch
from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.replication.partition._partition import HostedPartition
    from broker.types import FetchKey, FetchPartition


class _Resting(NamedTuple):
    """A partition without news, and who has all of it."""

    hosted: HostedPartition
    wanted: FetchPartition
    follower: FollowerState | None


class SessionNews:
    """The partitions of one session; each is in line or rests."""

    def __init__(self) -> None:
        # In the order in which they are read.
        self._in_line: dict[FetchKey, None] = {}
        self._resting: dict[FetchKey, _Resting] = {}
        self._last_fetch = LastFetch()
        self._asked: list[FetchPartition] | None = None
        """What the Fetch under way reads."""
        self._on_more: Callable[[FetchPartition], None] | None = None

    def __iter__(self) -> Iterator[FetchKey]:
        """The partitions with news, in the order of reading."""
        return iter(self._in_line)

    @property
    def has_resting(self) -> bool:
        """Whether there is more to wait for than what is in line."""
        return bool(self._resting)

    def invariants(self) -> None:
        """Check that a partition is in line or rests, and that one that rests knows the session."""
        invariant(
            not self._in_line.keys() & self._resting.keys(), "a partition that rests has no news"
        )
        for key, one in self._resting.items():
            invariant((self, key) in one.hosted.resting, "a partition knows who has all of it")
            invariant(one.wanted.key == key, "a partition rests under its own name")

    # --- what the session says --------------------------------------------------------------------

    def want(self, key: FetchKey) -> None:
        """The client wants something new of the partition: it is read, whatever was known."""
        self._get_up(key)
        self._in_line.setdefault(key)

    def forget(self, key: FetchKey) -> None:
        """The client wants nothing of it any more."""
        self._get_up(key)
        self._in_line.pop(key, None)

    def had_records(self, key: FetchKey) -> None:
        """It is read after all others that are in line now."""
        if key in self._in_line:
            self._in_line[key] = self._in_line.pop(key)

    def close(self) -> None:
        """The session has ended: nobody keeps it in mind."""
        self._asked = self._on_more = None
        for key in list(self._resting):
            self._get_up(key)

    # --- what the ReplicaManager says -------------------------------------------------------------

    def begin(self, asked: list[FetchPartition], now_ms: int) -> None:
        """A Fetch has come that reads these; what has news meanwhile is added to the list."""
        self._asked, self._on_more = asked, None
        self._last_fetch.ms = now_ms

    def wait(self, on_more: Callable[[FetchPartition], None]) -> None:
        """That Fetch waits; `on_more` hears of what was added."""
        self._on_more = on_more

    def end(self, asked: list[FetchPartition]) -> bool:
        """The Fetch that reads these is answered now; returns whether it is the newest."""
        if asked is not self._asked:
            return False
        self._asked = self._on_more = None
        return True

    def rest(
        self, hosted: HostedPartition, wanted: FetchPartition, follower: FollowerState | None
    ) -> None:
        """The reader has all of this partition, until that has news."""
        key = wanted.key
        if key not in self._in_line:
            return
        del self._in_line[key]
        self._resting[key] = _Resting(hosted, wanted, follower)
        hosted.resting[self, key] = None
        if follower is not None:
            follower.rest(self._last_fetch)

    def has_changed(self, key: FetchKey) -> None:
        """A partition that rested has news; it is read by the Fetch that waits, if one does."""
        resting = self._get_up(key)
        if resting is None:
            return
        self._in_line[key] = None
        if self._asked is not None:
            self._asked.append(resting.wanted)
        if self._on_more is not None:
            self._on_more(resting.wanted)

    def _get_up(self, key: FetchKey) -> _Resting | None:
        resting = self._resting.pop(key, None)
        if resting is not None:
            resting.hosted.resting.pop((self, key), None)
            if resting.follower is not None:
                resting.follower.get_up(self._last_fetch)
        return resting

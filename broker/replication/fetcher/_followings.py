"""The partitions of one fetcher, and the follower's end of its fetch session (KIP-227).

`FollowerSession` is the follower's end; the leader's is `broker.apis`. After any doubt (a lost
response, a session that the leader no longer has) the next Fetch names all partitions and opens a
new session. Otherwise it names those that were wanted or dropped since the one before it.

`Followings` are the partitions. A Fetch costs by what has changed, so only *touched* ones are
looked at: new ones, those in the last response, and those that changed by themselves. Partitions
that back off after an error wait on a list of their own.

A partition is known by its `Following`, a new one for each leader epoch: a response for an older
one is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from broker.replication.partition import Partition
from raftctl.errors import ErrorCode, invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from uuid import UUID

    from broker.protocol.messages import data as wire
    from broker.types import TopicPartition

_NO_SESSION = 0
_FIRST_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
NOT_ASKED = -1

K = TypeVar("K")
W = TypeVar("W")

Key = tuple["UUID", int]
"""Topic id and partition."""


class NextFetch(NamedTuple, Generic[K, W]):
    """The next Fetch: its session, and the partitions that it names, each with its fields."""

    session_id: int
    epoch: int
    changed: Mapping[K, W]
    forgotten: tuple[K, ...]


class FollowerSession(Generic[K, W]):
    """The session with one leader. For each `next` there is one `answered` or `failed`.

    It compares the fields `W` of a partition `K` with those that it sent before, and nothing else.
    """

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._wanted: dict[K, W] = {}
        self._known: dict[K, W] = {}
        """What the leader knows of our wants."""
        self._touched: dict[K, None] = {}
        """Where the two may differ."""

    def __len__(self) -> int:
        return len(self._wanted)

    def invariants(self, following: Collection[K]) -> None:
        """Check that wants are of partitions that follow, and that differences are remembered."""
        invariant(self._wanted.keys() <= set(following), "only what follows is wanted")
        invariant(0 <= self._epoch <= _EPOCH_MAX, "a session's epoch is a number of the protocol")
        if self._epoch != _FIRST_EPOCH:
            differ = {
                key
                for key in self._wanted.keys() | self._known.keys()
                if self._wanted.get(key) != self._known.get(key)
            }
            invariant(differ <= self._touched.keys(), "what the leader does not know is touched")

    def want(self, key: K, fields: W) -> None:
        """Set the fields of a partition from now on."""
        self._wanted[key] = fields
        self._touched[key] = None

    def drop(self, key: K) -> None:
        """Remove a partition from the session."""
        if self._wanted.pop(key, None) is not None:
            self._touched[key] = None

    def next(self) -> NextFetch[K, W]:
        """Return the Fetch after which the leader knows all requests."""
        if self._epoch == _FIRST_EPOCH:
            self._known = dict(self._wanted)
            self._touched.clear()
            return NextFetch(self._id, self._epoch, dict(self._wanted), ())
        changed: dict[K, W] = {}
        forgotten: list[K] = []
        for key in self._touched:
            known, wanted = self._known.pop(key, None), self._wanted.get(key)
            if wanted is not None:
                self._known[key] = wanted
                if wanted != known:
                    changed[key] = wanted
            elif known is not None:
                forgotten.append(key)
        self._touched.clear()
        return NextFetch(self._id, self._epoch, changed, tuple(forgotten))

    def answered(self, error: ErrorCode, session_id: int) -> None:
        """Note the leader's response to the Fetch."""
        if error is not ErrorCode.NONE:
            self._restart()
            # The first Fetch of a new session names the old one, so that the leader ends it. What
            # the leader does not have it need not end.
            self._id = self._id if error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND else 0
        elif session_id == _NO_SESSION:
            # It had no room for a session, or has ended an empty one.
            self._id = _NO_SESSION
            self._restart()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def failed(self) -> None:
        """Note that no response came, so that the leader's knowledge is unknown.

        The request may have been lost, or its response. In the second case the leader's epoch has
        moved on, and it would refuse the next incremental Fetch.
        """
        self._restart()

    def _restart(self) -> None:
        self._epoch = _FIRST_EPOCH


@dataclass(eq=False, slots=True)
class Following:
    """A partition that follows its leader in one leader epoch."""

    replica: Partition
    leader_epoch: int
    fetch_offset: int = NOT_ASKED
    """The offset in the last Fetch, from which the leader sends."""
    failures: int = 0
    """The errors since the last good response."""
    not_before: float = 0.0
    """The loop's time before which it is not asked for again, after an error."""
    out_of_range: bool = False
    """Whether the leader's bounds must be asked for first."""
    is_behind: bool = True
    """Whether it lacks committed records, as far as is known."""
    lag: int = 0
    """How many of those it lacks; 0 before the first answer."""

    @property
    def key(self) -> Key:
        """As a Fetch names it."""
        return self.replica.topic_id, self.replica.partition.partition


class Followings:
    """All partitions of one fetcher."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: of one partition in an answer."""
        self._max_bytes = max_bytes
        self._all: dict[TopicPartition, Following] = {}
        self._by_key: dict[Key, Following] = {}
        self._touched: dict[Following, None] = {}
        self._waiting: dict[Following, None] = {}
        """Those that are not asked for before their time."""
        self.session: FollowerSession[Key, wire.FetchPartition] = FollowerSession()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Following]:
        return iter(self._all.values())

    def asked(self, topic_id: UUID | None, partition_id: int) -> Following | None:
        """Return the partition that a response belongs to; None if it is not asked for.

        A response may still name a partition that no longer follows, or that follows in a newer
        leader epoch: its records may be another history by now.
        """
        following = None if topic_id is None else self._by_key.get((topic_id, partition_id))
        return None if following is None or following.fetch_offset == NOT_ASKED else following

    def is_current(self, following: Following) -> bool:
        """Return whether it still follows this leader, in this leader epoch."""
        return self._all.get(following.replica.partition) is following

    def invariants(self) -> None:
        """Check that a partition follows once, and is asked for, waits, or is in the session."""
        known = set(self._all.values())
        invariant(known == set(self._by_key.values()), "a partition is known by name and by id")
        invariant(self._touched.keys() <= known, "what is looked at follows")
        invariant(self._waiting.keys() <= known, "what waits follows")
        both = self._touched.keys() & self._waiting.keys()
        invariant(not both, "what waits is not looked at")
        for partition, one in self._all.items():
            invariant(one.replica.partition == partition, "a partition follows under its own name")
            invariant(not one.replica.state.is_leader, "a leader copies from nobody")
            current = one.leader_epoch == one.replica.state.leader_epoch
            invariant(current, "a partition follows in its leader epoch")
        self.session.invariants(self._by_key.keys())

    def lag_of(self, partition: TopicPartition) -> int:
        """Return how many committed records a partition lacks here, as far as is known."""
        return self._all[partition].lag

    # --- who follows ------------------------------------------------------------------------------

    def follow(self, replica: Partition) -> None:
        """Add a partition, or note its new leader epoch."""
        self.unfollow(replica.partition)
        following = Following(replica, replica.state.leader_epoch)
        self._all[replica.partition] = self._by_key[following.key] = following
        self._touched[following] = None

    def unfollow(self, partition: TopicPartition) -> None:
        """Forget a partition."""
        following = self._all.pop(partition, None)
        if following is None:
            return
        self._touched.pop(following, None)
        self._waiting.pop(following, None)
        del self._by_key[following.key]
        self.session.drop(following.key)

    # --- what to look at --------------------------------------------------------------------------

    @property
    def touched(self) -> list[Following]:
        """The partitions to look at before the next Fetch."""
        return list(self._touched)

    def touch(self, partition: TopicPartition) -> None:
        """Note that the request for the partition may change."""
        following = self._all.get(partition)
        if following is not None and following not in self._waiting:
            self._touched[following] = None

    def wait(self, following: Following, until: float) -> None:
        """Leave a partition out of fetches until that time."""
        following.not_before = until
        if self.is_current(following):
            self._touched.pop(following, None)
            self._waiting[following] = None
            self.session.drop(following.key)

    def hold(self, is_held: Callable[[Following], bool], until: float) -> None:
        """Leave out the partitions for which `is_held`, until the loop's time `until`.

        Those that wait already keep their time. Looks at all partitions, unlike the rest of this
        class, so it is called only while the rate is exceeded.
        """
        for following in self:
            if following not in self._waiting and is_held(following):
                self.wait(following, until)

    def is_ready(self, now: float) -> bool:
        """Return whether there is any to ask for; take back those that have waited long enough."""
        due = [following for following in self._waiting if following.not_before <= now]
        for following in due:
            del self._waiting[following]
            self._touched[following] = None
        return bool(self._touched) or bool(self.session)

    def ready_at(self) -> float | None:
        """Return when the next waiting partition is due; None if none waits."""
        return min((following.not_before for following in self._waiting), default=None)

    def update_session(self) -> None:
        """Put the requests of all touched partitions into the session."""
        for following in self._touched:
            log = following.replica.log
            following.fetch_offset = log.log_end_offset
            self.session.want(
                following.key,
                {
                    "partition": following.replica.partition.partition,
                    "current_leader_epoch": following.leader_epoch,
                    "fetch_offset": following.fetch_offset,
                    "last_fetched_epoch": log.epochs.latest,
                    "log_start_offset": log.log_start_offset,
                    "partition_max_bytes": self._max_bytes,
                },
            )
        self._touched.clear()

"""A follower's end of a fetch session (KIP-227): what of its wants the leader must be told.

Pure. The leader's end is `broker.apis.handler.fetch_sessions`. After any doubt (a lost answer, a
session that the leader no longer has) the next Fetch names all partitions and opens a session anew;
else it costs by what was said to be wanted or dropped since the one before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from raftctl.errors import ErrorCode, invariant

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

K = TypeVar("K")

_NO_SESSION = 0
_FIRST_EPOCH = 0
_EPOCH_MAX = 2**31 - 1


class NextFetch(NamedTuple, Generic[K]):
    """The next Fetch: its session and what it names."""

    session_id: int
    epoch: int
    changed: Mapping[K, dict[str, Any]]
    forgotten: tuple[K, ...]


class FollowerSession(Generic[K]):
    """The session with one leader. For each `next` there is one `answered` or `failed`."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        self._wanted: dict[K, dict[str, Any]] = {}
        self._known: dict[K, dict[str, Any]] = {}
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

    def want(self, key: K, fields: dict[str, Any]) -> None:
        """The fields of a partition from now on."""
        self._wanted[key] = fields
        self._touched[key] = None

    def drop(self, key: K) -> None:
        """Nothing is wanted of this partition any more."""
        if self._wanted.pop(key, None) is not None:
            self._touched[key] = None

    def next(self) -> NextFetch[K]:
        """What to send so that the leader knows all that is wanted."""
        if self._epoch == _FIRST_EPOCH:
            self._known = dict(self._wanted)
            self._touched.clear()
            return NextFetch(self._id, self._epoch, dict(self._wanted), ())
        changed: dict[K, dict[str, Any]] = {}
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
        """The leader's answer to the Fetch."""
        if error is not ErrorCode.NONE:
            self._begin_anew()
            # What the leader does not have it need not end.
            self._id = self._id if error is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND else 0
        elif session_id == _NO_SESSION:
            # It had no room for a session, or has ended an empty one.
            self._id = _NO_SESSION
            self._begin_anew()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def failed(self) -> None:
        """No answer came: what the leader knows is not known."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._epoch = _FIRST_EPOCH

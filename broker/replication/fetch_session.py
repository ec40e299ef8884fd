"""A follower's end of a fetch session (KIP-227): what of its wants the leader must be told.

Pure. The leader's end is `broker.apis.fetch_sessions`. After any doubt (a lost answer, a session
that the leader no longer has) the next Fetch names all partitions and opens a session anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from raftctl.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")

_NO_SESSION = 0
_FIRST_EPOCH = 0
_EPOCH_MAX = 2**31 - 1


class Told(NamedTuple, Generic[K]):
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
        self._known: dict[K, dict[str, Any]] = {}
        """What the leader knows of our wants."""

    def next(self, wanted: Mapping[K, dict[str, Any]]) -> Told[K]:
        """What to send so that the leader knows `wanted`, the fields of each partition."""
        known = {} if self._epoch == _FIRST_EPOCH else self._known
        changed = {key: one for key, one in wanted.items() if known.get(key) != one}
        forgotten = tuple(key for key in known if key not in wanted)
        self._known = dict(wanted)
        return Told(self._id, self._epoch, changed, forgotten)

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

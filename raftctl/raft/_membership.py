"""Changing the voters, one at a time, as a leader does it (KIP-853; Raft §4.1 of the thesis).

add      the new voter first catches up as an observer; then the record with the new set is appended
any      refused unless the leader hears a majority of the new set, which must commit it
remove   the record is appended at once; a leader that removes itself counts itself no more, and
         resigns when the record is committed
update   another address of the same replica

The new set is in effect, and commits its own record, from the append on. Two sets that differ by
one voter share a voter in any two majorities; that no two changes are under way at once, and that
the leader has committed a record of its own epoch first, keeps it that way across leaders. A static
set becomes a dynamic one with its first change, with the directory ids that the voters fetch with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode
from raftctl.ids import ZERO_UUID
from raftctl.raft.messages import (
    AddVoterRequest,
    ChangeVotersRequest,
    Offset,
    OffsetAndEpoch,
    RemoveVoterRequest,
    ReplicaKey,
    UpdateVoterRequest,
    Voter,
)
from raftctl.raft.voters import VoterSet, encode_voters

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.raft._replica import Replica
    from raftctl.raft._tracker import Tracker


@dataclass(slots=True)
class Change:
    """A change under way."""

    request_id: int
    voters: VoterSet
    catching_up: ReplicaKey | None
    deadline_ms: int
    offset: Offset | None = None
    """Where its record stands, once it is appended."""


class Membership:
    """The changes of voters by one leader."""

    def __init__(self, replica: Replica, tracker: Tracker, append: Callable[[bytes], None]) -> None:
        """`append` appends a control record of this leader."""
        self._replica = replica
        self._tracker = tracker
        self._append = append
        self.change: Change | None = None

    def begin(
        self, request_id: int, request: ChangeVotersRequest, now_ms: int, *, ready: bool
    ) -> ErrorCode:
        """Begin the change; NONE if its outcome is to be waited for.

        `ready` is whether the leader may change anything now (`Leader.change_voters`).
        REQUEST_TIMED_OUT is retriable and means that nothing was done: a change or a transfer is
        under way, the newest voters are not committed, or the request was decided on others.
        NOT_ENOUGH_REPLICAS: no majority of the new set is alive, so the record might never commit.
        """
        leaving = request.replica if isinstance(request, RemoveVoterRequest) else None
        current = self._identified(leaving)
        committed = self._replica.voters_offset < self._replica.high_watermark
        if self.change is not None or current is None or not committed or not ready:
            return ErrorCode.REQUEST_TIMED_OUT
        if not isinstance(request, UpdateVoterRequest) and self._is_delayed(request.seen):
            return ErrorCode.REQUEST_TIMED_OUT
        error = _judge(current, request)
        if error is not ErrorCode.NONE:
            return error
        catching_up = None
        match request:
            case AddVoterRequest(voter=voter):
                catching_up = voter.replica
                voters = current.with_voter(voter)
            case UpdateVoterRequest(voter):
                voters = current.with_voter(voter)
            case RemoveVoterRequest(replica=replica):
                voters = current.without(replica.node_id)
        if not self._tracker.is_majority_live(voters, catching_up, now_ms):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        deadline_ms = now_ms + self._replica.config.fetch_timeout_ms
        self.change = Change(request_id, voters, catching_up, deadline_ms)
        return ErrorCode.NONE

    def _is_delayed(self, seen: OffsetAndEpoch | None) -> bool:
        """Whether it was decided on other voters than these, or before this leader.

        The epoch is needed as well: the record at that offset may have been truncated since.
        """
        replica = self._replica
        return seen not in (None, OffsetAndEpoch(replica.voters_offset, replica.epoch))

    def _identified(self, leaving: ReplicaKey | None) -> VoterSet | None:
        """The voters with their directory ids; None until each has been heard in this epoch.

        But for the one that leaves, which may be gone for good: it is whom the operator names.
        """
        voters = self._replica.voters
        if voters.dynamic:
            return voters
        keys = {self._replica.node_id: self._replica.local, **self._tracker.voter_keys()}
        if leaving is not None:
            keys.setdefault(leaving.node_id, leaving)
        if any(node_id not in keys for node_id in voters.ids):
            return None
        return VoterSet(
            (Voter(keys[v.replica.node_id], v.host, v.port) for v in voters.voters), dynamic=True
        )

    def advance(self, now_ms: int) -> ErrorCode | None:
        """Append the record when it is time; return the outcome once there is one, else None."""
        change = self.change
        if change is None:
            return None
        if change.offset is not None:
            return ErrorCode.NONE if self._replica.high_watermark > change.offset else None
        if self._may_append(change, now_ms):
            change.offset = self._replica.log.end_offset
            self._append(encode_voters(change.voters))
            return None
        return ErrorCode.REQUEST_TIMED_OUT if now_ms >= change.deadline_ms else None

    def _may_append(self, change: Change, now_ms: int) -> bool:
        """Whether the new set could commit its own record: else nothing would commit any more."""
        joining = change.catching_up
        caught_up = joining is None or self._tracker.has_caught_up(joining, now_ms)
        return caught_up and self._tracker.is_majority_live(change.voters, joining, now_ms)

    def deadline_ms(self) -> int | None:
        """When to give up waiting for the new voter to catch up."""
        waits = self.change is not None and self.change.offset is None
        return self.change.deadline_ms if waits and self.change else None


def _judge(current: VoterSet, request: ChangeVotersRequest) -> ErrorCode:
    match request:
        case AddVoterRequest(voter=voter):
            taken = voter.replica.node_id in current.ids
            directory_id = voter.replica.directory_id
            if taken:
                return ErrorCode.DUPLICATE_VOTER
            # One disk of two names, or its copy, would count twice for a majority.
            others = {None, ZERO_UUID, *(one.replica.directory_id for one in current.voters)}
            return ErrorCode.INVALID_VOTER_KEY if directory_id in others else ErrorCode.NONE
        case UpdateVoterRequest(voter):
            replica = voter.replica
        case RemoveVoterRequest(replica=replica):
            if replica in current and len(current) == 1:
                return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE if replica in current else ErrorCode.VOTER_NOT_FOUND

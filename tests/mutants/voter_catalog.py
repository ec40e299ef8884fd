"""Bugs planted into whole nodes: how they keep and count voters that change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from raftctl.raft._leader import Leader, Membership
from raftctl.raft._replica import Replica
from raftctl.raft.voters import NOT_IN_LOG
from raftctl.storage.snapshots import _store as snapshots
from tests.mutants.mutant import Mutant, Patch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from raftctl.errors import ErrorCode
    from raftctl.raft.batch import Batch
    from raftctl.raft.messages import ChangeVotersRequest, Offset, OffsetAndEpoch
    from raftctl.raft.voters import VoterSet


def _count_the_removed(leader: Leader) -> bool:
    replica = leader._replica
    former = {node_id for _, voters in replica._voters._entries for node_id in voters.ids}
    removed = [one for key, one in leader.tracker.observers.items() if key.node_id in former]
    ends = [one.end_offset for one in (*leader.tracker.voters.values(), *removed)]
    if replica.is_voter or replica.node_id in former:
        ends.append(replica.log.durable_end_offset)
    reached = sorted(ends, reverse=True)[replica.voters.majority - 1]
    news = reached > leader.epoch_start_offset and replica.advance_high_watermark(reached)
    leader._confirm_reads()
    return news


def _begin_at_once(
    membership: Membership,
    request_id: int,
    request: ChangeVotersRequest,
    now_ms: int,
    *,
    ready: bool,
) -> ErrorCode:
    membership.change = None
    return _begin(membership, request_id, request, now_ms, ready=ready)


def _never_in_log(replica: Replica) -> Offset:
    return NOT_IN_LOG


def _forget_batches(replica: Replica, batches: Iterable[Batch]) -> None:
    return None


def _without_voters(
    snapshot_id: OffsetAndEpoch,
    timestamp_ms: int,
    pieces: Iterable[snapshots.Piece],
    voters: VoterSet | None,
) -> Iterator[Batch]:
    bootstrap = snapshot_id.offset == 0
    yield from _batches(snapshot_id, timestamp_ms, pieces, voters if bootstrap else None)


_begin = Membership.begin
_batches = snapshots._batches


def _voters(name: str, breaks: str, properties: tuple[str, ...], *patches: Patch) -> Mutant:
    return Mutant(name, breaks, "node", "changes_compete", properties, patches)


VOTER_MUTANTS = (
    replace(
        _voters(
            "removed_voter_still_counts",
            "a leader counts what voters have that it has removed",
            ("committed_is_durable_on_a_majority",),
            Patch(Leader, "_commit", _count_the_removed),
        ),
        scenario="removed_voter_is_the_fastest",
    ),
    _voters(
        "two_changes_in_flight",
        "a change of voters begins before the one before it is committed",
        ("voters_change_one_at_a_time",),
        Patch(Membership, "begin", _begin_at_once),
        Patch(Replica, "voters_offset", property(_never_in_log)),
    ),
    _voters(
        "voters_lost_when_the_log_opens",
        "a restarted node does not look for the voters in its log",
        ("replicas_agree_on_committed_voters",),
        Patch(Replica, "recover_voters", _forget_batches),
    ),
    _voters(
        "voters_lost_in_snapshots",
        "a snapshot does not tell who votes",
        ("replicas_agree_on_committed_voters",),
        Patch(snapshots, "_batches", _without_voters),
    ),
)

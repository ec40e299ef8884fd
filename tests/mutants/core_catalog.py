"""Bugs planted into pure cores, most of them the quorum's, run by the core simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from raftctl.raft import RaftCore, ReplicaLog
from raftctl.raft import _core as core_module
from raftctl.raft._campaign import Campaign
from raftctl.raft._fetcher import Fetcher, Follower
from raftctl.raft._leader import Leader
from raftctl.raft._replica import Replica
from raftctl.raft._roles import Roles
from raftctl.raft._tracker import Tracker
from raftctl.raft.events import QuorumState, TruncateLog
from raftctl.raft.messages import NO_NODE, Epoch, Offset
from raftctl.raft.voters import VoterSet
from tests.mutants.migration_catalog import MIGRATION
from tests.mutants.mutant import Mutant, Patch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from raftctl.raft.batch import Batch
    from raftctl.raft.events import Reply, SendRequest
    from raftctl.raft.messages import (
        FetchRequest,
        FetchResponse,
        NodeId,
        OffsetAndEpoch,
        ReplicaKey,
        VoteRequest,
    )

FAULTS = "everything_goes_wrong"


def _core(
    name: str, breaks: str, properties: tuple[str, ...], *patches: Patch, scenario: str = FAULTS
) -> Mutant:
    return Mutant(name, breaks, "core", scenario, properties, patches)


# --- votes and epochs ---------------------------------------------------------------------------


def _speak_at_once(replica: Replica, effect: SendRequest | Reply) -> None:
    replica._effects.append(effect)


def _grant_again(core: RaftCore, request: VoteRequest, now_ms: int) -> bool:
    if request.pre_vote:
        return _grant(core, request, now_ms)
    core._replica.vote(request.candidate)
    core._roles.detach(now_ms, now_ms + core._replica.election_timeout_ms())
    return True


def _vote_for_anybody(replica: Replica, candidate: ReplicaKey) -> None:
    replica._persist(replace(replica.state, voted=candidate, leader_id=NO_NODE))


def _forget_to_persist_epoch(replica: Replica, epoch: Epoch, leader_id: NodeId = NO_NODE) -> None:
    replica.state = QuorumState(epoch, leader_id, None)


def _campaign_in_the_same_epoch(replica: Replica) -> None:
    epoch = replica.epoch or Epoch(1)
    replica._persist(QuorumState(epoch, NO_NODE, replica.local))


def _any_log_will_do(log_end: OffsetAndEpoch) -> tuple[int, int]:
    return (0, 0)


def _shorter_log_of_newer_epoch_loses(log_end: OffsetAndEpoch) -> tuple[int, int]:
    return (log_end.offset, log_end.epoch)


def _one_vote_is_enough(campaign: Campaign) -> bool:
    return len(campaign.granting) >= max(1, campaign.replica.voters.majority - 1)


def _no_pre_vote(roles: Roles, now_ms: int) -> None:
    roles.campaign(now_ms)


def _lead_again_after_restart(roles: Roles, now_ms: int) -> None:
    _start(roles, now_ms)
    replica = roles._replica
    if replica.state.leader_id == replica.node_id:
        roles._lead((replica.node_id,), now_ms)


_grant = RaftCore._grant
_start = Roles.start

VOTES = (
    _core(
        "message_leaves_before_vote_is_durable",
        "a vote leaves before its fsync",
        ("durable word",),
        Patch(Replica, "_message", _speak_at_once),
    ),
    _core(
        "two_votes_in_an_epoch",
        "a voter grants everybody who asks",
        ("one vote",),
        Patch(RaftCore, "_grant", _grant_again),
        Patch(Replica, "vote", _vote_for_anybody),
    ),
    _core(
        "epoch_is_not_persisted",
        "a newer epoch is kept in memory only",
        ("durable word",),
        Patch(Replica, "enter_epoch", _forget_to_persist_epoch),
    ),
    _core(
        "epoch_does_not_grow",
        "a candidate campaigns in the epoch that it is in",
        ("one vote", "election safety"),
        Patch(Replica, "campaign", _campaign_in_the_same_epoch),
    ),
    _core(
        "any_log_may_win",
        "voters do not compare logs",
        ("leader completeness",),
        Patch(core_module, "_rank", _any_log_will_do),
    ),
    _core(
        "longest_log_wins",
        "voters compare the lengths of logs before their last epochs",
        ("leader completeness",),
        Patch(core_module, "_rank", _shorter_log_of_newer_epoch_loses),
        scenario="leaders_die_early",
    ),
    _core(
        "minority_elects",
        "a vote less than a majority is enough",
        ("election safety", "a leader without a majority's votes"),
        Patch(Campaign, "won", _one_vote_is_enough),
    ),
    _core(
        "no_pre_vote",
        "a voter that cannot win campaigns nevertheless",
        ("undisturbed leader",),
        Patch(Roles, "prospect", _no_pre_vote),
        scenario="a_voter_was_cut_off",
    ),
    _core(
        "restarted_leader_goes_on",
        "a restarted leader continues in its old epoch",
        ("log matching",),
        Patch(Roles, "start", _lead_again_after_restart),
    ),
)

# --- the log and commits ------------------------------------------------------------------------


def _durable_at_once(log: ReplicaLog, batch: Batch) -> None:
    _append(log, batch)
    log.durable_end_offset = log.end_offset


def _ends(leader: Leader) -> list[Offset]:
    ends = [progress.end_offset for progress in leader.tracker.voters.values()]
    return [*ends, leader._replica.log.durable_end_offset]


def _count(leader: Leader, ends: list[Offset]) -> bool:
    replica = leader._replica
    reached = sorted(ends, reverse=True)[replica.voters.majority - 1]
    return reached > leader.epoch_start_offset and replica.advance_high_watermark(reached)


def _count_unflushed(leader: Leader) -> bool:
    return _count(leader, [*_ends(leader)[:-1], leader._replica.log.end_offset])


def _count_older_epochs(leader: Leader) -> bool:
    replica = leader._replica
    reached = replica.voters.reached_by_majority(_ends(leader))
    return replica.advance_high_watermark(reached)


def _count_own_log_only(leader: Leader) -> bool:
    return _count(leader, [_ends(leader)[-1]] * len(leader._replica.voters))


def _count_fastest_twice(leader: Leader) -> bool:
    ends = _ends(leader)
    return _count(leader, [max(ends[:-1], default=ends[-1]), *ends])


def _count_observers(leader: Leader) -> bool:
    observers = [progress.end_offset for progress in leader.tracker.observers.values()]
    return _count(leader, [*observers, *_ends(leader)])


def _never_diverge(log: ReplicaLog, fetch_from: OffsetAndEpoch) -> None:
    return None


def _truncate_without_asking(replica: Replica, end_offset: Offset) -> None:
    replica.log.truncate(end_offset)
    replica._effects.append(TruncateLog(end_offset))


def _truncate_all(log: ReplicaLog, diverging: OffsetAndEpoch) -> Offset:
    return log.start_offset


def _take_any_answer(fetcher: Fetcher, source: NodeId, response: FetchResponse) -> bool:
    return source == fetcher.source


def _never_resign(leader: Leader) -> int | None:
    return None


def _propose_something_else(
    leader: Leader, payload: bytes, count: int, timestamp_ms: int, *, control: bool
) -> None:
    _propose(leader, payload if control else payload[::-1], count, timestamp_ms, control=control)


def _propose_twice(
    leader: Leader, payload: bytes, count: int, timestamp_ms: int, *, control: bool
) -> None:
    for _ in range(1 if control else 2):
        _propose(leader, payload, count, timestamp_ms, control=control)


def _believe_leader(follower: Follower, response: FetchResponse, now_ms: int) -> None:
    _accept(follower, response, now_ms)
    # The follower takes the leader's high watermark for its own, whatever its log has.
    if response.high_watermark > follower.replica.high_watermark:
        follower.replica.advance_high_watermark(response.high_watermark)


_append = ReplicaLog.append
_accept = Follower.accept
_propose = Leader.propose

COMMITS = (
    _core(
        "append_counts_as_durable",
        "what is appended counts before its fsync, on every replica",
        ("durable commit",),
        Patch(ReplicaLog, "append", _durable_at_once),
    ),
    _core(
        "own_log_counts_before_fsync",
        "the leader counts its own log as far as it is appended",
        ("durable commit",),
        Patch(Leader, "_commit", _count_unflushed),
    ),
    _core(
        "older_epoch_commits_by_count",
        "records of older epochs commit by counting replicas (figure 8)",
        ("leader completeness", "immutable commit"),
        Patch(Leader, "_commit", _count_older_epochs),
        scenario="leaders_die_early",
    ),
    _core(
        "leader_commits_alone",
        "the high watermark is the leader's own end",
        ("durable commit",),
        Patch(Leader, "_commit", _count_own_log_only),
    ),
    _core(
        "fetch_counts_as_another_voter",
        "the fastest follower is counted twice",
        ("durable commit",),
        Patch(Leader, "_commit", _count_fastest_twice),
    ),
    _core(
        "observer_counts",
        "observers count for the majority",
        ("durable commit",),
        Patch(Leader, "_commit", _count_observers),
    ),
    _core(
        "divergence_is_not_noticed",
        "a follower keeps a tail that the leader does not have",
        ("immutable commit",),
        Patch(ReplicaLog, "divergence", _never_diverge),
    ),
    _core(
        "truncation_below_high_watermark",
        "a follower that diverges begins from nothing",
        ("immutable commit",),
        Patch(ReplicaLog, "truncation_point", _truncate_all),
        Patch(Replica, "truncate", _truncate_without_asking),
    ),
    _core(
        "follower_commits_what_it_lacks",
        "a follower takes over the leader's high watermark beyond its own log",
        ("monotone commit",),
        Patch(Follower, "accept", _believe_leader),
    ),
    _core(
        "leader_appends_something_else",
        "a leader appends other bytes than were proposed",
        ("validity",),
        Patch(Leader, "propose", _propose_something_else),
    ),
    _core(
        "leader_appends_twice",
        "a leader appends a proposal and repeats it",
        ("integrity",),
        Patch(Leader, "propose", _propose_twice),
    ),
    _core(
        "leader_never_resigns",
        "no check-quorum",
        ("deaf leader resigns",),
        Patch(Leader, "check_quorum_deadline_ms", _never_resign),
        scenario="a_leader_hears_nobody",
    ),
)

# --- voters that change, and reads --------------------------------------------------------------


def _keep_removed(tracker: Tracker) -> None:
    before = tracker.voters
    _count_voters(tracker)
    for node_id, progress in before.items():
        tracker.voters.setdefault(node_id, progress)


def _reached_by_any(voters: VoterSet, values: Iterable[Any]) -> Any:
    return sorted(values, reverse=True)[voters.majority - 1]


def _lead_on_removed(leader: Leader) -> bool:
    return _count(leader, _ends(leader))


def _confirm_at_once(leader: Leader, request_id: int) -> None:
    leader._replica.confirm_read(request_id)


def _any_fetch_confirms(
    leader: Leader, request_id: int, request: FetchRequest, now_ms: int
) -> None:
    _fetch(leader, request_id, replace(request, seen_round=leader._reads.round), now_ms)


_count_voters = Tracker._count_voters
_fetch = Leader.fetch

VOTERS_AND_READS = (
    _core(
        "removed_voter_counts",
        "the leader goes on counting voters that were removed, for the majority of those that stay",
        ("durable commit",),
        Patch(Tracker, "_count_voters", _keep_removed),
        Patch(VoterSet, "reached_by_majority", _reached_by_any),
    ),
    _core(
        "removed_leader_counts",
        "a leader that was removed goes on counting its own log",
        ("durable commit",),
        Patch(Leader, "_commit", _lead_on_removed),
    ),
    _core(
        "read_is_not_confirmed",
        "a leader answers a read without hearing from anybody",
        ("linearizable reads",),
        Patch(Leader, "read", _confirm_at_once),
        scenario="a_deposed_leader_is_read",
    ),
    _core(
        "any_fetch_confirms_reads",
        "a Fetch that arrives after the read confirms it, whenever it was sent",
        ("linearizable reads",),
        Patch(Leader, "fetch", _any_fetch_confirms),
        scenario="a_deposed_leader_is_read",
    ),
)

CORE_MUTANTS = (*VOTES, *COMMITS, *VOTERS_AND_READS, *MIGRATION)

"""The roles of a voter that neither leads nor follows.

unattached   knows no leader of its epoch; waits for one, or for its election timeout
prospective  asks whether it would win (pre-vote); nothing has changed yet, so a replica that
             cannot win disturbs nobody (Raft §9.6, KIP-996)
candidate    asks for votes in a new epoch (Raft §5.2)
resigned     led this epoch and gave it up; it cannot lead the same epoch again
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raftctl.errors import invariant
from raftctl.raft._fetcher import Fetcher
from raftctl.raft._replica import Replica
from raftctl.raft.messages import NodeId, VoteRequest


@dataclass(slots=True)
class Unattached:
    """Waits. An observer never campaigns, but asks one voter after the other for the leader."""

    election_deadline_ms: int | None
    fetcher: Fetcher | None = None

    def invariants(self) -> None:
        """Check that a voter waits for its time-out, and an observer asks for the leader."""
        voter = self.election_deadline_ms is not None
        invariant(voter == (self.fetcher is None), "either a voter waits or an observer asks")
        if self.fetcher is not None:
            self.fetcher.invariants()

    def deadline_ms(self) -> int | None:
        """Return when to campaign, or to ask the next voter."""
        return self.fetcher.deadline_ms() if self.fetcher else self.election_deadline_ms


@dataclass(slots=True)
class Resigned:
    """Waits for a successor, and campaigns like anyone else if there is none."""

    election_deadline_ms: int

    def invariants(self) -> None:
        """Check nothing: a replica that gave leadership up holds no state of its own."""

    def deadline_ms(self) -> int:
        """Return when to campaign."""
        return self.election_deadline_ms


@dataclass(slots=True)
class Campaign:
    """Asks all other voters, again where the request failed, and counts each voter once."""

    replica: Replica
    request: VoteRequest
    election_deadline_ms: int
    granting: set[NodeId] = field(default_factory=set)
    _retry_at_ms: dict[NodeId, int] = field(default_factory=dict)
    _failures: dict[NodeId, int] = field(default_factory=dict)

    def invariants(self) -> None:
        """Check that the votes counted are for what this replica asks now."""
        replica = self.replica
        invariant(self.request.epoch == replica.epoch, "a campaign is for the current epoch")
        invariant(self.request.candidate == replica.local, "a replica campaigns for itself")
        # Not: it is the same log. A snapshot fetched before may be saved meanwhile and take the
        # log's place; then the votes are for less than there is, which harms nobody.
        asked, end = self.request.log_end, replica.log.end
        grown = (asked.epoch, asked.offset) <= (end.epoch, end.offset)
        invariant(grown, "votes are for no more than the log holds")
        voted = self.request.pre_vote or replica.state.voted == replica.local
        invariant(voted, "a candidate has voted for itself")

    def start(self) -> None:
        """Ask every other voter."""
        for voter in self.replica.other_voters():
            self.replica.send(voter, self.request)

    def won(self) -> bool:
        """Return whether a majority of the present voters has granted its vote.

        Not always those who were asked: a snapshot that is saved meanwhile may tell of others.
        """
        voters = self.replica.voters
        return len(self.granting.intersection(voters.ids)) >= voters.majority

    def failed(self, voter: NodeId, now_ms: int) -> None:
        """Note that the request did not reach the voter, or its answer not this replica."""
        failures = self._failures.get(voter, 0) + 1
        self._failures[voter] = failures
        self._retry_at_ms[voter] = now_ms + self.replica.config.backoff_ms(failures)

    def retry(self, now_ms: int) -> None:
        """Ask those again whose pause is over."""
        due = [voter for voter, at_ms in self._retry_at_ms.items() if at_ms <= now_ms]
        for voter in due:
            del self._retry_at_ms[voter]
            self.replica.send(voter, self.request)

    def deadline_ms(self) -> int:
        """Return when to ask again, or to give this campaign up."""
        return min((self.election_deadline_ms, *self._retry_at_ms.values()))


class Prospective(Campaign):
    """A campaign for pre-votes, in the current epoch."""

    __slots__ = ()


class Candidate(Campaign):
    """A campaign for votes, in an epoch of its own."""

    __slots__ = ()

    def meet(self, rival: VoteRequest, now_ms: int) -> None:
        """If another campaigns in the same epoch, the votes are split, and perhaps nobody wins.

        Both followers of a leader that died give it up at about the same time, if they heard its
        last words together. So that not both wait for a whole election timeout, the one with the
        better claim, which both can tell, tries again soon; not at once, since the others' votes
        may still come.
        """
        together = rival.epoch == self.request.epoch and not rival.pre_vote
        if together and _claim(self.request) > _claim(rival):
            soon_ms = now_ms + self.replica.config.rivalry_ms
            self.election_deadline_ms = min(self.election_deadline_ms, soon_ms)


def _claim(request: VoteRequest) -> tuple[int, int, int]:
    """How good a candidate is: by its log, then by the smaller node id."""
    end = request.log_end
    return end.epoch, end.offset, -request.candidate.node_id

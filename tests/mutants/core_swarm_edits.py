"""Small edits of the quorum's cores that seeds of the cores' swarm notice, one seed for each."""

from __future__ import annotations

from tests.mutants.edit import Edit

_SEED = "simulation/test_core_swarm.py::test_safe_and_live_whatever_kinds_of_faults_a_seed_draws"

EDITS = (
    Edit(
        "swarm_vote_of_a_wiped_disk",
        "raft._core:RaftCore._vote_response",
        "response.voter in self._replica.voters and ",
        "",
        f"{_SEED}[3]",
    ),
    Edit(
        "swarm_any_follower_keeps_the_leader",
        "raft._tracker:Tracker.majority_seen_ms",
        "[needed - 1]",
        "[0]",
        f"{_SEED}[3]",
    ),
    Edit(
        "swarm_wiped_disk_counts_for_commits",
        "raft._tracker:Tracker.fetching",
        " and key in self._replica.voters",
        "",
        f"{_SEED}[40]",
    ),
    Edit(
        "swarm_newest_voters_before_the_log",
        "raft.voters:VoterHistory.started",
        "self.at(start.offset)",
        "self.newest",
        f"{_SEED}[0]",
    ),
    Edit(
        "swarm_snapshot_of_any_log_fits",
        "raft._log:ReplicaLog.contains",
        "self.divergence(end) is None",
        "True",
        f"{_SEED}[19]",
    ),
    Edit(
        "swarm_cut_amid_a_batch_of_another_epoch",
        "raft._log:ReplicaLog.truncation_point",
        "min(ours.offset, diverging.offset) if same_epoch else ours.offset",
        "min(ours.offset, diverging.offset)",
        f"{_SEED}[55]",
    ),
)

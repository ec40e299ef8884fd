"""The quorum core: one replica's part in Raft, pulled by followers as in KRaft.

`RaftCore.handle(event, now_ms)` takes one event and returns the effects to perform, left to
right. `RaftCore.deadline_ms()` says when the next `Tick` is due. Nothing else goes in or comes
out.

    events    requests, responses, failures, ticks, proposals, completed writes
    effects   sends, replies, appends, truncations, snapshot pieces, the high watermark

The core decides elections, replication, commits, membership and reads. It must not know of
files, sockets, clocks, threads or of what a record means: a batch is bytes with an offset and
an epoch.

Invariants, checked by `invariants()` after each event in tests and in simulation:

- A vote or an epoch is durable before any message leaves that depends on it (Raft figure 2).
- One vote and one leader an epoch; epochs only grow (election safety, Raft §5.2).
- The high watermark never moves back, and no log is cut below it (Raft §5.4.3).
- A leader counts its own records only once they are on its disk, and commits by counting only
  records of its own epoch (Raft §5.4.2).
- The voters in effect are those of the newest record in the log, committed or not (thesis
  §4.1).

Public modules: `messages` (what replicas say to each other), `events` (events and effects),
`batch` (the unit that is stored and sent) and `voters` (the record of the voters).

Sources: Raft §5, §8, §9.6 and Ongaro's thesis §4, §6.4; KIP-595 (pull), KIP-630 (snapshots),
KIP-853 (membership), KIP-996 (pre-vote).
"""

from raftctl.raft._core import RaftConfig, RaftCore
from raftctl.raft._log import ReplicaLog
from raftctl.raft._tracker import QuorumStatus, ReplicaStatus
from raftctl.raft._validation import claimed_sender, is_endpoint

__all__ = [
    "QuorumStatus",
    "RaftConfig",
    "RaftCore",
    "ReplicaLog",
    "ReplicaStatus",
    "claimed_sender",
    "is_endpoint",
]

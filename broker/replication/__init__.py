"""Replication: the replicas that this broker has, and the requests that wait for them.

`ReplicaManager` is the front door. It turns metadata images into leaders and followers, and
requests into appends and reads. `ReplicaMetrics` is asked about it at a scrape. The packages below
it:

    reads         Fetch and ListOffsets: sessions, cold pages, rack-aware replicas
    fetcher       followers copy the logs of their leaders
    purgatory     requests that wait for a partition to change, each until its deadline
    partition     one replica: its state (ISR, high watermark) and its log

Decides when a record is committed, which replicas are in sync, and when a request is
answered. Must not know the wire format, listeners, or coordinators.

Invariants:

- a record below the high watermark is on every in-sync replica, and at least on
  `min.insync.replicas` of them;
- the high watermark of a leader never goes back within one leader epoch;
- only the controller changes an ISR: the leader proposes and waits for the maximal ISR
  meanwhile;
- a follower copies only from the leader of its current leader epoch;
- a follower truncates only where leader epochs diverge or its leader's log ends;
- every waiting request is answered once, and then waits nowhere.

Checks of one state change stand where it happens, and always run. `invariants()` of each core
checks the rest. Tests call it after each event, the simulator after each step of a node that
changed a partition (`ReplicaManager.invariants`). Production does not: it reads every index,
follower and waiting request.

Everything runs on the event loop; nodes in one process share nothing. Work on many partitions
is done a few at a time, because heartbeats must go out meanwhile.

Source: Kafka's replication protocol (KIP-101, KIP-227, KIP-392, KIP-497, KIP-903, KIP-966).
"""

from broker.replication._replica_manager import ReplicaManager
from broker.replication._replica_metrics import ReplicaMetrics

__all__ = [
    "ReplicaManager",
    "ReplicaMetrics",
]

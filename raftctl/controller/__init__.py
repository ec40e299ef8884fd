"""Active controller of the quorum: it turns requests into metadata records.

`QuorumController` is a pure state machine; one node of the quorum, the leader, has it active
between `claim` and `renounce`. A request is decided on the newest image, committed or not,
and gives a `ControllerResult`: records and a response. The caller appends the records, hands
them back with `appended`, and sends the response once they have committed.

    claim ─▶ handle | tick ─▶ (append to the log) ─▶ appended ─▶ committed ─▶ …
      ▲                                                                        │
      └─────────────────────────────── renounce ◀──────────────────────────────┘

It decides, one package or module an aspect; the door of each says which requests are its own:

* `_cluster_control`: registration, heartbeats, fencing and shutdown of nodes; producer ids;
* `partitions`: topics, leaders, ISRs and assignments of replicas;
* `configs`: dynamic configs and feature levels;
* `kv`: keys and values, sessions and locks;
* `security`: quotas, access control lists, SCRAM credentials and delegation tokens.

It must not know: sockets, files, the clocks (`now_ms` and `wall_ms` are given), the Raft log or
its voters beyond their ids, Kafka's wire protocol. Soft state is limited to deadlines and work in
progress; a new active controller rebuilds it from the image.

Invariants: only the active controller decides, in the epoch it claimed; records are replayed
in offset order; only `appended` changes the image; losing leadership drops whatever is
uncommitted. A request whose records must stand together gets one batch, or a metadata
transaction.

Sources: KIP-500, KIP-631; KIP-868 (metadata transactions); Kafka's `QuorumController`.
"""

from raftctl.controller._config import ControllerConfig
from raftctl.controller._quorum_controller import QuorumController

__all__ = [
    "ControllerConfig",
    "QuorumController",
]

"""The quorum's shell: runs the pure core on disks, peers and the event loop.

    RaftDriver      the event loop around the core: queues events, performs effects, in order
    RaftMetrics     what a replica does, for scrapes
    Peers           a client for each node of the quorum, wherever it listens now
    open_replica    locks, checks and recovers the metadata directory at start
    Recovery        makes one directory a quorum of itself when the majority is lost

The package decides how to perform what the core asks for, never what to do. It must not know
the controller, the brokers or the meaning of a record: listeners receive committed offsets and
read batches.

Invariants:

- Effects are performed in the order of the list; a write's completion comes back as an event.
- Any failure of disk, core or listener is fatal to the node: nothing is handled or
  acknowledged after it (rows Q1, Q3, Q12).
- Only the driver touches the core, the log and the quorum-state file.
- Sends and acknowledgements of a turn go out before its committed records are applied,
  because other voters wait for the former.

Sources: Kafka's `KafkaRaftClient` and `KafkaRaftClientDriver`; KIP-595, KIP-853;
`docs/decisions/0001-cores-and-shells.md`, `docs/decisions/0007-syncs-on-the-event-loop.md`.
"""

from raftctl.quorum._driver import UNWRITTEN_BYTES_MAX, RaftDriver
from raftctl.quorum._metrics import RaftMetrics
from raftctl.quorum._peers import Peers
from raftctl.quorum._replica import (
    Recovery,
    Replica,
    Survivor,
    bootstrap_servers,
    make_core,
    open_replica,
)

__all__ = [
    "UNWRITTEN_BYTES_MAX",
    "Peers",
    "RaftDriver",
    "RaftMetrics",
    "Recovery",
    "Replica",
    "Survivor",
    "bootstrap_servers",
    "make_core",
    "open_replica",
]

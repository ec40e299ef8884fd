"""One replica of a partition: its state, its log, and what a single request does to both.

The partition state is a pure core: role, in-sync replicas, high watermark, no log, no clock,
no network. The partition combines it with a `PartitionLog`. Each method does its work at once
and returns what the caller must know to wake waiting requests; nothing here waits.

Decides how far records are committed, which ISR to propose, and which errors a client gets.
Must not know other partitions, connections or deadlines.

Invariants:

- leader epoch and partition epoch never decrease;
- the ISR is a subset of the replicas, and the maximal ISR contains the ISR;
- the high watermark never decreases within a leader epoch, and is never above the log end
  offset;
- at most one ISR proposal is open, of the current leader and partition epochs;
- a leader tracks exactly the other replicas; a follower tracks none;
- a session's reader is idle only while it has everything that it may see.

`Conditions` count the broker's replicas, such as those that are under-replicated.
`Throttle` bounds the rate of copying, the transaction guards keep batches of ended
transactions out, and the fetch session index knows which partitions of a session have
changed.

Source: KIP-497 (AlterPartition), KIP-903 (broker epochs), KIP-966 (eligible leaders),
KIP-207, KIP-227 (fetch sessions), KIP-73 (throttling), KIP-890 (transactions).
"""

from broker.replication.partition._conditions import Condition, Conditions
from broker.replication.partition._fetch_session_index import FetchSessionIndex
from broker.replication.partition._partition import Fetched, Partition
from broker.replication.partition._partition_state import IsrProposal, PartitionState
from broker.replication.partition._throttle import Throttle, Throttles
from broker.replication.partition._transaction_guards import Guard, Sender

__all__ = [
    "Condition",
    "Conditions",
    "FetchSessionIndex",
    "Fetched",
    "Guard",
    "IsrProposal",
    "Partition",
    "PartitionState",
    "Sender",
    "Throttle",
    "Throttles",
]

"""Partitions on the active controller: leaders, in-sync replicas and assignments.

One rule elects the leader and computes the ISR for every cause: a broker is fenced, unfenced
or shuts down, a log directory fails, a config changes, a reassignment completes. Given the
replicas that are available, the rule says how a partition should be; the difference becomes a
`PartitionChangeRecord`. The package applies it

* to one partition, for ElectLeaders and reassignments;
* to all partitions of a broker or of the cluster, a slice at a time, in the reconciler;
* on a timer, to give leadership back to preferred replicas, in the balancer.

It also creates topics, adds partitions and deletes topics.

Invariants of each partition after every change:

* the leader is in the ISR, or there is none;
* ISR and eligible leaders are disjoint subsets of the replicas, and never both empty;
* replicas are distinct; those being added or removed are among them;
* leader epoch and partition epoch never go back.

The package must not know sessions, heartbeats or who asked: it sees an image and the set of
available replicas. Slices bound the partitions examined between two messages of the quorum.

Sources: KIP-497, KIP-631; KIP-455 (reassignment), KIP-460 (elections), KIP-704 (unclean
recovery), KIP-858 (log directories), KIP-966 (eligible leader replicas).
"""

from raftctl.controller.partitions._availability import availability
from raftctl.controller.partitions._elections import LeaderBalancer, elect_leaders
from raftctl.controller.partitions._partition_change import TopicRules, change_record, reconciled
from raftctl.controller.partitions._partition_reconciler import PartitionReconciler
from raftctl.controller.partitions._reassignment import alter_reassignments
from raftctl.controller.partitions._replication_control import alter_partitions, assign_replicas
from raftctl.controller.partitions._topic_control import TopicControl

__all__ = [
    "LeaderBalancer",
    "PartitionReconciler",
    "TopicControl",
    "TopicRules",
    "alter_partitions",
    "alter_reassignments",
    "assign_replicas",
    "availability",
    "change_record",
    "elect_leaders",
    "reconciled",
]

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

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from raftctl.controller.partitions._elections import LeaderBalancer, elect_leaders
from raftctl.controller.partitions._partition_reconciler import PartitionReconciler
from raftctl.controller.partitions._reassignment import alter_reassignments
from raftctl.controller.partitions._replication_control import alter_partitions, assign_replicas
from raftctl.controller.partitions._topic_control import TopicControl
from raftctl.metadata.requests.admin import (
    AlterReassignmentsRequest,
    CreatePartitionsRequest,
    ElectLeadersRequest,
)
from raftctl.metadata.requests.cluster import (
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from raftctl.controller._config import ControllerConfig
    from raftctl.controller._result import Decision

__all__ = ["LeaderBalancer", "PartitionReconciler", "partition_decisions"]


def partition_decisions(config: ControllerConfig, rng: random.Random) -> Mapping[type, Decision]:
    """Return the decision for each type of request about topics, partitions and replicas.

    `rng` makes the ids of topics and spreads replicas.
    """
    topics, defaults = TopicControl(config, rng), config.topic_defaults
    return {
        AlterPartitionRequest: partial(alter_partitions, defaults=defaults),
        AlterReassignmentsRequest: partial(alter_reassignments, defaults=defaults),
        AssignReplicasToDirsRequest: partial(assign_replicas, defaults=defaults),
        CreatePartitionsRequest: topics.create_partitions,
        CreateTopicsRequest: topics.create,
        DeleteTopicsRequest: topics.delete,
        ElectLeadersRequest: partial(elect_leaders, defaults=defaults),
    }

"""Brokers and controllers of the cluster: registration, heartbeats, fencing and shutdown.

A broker registers, is fenced until it has replayed its own registration, then active. It is
fenced again when it asks for that or is silent for the session timeout. A controlled shutdown
moves its leaders away first. Controllers register the feature levels they support and the
settings they decide by. Producer ids are allocated to brokers in blocks.

    fenced ──caught up──▶ active ──wants to stop, leads──▶ shutting down
      ▲  ◀──wants it, silent──┘ │                                │
      └────────────── wants to stop, leads nothing ──────────────┘

Invariants: a broker has one current incarnation, named by its epoch, which is the offset of
its registration; a request with another epoch is refused. Sessions exist only for registered
brokers. They are soft state of the active controller: on a claim each unfenced broker gets a
full session. A broker is neither unfenced nor replaced while partitions have yet to follow
its last change.

The package must not know how a partition elects its leader: it starts a pass of the partition
reconciler and waits until that is no longer pending.

Sources: KIP-631, KIP-841 (fencing), KIP-858 (failed directories), KIP-853 (controllers),
KIP-730 (producer ids), KIP-966 (unclean shutdown).
"""

from raftctl.controller.cluster._cluster_control import ClusterControl, allocate_producer_ids
from raftctl.controller.cluster._controller_registrations import (
    ControllerRegistrations,
    unregister_all,
)

__all__ = [
    "ClusterControl",
    "ControllerRegistrations",
    "allocate_producer_ids",
    "unregister_all",
]

"""Local clusters: real node processes on this machine.

`environment` starts nodes and injects faults: signals, wrong clocks by libfaketime, failing and
damaged disks, links that are cut or slow. Links go over relays on loopback, or, with root,
through network namespaces joined by a bridge (NETWORKS). `security` makes the certificates and the
first user of a secured cluster, and renews certificates. `servers` judges the disks of stopped
nodes: metadata, logs of replicas and leadership.

Blocking calls run on threads, so clients continue while a node starts.

Only this package and `jepsen.environments.raftctl` may import raftctl. It must not know
workloads, generators or histories.

Invariants: all processes, namespaces and rules that were created are removed at the end, also
after an error. Disks are read only while no node runs.
"""

RELAYS, NAMESPACES = "relays", "namespaces"
NETWORKS = (RELAYS, NAMESPACES)
"""Kinds of networks. They stand here, since specifications name them where raftctl is missing."""

__all__ = [
    "NAMESPACES",
    "NETWORKS",
    "RELAYS",
]

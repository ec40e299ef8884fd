"""External clusters: any cluster that speaks Kafka's protocol, known by its address.

`ExternalEnvironment` injects faults only if the owner of the cluster supplies a control
program, which is called with a verb and the name of a node. `check_cluster` verifies before a
test that the cluster answers and that its topic is usable.

The package must not know how the cluster was started. It imports nothing of raftctl or broker.

Invariants: a kill, stop or pause counts only if the control program succeeded and, for a broker,
a connection that was opened before it was broken or fell silent. The cluster itself is never
reconfigured.
"""

from jepsen.environments.external._environment import ExternalEnvironment
from jepsen.environments.external._reachable import check_cluster

__all__ = [
    "ExternalEnvironment",
    "check_cluster",
]

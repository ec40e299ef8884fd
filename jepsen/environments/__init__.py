"""Environments: clusters behind one interface, whatever they run on.

`Environment` is all that a test knows of a cluster: addresses, roles, and `Machines`, the
primitives of faults (kill, pause, cut a link, slow a link, skew a clock, fail a disk).
`KeyValues` is its client of keys and values. `Entrance` is where its Kafka clients begin, and how
they log in. `AccessControl` changes the users of a secured cluster and their rules (`Rule`).
`ClusterSpec` says which cluster a test needs, and by `Security` what its clients speak.

    local      node processes on this machine
    external   any cluster that speaks Kafka's protocol, broken by a program of its owner
    raftctl    glue that clusters of raftctl nodes share
    admin      changes that an administrator makes over Kafka's protocol
    access     users, passwords and rules, changed over Kafka's protocol
    jepsen.simulator   nodes in one process, in virtual time

An environment performs faults; when and where they strike is decided by `jepsen.nemesis`. It
must not know workloads, generators or checkers of histories.

Invariants: faults take effect before the method returns. Repairs are idempotent. After all
repairs the cluster differs from a healthy one only by its history.
"""

from jepsen.environments._access import AccessControl, Rule, Security
from jepsen.environments._base import (
    Change,
    ClusterSpec,
    Environment,
    KeyValueError,
    KeyValues,
    Link,
    Machines,
    Quality,
)
from jepsen.environments._entrance import Entrance

__all__ = [
    "AccessControl",
    "Change",
    "ClusterSpec",
    "Entrance",
    "Environment",
    "KeyValueError",
    "KeyValues",
    "Link",
    "Machines",
    "Quality",
    "Rule",
    "Security",
]

"""The nemesis: the process of a test that injects faults.

`faults` has one package a kind of fault: a generator of operations that begin and end it, and
the operations that heal the cluster. An operation names a target by its role (one, a minority,
the leader, all). `Nemesis` resolves the target when the operation is performed, calls the
primitive of the environment, and records which nodes or links were meant. `Injector` is its part
that performs operations with named targets, as those of a plan (`plan`) have; the simulator's
scenarios perform their plans by it. `SecurityFaults` has the faults of secured clusters.

The package decides what fails and when. It must not know how an environment performs a fault,
and imports none but the interface.

Invariants: every fault that begins has an operation that ends it. Targets are drawn from the
test's seed. A fault that could not strike is recorded as such, so that a test without faults is
never reported as one with faults. The end of a test heals everything.

Source: Jepsen's `jepsen.nemesis` and `jepsen.nemesis.combined`.
"""

from jepsen.nemesis._nemesis import Injector, Nemesis
from jepsen.nemesis._security import SecurityFaults

__all__ = [
    "Injector",
    "Nemesis",
    "SecurityFaults",
]

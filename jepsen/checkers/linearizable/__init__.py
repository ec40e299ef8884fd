"""The linearizability checker: just-in-time linearization, one key at a time.

The search carries a set of configurations along the history. Each is one possible state of the
object with the operations that took effect. When an operation returns, only configurations
survive in which it has taken effect. The history is not linearizable if none survives.

Which search is used depends on the key. Registers with long histories use loops compiled by
numba, if available. Otherwise one search handles keys whose outcomes are all known, and another
keys with operations that ended with `info`, which it counts instead of naming.

`models` has the sequential specifications. `quiescence` cuts the history of a key where no
operation is open: a history that still grows, or a very long one of a register.

The package must not know how histories are stored or how keys are distributed over processes.

Invariants: a key is valid only if every prefix has a surviving configuration. Budgets bound
time and configurations; exceeding one yields "unknown". A counterexample names the first
operation that no configuration survives.

Sources: Wing and Gong, "Testing and Verifying Concurrent Objects"; Lowe, "Testing for
Linearizability"; Herlihy and Wing on locality; Knossos.
"""

from jepsen.checkers.linearizable._check import (
    STATES_SHARED_MAX,
    KeyResult,
    check_key,
    check_linearizable,
    nonlinearizable,
)
from jepsen.checkers.linearizable._machine import Budget, Exhausted, Machine

__all__ = [
    "STATES_SHARED_MAX",
    "Budget",
    "Exhausted",
    "KeyResult",
    "Machine",
    "check_key",
    "check_linearizable",
    "nonlinearizable",
]

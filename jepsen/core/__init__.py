"""The core of a test: its specification, and the interpreter that performs it.

`spec` has `RunSpec`, everything that determines a run, the workloads and faults by name, and
`Run`, which plays a specification on an environment. The interpreter is the only part that
acts: each thread is a worker with a client, and every operation is recorded with one monotonic
clock.

After the checkers, `jepsen.core` decides what a history proves. A run in which a fault never
struck, no client succeeded or the final reads failed is unknown, with the reason.

The package must not know folders, processes or the command line.

Invariants: in the simulator equal specifications give equal histories. An operation that
exceeds its time ends with `info`, and its thread continues as another process with a new
client. However the test ends, the cluster is healed and clients are closed.

Source: Jepsen's `jepsen.core` and `jepsen.generator.interpreter`.
"""

from jepsen.core._evidence import Ending, cut_short, faults_struck, told_faults

__all__ = [
    "Ending",
    "cut_short",
    "faults_struck",
    "told_faults",
]

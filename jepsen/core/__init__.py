"""The core of a test: its specification, and the interpreter that performs it.

`spec` has `RunSpec`, everything that determines a run, and the workloads and faults by name.
`Run` plays a specification on an environment. Its interpreter is the only part that acts: each
thread is a worker with a client, and every operation is recorded with one monotonic clock.

`judge` asks the checkers of the workload, and decides what a history proves. A run in which a
fault never struck, no client succeeded or the final reads failed is unknown, with the reason.

The package must not know folders, processes or the command line.

Invariants: in the simulator equal specifications give equal histories. An operation that
exceeds its time ends with `info`, and its thread continues as another process with a new
client. However the test ends, the cluster is healed and clients are closed.

Source: Jepsen's `jepsen.core` and `jepsen.generator.interpreter`.
"""

from jepsen.core._evidence import (
    PROPERTIES,
    Ending,
    cut_short,
    faults_struck,
    format_faults,
    judge,
    judge_steps,
    overall,
)
from jepsen.core._run import Run

__all__ = [
    "PROPERTIES",
    "Ending",
    "Run",
    "cut_short",
    "faults_struck",
    "format_faults",
    "judge",
    "judge_steps",
    "overall",
]

"""Runs from start to verdict, one at a time or as a matrix.

`run_and_judge` starts the environment that a specification names, runs the test, stores the
history as it grows, and judges it. `judge_folder` judges a stored history again, and
`judge_servers_of` the disks that its nodes left. `matrix` combines workloads with faults, and
reads and writes the results of all runs. `shrink` leaves faults out of a run that fails.

The package knows every environment and loads only the one in use. It must not know the command
line: progress goes to a callback.

Invariants: a history is on disk before it is judged, so a failing checker loses nothing. Ctrl-C
ends the test early, heals the cluster and still yields a verdict. A node that violated an
invariant makes the run invalid, whatever clients saw.
"""

from jepsen.runner._running import (
    ENVIRONMENTS,
    judge_folder,
    judge_servers_of,
    run_and_judge,
    shrink,
)

__all__ = [
    "ENVIRONMENTS",
    "judge_folder",
    "judge_servers_of",
    "run_and_judge",
    "shrink",
]

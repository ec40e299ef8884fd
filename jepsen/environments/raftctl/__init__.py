"""Glue of raftctl clusters: what local and simulated environments share.

`RaftctlKeyValues` adapts raftctl's client of keys and values to the seam of the harness.
`change_voters` adds and removes voters as an operator does. `assignment_of` translates a
partition of the metadata image into the terms of the checkers.

The package may import raftctl, and must not know whether nodes are processes or simulated.

Invariants: an error after a request was sent is reported as an unknown outcome, never as
failed.
"""

from jepsen.environments.raftctl._assignments import assignment_of
from jepsen.environments.raftctl._keys import RaftctlKeyValues
from jepsen.environments.raftctl._voters import change_voters

__all__ = [
    "RaftctlKeyValues",
    "assignment_of",
    "change_voters",
]

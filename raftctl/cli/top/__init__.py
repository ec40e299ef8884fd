"""`raftctl top`: a live picture of a cluster in a terminal (row O2).

It reads what nodes serve over HTTP: `/api/v1/status` of controllers and `/metrics` of all. One
round of answers and the one before it make a view; a view and the size of the terminal make lines.

The package decides what is shown, in which order, and what is left out where room is short. It must
not change anything, and asks each node twice a round at most.

Invariants:

- View and lines are pure: the same answers give the same page.
- No line is longer than the terminal is wide, and there are no more lines than it is high.
- A node that does not answer is named, and costs the others nothing.
- What nobody has answered is shown as a dash, never as 0.
- Names come to the terminal without control characters.
"""

from raftctl.cli.top._command import top

__all__ = ["top"]

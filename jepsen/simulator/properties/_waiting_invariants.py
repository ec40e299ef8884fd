"""What must hold of what waits in a node's memory: for its disk, for a commit, for confirmation.

The scheme is that of `jepsen.simulator.properties._invariants`. The bounds are those of production:
however long a disk hangs and however much clients ask for, more is refused, not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftctl.node import DEFERRED_MAX, WAITING_BYTES_MAX
from raftctl.quorum import UNWRITTEN_BYTES_MAX
from raftctl.rpc.codec import MESSAGE_BYTES_MAX

HEARTBEATS_MAX = 1_000
"""Heartbeats are never refused; so many of them may wait besides."""


@dataclass(frozen=True, slots=True)
class WaitingView:
    """What waits in one controller."""

    node_id: int
    unwritten_bytes: int
    answers: int
    answers_bytes: int


def what_waits_is_bounded(view: WaitingView) -> str | None:
    """One message may go beyond a bound, since all of its requests are taken or none."""
    bounds = (
        ("bytes wait for the disk", view.unwritten_bytes, UNWRITTEN_BYTES_MAX + MESSAGE_BYTES_MAX),
        ("answers wait", view.answers, DEFERRED_MAX + HEARTBEATS_MAX),
        ("bytes wait with answers", view.answers_bytes, WAITING_BYTES_MAX + MESSAGE_BYTES_MAX),
    )
    for what, found, most in bounds:
        if found > most:
            return f"node {view.node_id}: {found:,} {what}, {most:,} at most"
    return None

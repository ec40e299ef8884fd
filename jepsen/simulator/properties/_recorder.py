"""Writes down what the nodes of a world are seen to do, as a trace of servers.

The lines are those of `jepsen.checkers.replication.trace`. Nodes are looked at, not asked, so a run
that is recorded is the same run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from jepsen.checkers.replication.trace import ASSIGNMENT, METADATA_LOG, RECORD, REPLICA
from jepsen.history import Op, OpType
from jepsen.history.formats import to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.checkers.replication.metadata import Assignment
    from jepsen.simulator.properties._invariants import ImageView, QuorumChange, QuorumView
    from jepsen.simulator.properties._partition_invariants import PartitionChange, PartitionView

NANOSECONDS = 1_000_000_000


class Recorder:
    """`clock` returns virtual seconds; a line is given to `write` as it comes."""

    def __init__(self, clock: Callable[[], float], write: Callable[[str], object]) -> None:
        self._clock = clock
        self._write = write
        self._lines = 0
        self._lives = Counter[tuple[int, str]]()
        """The number of times that a node has begun with a replica."""
        self._assignments: dict[tuple[int, int, str], Assignment] = {}
        """The assignment that each life of a node was last seen to have."""

    def quorum_changed(self, change: QuorumChange) -> None:
        """Record a step of a replica of the metadata log."""
        self._replica(METADATA_LOG, change.before, change.after, change.after.epoch)

    def partition_changed(self, change: PartitionChange) -> None:
        """Record a step of a replica of a partition."""
        after = change.after
        self._replica(after.partition, change.before, after, after.leader_epoch)

    def image_published(self, view: ImageView) -> None:
        """Record the assignments of a newer image."""
        for one in view.assignments():
            who = view.node_id, view.life, one.partition
            if self._assignments.get(who) == one:
                continue
            self._assignments[who] = one
            value = {
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "partition_epoch": one.partition_epoch,
                "isr": one.isr,
                "life": view.life,
            }
            self._note(view.node_id, ASSIGNMENT, one.partition, value)

    def _replica(
        self,
        partition: str,
        before: QuorumView | PartitionView | None,
        after: QuorumView | PartitionView,
        epoch: int,
    ) -> None:
        self._lives[after.node_id, partition] += before is None
        life = self._lives[after.node_id, partition]
        value = {
            "leads": after.leads,
            "epoch": epoch,
            "high_watermark": after.high_watermark,
            "log_end": after.log_end,
            "life": life,
        }
        self._note(after.node_id, REPLICA, partition, value)
        known = before.high_watermark if before is not None else 0
        for entry in (
            after.read(known, after.high_watermark) if after.high_watermark > known else ()
        ):
            record = f"to {entry.end_offset} of epoch {entry.epoch}, digest {entry.digest}"
            seen = {"offset": entry.base_offset, "record": record, "life": life}
            self._note(after.node_id, RECORD, partition, seen)

    def _note(self, node_id: int, f: str, partition: str, value: dict[str, Any]) -> None:
        time = round(self._clock() * NANOSECONDS)
        op = Op(self._lines, time, f"node-{node_id}", OpType.INFO, f, value, partition)
        self._lines += 1
        self._write(to_json(op) + "\n")

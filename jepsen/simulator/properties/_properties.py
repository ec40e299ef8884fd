"""All properties of a cluster, run as views of its nodes arrive.

The first property that does not hold ends the run with its name.

A register is anything that one client at a time changes and an image shows: a config, a quota, the
partitions of a topic, a key. Each of its values is asked for once, so an image that shows a value
shows whose it is.

`refused_operation_never_takes_effect`: a value refused to a client is in no image, ever. A
client that cannot know has to say so.

`acknowledged_operation_stays`: from its acknowledgement on, the newest image shows the value, until
another one is asked for. An operation of unknown outcome may take effect at any later time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jepsen.simulator.properties._invariants import (
    IMAGE_PROPERTIES,
    QUORUM_PROPERTIES,
    ImageHistory,
    Violation,
    all_committed_stays_durable_on_a_majority,
    no_voter_differs_from_committed,
    what_waits_is_bounded,
)
from jepsen.simulator.properties._partition_invariants import (
    PARTITION_PROPERTIES,
    PartitionHistory,
    every_replica_has_all_committed,
)
from jepsen.simulator.properties._producer_id_invariants import (
    PRODUCER_ID_PROPERTIES,
    ProducerIdHistory,
)
from jepsen.simulator.properties._snapshot_invariants import (
    snapshot_is_the_image_at_its_end,
    snapshot_names_the_voters_at_its_end,
)

if TYPE_CHECKING:
    from jepsen.simulator.properties._invariants import (
        ImageView,
        QuorumChange,
        QuorumHistory,
        VoterKey,
        WaitingView,
    )
    from jepsen.simulator.properties._partition_invariants import PartitionChange
    from jepsen.simulator.properties._producer_id_invariants import ProducerIdsView
    from jepsen.simulator.properties._recorder import Recorder
    from jepsen.simulator.properties._snapshot_invariants import SnapshotView


@dataclass(slots=True)
class Register:
    """One register; `read` finds its value in an image, None for none."""

    name: str
    read: Callable[[Any], object]
    acknowledged: object = None
    possible: set[object] = field(default_factory=set)
    """Values that were asked for, without a word yet or ever of what became of it."""
    refused: set[object] = field(default_factory=set)
    shown: object = None
    offset: int = -1
    """The offset of the newest image that was looked at."""
    outcomes: list[str] = field(default_factory=list)

    def ask(self, value: object) -> None:
        """Note a value that may take effect from now on."""
        self.possible.add(value)

    def done(self, value: object) -> None:
        """Note that the client got an acknowledgement."""
        self.outcomes.append("done")
        self.possible.discard(value)
        self.acknowledged = value
        self._judge()

    def refuse(self, value: object) -> None:
        """Note that the client got a refusal."""
        self.outcomes.append("refused")
        self.possible.discard(value)
        self.refused.add(value)
        self._judge()

    def lose(self) -> None:
        """Note that the client got no answer, or an unknown outcome."""
        self.outcomes.append("unknown")

    def image_published(self, view: ImageView) -> None:
        """Judge a newer image of some node.

        Raises `Violation`.
        """
        if view.offset > self.offset:
            self.offset = view.offset
            self.shown = self.read(view.image)
            self._judge()

    def _judge(self) -> None:
        where = f"{self.name} is {self.shown!r} at offset {self.offset}"
        if self.shown in self.refused:
            why = f"{where}, which was refused"
            raise Violation("refused_operation_never_takes_effect", why)
        if self.shown != self.acknowledged and self.shown not in self.possible:
            why = f"{where}, acknowledged {self.acknowledged!r}, may be {self.possible}"
            raise Violation("acknowledged_operation_stays", why)


class Properties:
    """All properties of one run, checked as views come in; counts what it looked at."""

    def __init__(self, quorum: QuorumHistory) -> None:
        self.quorum = quorum
        self.partitions: dict[str, PartitionHistory] = {}
        self.images = ImageHistory(partitions=self.partitions)
        self.producer_ids = ProducerIdHistory()
        self.checks = 0
        self.registers: list[Register] = []
        """The values that clients change meanwhile."""
        self.image_watchers: list[Callable[[ImageView], None]] = []
        """Scenarios' own properties of images; each raises `Violation`."""
        self.recorder: Recorder | None = None
        """The recorder that is shown each change before it is judged."""

    def quorum_changed(self, change: QuorumChange) -> None:
        """Judge a step of a replica of the metadata log."""
        if self.recorder is not None:
            self.recorder.quorum_changed(change)
        self.checks += 1
        self.quorum.views[change.after.node_id] = change.after
        for holds in QUORUM_PROPERTIES:
            _raise_if(holds.__name__, holds(self.quorum, change))

    def image_published(self, view: ImageView) -> None:
        """Judge a newer image of a node."""
        if self.recorder is not None:
            self.recorder.image_published(view)
        self.checks += 1
        ids = self.producer_ids
        ids.committed_end = max(ids.committed_end, view.next_producer_id)
        for holds in IMAGE_PROPERTIES:
            _raise_if(holds.__name__, holds(self.images, view))
        for register in self.registers:
            register.image_published(view)
        for look in self.image_watchers:
            look(view)

    def partition_changed(self, change: PartitionChange) -> None:
        """Judge a step of a replica of a partition."""
        if self.recorder is not None:
            self.recorder.partition_changed(change)
        self.checks += 1
        after = change.after
        history = self.partitions.setdefault(after.partition, PartitionHistory())
        history.views[after.node_id] = after
        if after.leads:
            history.lost_power.intersection_update(after.isr)
        for holds in PARTITION_PROPERTIES:
            _raise_if(holds.__name__, holds(history, change))

    def producer_ids_changed(self, view: ProducerIdsView) -> None:
        """Judge a grant of producer ids to a broker, or ids that it gave out."""
        self.checks += 1
        for holds in PRODUCER_ID_PROPERTIES:
            _raise_if(holds.__name__, holds(self.producer_ids, view))

    def waiting_changed(self, view: WaitingView) -> None:
        """Something else waits in a controller."""
        _raise_if(what_waits_is_bounded.__name__, what_waits_is_bounded(view))

    def snapshot_found(self, view: SnapshotView) -> None:
        """Judge another whole snapshot of metadata on a disk."""
        self.checks += 1
        complaint = snapshot_is_the_image_at_its_end(self.images, view)
        _raise_if(snapshot_is_the_image_at_its_end.__name__, complaint)
        complaint = snapshot_names_the_voters_at_its_end(self.quorum, view)
        _raise_if(snapshot_names_the_voters_at_its_end.__name__, complaint)

    def come_to_rest(self) -> None:
        """Judge the cluster at rest: all nodes live, no fault lasts, no write is recent."""
        for rests in (no_voter_differs_from_committed, all_committed_stays_durable_on_a_majority):
            _raise_if(rests.__name__, rests(self.quorum))
        for history in self.partitions.values():
            complaint = every_replica_has_all_committed(history)
            _raise_if(every_replica_has_all_committed.__name__, complaint)

    def lost_disk(self, voter: VoterKey) -> None:
        """Note that a controller gets an empty disk: its next log is that of another voter."""
        node_id, _ = voter
        self.quorum.lost[voter] = dict(self.quorum.durable_entries(voter))
        self.quorum.lost_votes[voter] = self.quorum.durable_vote(node_id)
        self.quorum.wiped.add(node_id)
        self.quorum.knew_voters.pop(node_id, None)

    def lost_power(self, node_id: int) -> None:
        """Note that a broker's machine lost its unsynced bytes, or its disk."""
        for history in self.partitions.values():
            history.lost_power.add(node_id)


def _raise_if(name: str, complaint: str | None) -> None:
    if complaint:
        raise Violation(name, complaint)

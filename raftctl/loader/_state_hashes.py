"""Compares this replica's state with the active controller's, at offsets that the log names (Q13).

    active controller                       every replica
    appends a mark            ─▶ log ─▶     takes a snapshot of the state at the mark; its hash
    appends its own hash      ─▶ log ─▶     is to be that one, or the node ends

Snapshots are written by their own worker from an image that never changes, so neither the event
loop nor commits wait for a hash. What cannot be compared counts as unknown, never as equal: a
replica that has skipped the mark with a snapshot of the leader's, one that was too slow for it, or
a hash of another version. See `docs/decisions/0006-state-hash.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from raftctl.errors import DiskError
from raftctl.metadata.records import SnapshotMarkRecord, StateHashRecord
from raftctl.storage.snapshots import STATE_HASH_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.raft.messages import Offset
    from raftctl.runtime.api import Runtime

KEPT_MAX = 16
"""Hashes of this replica's own that are kept: the log bears one soon after, or never."""


class StateDivergedError(DiskError):
    """This replica's metadata is not what the log says that it is. Stops the node."""

    def __init__(self, offset: int, own: str, recorded: str, evidence: str) -> None:
        self.offset = offset
        super().__init__(
            f"the metadata at offset {offset} hashes to {own} here and to {recorded} at the active "
            f"controller, so one of the two has diverged; keep {evidence} and the snapshot of "
            "that offset of another node to compare, then format the directory of the one that "
            "is wrong again and let it join as a new replica"
        )


class _Own(NamedTuple):
    state_hash: str
    path: str


class MarkListener(Protocol):
    """The part of a node that takes snapshots at the leader's marks."""

    def take_marked(self, image: MetadataImage) -> None:
        """Take a snapshot of the image and then call `StateHashes.taken`."""


class StateHashes:
    """The hashes of one replica; a publisher of its loader and a listener of its driver."""

    def __init__(self, runtime: Runtime) -> None:
        self._append: Callable[[Record], bool] = _never
        self._log = runtime.log.bind(logger="raftctl.snapshots")
        self._own: dict[int, _Own] = {}
        self._recorded: dict[int, str] = {}
        """Offset to the hash that the log bears, for states whose snapshot is being written."""
        self._under_way: dict[int, None] = {}
        self._mark_appended = False
        self._unrecorded: StateHashRecord | None = None
        """This replica's hash at the newest mark, until the log bears one for it."""
        self._taker: MarkListener | None = None
        self._recorded_offset = -1
        self._equal_offset = -1
        self._not_compared_count = 0

    def status(self) -> dict[str, Any]:
        """Return the state of the comparison, for a node's status.

        `verdict` is `equal` once the newest hash in the log was found equal to this replica's, else
        `unknown`. `equal_offset` is the newest offset found equal (-1 for none), `not_compared` the
        number of hashes that could not be compared.
        """
        compared = 0 <= self._recorded_offset <= self._equal_offset
        return {
            "verdict": "equal" if compared else "unknown",
            "equal_offset": self._equal_offset,
            "not_compared": self._not_compared_count,
        }

    def append_with(self, append: Callable[[Record], bool]) -> None:
        """`append` appends if this node is the active controller, and returns whether it is."""
        self._append = append

    def marks_go_to(self, taker: MarkListener) -> None:
        """Say who takes the snapshots; before the driver starts."""
        self._taker = taker

    def mark(self) -> bool:
        """Make all replicas take a snapshot at one offset.

        Return False unless this node is active.
        """
        if not self._mark_appended:
            self._mark_appended = self._append(SnapshotMarkRecord())
        return self._mark_appended

    def taken(self, offset: int, state_hash: str, path: str) -> None:
        """Note the hash of this replica's state at the offset, from the snapshot at the path.

        Raises StateDivergedError if the log bears another hash for the offset.
        """
        self._own[offset] = _Own(state_hash, path)
        while len(self._own) > KEPT_MAX:
            del self._own[next(iter(self._own))]
        recorded = self._recorded.pop(offset, None)
        if recorded is not None:
            self._compare(offset, recorded)
        if offset in self._under_way:
            del self._under_way[offset]
            if offset > self._recorded_offset:
                self._unrecorded = StateHashRecord(offset, STATE_HASH_VERSION, state_hash)
                self._record()

    def skipped(self, offset: int) -> None:
        """Note that no snapshot is taken at this mark: a newer one came before its turn."""
        self._under_way.pop(offset, None)
        if self._recorded.pop(offset, None) is not None:
            self._not_compared(offset, "skipped")

    # --- MetadataPublisher ------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Compare what the log says of earlier states, and have a marked one hashed."""
        for record in delta.state_hashes or ():
            self._hear(record)
        if delta.snapshot_marked and self._taker is not None:
            self._mark_appended = False
            self._under_way[image.offset] = None
            self._taker.take_marked(image)

    # --- RaftListener -----------------------------------------------------------------------------

    def on_committed(self, high_watermark: Offset) -> None:
        """Do nothing: committed records come as images."""

    def on_snapshot(self, image: MetadataImage) -> None:
        """Do nothing: marks before the snapshot are never seen."""

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """Record a hash that is due, and forget a mark that may be lost with its leader."""
        self._mark_appended = False
        self._record()

    # --- internals --------------------------------------------------------------------------------

    def _record(self) -> None:
        if self._unrecorded is not None:
            self._append(self._unrecorded)

    def _hear(self, record: StateHashRecord) -> None:
        offset = record.offset
        self._recorded_offset = max(offset, self._recorded_offset)
        if self._unrecorded is not None and offset >= self._unrecorded.offset:
            self._unrecorded = None
        if record.version != STATE_HASH_VERSION:
            self._not_compared(offset, f"version {record.version}")
        elif offset in self._own:
            self._compare(offset, record.state_hash)
        elif offset in self._under_way:
            self._recorded[offset] = record.state_hash
        else:
            self._not_compared(offset, "no state of that offset")

    def _compare(self, offset: int, recorded: str) -> None:
        own = self._own[offset]
        if own.state_hash != recorded:
            raise StateDivergedError(offset, own.state_hash, recorded, own.path)
        self._equal_offset = max(offset, self._equal_offset)
        self._log.info("state_hash_equal", offset=offset, state_hash=recorded)

    def _not_compared(self, offset: int, why: str) -> None:
        self._not_compared_count += 1
        self._log.warning("state_hash_unknown", offset=offset, why=why)


def _never(_: Record) -> bool:
    return False

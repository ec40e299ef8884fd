"""What of a log is on disk besides its batches: names, leader epochs, snapshots of the producers.

Keeps account of it on the event loop and turns what is missing into a `FlushPlan` for the log
directory's worker, where plans and removals run in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log import checkpoints
from broker.log.partition_log import flush_note
from broker.log.partition_log._flushing import FlushPlan
from broker.log.producers import producer_snapshot
from broker.log.segments import segment_path
from raftctl.errors import KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.log.producers import Producer
    from broker.log.segments import Segment
    from raftctl.runtime.api import FileSystem


class Durability:
    """The account of one log directory of a partition."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self.epochs: list[tuple[int, int]] = []
        """The leader epochs on disk."""
        self._files = files
        self._directory = directory
        self._names_changed = 1
        """How often files were created or renamed, and how many of these changes are durable."""
        self._names_durable = 0
        self._names_doubted = False
        """Whether a process that was killed may have left names that are not durable."""
        self._snapshots: list[int] = []
        """The offsets of the snapshots on disk, smallest first."""
        self._due: tuple[int, Mapping[int, Producer]] | None = None
        """The newest snapshot to write: an offset and the producers there."""
        self._obsolete: list[str] = []
        """Files of snapshots that are none any more."""

    def adopt(
        self, epochs: list[tuple[int, int]], snapshots: list[int], *, names_doubted: bool
    ) -> None:
        """Takes over what opening the log found; doubted names are synced with the next flush."""
        self.epochs = epochs
        self._snapshots = snapshots
        self._names_durable = self._names_changed
        self._names_doubted = names_doubted

    def moved_to(self, directory: str) -> None:
        """The log's directory has got another name."""
        self._directory = directory

    def renamed(self) -> None:
        """Files were created or renamed: the directory must be synced."""
        self._names_changed += 1

    @property
    def needs_sync(self) -> bool:
        """Whether files were created or renamed since the directory was last synced."""
        return self._names_changed > self._names_durable

    def knows(self, epochs: list[tuple[int, int]]) -> bool:
        """Whether epochs and producers are on disk as they are in memory."""
        return self._due is None and self.epochs == epochs

    # --- snapshots ------------------------------------------------------------------------------

    def snapshot(self, offset: int, producers: Mapping[int, Producer]) -> None:
        """These are the producers at an offset: the next flush writes them down."""
        ascend = self._snapshots == sorted(set(self._snapshots))
        invariant(ascend, "snapshots are in the order of their offsets")
        if offset > max(self._snapshots, default=0):
            self._due = (offset, producers)

    def forget_snapshots(self, *, above: int) -> None:
        """What was above the offset is not in the log any more."""
        self._forget([offset for offset in self._snapshots if offset > above])
        if self._due is not None and self._due[0] > above:
            self._due = None

    def keep_snapshots_from(self, offset: int) -> None:
        """The log begins there: of the older snapshots one is enough."""
        self._forget([one for one in self._snapshots if one <= offset][:-1])

    def newest_snapshot(self, below: int) -> tuple[int, Mapping[int, Producer]]:
        """The newest snapshot that can be read of those up to the offset `below`, with its offset;
        nothing at 0 if there is none.
        """
        for offset in reversed([one for one in self._snapshots if one <= below]):
            try:
                return offset, producer_snapshot.read(self._files, self._path(offset))
            except (KafkaError, FileNotFoundError):
                # An older one, or the batches, say the same.
                self._forget([offset])
        return 0, {}

    def _forget(self, doomed: Sequence[int]) -> None:
        # The next flush removes the files, before it writes others of the same names.
        self._snapshots = [offset for offset in self._snapshots if offset not in doomed]
        self._obsolete += [self._path(offset) for offset in doomed]

    def _path(self, offset: int) -> str:
        return segment_path(self._directory, offset, producer_snapshot.SUFFIX)

    # --- flushing -------------------------------------------------------------------------------

    def plan(
        self,
        whole: Sequence[Segment],
        active: Segment | None,
        epochs: list[tuple[int, int]],
        truncations: int,
    ) -> FlushPlan:
        """How to make segments durable, `whole` ones with their indexes, and what goes with them.

        A plan must be run, and in the order in which plans were made.
        """
        due, self._due = self._due, None
        obsolete, self._obsolete = self._obsolete, []
        names, sync_names = self._names_changed, self.needs_sync or self._names_doubted
        new_epochs = epochs != self.epochs
        if due is not None:
            self._snapshots.append(due[0])

        def run() -> None:
            self._sync(whole, active)
            for path in obsolete:
                if self._files.exists(path):
                    self._files.remove(path)
            # A snapshot of what was truncated must not come back: below the recovery point it
            # would be trusted.
            if sync_names or obsolete:
                self._files.sync_directory(self._directory)
            if new_epochs:
                path = f"{self._directory}/{checkpoints.LEADER_EPOCHS}"
                checkpoints.write_epochs(self._files, path, epochs)
            if due is not None:
                producer_snapshot.write(self._files, self._path(due[0]), due[1])

        def done() -> None:
            self._names_durable = max(self._names_durable, names)
            self._names_doubted = False
            self.epochs = epochs

        flushed = [*whole, *([active] if active else [])]
        end_offset = flushed[-1].next_offset if flushed else 0
        return FlushPlan(end_offset, truncations, tuple(whole), run, done)

    def _sync(self, whole: Sequence[Segment], active: Segment | None) -> None:
        try:
            for segment in whole:
                segment.sync()
            if active is not None:
                active.sync_batches()
        except OSError:
            # At once: a process that is killed before has not told its successor.
            flush_note.take_down(self._files, self._directory.rpartition("/")[0])
            raise

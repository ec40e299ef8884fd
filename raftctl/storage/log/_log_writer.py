"""What the worker of the metadata log does to its files: appends, cuts and removals, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.raft.messages import Offset
from raftctl.storage.log._recovery_point import RecoveryPoint
from raftctl.storage.log._segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.runtime.api import File, FileSystem


@dataclass(frozen=True, slots=True)
class Write:
    """Append the buffers to the segment's file, creating it if there is none."""

    segment: Segment
    buffers: list[bytes]


@dataclass(frozen=True, slots=True)
class Cut:
    """Remove segments and shorten the last one that stays."""

    end_offset: Offset
    removed: tuple[Segment, ...]
    kept: Segment
    size: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove segments; `end_offset` is where the log ends then, if nothing of it is left."""

    segments: tuple[Segment, ...]
    end_offset: Offset | None


Operation = Write | Cut | Remove


class LogWriter:
    """Changes the files of one log. All methods block."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        """The directory exists."""
        self._files = files
        self._directory = directory
        self._point = RecoveryPoint(files, directory)
        self.fsyncs = 0
        """How often appended batches have been made durable."""
        self.recovery_point = self._point.offset
        """Up to where the log was durable when this process began; None if nobody noted it."""

    def perform(self, operations: Sequence[Operation], end_offset: Offset) -> None:
        """Does the work in order, after which everything below `end_offset` is durable.

        Each step is durable before the next one begins: else a crash could leave a damaged segment
        with a whole one after it.
        """
        for operation in operations:
            if isinstance(operation, Write):
                file = self._file(operation.segment)
                file.append(operation.buffers)
                file.sync()
                self.fsyncs += 1
            elif isinstance(operation, Cut):
                self._cut(operation)
            else:
                self._remove(operation)
        self._point.note(end_offset)

    def recovered(self, end_offset: Offset) -> None:
        """Everything that recovery has found is durable now."""
        self._point.note(end_offset)

    def close(self) -> None:
        """Makes the note durable."""
        self._point.close()

    def _file(self, segment: Segment) -> File:
        if segment.file is None:
            segment.file = self._files.open(segment.path, create=True)
            self._files.sync_directory(self._directory)
        return segment.file

    def _cut(self, cut: Cut) -> None:
        self._point.lower(cut.end_offset)
        for segment in reversed(cut.removed):
            self._delete(segment)
        file = self._file(cut.kept)
        file.truncate(cut.size)
        file.sync()

    def _remove(self, remove: Remove) -> None:
        """From the front for a prefix, from the back for all: so that no gap is ever left."""
        whole = remove.end_offset is not None
        if whole:
            self._point.lower(Offset(0))
        for segment in reversed(remove.segments) if whole else remove.segments:
            self._delete(segment)

    def _delete(self, segment: Segment) -> None:
        self._file(segment).close()
        self._files.remove(segment.path)
        self._files.sync_directory(self._directory)

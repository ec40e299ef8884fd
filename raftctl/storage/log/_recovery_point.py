"""A note beside the metadata log: everything below this offset has been durable (row Q12).

Only with it can a damaged tail be distinguished from an unfinished one: what a crash leaves at the
end of a log was never durable, so damage below the note is corruption, and so is a log that ends
below it.

It is rewritten after every flush, but not synced: a process that is killed leaves it exact, since
the page cache outlives it; after a loss of power it may be some seconds old. An old note is true
all the same, except where the log is cut: so it is lowered, durably, before that.
Source: Apache Kafka's recovery-point-offset-checkpoint; `docs/decisions/0005-recovery-point.md`.
"""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from raftctl.raft.messages import Offset
from raftctl.runtime.api import read_file

if TYPE_CHECKING:
    from raftctl.runtime.api import FileSystem

FILE_NAME = "recovery-point"
_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")


def read_recovery_point(files: FileSystem, directory: str) -> Offset | None:
    """Return the offset noted last; None if there is no note, or none that can be read. Blocks."""
    return _offset_in(_content(files, directory))


def damaged_note(files: FileSystem, directory: str) -> str | None:
    """Return the path of a note that cannot be read, and not for want of its bytes. Blocks.

    It is not believed, so batches that are missing at the end of the log would not be missed.
    """
    data = _content(files, directory)
    return f"{directory}/{FILE_NAME}" if any(data) and _offset_in(data) is None else None


def _content(files: FileSystem, directory: str) -> bytes:
    try:
        return read_file(files, f"{directory}/{FILE_NAME}")
    except FileNotFoundError:
        return b""


def _offset_in(data: bytes) -> Offset | None:
    if len(data) != _OFFSET.size + _CRC.size or data[_OFFSET.size :] != _checksum(data):
        return None
    (offset,) = _OFFSET.unpack_from(data)
    return Offset(offset)


class RecoveryPoint:
    """The note of one log, in its directory. All methods block: call them on its worker."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        """Read the note, or begin one: its name is durable with the next sync of the directory.

        Nothing of an unreadable one is believed, whatever it was damaged by.
        """
        self.offset = read_recovery_point(files, directory)
        self._file = files.open(f"{directory}/{FILE_NAME}", create=True)

    def note(self, offset: Offset) -> None:
        """Everything in the log below the offset is durable; after it has become so."""
        if offset != self.offset:
            data = _OFFSET.pack(offset)
            self._file.write_at(0, data + _checksum(data))
            self.offset = offset

    def lower(self, offset: Offset) -> None:
        """Note durably that the log will be cut to the offset, so that it may be."""
        if self.offset is None or offset < self.offset:
            self.note(offset)
            self._file.sync()

    def close(self) -> None:
        """Make the note durable, if the disk still can: an old one is true as well."""
        with contextlib.suppress(OSError):
            self._file.sync()
        self._file.close()


def _checksum(data: bytes) -> bytes:
    return _CRC.pack(crc32c(data[: _OFFSET.size]))

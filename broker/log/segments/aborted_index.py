"""`<base offset>.txnindex`: the aborted transactions whose markers a segment holds (row T4).

A consumer of committed records gets them with its batches, so that it skips their records. Few
transactions are aborted, so most segments have no such file. Entries are in the order of the
markers, and in memory byte for byte. The format is Apache Kafka's (version 0).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.runtime.api import File, FileSystem

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
SUFFIX = "txnindex"


class AbortedTransaction(NamedTuple):
    """One aborted transaction, as far as this partition has it."""

    producer_id: int
    first_offset: int
    """The offset of its first batch."""
    last_offset: int
    """The offset of its marker."""
    last_stable_offset: int
    """The first offset above the marker's, or of the first transaction open then."""


class AbortedIndex:
    """The aborted transactions of one segment. Creating its file blocks, as does `sync`."""

    def __init__(
        self, files: FileSystem, path: str, base_offset: int, *, exists: bool = True
    ) -> None:
        """`base_offset` is the segment's, `exists` says whether there is a file."""
        self._files = files
        self._path = path
        self._file: File | None = files.open(path) if exists else None
        self._entries = bytearray()
        self._is_durable = False
        self.is_damaged = False
        """Whether entries may be missing, which the batches then restore."""
        if self._file is not None:
            self._load(self._file.read_at(0, self._file.size()), base_offset - 1)

    def _load(self, data: bytes, last_offset: int) -> None:
        for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
            version, *values = _ENTRY.unpack_from(data, at)
            entry = AbortedTransaction(*values)
            # What a loss of power tore is zeros from some byte on.
            if version != _VERSION or not 0 <= entry.first_offset < entry.last_offset:
                break
            if entry.last_offset <= last_offset:
                break
            last_offset = entry.last_offset
            self._entries += data[at : at + _ENTRY.size]
        self.is_damaged = len(self._entries) != len(data)

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY.size

    @property
    def size(self) -> int:
        """Bytes of entries that are in order."""
        return len(self._entries)

    @property
    def exists(self) -> bool:
        """True if the file exists."""
        return self._file is not None

    def add(self, entry: AbortedTransaction) -> None:
        """Append a transaction, whose marker is the newest."""
        last_offset = self._unpacked(len(self) - 1)[3] if len(self) else -1
        # A read stops at the first marker above it: one out of order would hide the others.
        invariant(
            last_offset < entry.last_offset, "aborted transactions are in their markers' order"
        )
        data = _ENTRY.pack(_VERSION, *entry)
        if self._file is None:
            self._file = self._files.open(self._path, create=True)
        self._file.append([data])
        self._entries += data
        self._is_durable = False

    def moved(self, path: str) -> None:
        """Take up the place of the file from now on."""
        self._path = path

    def truncate(self, offset: int) -> None:
        """Forget the transactions whose markers are at or above `offset`."""
        size = self._position(offset)
        self._entries = self._entries[:size]
        if self._file is not None and self._file.size() != size:
            self._file.truncate(size)
            self._is_durable = False
        self.is_damaged = False

    def entries(self, offset: int = 0) -> Iterator[AbortedTransaction]:
        """Return the transactions whose markers are at or above `offset`, in that order."""
        view = bytes(memoryview(self._entries)[self._position(offset) :])
        return (AbortedTransaction(*values) for _, *values in _ENTRY.iter_unpack(view))

    def _position(self, offset: int) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if AbortedTransaction(*self._unpacked(middle)[1:]).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low * _ENTRY.size

    def _unpacked(self, number: int) -> tuple[int, ...]:
        return _ENTRY.unpack_from(self._entries, number * _ENTRY.size)

    def sync(self) -> None:
        """Make the entries durable. Blocks: for workers."""
        if self._file is not None and not self._is_durable:
            # What is added meanwhile is for the next time.
            self._is_durable = True
            self._file.sync()

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()

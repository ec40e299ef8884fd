"""The two sparse indexes of a segment: offset to position, and timestamp to offset.

Files are Apache Kafka's byte for byte: `.index` has 8-byte entries (offset relative to the
segment's base u32, position u32), `.timeindex` 12-byte entries (timestamp i64, relative offset
u32), both increasing. An index only says where to begin a scan: it can be rebuilt from the log.

Recent entries wait in memory until `flush` or until there are many, so that an append to the log
costs no second write. A crash loses them, and recovery rebuilds the index of every segment that
was not flushed.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from operator import le, lt
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.log.segments._lazy_file import LazyFile

_PENDING_BYTES_MAX = 4096


class OffsetEntry(NamedTuple):
    """A batch whose last offset is `offset` begins at `position`."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """No batch up to and including the one that ends with `offset` is newer than `timestamp`."""

    timestamp: int
    offset: int


E = TypeVar("E", OffsetEntry, TimeEntry)


class _Index(ABC, Generic[E]):
    """Entries of two integers in a file, the newest of them in memory. Keys only increase."""

    _layout: struct.Struct

    def __init__(self, file: LazyFile, base_offset: int, bytes_max: int) -> None:
        self._file = file
        self._base_offset = base_offset
        self._in_file = self._count = file.size() // self._layout.size
        self._pending = bytearray()
        self._count_max = bytes_max // self._layout.size
        self.last: E | None = self._at(len(self) - 1) if len(self) else None

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether the segment must be rolled before the next entry."""
        return self._count >= self._count_max

    def warm(self) -> Callable[[], None] | None:
        """Return the call for a worker before a look-up; see `File.warm`."""
        return self._file.warm(0, self._file.size())

    def floor(self, key: int) -> E | None:
        """Return the last entry whose first field is at most `key`."""
        if self.last is None or self.last[0] <= key:
            return self.last
        count = self._count_up_to(key)
        return self._at(count - 1) if count else None

    def above(self, key: int) -> E | None:
        """Return the first entry whose first field is above `key`."""
        count = self._count_up_to(key)
        return self._at(count) if count < len(self) else None

    def _count_up_to(self, key: int) -> int:
        """Return how many entries have a first field of at most `key`; they are the first."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._at(middle)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return low

    def invariants(self) -> None:
        """Check the count of entries and the newest one; reads nothing from the disk."""
        waiting = len(self._pending) // self._layout.size
        invariant(self._in_file + waiting == self._count, "an entry is in the file, or waits")
        invariant((self.last is None) == (self._count == 0), "the newest entry is known")
        if waiting:
            invariant(self._at(self._count - 1) == self.last, "the newest entry waits")

    def problem(self) -> str | None:
        """Return the first problem of the file; None if every entry is in order."""
        if self._file.size() % self._layout.size:
            return "the size is no multiple of an entry's"
        entries = list(self._layout.iter_unpack(self._file.read_at(0, self._file.size())))
        keys, values = [entry[0] for entry in entries], [entry[1] for entry in entries]
        in_order = all(map(lt, keys, keys[1:])) and all(map(le, values, values[1:]))
        if not in_order or (keys and keys[0] < 0):
            return "entries are out of order"
        return None

    def entries(self) -> list[E]:
        """Return all entries that are in the file."""
        data = self._file.read_at(0, self._in_file * self._layout.size)
        return [self._entry(raw) for raw in self._layout.iter_unpack(data)]

    def flush(self) -> None:
        """Hand the waiting entries to the operating system."""
        if self._pending:
            self._file.append([self._pending])
            self._in_file = self._count
            self._pending = bytearray()

    def sync(self) -> None:
        """Make what was flushed durable. Blocks."""
        self._file.sync()

    def truncate(self, offset: int) -> None:
        """Keep the entries of batches that end below `offset`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._at(middle).offset < offset:
                low = middle + 1
            else:
                high = middle
        self._keep(low)

    def clear(self) -> None:
        """Remove all entries."""
        self._keep(0)

    def close(self) -> None:
        """Release the file; entries not flushed are lost."""
        self._file.close()

    def _append(self, entry: E, raw: tuple[int, int]) -> None:
        last = self.last
        # A look-up halves the file: one entry out of order would hide others.
        in_order = last is None or (last[0] < entry[0] and last[1] <= entry[1])
        invariant(in_order, "index entries ascend")
        self._pending += self._layout.pack(*raw)
        self.last = entry
        self._count += 1
        if len(self._pending) >= _PENDING_BYTES_MAX:
            self.flush()

    def _keep(self, count: int) -> None:
        self.flush()
        self._file.truncate(count * self._layout.size)
        self._in_file = self._count = count
        self.last = self._at(count - 1) if count else None

    def _at(self, number: int) -> E:
        size = self._layout.size
        if number < self._in_file:
            return self._entry(self._layout.unpack(self._file.read_at(number * size, size)))
        return self._entry(self._layout.unpack_from(self._pending, (number - self._in_file) * size))

    @abstractmethod
    def _entry(self, raw: tuple[int, ...]) -> E:
        """Return the entry that stands in the file as `raw`."""


class OffsetIndex(_Index[OffsetEntry]):
    """Finds a position at or before an offset."""

    _layout = struct.Struct(">II")

    def add(self, offset: int, position: int) -> None:
        """Note that the batch that ends with `offset` begins at `position`."""
        self._append(OffsetEntry(offset, position), (offset - self._base_offset, position))

    def from_position(self, position: int) -> OffsetEntry | None:
        """Return the first entry of a batch that begins at or after a position."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._at(middle).position < position:
                low = middle + 1
            else:
                high = middle
        return self._at(low) if low < len(self) else None

    def _entry(self, raw: tuple[int, ...]) -> OffsetEntry:
        return OffsetEntry(self._base_offset + raw[0], raw[1])


class TimeIndex(_Index[TimeEntry]):
    """Finds an offset before which everything is older than a timestamp."""

    _layout = struct.Struct(">qI")

    def add(self, timestamp: int, offset: int) -> None:
        """Note the largest timestamp so far and its batch's last offset, if it is larger."""
        if self.last is None or timestamp > self.last.timestamp:
            self._append(TimeEntry(timestamp, offset), (timestamp, offset - self._base_offset))

    def _entry(self, raw: tuple[int, ...]) -> TimeEntry:
        return TimeEntry(raw[0], self._base_offset + raw[1])

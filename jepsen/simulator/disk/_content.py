"""The bytes of a file on a simulated disk: as programs see them, and as a crash leaves them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random

SECTOR_BYTES = 512
"""What is written wholly or not at all."""


class DurableFile(Protocol):
    """What a crash leaves of a file; to be looked at only."""

    @property
    def rewrites(self) -> int:
        """While it stays the same, bytes are only added at the end."""

    @property
    def durable(self) -> bytearray:
        """The bytes."""


@dataclass(slots=True)
class Write:
    """An unsynced change of a file: bytes at a position, or a cut when `data` is None."""

    position: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        """Performs the write on `content`."""
        if self.data is None:
            del content[self.position :]
            return
        if self.position > len(content):
            content.extend(bytes(self.position - len(content)))
        content[self.position : self.position + len(self.data)] = self.data


@dataclass(slots=True, eq=False)
class Content:
    """A file: its bytes as programs see them, as a crash leaves them, and the difference."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Write] = field(default_factory=list)
    modified_ms: int = 0
    rot: dict[int, int] = field(default_factory=dict)
    """Bits that have flipped under programs that run, by byte; only programs read them so."""
    rotten_reads: int = 0
    """How often a program has read such a bit."""
    rewrites: int = 0
    """How often bytes that were durable may have changed: else all that is new is at the end."""

    def change(self, write: Write) -> None:
        """Writes what readers see at once; a crash may take it back until `sync`."""
        write.apply(self.seen)
        self.unsynced.append(write)
        if self.rot:
            end = len(self.seen) if write.data is None else write.position + len(write.data)
            cut = write.data is None
            gone = [at for at in self.rot if (at >= end if cut else write.position <= at < end)]
            for at in gone:
                del self.rot[at]

    def read(self, position: int, size: int, *, by_program: bool) -> bytes:
        """Bytes as a program reads them, or as they were written."""
        if not self.rot or not by_program:
            return bytes(self.seen[position : position + size])
        data = self.seen[position : position + size]
        for at, bits in self.rot.items():
            if position <= at < position + len(data):
                data[at - position] ^= bits
                self.rotten_reads += 1
        return bytes(data)

    def sync(self) -> None:
        """Makes everything written so far durable."""
        for write in self.unsynced:
            self._make_durable(write)
        self.unsynced.clear()

    def _make_durable(self, write: Write) -> None:
        self.rewrites += write.data is None or write.position < len(self.durable)
        write.apply(self.durable)

    def crash(self, random: random.Random) -> None:
        """Keeps what was synced and, by chance, some of what was not: whole, torn or none."""
        for write in self.unsynced:
            fate = random.random()
            if fate < 1 / 3:
                continue
            if fate < 2 / 3 and write.data:
                write = self._torn(write.position, write.data, random)
            self._make_durable(write)
        self.unsynced.clear()
        self.seen = bytearray(self.durable)

    def _torn(self, position: int, data: bytes, random: random.Random) -> Write:
        """A write cut short, or one whose length is on disk before all sectors are: zeros then."""
        kept = random.randint(0, len(data))
        if random.random() >= 0.5:
            return Write(position, data[:kept])
        kept = max(0, (position + kept) // SECTOR_BYTES * SECTOR_BYTES - position)
        # A sector that was there before keeps what it had.
        old = bytes(self.durable[position + kept : position + len(data)])
        return Write(position, data[:kept] + old + bytes(len(data) - kept - len(old)))

    def fail_sync(self) -> None:
        """What Linux does: readers go on seeing what was not written, which now counts as clean."""
        self.unsynced.clear()

    def put_byte(self, position: int, value: int) -> None:
        """A byte changes at rest, without any write."""
        self.rewrites += 1
        for content in (self.seen, self.durable):
            if position < len(content):
                content[position] = value

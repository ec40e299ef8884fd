"""The bytes of a file on a simulated disk: they may rot, and observers follow what is durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from raftctl.runtime import Content, Write


class DurableFile(Protocol):
    """A file as a crash leaves it, to be read only."""

    @property
    def rewrites(self) -> int:
        """A count of rewrites: while it stays the same, bytes are only added at the end."""

    @property
    def durable(self) -> bytearray:
        """The bytes."""


@dataclass(slots=True, eq=False)
class SimContent(Content):
    """A file, its flipped bits, and a count of the changes that are no additions."""

    rot: dict[int, int] = field(default_factory=dict)
    """Bits that have flipped under programs that run, by byte; only programs read them so."""
    rotten_reads: int = 0
    """The number of times that a program has read such a bit."""
    rewrites: int = 0
    """The number of times that durable bytes may have changed: else all new bytes are at the
    end."""

    def change(self, write: Write) -> None:
        """See `Content.change`; what is written over is sound again."""
        Content.change(self, write)
        if self.rot:
            end = len(self.seen) if write.data is None else write.position + len(write.data)
            cut = write.data is None
            gone = [at for at in self.rot if (at >= end if cut else write.position <= at < end)]
            for at in gone:
                del self.rot[at]

    def read(self, position: int, size: int, *, by_program: bool) -> bytes:
        """Return bytes as a program reads them, or as they were written."""
        data = self.seen[position : position + size]
        if self.rot and by_program:
            for at, bits in self.rot.items():
                if position <= at < position + len(data):
                    data[at - position] ^= bits
                    self.rotten_reads += 1
        return bytes(data)

    def make_durable(self, write: Write) -> None:
        self.rewrites += write.data is None or write.position < len(self.durable)
        Content.make_durable(self, write)

    def put_byte(self, position: int, value: int) -> None:
        """Change a byte at rest, without any write."""
        self.rewrites += 1
        for content in (self.seen, self.durable):
            if position < len(content):
                content[position] = value

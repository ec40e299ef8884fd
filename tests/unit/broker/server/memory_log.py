"""The log of one partition, for brokers whose logs are in memory."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.log.batches.record_batch import parse_header
from broker.types import EARLIEST

if TYPE_CHECKING:
    from raftctl.runtime.api import Buffer

_BASE_OFFSET = struct.Struct(">q")
LAST_OFFSET_DELTA_AT = 23


@dataclass
class MemoryLog:
    """The batches of one partition, each with the offset after it."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0

    def append(self, records: Buffer) -> int:
        """Takes one batch; returns the offset it got."""
        base = self.end
        (delta,) = struct.unpack_from(">i", records, LAST_OFFSET_DELTA_AT)
        self.end += delta + 1
        self.batches.append((self.end, _BASE_OFFSET.pack(base) + bytes(records[8:])))
        return base

    def read(self, offset: int) -> list[Buffer]:
        """The batches from the one that holds `offset` on."""
        return [data for end, data in self.batches if end > offset]

    def offset_of(self, timestamp: int) -> int:
        """-1 if no record is so new."""
        if timestamp < 0:
            return 0 if timestamp == EARLIEST else self.end
        headers = (parse_header(batch, 0) for _, batch in self.batches)
        found = (one.base_offset for one in headers if one.max_timestamp >= timestamp)
        return next(found, -1)

"""Changes of keys as events, read from the committed log: a watch misses nothing (row Q10).

The log itself is what buffers for slow watchers, so there is nothing to overflow and nothing is
ever left out. A watch from an offset that the log holds no more is refused, and lists the
keys again.
What several watchers read alike is decoded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.codec import unpack_records
from raftctl.metadata.records import KvRecord
from raftctl.raft.messages import Offset

if TYPE_CHECKING:
    from raftctl.quorum import RaftDriver

CHUNK_BYTES = 256 * 1024
CHUNKS_MAX = 16
"""Chunks that are kept decoded."""


class KvEvent(NamedTuple):
    """A key was set, or removed (None), by the record at this offset."""

    offset: int
    key: str
    value: bytes | None


class KvChunk(NamedTuple):
    """The events of a stretch of the log."""

    events: tuple[KvEvent, ...]
    next_offset: int
    """Where the stretch after it begins."""


class KvEventLog:
    """The committed events of one node's log."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._chunks: dict[int, KvChunk] = {}
        """By the offset where they begin, the oldest first."""

    @property
    def start_offset(self) -> int:
        """Below this one the log holds nothing any more."""
        return self._driver.log.start_offset

    def read(self, offset: int) -> KvChunk:
        """Return the events from this offset on; a chunk without events and length if there are
        none yet.

        Raises KafkaError: OFFSET_OUT_OF_RANGE if the log does not reach back so far.
        """
        if offset < self.start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"from: offset {offset} is compacted, the log starts at {self.start_offset}: list "
                "the keys again and watch from the offset after the list's",
            )
        if offset >= self._driver.high_watermark:
            return KvChunk((), offset)
        chunk = self._chunks.get(offset)
        if chunk is None:
            chunk = self._chunks[offset] = self._decode(offset)
            if len(self._chunks) > CHUNKS_MAX:
                del self._chunks[next(iter(self._chunks))]
        return chunk

    def _decode(self, offset: int) -> KvChunk:
        events = []
        next_offset = offset
        for batch in self._driver.read(Offset(offset), CHUNK_BYTES):
            next_offset = batch.end_offset
            if batch.control:
                continue
            records = unpack_records(batch.payload, batch.count)
            events += [
                KvEvent(at, record.key, record.value)
                for at, record in enumerate(records, batch.base_offset)
                if isinstance(record, KvRecord) and at >= offset
            ]
        return KvChunk(tuple(events), next_offset)

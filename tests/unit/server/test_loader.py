"""Images depend on the log alone, not on how it was read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from raftctl.metadata.record_codec import pack_records
from raftctl.metadata.records import NoOpRecord
from raftctl.raft.batch import Batch
from raftctl.raft.messages import Epoch, Offset
from raftctl.server.loader import MetadataLoader

NO_OP = b"".join(pack_records([NoOpRecord()]))
LOG = [
    Batch(Offset(0), Epoch(1), 1, -1, True, b""),
    Batch(Offset(1), Epoch(1), 1, 5_000, False, NO_OP),
    Batch(Offset(2), Epoch(2), 1, -1, True, b""),
]


class Driver:
    """A replica that has read so many batches at a time."""

    def __init__(self, at_a_time: int) -> None:
        self.at_a_time = at_a_time
        self.high_watermark = len(LOG)

    def read(self, offset: int, max_bytes: int) -> list[Batch]:
        return LOG[offset : offset + self.at_a_time]


@pytest.mark.req("C1", "Q5")
@pytest.mark.parametrize("at_a_time", [1, 2, 3])
async def test_an_image_has_the_time_of_the_newest_record(at_a_time: int) -> None:
    loader = MetadataLoader(cast("Any", Driver(at_a_time)))
    loader.replay_committed(len(LOG))
    assert (loader.image.offset, loader.image.epoch, loader.image.timestamp_ms) == (2, 2, 5_000)

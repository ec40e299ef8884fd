"""Snapshots of the producers: Apache Kafka's bytes, and what is read back."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from broker.log.batches.record_batch import SEQUENCE_MAX
from broker.log.producers import Producer, producer_snapshot
from broker.log.producers._producer_state import SentBatch
from raftctl.errors import ErrorCode, KafkaError

BATCH = SentBatch(
    first_sequence=3, last_sequence=4, base_offset=70, last_offset=71, timestamp=1_700_000_000_000
)


@pytest.mark.req("L1")
def test_the_bytes_are_apache_kafkas() -> None:
    entry = struct.pack(">qhiqiqiq", 9, 2, 4, 71, 1, 1_700_000_000_000, -1, -1)
    body = struct.pack(">i", 1) + entry
    expected = struct.pack(">hI", 1, crc32c(body)) + body
    assert producer_snapshot.pack({9: Producer(2, (BATCH,), BATCH.timestamp)}) == expected


@given(
    st.dictionaries(
        st.integers(0, 2**62),
        st.tuples(
            st.integers(0, 2**15 - 1),
            st.lists(
                st.tuples(st.integers(0, SEQUENCE_MAX), st.integers(0, 99), st.integers(100, 999)),
                max_size=5,
            ),
            st.integers(-1, 9),
            st.integers(-1, 99),
        ),
        max_size=5,
    )
)
def test_what_is_written_is_read_back(
    drawn: dict[int, tuple[int, list[tuple[int, int, int]], int, int]],
) -> None:
    producers = {
        producer_id: Producer(
            epoch,
            tuple(
                SentBatch(first, (first + delta) % (SEQUENCE_MAX + 1), last - delta, last, last)
                for first, delta, last in batches
            ),
            batches[-1][2] if batches else 77,
            coordinator_epoch,
            open_from,
        )
        for producer_id, (epoch, batches, coordinator_epoch, open_from) in drawn.items()
    }
    assert producer_snapshot.unpack("x", producer_snapshot.pack(producers)) == producers


@given(at=st.integers(0, 55), bit=st.integers(0, 7))
def test_every_flipped_bit_is_noticed_and_the_file_named(at: int, bit: int) -> None:
    data = bytearray(producer_snapshot.pack({9: Producer(2, (BATCH,), BATCH.timestamp)}))
    data[at] ^= 1 << bit
    with pytest.raises(KafkaError, match=r"00\.snapshot is damaged") as raised:
        producer_snapshot.unpack("00.snapshot", bytes(data))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR

"""Header checks of produced and fetched batches."""

from __future__ import annotations

import pytest

from broker.log.batches import record_batch, records, validation
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import make_batch

LIMIT = 1_000_000


def refused(batch: bytes, limit: int = LIMIT) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        validation.check_produced(batch, TopicConfig(max_message_bytes=limit))
    return raised.value.code


def test_a_good_batch_is_accepted_whatever_its_codec() -> None:
    for attributes in (0, 1, 2, 3, 4):
        header = validation.check_produced(
            make_batch([b"a", b"b"], attributes=attributes), TopicConfig()
        )
        assert (header.record_count, header.last_offset_delta) == (2, 1)


@pytest.mark.req("L2")
def test_each_bad_batch_gets_kafkas_error() -> None:
    good = make_batch([b"value"])
    flipped = bytearray(good)
    flipped[-1] ^= 1
    assert refused(bytes(flipped)) is ErrorCode.CORRUPT_MESSAGE
    assert refused(good[:-1]) is ErrorCode.INVALID_RECORD
    assert refused(bytes(7) + b"\x01" + good[8:]) is ErrorCode.INVALID_RECORD
    assert refused(good[:20]) is ErrorCode.INVALID_RECORD
    assert refused(b"") is ErrorCode.INVALID_RECORD
    assert refused(good + good) is ErrorCode.INVALID_RECORD
    assert refused(make_batch([b"a"], magic=1)) is ErrorCode.INVALID_RECORD
    assert refused(make_batch([b"a"], magic=3)) is ErrorCode.CORRUPT_MESSAGE
    assert refused(make_batch([b"a"], count=2)) is ErrorCode.INVALID_RECORD
    assert refused(make_batch([], count=0)) is ErrorCode.INVALID_RECORD
    assert refused(make_batch([b"a"], attributes=0x20)) is ErrorCode.INVALID_RECORD
    assert refused(make_batch([b"a"], producer_id=7, producer_epoch=0)) is ErrorCode.INVALID_RECORD
    assert refused(good, limit=len(good) - 1) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.req("L2")
def test_placing_a_batch_changes_offset_and_leader_epoch_and_nothing_else() -> None:
    batch = make_batch([b"a", b"b"], attributes=1)
    header = validation.check_produced(batch, TopicConfig())
    pieces, moved = record_batch.placed(batch, header, 77, 5)
    placed = b"".join(pieces)
    assert placed[16:] == batch[16:]
    assert placed[8:12] == batch[8:12]
    assert record_batch.parse_header(placed) == moved
    assert (moved.base_offset, moved.leader_epoch, moved.next_offset) == (77, 5, 79)
    assert record_batch.crc_matches(placed, moved)


@pytest.mark.req("L2")
def test_the_brokers_time_is_put_in_with_a_new_crc() -> None:
    batch = make_batch([b"a", b"b"], timestamps=[5, 9])
    header = record_batch.parse_header(batch)
    stamped, changed = record_batch.stamped(batch, header, 4_242)
    assert validation.check_produced(stamped, TopicConfig()) == changed
    assert (changed.max_timestamp, changed.base_timestamp) == (4_242, 5)
    assert changed.attributes & record_batch.LOG_APPEND_TIME
    assert stamped[record_batch.HEADER_BYTES :] == batch[record_batch.HEADER_BYTES :]
    found = records.first_at_or_after(stamped, changed, timestamp=4_000, offset=0)
    assert found == (4_242, 0)


def test_sequences_wrap_to_zero() -> None:
    last = 2**31 - 1
    batch = make_batch([b"a", b"b", b"c"], producer_id=1, producer_epoch=0, sequence=last - 1)
    assert record_batch.parse_header(batch).last_sequence == 0


def test_fetched_bytes_are_split_and_an_incomplete_end_is_left_out() -> None:
    first, second = make_batch([b"a"]), make_batch([b"b"], base_offset=1)
    for cut in (1, len(second) - 10, len(second) - 60):
        found = list(record_batch.split_fetched(first + second + second[:-cut]))
        assert [bytes(data) for _, data in found] == [first, second]


def test_a_damaged_fetched_batch_is_refused_after_the_good_ones() -> None:
    damaged = bytearray(make_batch([b"b"], base_offset=1))
    damaged[-1] ^= 1
    batches = record_batch.split_fetched(make_batch([b"a"]) + damaged)
    assert next(batches)[0].base_offset == 0
    with pytest.raises(KafkaError) as raised:
        next(batches)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError):
        list(record_batch.split_fetched(bytes(100)))


@pytest.mark.req("L7")
def test_records_are_found_by_timestamp_inside_a_batch() -> None:
    for attributes in (0, 1):
        batch = make_batch(
            [b"a", b"b" * 300, b"c"], timestamps=[10, 30, 20], base_offset=5, attributes=attributes
        )
        header = record_batch.parse_header(batch)
        first = records.first_at_or_after
        assert first(batch, header, timestamp=10, offset=0) == (10, 5)
        assert first(batch, header, timestamp=11, offset=0) == (30, 6)
        assert first(batch, header, timestamp=11, offset=7) == (20, 7)
        assert first(batch, header, timestamp=31, offset=0) is None
        assert records.newest(batch, header) == (30, 6)


@pytest.mark.req("L7")
def test_unopened_compression_answers_with_the_start_of_the_batch() -> None:
    batch = make_batch([b"a", b"b"], timestamps=[10, 30], base_offset=5, attributes=4)
    header = record_batch.parse_header(batch)
    assert records.first_at_or_after(batch, header, timestamp=25, offset=0) == (30, 5)

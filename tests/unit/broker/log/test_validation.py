"""What topics refuse, and what they make of a batch before they store it."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from broker.log.batches import _scanning as scanning
from broker.log.batches import record_batch, records, validation
from broker.log.batches._scanning import REFUSED_MAX
from broker.log.batches.compression import CODECS, ZSTD, compress
from broker.log.batches.record_batch import HEADER_BYTES, LOG_APPEND_TIME, crc_matches, parse_header
from broker.log.batches.validation import RECORDS_MAX, RecordsRefusedError
from broker.log.segments import Segment
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import keyed_batch, make_batch
from tests.unit.broker.log.fake_files import FakeFiles
from tests.unit.broker.log.logs import new_log

NOW = 1_700_000_000_000
PAIRS: list[tuple[bytes, bytes | None]] = [(b"a", b"1" * 200), (b"b", None), (b"c", b"3" * 200)]


def refusal(batch: bytes, config: TopicConfig) -> ErrorCode:
    log = new_log(FakeFiles(), config)
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(batch, 0, NOW)
    assert log.log_end_offset == 0
    return raised.value.code


def stored(batch: bytes, config: TopicConfig) -> bytes:
    log = new_log(FakeFiles(), config)
    log.append_as_leader(batch, 0, NOW)
    (data,) = log.read(0, max_bytes=1, up_to_offset=log.log_end_offset, min_one=True)
    header = parse_header(data)
    assert crc_matches(data, header)
    assert len(data) == header.size
    return bytes(data)


@pytest.mark.req("L2")
@pytest.mark.parametrize("wanted", sorted(CODECS))
@pytest.mark.parametrize("sent", range(5))
def test_a_topics_own_codec_is_put_in_place_of_the_producers(wanted: str, sent: int) -> None:
    batch = keyed_batch(PAIRS, codec=sent, producer=(7, 1, 5))
    data = stored(batch, TopicConfig(compression_type=wanted))
    before, after = parse_header(batch), parse_header(data)
    assert after.codec == CODECS[wanted]
    kept = {"length", "crc", "attributes", "leader_epoch"}
    for name in set(before._fields) - kept:
        assert getattr(after, name) == getattr(before, name)
    assert records.opened(data, after) == records.opened(batch, before)
    if CODECS[wanted] == sent:
        assert data[16:] == batch[16:]


@pytest.mark.req("L2")
@pytest.mark.parametrize("codec", range(5))
def test_what_no_reader_can_open_is_refused_everywhere(codec: int) -> None:
    rubbish = keyed_batch(PAIRS, codec=codec)[:HEADER_BYTES] + b"no records of any codec"
    rubbish, _ = record_batch.assembled(parse_header(rubbish), rubbish[HEADER_BYTES:])
    for config in (TopicConfig(), TopicConfig(compression_type="lz4")):
        assert refusal(rubbish, config) is ErrorCode.INVALID_RECORD


@pytest.mark.req("L2")
@pytest.mark.parametrize("codec", range(1, 5))
def test_bytes_after_the_end_of_what_is_compressed_are_refused(codec: int) -> None:
    batch = keyed_batch(PAIRS, codec=codec)
    longer, _ = record_batch.assembled(parse_header(batch), batch[HEADER_BYTES:] + b"rest")
    assert refusal(longer, TopicConfig()) is ErrorCode.INVALID_RECORD


@pytest.mark.req("L2")
def test_lz4_blocks_that_depend_on_each_other_are_refused() -> None:
    # Clients in Java cannot read them.
    raw = keyed_batch(PAIRS)[HEADER_BYTES:]
    packed = bytes(cramjam.lz4.compress(raw))
    flags = packed[4]
    header = parse_header(keyed_batch(PAIRS))._replace(attributes=3)
    linked = packed[:4] + bytes([flags & ~0x20]) + packed[5:]
    assert refusal(record_batch.assembled(header, linked)[0], TopicConfig()) is (
        ErrorCode.INVALID_RECORD
    )


@pytest.mark.req("L6")
def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    compacted = TopicConfig(cleanup_policy=("compact", "delete"))
    assert refusal(make_batch([b"v"]), compacted) is ErrorCode.INVALID_RECORD
    assert parse_header(stored(keyed_batch(PAIRS), compacted)).record_count == 3


@pytest.mark.req("L2")
def test_records_too_far_from_the_brokers_time_are_refused() -> None:
    config = TopicConfig(
        message_timestamp_after_max_ms=1_000, message_timestamp_before_max_ms=5_000
    )

    def at(*timestamps: int) -> bytes:
        return make_batch([b"v"] * len(timestamps), timestamps=list(timestamps))

    for good in (at(NOW + 1_000), at(NOW - 5_000), at(NOW, NOW - 5_000)):
        stored(good, config)
    for bad in (at(NOW + 1_001), at(NOW - 5_001), at(NOW, NOW - 5_001)):
        assert refusal(bad, config) is ErrorCode.INVALID_TIMESTAMP
    broker_time = dataclasses.replace(config, message_timestamp_type="LogAppendTime")
    assert parse_header(stored(at(5), broker_time)).max_timestamp == NOW


def test_only_the_topic_says_whose_time_records_bear() -> None:
    plain = stored(make_batch([b"v"]), TopicConfig())
    assert stored(make_batch([b"v"], attributes=LOG_APPEND_TIME), TopicConfig()) == plain


def test_only_compaction_sets_a_delete_horizon() -> None:
    assert refusal(make_batch([b"v"], attributes=0x40), TopicConfig()) is ErrorCode.INVALID_RECORD


@pytest.mark.req("L3")
def test_segments_of_different_logs_roll_at_different_times_with_jitter() -> None:
    config = TopicConfig(segment_ms=10_000, segment_jitter_ms=5_000)

    def lifetime(directory: str) -> int:
        files = FakeFiles()
        files.make_directories(directory)

        segment = Segment(files, directory, 0, config)
        first = parse_header(make_batch([b"v"], timestamps=[0]))
        segment.append([make_batch([b"v"], timestamps=[0])], first)
        return next(
            ms
            for ms in range(0, 20_000, 100)
            if segment.must_roll(
                parse_header(make_batch([b"v"], timestamps=[ms])), config, lambda: 0
            )
        )

    lifetimes = [lifetime(f"/t-{number}") for number in range(8)]
    assert len(set(lifetimes)) > 4
    assert all(5_000 <= ms <= 10_100 for ms in lifetimes)


@pytest.mark.req("L3", "L6")
def test_a_compacted_log_rolls_before_its_largest_lag() -> None:
    config = TopicConfig(cleanup_policy=("compact",), max_compaction_lag_ms=100)
    log = new_log(FakeFiles(), config)
    for timestamp in (0, 100, 101):
        log.append_as_leader(keyed_batch([(b"k", b"v")], timestamp=timestamp), 0, NOW)
    assert [one.base_offset for one in log.segment_facts()] == [0, 2]


def with_records(pieces: list[bytes], count: int, codec: int = 0) -> bytes:
    """A batch whose header claims `count` records over what `pieces` are, with a right CRC."""
    header = parse_header(keyed_batch(PAIRS))._replace(
        attributes=codec, record_count=count, last_offset_delta=count - 1
    )
    data = compress(codec, b"".join(pieces), TopicConfig())
    return record_batch.assembled(header, data)[0]


@pytest.mark.req("L2")
@pytest.mark.parametrize(("kept", "count"), [([0, 1], 3), ([0, 1, 2], 2), ([0, 0], 2), ([1, 2], 2)])
def test_records_are_as_many_as_told_and_in_order(kept: list[int], count: int) -> None:
    whole = keyed_batch(PAIRS)
    raw = [bytes(record.raw) for record in records.opened(whole, parse_header(whole))]
    batch = with_records([raw[index] for index in kept], count)
    for policy in (("compact",), ("delete",)):
        config = TopicConfig(cleanup_policy=policy)
        assert refusal(batch, config) is ErrorCode.INVALID_RECORD
        assert stored(with_records(raw, 3), config)


@pytest.mark.req("L2")
@pytest.mark.parametrize(
    "fields",
    [
        "80 00 00 02 61 02 76 00",  # attributes
        "00 80808080808080808002 00 02 61 02 76 00",  # a time of more than 64 bits
        "00 8080808080808080808001 00 02 61 02 76 00",  # a number of 11 bytes
        "00 00 02 02 61 02 76 00",  # offset delta 1
        "00 00 00 03 02 76 00",  # a key of -2 bytes
        "00 00 00 08 61 02 76 00",  # a key of 4 bytes
        "00 00 00 02 61 03 00",  # a value of -2 bytes
        "00 00 00 02 61 08 76 00",  # a value of 4 bytes
        "00 00 00 02 61 02 76 01",  # -1 headers
        "00 00 00 02 61 02 76 02",  # a header is missing
        "00 00 00 02 61 02 76 02 01 00",  # a header without a key
        "00 00 00 02 61 02 76 02 02 ff 00",  # a header's key that is no text
        "00 00 00 02 61 02 76 02 02 6b 03",  # a header's value of -2 bytes
        "00 00 00 02 61 02 76 00 00",  # a byte more
    ],
)
def test_a_record_that_cannot_be_read_is_refused(fields: str) -> None:
    def batch(hexadecimal: str) -> bytes:
        body = bytes.fromhex(hexadecimal)
        return with_records([records.varint(len(body)) + body], 1)

    assert stored(batch("00 00 00 02 61 02 76 00"), TopicConfig())
    assert stored(batch("00 00 00 02 61 02 76 02 02 6b 01"), TopicConfig())
    assert refusal(batch(fields), TopicConfig()) is ErrorCode.INVALID_RECORD


@pytest.mark.req("L2")
@pytest.mark.parametrize("codec", range(5))
def test_the_largest_timestamp_is_the_records_whatever_the_header_says(codec: int) -> None:
    batch = keyed_batch(PAIRS, timestamp=NOW, codec=codec)
    lying = parse_header(batch)._replace(max_timestamp=5)
    data = stored(record_batch.assembled(lying, batch[HEADER_BYTES:])[0], TopicConfig())
    assert parse_header(data).max_timestamp == NOW + 2
    assert data[HEADER_BYTES:] == batch[HEADER_BYTES:]
    bound = TopicConfig(message_timestamp_after_max_ms=1)
    assert refusal(record_batch.assembled(lying, batch[HEADER_BYTES:])[0], bound) is (
        ErrorCode.INVALID_TIMESTAMP
    )


@pytest.mark.req("L2")
def test_the_records_that_a_batch_is_refused_for_are_named() -> None:
    def blamed(batch: bytes, config: TopicConfig) -> tuple[ErrorCode, list[int]]:
        with pytest.raises(RecordsRefusedError) as raised:
            new_log(FakeFiles(), config).append_as_leader(batch, 0, NOW)
        return raised.value.code, list(raised.value.records)

    times = make_batch([b"v"] * 4, timestamps=[NOW, NOW + 2, NOW, NOW + 3])
    bound = TopicConfig(message_timestamp_after_max_ms=1)
    assert blamed(times, bound) == (ErrorCode.INVALID_TIMESTAMP, [1, 3])
    compacted = TopicConfig(cleanup_policy=("compact",))
    assert blamed(make_batch([b"v"] * 2), compacted) == (ErrorCode.INVALID_RECORD, [0, 1])
    many = make_batch([b"v"] * (2 * REFUSED_MAX))
    assert blamed(many, compacted)[1] == list(range(REFUSED_MAX))


@pytest.mark.req("L2")
def test_a_batch_larger_than_a_segment_is_refused() -> None:
    batch = make_batch([bytes(2_000)])
    assert refusal(batch, TopicConfig(segment_bytes=2_000)) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert stored(batch, TopicConfig(segment_bytes=len(batch)))


@pytest.mark.req("L2")
def test_copies_of_one_record_end_the_walk_at_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked = 0
    one = scanning._one

    def counted(*given: Any) -> Any:
        nonlocal walked
        walked += 1
        return one(*given)

    monkeypatch.setattr(scanning, "_one", counted)
    raw = bytes.fromhex("10000000026b017600")
    batch = with_records([raw] * RECORDS_MAX, RECORDS_MAX, ZSTD)
    assert refusal(batch, TopicConfig(cleanup_policy=("compact",))) is ErrorCode.INVALID_RECORD
    assert walked <= 2


@pytest.mark.req("L2")
def test_a_batch_of_too_many_records_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> bytes:
        raise AssertionError

    batch = with_records([b"records"], RECORDS_MAX + 1, ZSTD)
    monkeypatch.setattr(validation, "decompress", never)
    assert refusal(batch, TopicConfig()) is ErrorCode.MESSAGE_TOO_LARGE


def read_by_another(batch: bytes) -> int:
    """How many records kafka-python finds in what was stored."""
    found = 0
    memory = MemoryRecords(batch)
    while memory.has_next():
        found += sum(1 for _ in memory.next_batch())
    return found


HEADERS = st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=2)
RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=99), st.none() | st.binary(max_size=99), HEADERS),
    min_size=1,
    max_size=9,
)


@pytest.mark.req("L2")
@settings(max_examples=300, deadline=None)
@given(RECORDS, st.sampled_from([0, 1]), st.data())
def test_what_is_stored_another_reader_reads_whatever_byte_is_damaged(
    wanted: list[Any], codec: int, data: st.DataObject
) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
    for key, value, headers in wanted:
        builder.append(timestamp=NOW, key=key, value=value, headers=headers)
    builder.close()
    whole = bytes(builder.buffer())
    raw = bytearray(whole[HEADER_BYTES:])
    if data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    packed = bytearray(compress(codec, raw, TopicConfig()))
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    header = parse_header(whole)._replace(attributes=codec)
    count = data.draw(st.sampled_from([len(wanted)] * 3 + [len(wanted) + 1]))
    header = header._replace(record_count=count, last_offset_delta=count - 1)
    batch = record_batch.assembled(header, bytes(packed))[0]
    log = new_log(FakeFiles(), TopicConfig())
    with contextlib.suppress(KafkaError):
        log.append_as_leader(batch, 0, NOW)
    if log.log_end_offset == 0:
        assert not log.size
        assert batch[HEADER_BYTES:] != whole[HEADER_BYTES:] or count != len(wanted)
        return
    (kept,) = log.read(0, max_bytes=1, up_to_offset=log.log_end_offset, min_one=True)
    assert read_by_another(bytes(kept)) == log.log_end_offset == count


@pytest.mark.req("L2")
@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused_everywhere(codec: int) -> None:
    assert refusal(make_batch([b"v"], attributes=codec), TopicConfig()) is ErrorCode.INVALID_RECORD


@pytest.mark.req("L2")
def test_a_batch_that_another_codec_makes_too_large_is_refused() -> None:
    batch = keyed_batch([(b"k", b"0" * 200_000)], codec=1)
    config = TopicConfig(compression_type="uncompressed", max_message_bytes=20_000)
    assert refusal(batch, config) is ErrorCode.MESSAGE_TOO_LARGE
    assert stored(batch, TopicConfig(max_message_bytes=20_000))

"""What topics refuse, and what they make of a batch before they store it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from broker.log import record_batch, records
from broker.log.compression import CODECS, ZSTD, compress
from broker.log.record_batch import LOG_APPEND_TIME, crc_matches, parse_header
from broker.log.segment import Segment
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.topic_config import TopicConfig
from tests.unit.broker_log.batches import keyed_batch, make_batch
from tests.unit.broker_log.fake_files import FakeFiles
from tests.unit.broker_log.logs import new_log

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
def test_a_batch_that_cannot_be_opened_is_refused_where_it_must_be() -> None:
    rubbish = make_batch([b"no zstd"], attributes=4)
    assert refusal(rubbish, TopicConfig(compression_type="lz4")) is ErrorCode.INVALID_RECORD
    assert stored(rubbish, TopicConfig())[16:] == rubbish[16:]


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


def test_only_the_broker_says_that_the_time_is_its_own() -> None:
    batch = make_batch([b"v"], attributes=LOG_APPEND_TIME)
    assert refusal(batch, TopicConfig()) is ErrorCode.INVALID_TIMESTAMP


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
    compacted = TopicConfig(cleanup_policy=("compact",))
    assert refusal(batch, compacted) is ErrorCode.INVALID_RECORD
    assert stored(with_records(raw, 3), compacted)


@pytest.mark.req("L2")
def test_a_million_copies_of_one_record_end_the_walk_at_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked = 0
    one = records._record

    def counted(*given: Any) -> Any:
        nonlocal walked
        walked += 1
        return one(*given)

    monkeypatch.setattr(records, "_record", counted)
    raw = bytes.fromhex("10000000026b017600")
    batch = with_records([raw] * 1_000_000, 1_000_000, ZSTD)
    assert refusal(batch, TopicConfig(cleanup_policy=("compact",))) is ErrorCode.INVALID_RECORD
    assert walked <= 2


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

"""What is read of a push, and what is refused or dropped of it (row O4)."""

from __future__ import annotations

import gzip
import math

import cramjam
import pytest

from broker.log.batches.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from broker.telemetry._points import POINTS_MAX, Kind, Point, can_decode, read_points
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.telemetry.pushed import CUMULATIVE, gauge, histogram, packed, point, total

pytestmark = pytest.mark.req("O4")
MIB = 1 << 20


def refusal_of(codec: int, data: bytes, bytes_max: int = MIB) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        read_points(codec, data, bytes_max)
    return refused.value.code


def test_it_can_be_decoded_here() -> None:
    assert can_decode()


def test_points_of_each_kind_are_read() -> None:
    data = packed(
        gauge("g", 1.5),
        total("d", [point(2, {"topic": "t"})]),
        total("c", [point(3.0, since=7)], CUMULATIVE),
        total("up.and.down", [point(-4)], CUMULATIVE, only_grows=False),
    )
    assert read_points(NONE, data, MIB) == (
        [
            Point("g", (("n", "0"),), Kind.GAUGE, 1.5, 1),
            Point("d", (("topic", "t"),), Kind.DELTA, 2.0, 1),
            Point("c", (), Kind.TOTAL, 3.0, 7),
            Point("up.and.down", (), Kind.GAUGE, -4.0, 1),
        ],
        0,
    )


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_every_codec_is_unpacked(codec: int) -> None:
    data = compress(codec, packed(gauge("g", 1.0)), TopicConfig())
    assert [one.name for one in read_points(codec, data, MIB).points] == ["g"]


def test_what_has_no_use_is_dropped_and_counted() -> None:
    data = packed(
        histogram("h"),
        gauge("not.finite", math.nan, math.inf),
        total("negative", [point(-1)]),
        total("changes.of.a.gauge", [point(1)], only_grows=False),
        gauge("x" * 1_000, 1.0),
        gauge("kept", 1.0),
    )
    points, dropped = read_points(NONE, data, MIB)
    assert [one.name for one in points] == ["kept"]
    assert dropped == 6


def test_points_are_bounded() -> None:
    data = packed(*(gauge(f"g{number}", 1.0) for number in range(POINTS_MAX + 5)))
    points, dropped = read_points(NONE, data, MIB)
    assert (len(points), dropped) == (POINTS_MAX, 5)


def test_attributes_are_bounded() -> None:
    long = total("long", [point(1, {"a": "x" * 10_000})])
    many = total("many", [point(1, {str(number): "x" for number in range(100)})])
    points, dropped = read_points(NONE, packed(long, many), MIB)
    assert (len(points), dropped) == (1, 1)
    assert points[0].attributes == (("a", "x" * 200),)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_what_unpacks_to_more_than_is_allowed_is_too_large(codec: int) -> None:
    data = compress(codec, bytes(40_000), TopicConfig())
    assert refusal_of(codec, data, 10_000) is ErrorCode.TELEMETRY_TOO_LARGE


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    zeros = bytes(64 * MIB)
    bombs = {GZIP: gzip.compress(zeros), ZSTD: bytes(cramjam.zstd.compress(zeros))}
    for codec, bomb in bombs.items():
        assert len(bomb) < MIB
        assert refusal_of(codec, bomb, 100_000) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("data", [b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05abc"])
def test_what_is_no_metrics_data_is_an_invalid_record(data: bytes) -> None:
    for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD):
        assert refusal_of(codec, data) is ErrorCode.INVALID_RECORD

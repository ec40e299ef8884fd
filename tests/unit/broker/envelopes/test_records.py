"""Records as people look at them: how much of a batch is opened, whatever is in it."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from broker.envelopes._records import ALL_OPENED_BYTES_MAX, OPENED_BYTES_MAX, read_batches
from broker.log.batches import compression, markers
from broker.log.batches.record_batch import TRANSACTIONAL, placed
from broker.types import EndMarker
from raftctl.plugins import Payload, ReadBatch
from tests.unit.broker.log.batches import keyed_batch, make_batch, varint

pytestmark = [pytest.mark.req("W1"), pytest.mark.req("W3")]


def read(
    data: bytes, offset: int = 0, limit: int = 100, payload_bytes: int = 1_000
) -> list[ReadBatch]:
    return read_batches(data, offset, limit, payload_bytes, lambda: None)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_records_are_shown_with_the_size_of_what_is_cut(codec: int) -> None:
    batch = keyed_batch([(b"k", b"v" * 50), (b"", None), (b"x", b"")], codec=codec)
    [found] = read(batch, payload_bytes=5)
    assert found.codec == compression.NAMES[codec]
    assert [one.key for one in found.records] == [
        Payload(b"k", 1),
        Payload(b"", 0),
        Payload(b"x", 1),
    ]
    assert [one.value for one in found.records] == [Payload(b"v" * 5, 50), None, Payload(b"", 0)]
    assert [one.timestamp_ms for one in found.records] == [1_000, 1_001, 1_002]
    assert (found.problem, found.has_more, found.marker) == (None, False, None)


def test_a_window_begins_within_a_batch_and_ends_within_another() -> None:
    batches = make_batch([b"a", b"b", b"c"]) + make_batch([b"d", b"e"], base_offset=3)
    first, second = read(batches, offset=2, limit=2)
    assert [one.offset for one in (*first.records, *second.records)] == [2, 3]
    assert (first.has_more, second.has_more) == (False, True)
    assert read(batches, offset=5) == []


def test_a_batch_that_is_not_whole_is_shown_as_far_as_it_goes() -> None:
    batch = keyed_batch([(b"k", b"v" * 10), (b"large", b"w" * 5_000), (b"gone", b"")])
    [found] = read(batch[:200])
    _, large = found.records
    assert large.value is not None
    assert large.value.size == 5_000
    assert 0 < len(large.value.data) < 200
    assert found.problem is not None
    assert str(len(batch)) in found.problem
    [packed] = read(keyed_batch([(b"k", b"v" * 100)], codec=1)[:-1])
    assert packed.records == ()
    assert packed.problem is not None
    assert packed.problem.startswith("it is packed")


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_bombs_are_not_opened_and_many_are_not_tried_at_once(codec: int) -> None:
    bomb = keyed_batch([(b"k", bytes(OPENED_BYTES_MAX))], codec=codec)
    found = read(bomb * 10)
    assert len(found) == ALL_OPENED_BYTES_MAX // OPENED_BYTES_MAX
    assert all(one.records == () for one in found)
    assert all(str(OPENED_BYTES_MAX) in (one.problem or "") for one in found)


@pytest.mark.parametrize("at", [61, 62, 70, 72])
def test_bytes_that_are_no_records_are_a_problem_and_no_error(at: int) -> None:
    batch = bytearray(make_batch([b"value"]))
    batch[at : at + 1] = b"\xff"
    [found] = read(bytes(batch))
    assert found.problem == "its CRC32C is wrong: raftctl log verify checks the files of a broker"
    assert found.records == ()


def test_records_that_a_client_has_made_wrong_are_a_problem() -> None:
    for count in (2, 2**31 - 1):
        [found] = read(make_batch([b"one"], count=count))
        assert len(found.records) == 1
        assert found.problem == "it ends within a record"
    [found] = read(make_batch([b"one"], count=-1))
    assert (found.records, found.problem) == ((), None)


def test_what_is_no_batch_ends_the_reading() -> None:
    assert read(b"x" * 200) == []
    assert read(b"") == []
    assert len(read(make_batch([b"a"]) + b"\xff" * 100)) == 1


def test_markers_are_no_records() -> None:
    kinds = []
    for commit in (True, False):
        batch, header = markers.encoded(EndMarker(7, 1, commit, 3), 5_000)
        pieces, _ = placed(batch, header, 10, 0)
        [found] = read(b"".join(pieces))
        kinds.append((found.marker, found.producer_id, found.base_offset, found.records))
    assert kinds == [("commit", 7, 10, ()), ("abort", 7, 10, ())]
    [found] = read(make_batch([b"a"], attributes=TRANSACTIONAL, producer_id=7))
    assert (found.is_transactional, found.marker) == (True, None)


def test_headers_of_a_record() -> None:
    header = varint(1) + b"h" + varint(3) + b"\xff\x00\x01"
    body = b"\0\0\0" + varint(-1) + varint(0) + varint(2) + header + varint(1) + b"n" + varint(-1)
    data = varint(len(body)) + body
    batch = bytearray(make_batch([b""]))[:61] + data
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    [found] = read(bytes(batch), payload_bytes=2)
    assert found.records[0].headers == (
        (Payload(b"h", 1), Payload(b"\xff\x00", 3)),
        (Payload(b"n", 1), None),
    )

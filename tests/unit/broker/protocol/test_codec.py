"""The codec against itself, against kio's reader, and against hostile bytes."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from broker.protocol import EncodedArray, codec
from broker.protocol._decoder import unsigned_varint as decode_varint
from broker.protocol._encoder import unsigned_varint as encode_varint
from broker.protocol._schema import known_versions, load
from tests.kit.pieces import as_bytes, decode_request
from tests.unit.broker.protocol.strategies import from_entity, messages_of, plain

if TYPE_CHECKING:
    from broker.protocol._schema import Direction

APIS = [0, 1, 2, 3, 10, 18, 19, 20, 22, 23, 32, 60, 75]
MESSAGES = [(key, version) for key in APIS for version in known_versions(key)]


@st.composite
def exchanges(draw: st.DrawFn, direction: Direction) -> tuple[int, int, dict[str, Any]]:
    key, version = draw(st.sampled_from(MESSAGES))
    return key, version, draw(messages_of(key, version, direction))


@pytest.mark.req("N1")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(exchanges("request"), st.integers(-(2**31), 2**31 - 1), st.text(max_size=20))
def test_requests_round_trip(
    exchange: tuple[int, int, dict[str, Any]], correlation_id: int, client_id: str
) -> None:
    key, version, message = exchange
    frame = codec.encode_request(key, version, correlation_id, client_id, message)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    request = decode_request(frame[4:])
    assert (request.api_key, request.version) == (key, version)
    assert (request.correlation_id, request.client_id) == (correlation_id, client_id)
    assert plain(request.body) == plain(message)


@pytest.mark.req("N1")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(exchanges("response"), st.integers(-(2**31), 2**31 - 1))
def test_responses_round_trip(
    exchange: tuple[int, int, dict[str, Any]], correlation_id: int
) -> None:
    key, version, message = exchange
    frame = as_bytes(codec.encode_response(key, version, correlation_id, message))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert codec.decode_response(key, version, frame[4:])[0] == correlation_id
    assert plain(codec.decode_response(key, version, frame[4:])[1]) == plain(message)


@pytest.mark.req("N1")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(exchanges("response"))
def test_kio_reads_our_responses(exchange: tuple[int, int, dict[str, Any]]) -> None:
    key, version, message = exchange
    data = codec.encode_response_body(key, version, message)
    entity, size = entity_reader(load_response_schema(key, version))(data, 0)
    assert size == len(data)
    table = load(key, version, "response")
    assert plain(from_entity(entity, table)) == plain(message)


@pytest.mark.req("N1")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(exchanges("request"))
def test_kio_reads_our_requests(exchange: tuple[int, int, dict[str, Any]]) -> None:
    key, version, message = exchange
    frame = codec.encode_request(key, version, 1, "", message)
    table = load(key, version, "request")
    start = 4 + 10 + table.flexible_header
    entity, size = entity_reader(load_request_schema(key, version))(frame, start)
    assert start + size == len(frame)
    assert plain(from_entity(entity, table)) == plain(message)


@given(st.integers(0, 2**32 - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(encoded, 0) == (value, len(encoded))


def test_missing_fields_take_their_defaults_and_required_ones_do_not() -> None:
    body = codec.encode_response_body(22, 4, {"producer_id": 7, "producer_epoch": 0})
    message = codec.decode_response(22, 4, bytes(4) + b"\0" + body)[1]
    assert message == {
        "throttle_time_ms": 0,
        "error_code": 0,
        "producer_id": 7,
        "producer_epoch": 0,
    }
    with pytest.raises(KeyError):
        codec.encode_response_body(22, 4, {"producer_id": 7})


@pytest.mark.parametrize("version", known_versions(16))
@pytest.mark.parametrize("count", [0, 5, 300])
def test_an_array_may_be_encoded_in_parts(version: int, count: int) -> None:
    names = ("group_id", "protocol_type", "group_state", "group_type")
    groups = [{name: f"{name}-{number}" for name in names} for number in range(count)]
    whole = codec.encode_response_body(16, version, {"error_code": 0, "groups": groups})
    parts = EncodedArray(16, version, "groups")
    parts.add(groups[:3])
    parts.add(groups[3:])
    assert codec.encode_response_body(16, version, {"error_code": 0, "groups": parts}) == whole


def test_records_are_neither_copied_in_nor_out() -> None:
    batch = bytearray(b"a batch")
    partition = {"partition_index": 0, "high_watermark": 1, "records": [batch, b"another"]}
    message = {"responses": [{"topic": "t", "partitions": [partition]}]}
    pieces = codec.encode_response(1, 12, 1, message)
    assert any(piece is batch for piece in pieces)
    frame = bytearray(as_bytes(pieces)[4:])
    decoded = codec.decode_response(1, 12, frame)[1]
    records = decoded["responses"][0]["partitions"][0]["records"]
    assert bytes(records) == b"a batchanother"
    assert records.obj is frame


@pytest.mark.req("N3")
@pytest.mark.parametrize(("key", "version"), MESSAGES)
def test_cut_or_random_bytes_are_malformed_and_nothing_else(key: int, version: int) -> None:
    rng = random.Random(key * 100 + version)
    header = codec.encode_request(key, version, 1, "c", _smallest(key, version))[4:]
    for end in range(len(header)):
        _decode_quietly(header[:end])
    prefix = header[:11] + b"\0" * load(key, version, "request").flexible_header
    for _ in range(50):
        _decode_quietly(prefix + rng.randbytes(rng.randrange(60)))


@pytest.mark.req("N3")
@pytest.mark.parametrize("count", [2**31 - 1, 100_000, -5])
def test_an_array_is_not_believed_its_length(count: int) -> None:
    body = count.to_bytes(4, "big", signed=True) + b"\0" * 20
    frame = codec.encode_request(3, 4, 1, "c", {"topics": [], "allow_auto_topic_creation": True})
    header = frame[4 : 4 + 11]
    if count < 0:
        assert decode_request(header + body).body["topics"] is None
    else:
        with pytest.raises(codec.MalformedError):
            decode_request(header + body)


@pytest.mark.req("N3")
def test_a_compact_string_is_no_longer_than_others_can_be() -> None:
    for size, malformed in ((32_767, False), (32_768, True)):
        message = {**_smallest(8, 9), "group_id": "g" * size}
        frame = codec.encode_request(8, 9, 1, "c", message)[4:]
        if malformed:
            with pytest.raises(codec.MalformedError, match="group_id"):
                decode_request(frame)
        else:
            assert decode_request(frame).body == message


def test_unknown_tagged_fields_are_skipped() -> None:
    message = {"client_software_name": "n", "client_software_version": "v"}
    frame = codec.encode_request(18, 3, 5, "c", message)[4:]
    tagged = frame[:-1] + b"\x01\x63\x03abc"
    assert decode_request(tagged).body == message


def test_a_tagged_field_with_a_wrong_length_is_malformed() -> None:
    frame = codec.encode_request(1, 12, 5, "c", _smallest(1, 12))[4:]
    with pytest.raises(codec.MalformedError, match="cluster_id"):
        decode_request(frame[:-1] + b"\x01\x00\x05\x02abcd")


def test_a_request_of_no_known_api_or_version_has_no_table() -> None:
    header = codec.decode_header(b"\x7f\xff\0\0\0\0\0\1\xff\xff")[0]
    assert header == codec.RequestHeader(0x7FFF, 0, 1, None)
    with pytest.raises(KeyError):
        decode_request(b"\x7f\xff\0\0\0\0\0\1\xff\xff")


def _smallest(key: int, version: int) -> dict[str, Any]:
    zero: dict[str, Any] = {"string": "", "uuid": None, "bool": False}
    return {
        f.name: [] if f.array else zero.get(f.kind, 0)
        for f in load(key, version, "request").untagged
        if f.struct is None or f.array
    }


def _decode_quietly(frame: bytes) -> None:
    with contextlib.suppress(codec.MalformedError):
        decode_request(frame)

"""Frames to begin with, and what random changes make of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.envelopes._envelope import envelope
from broker.protocol import codec
from broker.protocol._schema import load
from broker.protocol.versions import SERVED, ApiKey
from raftctl.security import Principal, Requester
from tests.unit.broker.log.batches import make_batch

if TYPE_CHECKING:
    import random

    from broker.protocol import Field, Struct

LENGTH_BYTES = 4
_INTEGER_BITS = {
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "timedelta_i32": 32,
    "timedelta_i64": 64,
}
_EDGES = (0, 1, -1, 2, 127, 128, 255, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_ENVELOPES = 0.1
"""The part of the requests that nodes send for somebody else."""
_WAIT_MS = 5
"""Where a message says how long the broker may wait: the run should not."""


def generated(random: random.Random, topic_id: UUID) -> bytes:
    """A well-formed request of any api and version, its fields by chance; some in an envelope."""
    frame = _request(random, topic_id)
    if random.random() < _ENVELOPES:
        host = random.choice(("127.0.0.1", "::1"))
        message = envelope(frame[LENGTH_BYTES:], Requester(Principal.of_user("a"), host))
        return codec.encode_request(ApiKey.ENVELOPE, 0, 1, "fuzz", message)
    return frame


def _request(random: random.Random, topic_id: UUID) -> bytes:
    key = random.choice(sorted(SERVED))
    version = random.choice(SERVED[key])
    message = _message(load(key, version, "request"), random, topic_id)
    return codec.encode_request(key, version, random.randint(1, 2**31 - 1), "fuzz", message)


def _message(table: Struct, random: random.Random, topic_id: UUID) -> dict[str, Any]:
    return {field.name: _value(field, random, topic_id) for field in table.fields}


def _value(field: Field, random: random.Random, topic_id: UUID) -> Any:
    if field.nullable and random.random() < 0.1:
        return None
    if field.array:
        return [_single(field, random, topic_id) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    return _single(field, random, topic_id)


def _single(field: Field, random: random.Random, topic_id: UUID) -> Any:
    if field.struct is not None:
        return _message(field.struct, random, topic_id)
    match field.kind:
        case "bool":
            return random.random() < 0.5
        case "string":
            return random.choice(("t", "t", "t", "", "é" * random.randint(1, 40), "no/topic"))
        case "bytes" | "records":
            return make_batch([b"fuzz"]) if random.random() < 0.7 else random.randbytes(90)
        case "uuid":
            return random.choice((topic_id, topic_id, UUID(int=random.getrandbits(128))))
    if field.name in ("max_wait_ms", "timeout_ms"):
        return _WAIT_MS
    low = -(1 << _INTEGER_BITS.get(field.kind, 8) - 1)
    edge = random.choice(_EDGES)
    return edge if low <= edge < -low else random.randint(0, 3)


def mutated(frame: bytes, other: bytes, random: random.Random) -> bytes:
    """The frame after one to three changes; `other` gives pieces to put in."""
    body = bytearray(frame[LENGTH_BYTES:])
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        _CHANGES[random.randrange(len(_CHANGES))](body, other, random)
    length = len(body)
    if random.random() < 0.05:
        length = random.choice((length + 1, length - 1, 0, -1, 2**31 - 1, 1 << 20))
    return length.to_bytes(LENGTH_BYTES, "big", signed=True) + body


def _flip(body: bytearray, _other: bytes, random: random.Random) -> None:
    if body:
        body[random.randrange(len(body))] ^= 1 << random.randrange(8)


def _overwrite(body: bytearray, _other: bytes, random: random.Random) -> None:
    layout = random.choice((">b", ">h", ">i", ">q"))
    size = struct.calcsize(layout)
    if len(body) > size:
        value = random.choice(_EDGES) & ((1 << 8 * size) - 1)
        at = random.randrange(len(body) - size)
        body[at : at + size] = value.to_bytes(size, "big")


def _cut(body: bytearray, _other: bytes, random: random.Random) -> None:
    del body[random.randrange(len(body) + 1) :]


def _remove(body: bytearray, _other: bytes, random: random.Random) -> None:
    at = random.randrange(len(body) + 1)
    del body[at : at + random.randint(1, 16)]


def _repeat(body: bytearray, _other: bytes, random: random.Random) -> None:
    at = random.randrange(len(body) + 1)
    body[at:at] = body[at : at + random.randint(1, 64)]


def _splice(body: bytearray, other: bytes, random: random.Random) -> None:
    at, source = random.randrange(len(body) + 1), random.randrange(len(other))
    body[at:at] = other[source : source + random.randint(1, 64)]


def _noise(body: bytearray, _other: bytes, random: random.Random) -> None:
    at = random.randrange(len(body) + 1)
    noise = random.randbytes(random.randint(1, 16))
    body[at : at + len(noise)] = noise


def _other_version(body: bytearray, _other: bytes, random: random.Random) -> None:
    body[2:4] = struct.pack(">h", random.randint(0, 20))


_CHANGES = (
    _flip,
    _flip,
    _flip,
    _overwrite,
    _overwrite,
    _overwrite,
    _cut,
    _remove,
    _repeat,
    _splice,
    _noise,
    _other_version,
)

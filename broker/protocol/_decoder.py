"""Compiles the table of a message to a function that decodes it.

Bytes from outside are not trusted: no length is believed before it is held against what is left of
the frame, so that memory and time are bounded by the frame's size. Records are views of the frame,
not copies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any
from uuid import UUID

from broker.protocol._schema import FIXED, Direction, Field, Struct, load
from broker.protocol.versions import ApiKey

Frame = bytes | bytearray
"""Whole frames only: the end of the buffer is the end of the message."""
Fields = dict[str, Any]
"""A struct while it is decoded, by the names of its fields; its type is in `messages`."""
Decoder = Callable[[Frame, int], tuple[Any, int]]
"""(frame, position) to (value, position after it)."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VARINT_BYTES_MAX = 5
_LARGE = 0x80
"""A byte from here on is not the last of its number."""
_UUID_BYTES = 16
_STRING_BYTES_MAX = 32_767
"""As where the length has two bytes: who writes it down in such a form must not fail. Apache
Kafka's decoders refuse more, too.
"""


ELEMENTS_MAX = 250_000
"""So many elements may all arrays of one request have together: some 60 MB once decoded. Most take
three bytes of a frame, which may have 100 MiB.
"""
PRODUCED_MAX = 20_000
"""The same for Produce, whose batches are appended before anything else is done."""


class MalformedError(Exception):
    """Bytes that are not the message they should be; nothing more can be read from their sender."""


@cache
def decoder(api_key: int, version: int, direction: Direction) -> Decoder:
    """Return the decoder of one message, without its header; KeyError if the message does not
    exist.

    It raises MalformedError, struct.error, IndexError or ValueError on bad bytes; MalformedError,
    too, for a request of too many elements.
    """
    decode = struct_decoder(load(api_key, version, direction))
    if direction == "response":
        return decode
    elements_max = PRODUCED_MAX if api_key == ApiKey.PRODUCE else ELEMENTS_MAX

    def decode_bounded(frame: Frame, position: int) -> tuple[Any, int]:
        if len(frame) <= elements_max:
            # Each element takes a byte at least.
            return decode(frame, position)
        _elements.set(elements_max)
        try:
            return decode(frame, position)
        finally:
            _elements.set(None)

    return decode_bounded


_elements: ContextVar[int | None] = ContextVar("elements", default=None)
"""How many more the arrays of what is being decoded may have; None: no bound. A thread has its own.
"""


def _count(field: Field, count: int, left: int) -> None:
    """Raises MalformedError when the arrays of the request have too many elements."""
    if count > left:
        raise MalformedError(f"{field.name} has {count} elements, and room is left for {left}")
    _elements.set(left - count)


def unsigned_varint(frame: Frame, position: int) -> tuple[int, int]:
    """At most five bytes; see the encoder."""
    value = frame[position]
    if value < 128:
        return value, position + 1
    value &= 127
    for index in range(1, _VARINT_BYTES_MAX):
        byte = frame[position + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, position + index + 1
    raise MalformedError("a varint of more than five bytes")


def skip_tagged(frame: Frame, position: int) -> int:
    """Return the position after tagged fields, all of them unknown."""
    return position + 1 if frame[position] == 0 else _tagged(frame, position, {}, {})


def struct_decoder(table: Struct) -> Decoder:
    """Return the decoder of a table that stands by itself; errors as of `decoder`."""
    defaults = {f.name: f.default for f in table.tagged}
    known = {f.tag: (f.name, _value_decoder(f, flexible=True)) for f in table.tagged}
    steps: list[tuple[str, list[str], Decoder]] = []
    for fixed, run in table.runs():
        if fixed and len(run) > 1:
            steps.append(("", [f.name for f in run], _run_decoder(run)))
        else:
            steps += [(f.name, [], _value_decoder(f, flexible=table.flexible)) for f in run]
    is_flexible = table.flexible

    def decode(frame: Frame, position: int) -> tuple[Fields, int]:
        fields = defaults.copy()
        for name, names, decode_value in steps:
            value, position = decode_value(frame, position)
            if names:
                fields.update(zip(names, value, strict=True))
            else:
                fields[name] = value
        if not is_flexible:
            return fields, position
        if frame[position] == 0:
            return fields, position + 1
        return fields, _tagged(frame, position, fields, known)

    return decode


def _run_decoder(run: list[Field]) -> Decoder:
    layout = struct.Struct(">" + "".join(FIXED[f.kind] for f in run))
    unpack, size = layout.unpack_from, layout.size
    return lambda frame, at: (unpack(frame, at), at + size)


def _tagged(
    frame: Frame, position: int, fields: Fields, known: dict[int, tuple[str, Decoder]]
) -> int:
    count, position = unsigned_varint(frame, position)
    for _ in range(count):
        tag, position = unsigned_varint(frame, position)
        size, position = unsigned_varint(frame, position)
        end = position + size
        if end > len(frame):
            raise MalformedError("a tagged field reaches past the end")
        if tag in known:
            name, decode = known[tag]
            fields[name], after = decode(frame, position)
            if after != end:
                raise MalformedError(f"tagged field {name} is not as long as it says")
        position = end
    return position


def _value_decoder(field: Field, *, flexible: bool) -> Decoder:
    if not field.array:
        return _single_decoder(field, flexible=flexible, nullable=field.nullable)
    if field.kind in FIXED:
        return _fixed_array_decoder(field, flexible=flexible)
    return _array_decoder(field, flexible=flexible)


def _single_decoder(field: Field, *, flexible: bool, nullable: bool) -> Decoder:
    if field.kind in FIXED:
        layout = struct.Struct(">" + FIXED[field.kind])
        unpack, width = layout.unpack_from, layout.size
        return lambda frame, at: (unpack(frame, at)[0], at + width)
    if field.struct is not None:
        decode = struct_decoder(field.struct)
        return _nullable_struct_decoder(decode) if nullable else decode
    if field.kind == "uuid":
        return _decode_uuid
    if field.kind == "string":
        return _string_decoder(field, flexible=flexible, nullable=nullable)
    length = _compact_length if flexible else _length
    return _bytes_decoder(field, length, nullable=nullable)


def _nullable_struct_decoder(decode: Decoder) -> Decoder:
    def decode_nullable(frame: Frame, position: int) -> tuple[Any, int]:
        # Any negative marker is null (KIP-893).
        if frame[position] > 127:
            return None, position + 1
        return decode(frame, position + 1)

    return decode_nullable


def _string_decoder(field: Field, *, flexible: bool, nullable: bool) -> Decoder:
    length = _compact_length if flexible else _string_length

    def decode(frame: Frame, position: int) -> tuple[str | None, int]:
        # Nearly all lengths are one byte: no call for those.
        if flexible and 0 < (first := frame[position]) < _LARGE:
            size, start = first - 1, position + 1
        else:
            size, start = length(frame, position)
        if size < 0:
            return _refuse_null(field, nullable=nullable), start
        end = start + size
        if end > len(frame):
            raise MalformedError(f"{field.name} reaches past the end")
        if size > _STRING_BYTES_MAX:
            raise MalformedError(f"{field.name} has {size} bytes, and may have {_STRING_BYTES_MAX}")
        return frame[start:end].decode(), end

    return decode


def _bytes_decoder(field: Field, length: Decoder, *, nullable: bool) -> Decoder:
    def decode(frame: Frame, position: int) -> tuple[memoryview | None, int]:
        size, start = length(frame, position)
        if size < 0:
            return _refuse_null(field, nullable=nullable), start
        end = start + size
        if end > len(frame):
            raise MalformedError(f"{field.name} reaches past the end")
        return memoryview(frame)[start:end], end

    return decode


def _array_decoder(field: Field, *, flexible: bool) -> Decoder:
    length = _compact_length if flexible else _length
    element = _single_decoder(field, flexible=flexible, nullable=False)

    def decode(frame: Frame, position: int) -> tuple[list[Any] | None, int]:
        count, position = length(frame, position)
        if count < 0:
            return _refuse_null(field, nullable=field.nullable), position
        # Each element takes a byte at least.
        if count > len(frame) - position:
            raise MalformedError(f"{field.name} claims {count} elements")
        if (left := _elements.get()) is not None:
            _count(field, count, left)
        values = []
        for _ in range(count):
            value, position = element(frame, position)
            values.append(value)
        return values, position

    return decode


def _fixed_array_decoder(field: Field, *, flexible: bool) -> Decoder:
    length = _compact_length if flexible else _length
    letter = FIXED[field.kind]
    width = struct.calcsize(">" + letter)

    def decode(frame: Frame, position: int) -> tuple[list[Any] | None, int]:
        count, position = length(frame, position)
        if count < 0:
            return _refuse_null(field, nullable=field.nullable), position
        end = position + count * width
        if end > len(frame):
            raise MalformedError(f"{field.name} claims {count} elements")
        if (left := _elements.get()) is not None:
            _count(field, count, left)
        return list(struct.unpack_from(f">{count}{letter}", frame, position)), end

    return decode


def _refuse_null(field: Field, *, nullable: bool) -> Any:
    if not nullable:
        raise MalformedError(f"{field.name} is null")
    return None


def _length(frame: Frame, position: int) -> tuple[int, int]:
    return _INT32.unpack_from(frame, position)[0], position + 4


def _string_length(frame: Frame, position: int) -> tuple[int, int]:
    return _INT16.unpack_from(frame, position)[0], position + 2


def _compact_length(frame: Frame, position: int) -> tuple[int, int]:
    value = frame[position]
    if value < 128:
        return value - 1, position + 1
    value, position = unsigned_varint(frame, position)
    return value - 1, position


def _decode_uuid(frame: Frame, position: int) -> tuple[UUID | None, int]:
    end = position + _UUID_BYTES
    if end > len(frame):
        raise MalformedError("a uuid reaches past the end")
    return _uuid(bytes(frame[position:end])), end


@lru_cache(maxsize=4096)
def _uuid(data: bytes) -> UUID | None:
    # Building a UUID costs as much as decoding the rest of a fetched topic.
    return UUID(bytes=data) if any(data) else None

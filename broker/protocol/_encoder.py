"""Compiles the table of a message to a function that encodes it.

Runs of fixed-width fields become one `struct` call whose arguments an `itemgetter` collects, so
that the work of a field is done in C. Record batches are never copied: they go into the list of
buffers as they come.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from broker.protocol._schema import FIXED, REQUIRED, Direction, Field, Struct, load

if TYPE_CHECKING:
    from raftctl.runtime.api import Buffer, Piece

Message = Mapping[str, Any]
Encoder = Callable[[Message, "list[Piece]"], None]
"""Appends the encoding of a message to a list of pieces."""
_ValueEncoder = Callable[[Any, "list[Piece]"], None]

_ONE_BYTE = [bytes([value]) for value in range(128)]
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NO_UUID = bytes(16)


@cache
def encoder(api_key: int, version: int, direction: Direction) -> Encoder:
    """Return the encoder of one message, without its header; KeyError if the message does not
    exist.
    """
    return struct_encoder(load(api_key, version, direction))


def joined(encode: Callable[[list[Piece]], None]) -> bytes:
    """Return the bytes that `encode` appends, of a message without record batches."""
    pieces: list[Piece] = []
    encode(pieces)
    return b"".join(cast("list[Buffer]", pieces))


class EncodedArray:
    """The structs of an array of a response, encoded some at a time: a hundred thousand at once
    would keep everybody else waiting. To be given in the message in place of the array.
    """

    def __init__(self, api_key: int, version: int, name: str) -> None:
        table = load(api_key, version, "response")
        (field,) = (one for one in table.untagged if one.name == name)
        self._encode = _element_encoder(field, flexible=table.flexible)
        self._count = 0
        self.pieces: list[bytes] = []

    def __len__(self) -> int:
        return self._count

    def add(self, messages: Collection[Message]) -> None:
        """Encode the next element of the array."""
        pieces: list[Piece] = []
        for message in messages:
            self._encode(message, pieces)
        self._count += len(messages)
        self.pieces.append(b"".join(cast("list[Buffer]", pieces)))


def unsigned_varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit says that more follow."""
    if value < 128:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def struct_encoder(table: Struct) -> Encoder:
    """Return the encoder of a table that stands by itself."""
    defaults = {f.name: f.default for f in table.untagged if f.default is not REQUIRED}
    steps = list(_steps(table))

    def encode(message: Message, out: list[Piece]) -> None:
        fields = {**defaults, **message}
        for step in steps:
            step(fields, out)

    return encode


def _steps(table: Struct) -> Iterator[Encoder]:
    runs = table.runs()
    # Without tagged fields of its own a struct ends with their count, 0: a pad byte.
    pad = table.flexible and not table.tagged
    ends_fixed = bool(runs) and runs[-1][0]
    for index, (fixed, run) in enumerate(runs, start=1):
        if fixed:
            yield _run_step(run, pad=pad and index == len(runs))
        else:
            yield from (_field_step(f, table) for f in run)
    if pad and not ends_fixed:
        yield lambda _, out: out.append(b"\0")
    elif table.tagged:
        yield _tagged_step(table)


def _run_step(run: list[Field], *, pad: bool) -> Encoder:
    pack = struct.Struct(">" + "".join(FIXED[f.kind] for f in run) + "x" * pad).pack
    if len(run) == 1:
        name = run[0].name
        return lambda fields, out: out.append(pack(fields[name]))
    values = itemgetter(*(f.name for f in run))
    return lambda fields, out: out.append(pack(*values(fields)))


def _field_step(field: Field, table: Struct) -> Encoder:
    name = field.name
    encode = _value_encoder(field, flexible=table.flexible)
    return lambda fields, out: encode(fields[name], out)


def _tagged_step(table: Struct) -> Encoder:
    encoders = [
        (f.name, f.default, unsigned_varint(f.tag), _value_encoder(f, flexible=True))
        for f in table.tagged
    ]

    def step(fields: Message, out: list[Piece]) -> None:
        present: list[Piece] = []
        count = 0
        for name, default, tag, encode in encoders:
            value = fields.get(name, default)
            if value is None or value == default:
                continue
            content = joined(partial(encode, value))
            present += (tag, unsigned_varint(len(content)), content)
            count += 1
        out.append(unsigned_varint(count))
        out += present

    return step


def _value_encoder(field: Field, *, flexible: bool) -> _ValueEncoder:
    if not field.array:
        return _single_encoder(field, flexible=flexible)
    if field.kind in FIXED:
        return _fixed_array_encoder(FIXED[field.kind], flexible=flexible)
    return _array_encoder(_element_encoder(field, flexible=flexible), flexible=flexible)


def _element_encoder(field: Field, *, flexible: bool) -> _ValueEncoder:
    if field.struct is not None:
        return struct_encoder(field.struct)
    return _single_encoder(field, flexible=flexible)


def _single_encoder(field: Field, *, flexible: bool) -> _ValueEncoder:
    if field.kind in FIXED:
        pack = struct.Struct(">" + FIXED[field.kind]).pack
        return lambda value, out: out.append(pack(value))
    if field.struct is not None:
        encode = struct_encoder(field.struct)
        return _nullable_struct_encoder(encode) if field.nullable else encode
    return {
        "uuid": _encode_uuid,
        "string": _encode_compact_string if flexible else _encode_string,
        "bytes": _encode_compact_bytes if flexible else _encode_bytes,
        "records": _encode_compact_bytes if flexible else _encode_bytes,
    }[field.kind]


def _nullable_struct_encoder(encode: Encoder) -> _ValueEncoder:
    def encode_nullable(value: Message | None, out: list[Piece]) -> None:
        out.append(b"\xff" if value is None else b"\x01")
        if value is not None:
            encode(value, out)

    return encode_nullable


def _count(length: int | None, *, flexible: bool) -> bytes:
    if flexible:
        return unsigned_varint(0 if length is None else length + 1)
    return _INT32.pack(-1 if length is None else length)


def _array_encoder(encode: _ValueEncoder, *, flexible: bool) -> _ValueEncoder:
    def encode_array(values: Any, out: list[Piece]) -> None:
        out.append(_count(None if values is None else len(values), flexible=flexible))
        if isinstance(values, EncodedArray):
            out += values.pieces
            return
        for value in values or ():
            encode(value, out)

    return encode_array


def _fixed_array_encoder(letter: str, *, flexible: bool) -> _ValueEncoder:
    def encode_array(values: Any, out: list[Piece]) -> None:
        out.append(_count(None if values is None else len(values), flexible=flexible))
        if values:
            out.append(struct.pack(f">{len(values)}{letter}", *values))

    return encode_array


def _encode_uuid(value: Any, out: list[Piece]) -> None:
    out.append(_NO_UUID if value is None else value.bytes)


def _encode_string(value: str | None, out: list[Piece]) -> None:
    if value is None:
        out.append(b"\xff\xff")
        return
    data = value.encode()
    out.append(_INT16.pack(len(data)) + data)


def _encode_compact_string(value: str | None, out: list[Piece]) -> None:
    if value is None:
        out.append(b"\0")
        return
    data = value.encode()
    out.append(unsigned_varint(len(data) + 1) + data)


def _encode_bytes(value: Any, out: list[Piece]) -> None:
    _append_bytes(value, out, flexible=False)


def _encode_compact_bytes(value: Any, out: list[Piece]) -> None:
    _append_bytes(value, out, flexible=True)


def _append_bytes(value: Any, out: list[Piece], *, flexible: bool) -> None:
    """A buffer, or a list or tuple of pieces that together are the value, or None."""
    pieces = value if isinstance(value, list | tuple) else () if value is None else (value,)
    length = None if value is None else sum(map(len, pieces))
    out.append(_count(length, flexible=flexible))
    out += pieces

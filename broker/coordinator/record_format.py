"""The records of internal topics: a version of two bytes, then the fields of that version.

The tables are those of Apache Kafka's message files for coordinator records, so that its tools read
our topics and we read its. They are compiled as those of requests are.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from broker.protocol import REQUIRED, Field, Struct, joined, struct_decoder, struct_encoder
from broker.protocol.codec import MalformedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.protocol import Message
    from raftctl.runtime.api import Piece

_VERSION = struct.Struct(">h")


def field(
    name: str,
    kind: str,
    default: Any = REQUIRED,
    *,
    nullable: bool = False,
    tag: int = -1,
    array_of: Struct | None = None,
    array: bool = False,
    of: Struct | None = None,
) -> Field:
    """Return a field of a table; see `broker.protocol._schema.Field`."""
    is_array = array or array_of is not None
    return Field(name, kind, is_array, nullable, tag, default, array_of or of)


def table(name: str, *fields: Field, flexible: bool = False) -> Struct:
    """Return the table of one version."""
    return Struct(name, flexible, flexible, tuple(fields))


Value = TypeVar("Value", bound="Message")
"""The TypedDict of a record's fields."""


class RecordFormat(Generic[Value]):
    """A kind of key or value: reads every version it has a table of, writes one."""

    def __init__(self, name: str, versions: Mapping[int, Struct], *, written: int) -> None:
        self.written = written
        self._name = name
        self._decoders = {v: struct_decoder(one) for v, one in versions.items()}
        self._encode = struct_encoder(versions[written])

    def encode(self, message: Value) -> bytes:
        """Return the bytes of a message in the version that is written."""

        def whole(out: list[Piece]) -> None:
            out.append(_VERSION.pack(self.written))
            self._encode(message, out)

        return joined(whole)

    def decode(self, data: bytes) -> Value:
        """Return the message; ValueError if the bytes are none of a known version."""
        version = version_of(data)
        if version not in self._decoders:
            raise ValueError(f"{self._name} of version {version} is not known")
        try:
            message: Value = self._decoders[version](data, _VERSION.size)[0]
        except (struct.error, IndexError, MalformedError) as error:
            raise ValueError(f"{self._name}: {error}") from error
        return message


def version_of(data: bytes) -> int:
    """Return the version that a key or value begins with; a key's also gives its kind."""
    try:
        version: int = _VERSION.unpack_from(data)[0]
    except struct.error as error:
        raise ValueError("a record of an internal topic begins with its version") from error
    return version

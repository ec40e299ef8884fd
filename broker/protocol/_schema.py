"""The field tables of Kafka's messages, one `Struct` a message and version.

The tables come from kio's dataclasses (which are generated from Apache Kafka's own message files);
this is the only module that knows kio. Its native decoder is not used: it reserves memory for the
element count an array claims before reading it, so that 30 bytes from anyone abort the process
(row N3). `encoder` and `decoder` compile these tables instead.

A message is a plain dict, field name to value, the same in both directions and for all versions:

* names are Kafka's in snake case, durations and timestamps are integers whose names end in `_ms`;
* an error code is an integer, an absent uuid (all zero) is None, arrays are sequences;
* the encoder takes what its version knows and ignores the rest.

Source: KIP-482 (flexible versions), KIP-893 (nullable structs), the protocol guide.
"""

from __future__ import annotations

import dataclasses
import importlib
import types
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import groupby
from typing import Any, Literal, get_args

from kio.schema.index import api_key_map, schema_name_map

from raftctl.optional_imports import without

Direction = Literal["request", "response"]

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""The kinds of a fixed width that need no conversion, with their letters for `struct`."""

REQUIRED: Any = dataclasses.MISSING
"""The default of a field that every message must give."""

# All tables import it, which takes so long that no request should wait for it on the event loop.
with without("hypothesis"):
    importlib.import_module("kio.static.primitive")

_IMPLICIT = {"error_code": 0, "timedelta_i32": 0}
_IN_MILLISECONDS = ("timedelta_i32", "timedelta_i64", "datetime_i64")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct."""

    name: str
    kind: str
    """A key of `FIXED`, or string, bytes, records, uuid, struct."""
    array: bool
    nullable: bool
    tag: int
    """-1: not tagged."""
    default: Any
    struct: Struct | None


@dataclass(frozen=True, slots=True)
class Struct:
    """A message of one version, or a part of one."""

    name: str
    flexible: bool
    flexible_header: bool
    """Whether the header before this message ends with tagged fields."""
    fields: tuple[Field, ...]

    @property
    def untagged(self) -> list[Field]:
        """The fields on the wire before the tagged ones, in order."""
        return [f for f in self.fields if f.tag < 0]

    @property
    def tagged(self) -> list[Field]:
        """The tagged fields in order of their tags."""
        return sorted((f for f in self.fields if f.tag >= 0), key=lambda f: f.tag)

    def runs(self) -> list[tuple[bool, list[Field]]]:
        """Return the untagged fields, cut into runs of fixed width (True) and runs of others."""
        runs = groupby(self.untagged, key=lambda f: f.kind in FIXED and not f.array)
        return [(fixed, list(run)) for fixed, run in runs]


def known_versions(api_key: int) -> range:
    """Return the versions of an api for which there are tables; an unknown api has none."""
    name = api_key_map.get(api_key)
    if name is None:
        return range(0)
    versions = schema_name_map[name]
    return range(min(versions), max(versions) + 1)


@cache
def load(api_key: int, version: int, direction: Direction) -> Struct:
    """Return the table of one message; KeyError if it does not exist. Imports once."""
    if version not in known_versions(api_key):
        raise KeyError((api_key, version))
    name = api_key_map[api_key]
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{direction}")
    entities = [e for e in vars(module).values() if _is_message(e, direction)]
    return _struct(entities[0])


def response_table(api_key: int, version: int) -> Struct:
    """Return the table of a response; KeyError if it does not exist."""
    return load(api_key, version, "response")


def _is_message(candidate: Any, direction: Direction) -> bool:
    kind = getattr(candidate, "__type__", None)
    return isinstance(candidate, type) and kind is not None and kind.name == direction


def _struct(entity: Any) -> Struct:
    header = getattr(entity, "__header_schema__", None)
    return Struct(
        name=entity.__name__,
        flexible=entity.__flexible__,
        flexible_header=header is not None and header.__flexible__,
        fields=tuple(_field(f) for f in dataclasses.fields(entity)),
    )


def _field(source: dataclasses.Field[Any]) -> Field:
    inner, array, nullable = _shape(source.type)
    is_struct = dataclasses.is_dataclass(inner)
    kind = "struct" if is_struct else source.metadata["kafka_type"]
    return Field(
        name=source.name + "_ms" if kind in _IN_MILLISECONDS else source.name,
        kind=kind,
        array=array,
        nullable=nullable,
        tag=source.metadata.get("tag", -1),
        default=_default(source.default, kind, nullable=nullable),
        struct=_struct(inner) if is_struct else None,
    )


def _shape(annotation: Any) -> tuple[Any, bool, bool]:
    """(type of the value or element, is an array, may be null) of kio's annotation."""
    nullable = False
    if isinstance(annotation, types.UnionType):
        nullable = True
        annotation = next(a for a in get_args(annotation) if a is not types.NoneType)
    arguments = get_args(annotation)
    return (arguments[0], True, nullable) if arguments else (annotation, False, nullable)


def _default(value: Any, kind: str, *, nullable: bool) -> Any:
    if value is dataclasses.MISSING and not nullable:
        return _IMPLICIT.get(kind, REQUIRED)
    if value is None or value is dataclasses.MISSING:
        return -1 if kind == "datetime_i64" else None
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if dataclasses.is_dataclass(value):
        return {f.name: f.default for f in _struct(type(value)).fields}
    return int(value) if kind == "error_code" else value

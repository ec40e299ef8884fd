"""Hypothesis strategies for messages of any table, and the oracle's way to write them down."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from broker.protocol._schema import load

if TYPE_CHECKING:
    from broker.protocol import Field, Struct
    from broker.protocol._schema import Direction

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def messages_of(key: int, version: int, direction: Direction) -> st.SearchStrategy[dict[str, Any]]:
    """Any message of this version, made once: that takes longer than to draw one."""
    return messages(load(key, version, direction))


def messages(table: Struct) -> st.SearchStrategy[dict[str, Any]]:
    """Any message of this table, all fields given."""
    return st.fixed_dictionaries({f.name: _values(f) for f in table.fields})


def _values(field: Field) -> st.SearchStrategy[Any]:
    if field.array:
        elements = st.lists(_single(field, nullable=False), max_size=3)
        return _or_null(elements, field.nullable)
    return _single(field, nullable=field.nullable)


def _or_null(values: st.SearchStrategy[Any], nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | values if nullable else values


def _single(field: Field, *, nullable: bool) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        return _or_null(messages(field.struct), nullable)
    kind = field.kind
    if kind in _INTEGER_BITS:
        bits = _INTEGER_BITS[kind]
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    simple: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "uint16": st.integers(0, 2**16 - 1),
        "float64": st.floats(allow_nan=False),
        "error_code": st.integers(-1, 120),
        "timedelta_i32": st.integers(-(2**31), 2**31 - 1),
        "timedelta_i64": st.integers(-(2**63), 2**63 - 1),
        # Whole seconds: the oracle rounds timestamps to them.
        "datetime_i64": st.just(-1) | st.integers(0, 2**31).map(lambda second: second * 1000),
        "uuid": st.none() | st.uuids(),
        "string": _or_null(st.text(max_size=200), nullable),
        "bytes": _or_null(st.binary(max_size=300), nullable),
        "records": _or_null(st.binary(max_size=300), nullable),
    }
    return simple[kind]


def from_entity(entity: Any, table: Struct) -> dict[str, Any]:
    """A kio entity as a message of ours."""
    return {f.name: _value_of(entity, f) for f in table.fields}


def _value_of(entity: Any, field: Field) -> Any:
    value = getattr(entity, field.name.removesuffix("_ms"))
    if field.array:
        return None if value is None else [_single_of(v, field) for v in value]
    return _single_of(value, field)


def _single_of(value: Any, field: Field) -> Any:
    if field.struct is not None:
        return None if value is None else from_entity(value, field.struct)
    if field.kind == "datetime_i64":
        return -1 if value is None else (value - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    return int(value) if field.kind == "error_code" else value


def plain(value: Any) -> Any:
    """The same message with every view and tuple made comparable."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return bytes(value) if isinstance(value, memoryview | bytearray) else value

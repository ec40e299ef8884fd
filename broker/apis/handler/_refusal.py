"""Refusals of whole requests, made from the field tables of their responses.

Most responses have a place for the error at their top, or in each element of an array that answers
an array of the request. The rest of a refusal is empty. So the table of a response says all of it;
a handler writes a refusal of its own only where Apache Kafka's differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from broker.protocol import REQUIRED, response_table

if TYPE_CHECKING:
    from broker.protocol import Field, Message, Struct
    from broker.protocol.codec import Request
    from raftctl.errors import KafkaError

_EMPTY = {"bool": False, "string": "", "bytes": b"", "uuid": None}


def refuse(_context: object, request: Request[Any], error: KafkaError) -> Message:
    """Return the response with the error at its top and nothing else."""
    return _empty(response_table(request.api_key, request.version), error)


def refuse_each(asked: str) -> Callable[[object, Request[Any], KafkaError], Message]:
    """Return the refusal that has the error for each element of the request's array `asked`.

    An element of the response has the fields of the request's element by the names that they share.
    Where it has no place for the error, but an array has, the error is for each element of that.
    """

    def refuse_elements(_context: object, request: Request[Any], error: KafkaError) -> Message:
        table = response_table(request.api_key, request.version)
        field = _array(table)
        items = request.body[asked] or ()
        return {**_empty(table, error), field.name: _refused(field, items, error)}

    return refuse_elements


def _refused(field: Field, items: Iterable[Any], error: KafkaError) -> list[Message]:
    """The elements of an array of the response, one for each of the request's."""
    table = field.struct
    assert table is not None
    names = [one.name for one in table.fields if not one.name.startswith("error_")]
    is_inner = all(one.name != "error_code" for one in table.fields)
    found: list[Message] = []
    for item in items:
        known = item if isinstance(item, Mapping) else {names[0]: item} if names else {}
        refused = _empty(table, error) | {n: known[n] for n in names if n in known}
        if is_inner:
            inner = _array(table)
            inside = next(value for value in known.values() if isinstance(value, list))
            refused[inner.name] = _refused(inner, inside, error)
        found.append(refused)
    return found


def _array(table: Struct) -> Field:
    """The array of structs that answers an array of the request."""
    return next(one for one in table.untagged if one.array and one.struct is not None)


def _empty(table: Struct, error: KafkaError) -> dict[str, Any]:
    """A struct with the error where it has room for it, and with nothing in its other fields."""
    return {one.name: _value(one, error) for one in table.fields}


def _value(field: Field, error: KafkaError) -> Any:
    if field.name == "error_code":
        return error.code
    if field.name == "error_message":
        return error.message
    if field.default is not REQUIRED:
        return field.default
    return () if field.array else _EMPTY.get(field.kind, 0)

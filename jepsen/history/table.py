"""A history as a table: one row an operation of a client, from its invocation to its completion.

| column | type | what |
|---|---|---|
| history | string | which history; a file may have several, or lack the column if it has one |
| lenient | boolean | whether nil reads and failed cas say nothing (as Knossos has it); may lack |
| key | string | what the operation is about, as text; `null` if the history has no keys |
| process | int64 | the client |
| f | string | what it did |
| type | string | how it ended: `ok`, `fail` or `info` |
| invoke_index, complete_index | int64 | lines of the history; no complete_index: it never ended |
| invoke_time, complete_time | int64 | nanoseconds since the test began |
| argument, result | string | the values of both lines, as text |
| error | string | the completion's error, as text; null if there is none |

Text is JSON. What JSON has no form for (a set, a map whose keys are no text) is EDN behind a `#`,
with which no JSON begins. Equal values have equal texts but for numbers and text that can be
written in several ways; `ATOM` is what can not.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jepsen.history import edn
from jepsen.history._operations import Op, Operation, OpType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

OPERATIONS = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("lenient", pa.bool_(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("process", pa.int64(), nullable=False),
        pa.field("f", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("invoke_index", pa.int64(), nullable=False),
        pa.field("complete_index", pa.int64()),
        pa.field("invoke_time", pa.int64(), nullable=False),
        pa.field("complete_time", pa.int64()),
        pa.field("argument", pa.string(), nullable=False),
        pa.field("result", pa.string(), nullable=False),
        pa.field("error", pa.string()),
    ]
)
_SQL_TYPES = {pa.string(): "string", pa.int64(): "long", pa.bool_(): "boolean"}


def ddl(schema: pa.Schema) -> str:
    """Return the schema as Spark takes it."""
    return ", ".join(
        f"{one.name} {_SQL_TYPES[one.type]}{'' if one.nullable else ' NOT NULL'}" for one in schema
    )


ADDED = ("history", "lenient")
"""Columns that a file may lack."""
ATOM = r'^(null|0|-?[1-9][0-9]*|"[^"\\\\]*")$'
"""Texts that are equal exactly if their values are, for Spark SQL's `rlike`."""
NULL = "null"
_EDN_MARK = "#"
_CACHED_MAX = 100_000
_BATCH_ROWS = 10_000


def text_of(value: Any) -> str:
    """Return the value as text. Raises EdnError if it has no form."""
    if _has_json(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _EDN_MARK + edn.write(value)


def _has_json(value: Any) -> bool:
    match value:
        case None | bool() | int() | float() | str():
            return True
        case list() | tuple():
            return all(map(_has_json, value))
        case dict():
            return all(isinstance(key, str) and _has_json(item) for key, item in value.items())
    return False


def value_of(text: str) -> Any:
    """Return the value of a text. Raises ValueError."""
    if text.startswith(_EDN_MARK):
        (value,) = edn.read_all(text.removeprefix(_EDN_MARK))
        return value
    return json.loads(text)


def reader() -> Callable[[str], Any]:
    """`value_of` that remembers: a history has few values, many times."""
    known: dict[str, Any] = {}

    def read(text: str) -> Any:
        try:
            return known[text]
        except KeyError:
            if len(known) >= _CACHED_MAX:
                known.clear()
            value = known[text] = value_of(text)
            return value

    return read


def row_of(history: str, lenient: bool, operation: Operation) -> tuple[Any, ...]:
    """Return the operation as a row of `OPERATIONS`."""
    invoke, completion = operation.invoke, operation.completion
    argument = text_of(invoke.value)
    same = completion is not None and completion.value is invoke.value
    return (
        history,
        lenient,
        text_of(invoke.key),
        invoke.process,
        invoke.f,
        str(operation.type),
        invoke.index,
        None if completion is None else completion.index,
        invoke.time,
        None if completion is None else completion.time,
        argument,
        argument if same else text_of(completion.value if completion else None),
        None if completion is None or completion.error is None else text_of(completion.error),
    )


def batch_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema = OPERATIONS) -> pa.RecordBatch:
    """Return the rows of the schema, one at least, as an Arrow batch."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def batches_of(rows: Iterator[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows, as they come, in Arrow batches."""
    while some := list(islice(rows, _BATCH_ROWS)):
        yield batch_of(some, schema)


READ_COLUMNS = (
    "history",
    "lenient",
    "key",
    "process",
    "f",
    "type",
    "invoke_index",
    "complete_index",
    "argument",
    "result",
    "error",
)
"""What operations are made of again; times are only for those who plot them."""
_TYPES = {str(kind): kind for kind in OpType}


def operations_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bool, str, Operation]]:
    """(history, lenient, key as text, operation) of batches with the columns `READ_COLUMNS`."""
    read = reader()
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in READ_COLUMNS]
        for row in zip(*columns, strict=True):
            history, lenient, key, process, f, kind, invoked, completed = row[:8]
            argument, result, error = row[8:]
            subject = read(key)
            invoke = Op(invoked, 0, process, OpType.INVOKE, f, read(argument), subject)
            completion = None
            if completed is not None:
                why = None if error is None else read(error)
                how = _TYPES[kind]
                completion = Op(completed, 0, process, how, f, read(result), subject, why)
            yield history, lenient, key, Operation(invoke, completion)

"""What the operations of a history of logs sent and polled, a row a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jepsen.checkers.kafka.log import ASSIGNING, Call, call_of
from jepsen.edn import hashable
from jepsen.spark.schema import READ_COLUMNS, operations_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from jepsen.history import Operation

SEND, POLL, ASSIGN, FINAL_POLL, REFUSED = "send", "poll", "assign", "final-poll", "refused"
RECORDS = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("call", pa.int64(), nullable=False),
        pa.field("invoked", pa.int64(), nullable=False),
        pa.field("process", pa.int64(), nullable=False),
        pa.field("f", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("place", pa.int32(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),
        pa.field("offset", pa.int64()),
        pa.field("own", pa.bool_(), nullable=False),
    ]
)
"""`call` is the line that ended the operation, else that of its invocation; `place` that of the
record in it; `own`: polled by the operation that sends it.

Besides records (`send`, `poll`): `assign` a row for each key assigned or subscribed to, or one
whose place is -1 for none; `final-poll` one row, since such a poll begins anew; `refused` tells in
`value` why an operation is none of these.
"""
RECORDS_SQL = (
    "history string, call long, invoked long, process long, f string, type string, kind string, "
    "place int, key string, value string, offset long, own boolean"
)
NO_KEY = "null"


def records_of(operations: DataFrame) -> DataFrame:
    """The rows of `RECORDS` of all operations."""
    return operations.select(*READ_COLUMNS).mapInArrow(_batches, RECORDS_SQL)


def _batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            row
            for history, _, _, operation in operations_of([batch])
            for row in _rows(history, operation)
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(RECORDS)
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(columns, RECORDS, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


def _rows(history: str, operation: Operation) -> list[tuple[Any, ...]]:
    try:
        found = list(_of_call(call_of(operation)))
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        found = [(REFUSED, 0, NO_KEY, str(error) or "its values are others", None, False)]
    invoke = operation.invoke
    index = (operation.completion or invoke).index
    head = (history, index, invoke.index, invoke.process, invoke.f, str(operation.type))
    return [(*head, *row) for row in found]


def _of_call(call: Call) -> Iterator[tuple[Any, ...]]:
    """(kind, place, key, value, offset, own) of each row of the call."""
    f = call.operation.invoke.f
    if f in ASSIGNING:
        keys = call.operation.invoke.value or ()
        for place, key in enumerate(keys):
            yield ASSIGN, place, text_of(hashable(key)), NO_KEY, None, False
        if not keys:
            yield ASSIGN, -1, NO_KEY, NO_KEY, None, False
    elif f == "final-poll":
        yield FINAL_POLL, -1, NO_KEY, NO_KEY, None, False
    sent = {(record.key, record.value) for record in call.sends}
    for kind, records in ((SEND, call.sends), (POLL, call.polls)):
        for place, record in enumerate(records):
            own = kind == POLL and (record.key, record.value) in sent
            key, value = text_of(record.key), text_of(record.value)
            yield kind, place, key, value, record.offset, own

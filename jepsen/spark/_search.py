"""The checkers of one process, run in tasks: on one key after the other, or on whole histories.

Groups arrive in Arrow batches, sorted, so a task holds one key or one history at a time.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jepsen.checkers.linearizable import (
    STATES_SHARED_MAX,
    Budget,
    Machine,
    check_key,
    nonlinearizable,
)
from jepsen.checkers.registry import CHECKERS, model_named
from jepsen.checkers.verdict import Anomaly, plain, with_text_keys
from jepsen.history.edn import hashable
from jepsen.history.table import READ_COLUMNS, operations_of, value_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

    from jepsen.checkers.linearizable import KeyResult
    from jepsen.checkers.verdict import Valid
    from jepsen.history import Op, Operation

ROWS_A_BATCH = 10_000

VALID, INVALID, UNKNOWN = "true", "false", "unknown"
"""A verdict is text and never null: what was not judged is unknown."""

ANOMALY = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("lines", pa.list_(pa.int64()), nullable=False),
        pa.field("allowed", pa.bool_(), nullable=False),
    ]
)
VERDICTS = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("valid", pa.string(), nullable=False),
        pa.field("operations", pa.int64(), nullable=False),
        pa.field("method", pa.string(), nullable=False),
        pa.field("why_unknown", pa.string(), nullable=False),
        pa.field("refused", pa.string(), nullable=False),
        pa.field("anomalies", pa.list_(ANOMALY), nullable=False),
    ]
)
"""A row a key. `refused` says why the operations are none of the model's, `detail` is JSON."""
ANOMALIES_SQL = "array<struct<name: string, detail: string, lines: array<long>, allowed: boolean>>"
VERDICTS_SQL = (
    "history string, key string, valid string, operations long, method string, why_unknown string, "
    f"refused string, anomalies {ANOMALIES_SQL}"
)


@dataclass(frozen=True)
class Limits:
    """Bounds on the search of one key; beyond them the key is unknown."""

    time_s: float = 300.0
    memory_bytes: int = 1 << 30


def verdict_word(valid: Valid) -> str:
    """Return the verdict as text."""
    return {True: VALID, False: INVALID, "unknown": UNKNOWN}[valid]


def anomaly_row(anomaly: Anomaly, *, allowed: bool = False) -> dict[str, Any]:
    """Return the anomaly, or note if it is allowed, as a value of `ANOMALY`."""
    detail = with_text_keys(dict(anomaly.detail))
    text = json.dumps(detail, default=plain, ensure_ascii=False)
    return {"name": anomaly.name, "detail": text, "lines": list(anomaly.ops), "allowed": allowed}


def check_keys(
    operations: DataFrame,
    model: str,
    initial: Any,
    *,
    time_limit_s: float,
    memory_bytes: int,
) -> DataFrame:
    """Per key the verdict of the search in one process.

    A key is judged by one task, whose memory holds its operations and no other's. The limits hold
    for each key.
    """
    ordered = (
        operations.select(*READ_COLUMNS)
        .repartition("history", "key")
        .sortWithinPartitions("history", "key", "invoke_index")
    )
    check = partial(
        _checked, model=model, initial=initial, time_limit_s=time_limit_s, memory_bytes=memory_bytes
    )
    return ordered.mapInArrow(check, VERDICTS_SQL)


def _checked(
    batches: Iterable[pa.RecordBatch],
    *,
    model: str,
    initial: Any,
    time_limit_s: float,
    memory_bytes: int,
) -> Iterator[pa.RecordBatch]:
    models = {
        lenient: model_named(model, lenient=lenient, initial=initial) for lenient in (True, False)
    }
    machines = {lenient: Machine(one) for lenient, one in models.items()}
    rows = []
    for (history, lenient, key), mine in grouped(batches):
        if len(machines[lenient].states) > STATES_SHARED_MAX:
            machines[lenient] = Machine(models[lenient])
        budget = Budget(memory_bytes, time.monotonic() + time_limit_s, time.monotonic)
        try:
            subject = hashable(value_of(key))
            result = check_key(subject, mine, models[lenient], budget, machines[lenient])
            rows.append(_row(history, key, result))
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            rows.append(_refused(history, key, len(mine), str(error)))
        if len(rows) >= ROWS_A_BATCH:
            yield pa.RecordBatch.from_pylist(rows, VERDICTS)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, VERDICTS)


def grouped(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[tuple[str, bool, str], list[Operation]]]:
    """Yield neighbours with the same history and key; a group may span batches."""
    current: tuple[str, bool, str] | None = None
    mine: list[Operation] = []
    for history, lenient, key, operation in operations_of(batches):
        group = history, lenient, key
        if group != current:
            if current is not None:
                yield current, mine
            current, mine = group, []
        mine.append(operation)
    if current is not None:
        yield current, mine


def _row(history: str, key: str, result: KeyResult) -> dict[str, Any]:
    anomalies = [anomaly_row(nonlinearizable(result))] if result.valid is False else []
    return {
        "history": history,
        "key": key,
        "valid": verdict_word(result.valid),
        "operations": result.operation_count,
        "method": "search",
        "why_unknown": result.why_unknown,
        "refused": "",
        "anomalies": anomalies,
    }


def _refused(history: str, key: str, operations: int, why: str) -> dict[str, Any]:
    return {
        "history": history,
        "key": key,
        "valid": UNKNOWN,
        "operations": operations,
        "method": "search",
        "why_unknown": why,
        "refused": why or "its values are others",
        "anomalies": [],
    }


NO_KEY = "null"


def check_histories(operations: DataFrame, checker: str) -> DataFrame:
    """Return a row of `VERDICTS` for each history. One task holds a history as a whole."""
    together = operations.select(*READ_COLUMNS).repartition("history")
    ordered = together.sortWithinPartitions("history", "invoke_index")
    return ordered.mapInArrow(partial(_checked_histories, checker=checker), VERDICTS_SQL)


def _checked_histories(
    batches: Iterable[pa.RecordBatch], *, checker: str
) -> Iterator[pa.RecordBatch]:
    for history, group in groupby(operations_of(batches), key=itemgetter(0)):
        row = _history_row(history, [operation for *_, operation in group], checker)
        yield pa.RecordBatch.from_pylist([row], VERDICTS)


def _history_row(history: str, mine: list[Operation], checker: str) -> dict[str, Any]:
    row: dict[str, Any] = {"history": history, "key": NO_KEY, "method": "whole", "refused": ""}
    row |= {"valid": "unknown", "why_unknown": "", "anomalies": [], "operations": len(mine)}
    try:
        verdict = CHECKERS[checker](sorted(_lines(mine), key=lambda op: op.index))
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        row["refused"] = str(error) or "its values are others"
    else:
        row |= {"valid": verdict_word(verdict.valid), "why_unknown": verdict.why_unknown}
        row["anomalies"] = [anomaly_row(one) for one in verdict.anomalies]
        row["anomalies"] += [anomaly_row(one, allowed=True) for one in verdict.notes]
    return row


def _lines(mine: list[Operation]) -> Iterator[Op]:
    for operation in mine:
        yield operation.invoke
        if operation.completion is not None:
            yield operation.completion

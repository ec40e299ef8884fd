"""Traces of servers: tasks read events, SQL finds what several of them show together."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jepsen.checkers.replication.trace import NEVER_BACK, claim_of, events_of, impossible_in
from jepsen.history.table import batches_of, ddl, text_of
from jepsen.spark._findings import Findings, kept, refused_by_tasks
from jepsen.spark._search import ANOMALIES_SQL, ANOMALY, INVALID, VALID, anomaly_row
from jepsen.spark._tuning import tune_for
from jepsen.spark.input import history_file, operations_in, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from jepsen.checkers.replication.trace import Event

_FIELDS = tuple(dict.fromkeys(field for _, field, _ in NEVER_BACK))
_PLAIN = pa.schema(
    [
        pa.field("history", pa.string()),
        pa.field("key", pa.string()),
        pa.field("partition", pa.string()),
        pa.field("line", pa.int64()),
        pa.field("node", pa.string()),
        pa.field("life", pa.int64()),
        pa.field("f", pa.string()),
        *(pa.field(name, pa.int64()) for name in _FIELDS),
        pa.field("claim", pa.string()),
        pa.field("at", pa.int64()),
        pa.field("what", pa.string()),
    ]
)
"""`key` is the partition as JSON, as in all verdicts; a `claim` is that of the checker."""
_EVENTS = _PLAIN.append(pa.field("impossible", pa.list_(ANOMALY)))
_EVENTS_SQL = f"{ddl(_PLAIN)}, impossible {ANOMALIES_SQL}"


def _step_back(f: str, field: str, name: str) -> str:
    """An anomaly where the field is less than in the event before, else null."""
    detail = f"partition, node, '{field}' AS of, {field} AS value, before.{field} AS after"
    return f"""CASE WHEN f = '{f}' AND {field} < before.{field} THEN struct(
        '{name}' AS name, to_json(struct({detail})) AS detail, array(before.line, line) AS lines,
        false AS allowed) END"""


_ANOMALIES = f"""
WITH steps AS (
    SELECT *, lag(struct(line, {", ".join(_FIELDS)})) OVER (
        PARTITION BY history, partition, f, node, life ORDER BY line) AS before
    FROM {{events}}
), back AS (
    SELECT history, key, array({", ".join(_step_back(*one) for one in NEVER_BACK)}) AS found
    FROM steps
), told AS (
    SELECT history, key, partition, claim, at, what, node, min(line) AS line FROM {{events}}
    WHERE claim IS NOT NULL GROUP BY ALL
), places AS (
    SELECT history, key, partition, claim, at,
        array_sort(collect_list(struct(what, node, line))) AS told
    FROM told GROUP BY ALL HAVING min(what) <> max(what)
)
SELECT history, key, inline(filter(found, one -> one IS NOT NULL)) FROM back
UNION ALL SELECT history, key, inline(impossible) FROM {{events}}
UNION ALL SELECT history, key, claim, to_json(struct(partition, at,
        transform(told, one -> struct(one.what, one.node)) AS told)),
    array_sort(transform(told, one -> one.line)), false
FROM places
"""
_VERDICTS = f"""
WITH told AS (
    SELECT history, key, count(*) AS operations FROM {{events}} GROUP BY history, key
), wrong AS (SELECT DISTINCT history, key FROM {{anomalies}})
SELECT told.history, told.key, operations, 'trace' AS method, '' AS why_unknown,
    CASE WHEN wrong.key IS NULL THEN '{VALID}' ELSE '{INVALID}' END AS valid
FROM told LEFT JOIN wrong ON told.history = wrong.history AND told.key = wrong.key
"""


def check_trace(spark: SparkSession, files: Sequence[str], scratch: Path) -> Findings:
    """The verdicts on histories in text, a row a partition of each. Every worker must see the
    files and what is below `scratch`. A file is read by one task. Raises InputError.
    """
    tune_for(spark, (history_file(Path(file)) for file in files))
    numbers = spark.range(0, len(files), numPartitions=len(files))
    read = numbers.mapInArrow(partial(_read, files=tuple(files)), _EVENTS_SQL)
    with refused_by_tasks():
        events = kept(read, scratch / "events")
    anomalies = kept(spark.sql(_ANOMALIES, events=events), scratch / "found")
    return Findings(spark.sql(_VERDICTS, events=events, anomalies=anomalies), anomalies)


def _read(batches: Iterable[pa.RecordBatch], *, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from batches_of(_rows(files[number]), _EVENTS)


def _rows(file: str) -> Iterator[tuple[Any, ...]]:
    with readable(file):
        _, history = operations_in(file)
        yield from (_row(file, one) for one in events_of(history))


def _row(file: str, one: Event) -> tuple[Any, ...]:
    where = file, text_of(one.partition), one.partition, one.line, one.node, one.life, one.f
    fields = (one.value.get(name) for name in _FIELDS)
    impossible = [anomaly_row(anomaly) for anomaly in impossible_in(one)]
    return *where, *fields, *(claim_of(one) or (None, None, None)), impossible

"""Dumps of replicas and traces of servers, judged on Spark.

A task reads a file. SQL finds where two replicas hold different records, and what several events of
a trace show together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jepsen.checkers.replication import SHOWN_MAX, diverged, verdict_of
from jepsen.checkers.replication.trace import NEVER_BACK, claim_of, events_of, impossible_in
from jepsen.history.table import batches_of, ddl, text_of
from jepsen.log_files import read_dump
from jepsen.spark._findings import Findings, kept, refused_by_tasks
from jepsen.spark._search import ANOMALIES_SQL, ANOMALY, INVALID, VALID, anomaly_row
from jepsen.spark.input import history_file, operations_in, readable
from jepsen.spark.session import tune_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from jepsen.checkers.replication.trace import Event
    from jepsen.checkers.verdict import Verdict

_RowsOf = Callable[[str], Iterator[tuple[Any, ...]]]
"""The rows of a file."""
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
    """Return the verdicts on histories in text, a row a partition of each. Every worker must see
    the files and what is below `scratch`. A file is read by one task. Raises InputError.
    """
    tune_for(spark, (history_file(Path(file)) for file in files))
    read = _over_files(spark, files, _EVENTS, _EVENTS_SQL, _rows)
    with refused_by_tasks():
        events = kept(read, scratch / "events")
    anomalies = kept(spark.sql(_ANOMALIES, events=events), scratch / "found")
    return Findings(spark.sql(_VERDICTS, events=events, anomalies=anomalies), anomalies)


def _over_files(
    spark: SparkSession, files: Sequence[str], schema: pa.Schema, schema_sql: str, rows: _RowsOf
) -> DataFrame:
    """Return a table of the rows of all files; a file is read by one task."""
    read = partial(_read, files=tuple(files), schema=schema, rows=rows)
    numbers = spark.range(0, len(files), numPartitions=len(files))
    return numbers.mapInArrow(read, schema_sql)


def _read(
    batches: Iterable[pa.RecordBatch], *, files: Sequence[str], schema: pa.Schema, rows: _RowsOf
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield from batches_of(rows(files[number]), schema)


def _rows(file: str) -> Iterator[tuple[Any, ...]]:
    with readable(file):
        _, history = operations_in(file)
        yield from (_row(file, one) for one in events_of(history))


def _row(file: str, one: Event) -> tuple[Any, ...]:
    where = file, text_of(one.partition), one.partition, one.line, one.node, one.life, one.f
    fields = (one.value.get(name) for name in _FIELDS)
    impossible = [anomaly_row(anomaly) for anomaly in impossible_in(one)]
    return *where, *fields, *(claim_of(one) or (None, None, None)), impossible


_HELD = pa.schema(
    [
        pa.field("replica", pa.string()),
        pa.field("partition", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("record", pa.string()),
    ]
)
# What is brought to one place by partition and offset needs no further exchange, and of records
# that are the same everywhere nothing is kept.
_PLACES = """
WITH held AS (SELECT * FROM {held} DISTRIBUTE BY partition, offset),
each AS (
    SELECT partition, offset, replica, max(record) AS record FROM held
    GROUP BY partition, offset, replica
)
SELECT partition, offset,
    CASE WHEN min(record) <> max(record) THEN collect_list(struct(replica, record)) END AS records
FROM each GROUP BY partition, offset HAVING count(*) > 1
"""


def check_dumps(spark: SparkSession, files: Sequence[str], scratch: Path) -> Verdict:
    """Judge a dump of each replica, as `jepsen.checkers.replication.check_replicas` does.

    Every worker must see the files and `scratch`. Raises InputError, naming file and line.
    """
    tune_for(spark, map(Path, files))
    held = _over_files(spark, files, _HELD, ddl(_HELD), _held)
    with refused_by_tasks():
        places = kept(spark.sql(_PLACES, held=held), scratch / "places")
    (counts,) = places.selectExpr("count(*) AS shared", "count(records) AS wrong").collect()
    wrong = places.where("records IS NOT NULL").orderBy("partition", "offset").limit(SHOWN_MAX)
    found = [
        diverged(row["partition"], row["offset"], {one.replica: one.record for one in row.records})
        for row in wrong.collect()
    ]
    return verdict_of(found, len(files), counts["shared"], counts["wrong"])


def _held(file: str) -> Iterator[tuple[Any, ...]]:
    return ((file, *held) for held in read_dump(Path(file)))

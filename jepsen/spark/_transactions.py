"""Transactions on lists (`jepsen.checkers.transactions.list_append`): what each key shows, then the
cycles.

What transactions have done to a key shows by itself what is wrong there, and which transaction
comes before which: the edges of a graph. Process and real time only lead from who began earlier to
who began later, so a cycle must have edges of the data that lead back. Each of these covers the
time from the beginning of the one to that of the other; what no such edge covers is in no cycle,
and a cycle lies within one stretch of time that they cover without a gap. SQL makes these stretches
(`_STRETCHES`), and tasks search one after the other with the search of one process.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from jepsen.checkers.transactions import Edge, Graph, find_cycles, order_edges
from jepsen.checkers.transactions.consistency import CYCLES, KAFKA, PROCESS, forbidden, orders
from jepsen.checkers.transactions.list_append import (
    NO_EDGES,
    NO_ORDER,
    NO_READS,
    cycle_kinds,
    ended_of,
    forbids_disorder,
    infer,
    is_allowed,
    links,
    micros_of,
    unusable_micros,
)
from jepsen.history import TXN, Op, Operation, OpType
from jepsen.history.edn import hashable
from jepsen.history.table import READ_COLUMNS, operations_of, text_of, value_of
from jepsen.spark._findings import Findings, kept, refuse
from jepsen.spark._search import NO_KEY, ROWS_A_BATCH, anomaly_row, grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from jepsen.checkers.verdict import Anomaly
    from jepsen.spark.input import Histories

EDGE, ANOMALY, ALLOWED, READ = "edge", "anomaly", "allowed", "read"
UNUSABLE, REFUSED = "unusable", "refused"
LINKED, UNORDERED = "linked", "unordered"
SHOWN = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("what", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("lines", pa.list_(pa.int64()), nullable=False),
        pa.field("begun", pa.list_(pa.int64()), nullable=False),
    ]
)
"""The findings of one key. An edge: `name` is its kind, `detail` the reason, `lines` its two
vertices and a number that orders several edges between these, `begun` the lines in which they were
invoked. Other rows: that there are reads, that an edge links ended operations, and why no verdict
is possible."""
SHOWN_SQL = (
    "history string, key string, what string, name string, detail string, lines array<long>, "
    "begun array<long>"
)
_FOUND = pa.schema([SHOWN.field(name) for name in ("history", "key", "name", "detail", "lines")])
_FOUND_SQL = "history string, key string, name string, detail string, lines array<long>"
_PLACED = "history, stretch, at, complete_index, process, type, lines, kind, why"

# Of what is in the same line an edge that leads back comes first.
_STRETCHES = f"""
WITH edges AS (
    SELECT history, begun[0] AS begun, begun[1] AS target, lines, name AS kind, detail AS why
    FROM {{shown}} WHERE what = '{EDGE}' AND array_contains(:kinds, name)
), marks AS (
    SELECT history, target AS at, begun AS reach, 0 AS place, CAST(NULL AS long) AS complete_index,
        CAST(NULL AS long) AS process, '' AS type, array() AS lines, '' AS kind, '' AS why
    FROM edges WHERE target < begun
    UNION ALL SELECT history, invoke_index, NULL, 1, complete_index, process, type, array(), '', ''
    FROM {{operations}} WHERE f = 'txn' AND type <> 'fail'
    UNION ALL SELECT history, begun, NULL, 2, NULL, NULL, '', lines, kind, why FROM edges
), covered AS (
    SELECT *, max(reach) OVER so_far AS cover, max(reach) OVER before AS cover_before FROM marks
    WINDOW so_far AS (
        PARTITION BY history ORDER BY at, place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ), before AS (
        PARTITION BY history ORDER BY at, place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
), placed AS (
    SELECT *, max(CASE WHEN place = 0 AND coalesce(cover_before < at, true) THEN at END) OVER (
        PARTITION BY history ORDER BY at, place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS stretch FROM covered
)
SELECT {_PLACED} FROM placed WHERE place > 0 AND at <= cover
"""
_ANOMALIES = f"""
SELECT history, key, name, detail, lines, array_contains(:allowed, name) AS allowed
FROM {{cycles}}
UNION ALL SELECT history, key, name, detail, lines, what = '{ALLOWED}' FROM {{shown}}
WHERE what IN ('{ANOMALY}', '{ALLOWED}')
"""
_VERDICTS = f"""
WITH counted AS (
    SELECT history, count_if(f = 'txn') AS operations FROM {{operations}} GROUP BY history
), wrong AS (
    SELECT DISTINCT history, true AS wrong FROM {{anomalies}} WHERE NOT allowed
), seen AS (
    SELECT history, bool_or(what = '{READ}') AS seen, bool_or(what = '{LINKED}') AS linked,
        bool_or(what = '{UNORDERED}') AS unordered,
        min(detail) FILTER (WHERE what = '{UNUSABLE}') AS unusable
    FROM {{shown}} GROUP BY history
), ordered AS (
    SELECT DISTINCT history, true AS ordered FROM (
        SELECT history FROM {{operations}} WHERE f = '{TXN}' AND complete_index IS NOT NULL
        GROUP BY history, CASE WHEN :order = '{PROCESS}' THEN process END
        HAVING CASE WHEN :order = '{PROCESS}' THEN count_if(type = 'ok') > 1
            ELSE min(complete_index) FILTER (WHERE type = 'ok') < max(invoke_index) END
    ) WHERE :order <> ''
), reasons AS (
    SELECT counted.history, operations, coalesce(wrong, false) AS wrong, CASE
        WHEN unusable IS NOT NULL THEN unusable
        WHEN NOT coalesce(seen, false) THEN '{NO_READS}'
        WHEN :edges AND NOT coalesce(linked, false) AND ordered IS NULL THEN '{NO_EDGES}'
        WHEN :disorder AND coalesce(unordered, false) THEN '{NO_ORDER}'
        ELSE '' END AS why
    FROM counted LEFT JOIN wrong ON counted.history = wrong.history
    LEFT JOIN seen ON counted.history = seen.history
    LEFT JOIN ordered ON counted.history = ordered.history
)
SELECT history, '{NO_KEY}' AS key, operations, 'stretches' AS method,
    CASE WHEN wrong THEN 'false' WHEN why = '' THEN 'true' ELSE 'unknown' END AS valid,
    CASE WHEN wrong THEN '' ELSE why END AS why_unknown
FROM reasons
"""


def check_cycles(histories: Histories, scratch: Path, consistency: str) -> Findings:
    """Return all that `check_list_append` finds but what a stricter model forbids; a verdict a
    history.

    Raises InputError for other operations.
    """
    operations = histories.operations
    spark = operations.sparkSession
    parts = operations.where(f"f = '{TXN}'").select(*READ_COLUMNS)
    together = (
        parts.mapInArrow(_parts, parts.schema)
        .repartition("history", "key")
        .sortWithinPartitions("history", "key", "invoke_index")
    )
    inferred = together.mapInArrow(partial(_inferred, consistency=consistency), SHOWN_SQL)
    shown = kept(inferred, scratch / "shown")
    refuse(shown.where(f"what = '{REFUSED}'").selectExpr("history", "detail AS refused"))
    # Where values are not unique, nothing that another key shows is certain.
    usable = shown.join(
        shown.where(f"what = '{UNUSABLE}'").select("history"), "history", "left_anti"
    ).select(*SHOWN.names)
    cycles = Cycles(cycle_kinds(consistency), orders(consistency), forbidden(consistency))
    anomalies = kept(cycles_of(usable, operations, scratch, cycles), scratch / "found")
    verdicts = spark.sql(
        _VERDICTS,
        {
            "order": orders(consistency)[-1] if cycles.orders else "",
            "edges": consistency != KAFKA,
            "disorder": not forbids_disorder(consistency),
        },
        operations=operations,
        anomalies=anomalies,
        shown=shown,
    )
    return Findings(verdicts, anomalies)


class Cycles(NamedTuple):
    """The cycles that are looked for."""

    kinds: tuple[str, ...]
    """The kinds of their edges that come from the data."""
    orders: tuple[str, ...]
    forbidden: frozenset[str]
    """The names of those that are wrong."""

    @property
    def names(self) -> list[str]:
        """Names of all anomalies that may be found."""
        return [f"{name}{suffix}" for name in CYCLES for suffix in ("", "-process", "-realtime")]


def cycles_of(shown: DataFrame, operations: DataFrame, scratch: Path, wanted: Cycles) -> DataFrame:
    """Return the anomalies (`FOUND`) of rows of `SHOWN`, and the cycles that their edges make.

    `operations`: of the columns of `OPERATIONS` those that transactions and their order have.
    """
    spark = shown.sparkSession
    stretches = spark.sql(
        _STRETCHES, {"kinds": list(wanted.kinds)}, shown=shown, operations=operations
    )
    ordered = stretches.repartition("history", "stretch").sortWithinPartitions(
        "history", "stretch", "at", "kind"
    )
    found = ordered.mapInArrow(partial(_cycles, wanted=wanted), _FOUND_SQL)
    cycles = kept(found, scratch / "cycles")
    allowed = [name for name in wanted.names if name not in wanted.forbidden]
    return spark.sql(_ANOMALIES, {"allowed": allowed}, cycles=cycles, shown=shown)


# --- what transactions did to each key ------------------------------------------------------------


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For each key that a transaction touches a row with what it did there, as its values."""
    for batch in batches:
        rows = []
        together = zip(batch.to_pylist(), operations_of([batch]), strict=True)
        for row, (*_, operation) in together:
            rows += [row | part for part in _by_key(operation)]
        yield pa.RecordBatch.from_pylist(rows, batch.schema)


def _by_key(operation: Operation) -> Iterator[dict[str, str]]:
    try:
        by_key: dict[str, list[Any]] = {}
        for micro in micros_of(operation):
            # What is no micro-operation of lists is marked by the key that stands for none.
            other = unusable_micros([micro])
            key = text_of(hashable(micro[1])) if len(micro) > 1 and not other else NO_KEY
            by_key.setdefault(key, []).append(micro)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        why = str(error) or "its values are others"
        yield {"key": NO_KEY, "f": REFUSED, "argument": text_of(why), "result": text_of(why)}
        return
    for key, mine in by_key.items():
        text = text_of(mine)
        yield {"key": key, "argument": text, "result": text}


def _inferred(batches: Iterable[pa.RecordBatch], consistency: str) -> Iterator[pa.RecordBatch]:
    none = {"lines": [], "begun": [], "name": "", "detail": ""}
    rows = (
        {"history": history, "key": key} | none | row
        for (history, _, key), mine in grouped(batches)
        for row in _rows(mine, consistency)
    )
    return _in_batches(rows, SHOWN)


def _in_batches(rows: Iterator[dict[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while some := list(islice(rows, ROWS_A_BATCH)):
        yield pa.RecordBatch.from_pylist(some, schema)


def _rows(mine: list[Operation], consistency: str) -> Iterator[dict[str, Any]]:
    refused = next((one for one in mine if one.invoke.f == REFUSED), None)
    if refused is not None:
        yield {"what": REFUSED, "detail": refused.invoke.value}
        return
    try:
        found = infer(mine, disorder_allowed=not forbids_disorder(consistency))
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        yield {"what": REFUSED, "detail": str(error) or "its values are others"}
        return
    begun = {vertex: invoked for invoked, vertex in found.vertices.items()}
    if found.unusable:
        yield {"what": UNUSABLE, "detail": found.unusable}
    if found.reads:
        yield {"what": READ}
    if found.unordered:
        yield {"what": UNORDERED}
    ended = ended_of(mine)
    if any(links(edge, ended) for edge in found.edges):
        yield {"what": LINKED}
    for anomaly in found.anomalies:
        allowed = is_allowed(anomaly, mine, consistency)
        yield {"what": ALLOWED if allowed else ANOMALY, **_shown(anomaly)}
    for edge in found.edges:
        if edge.source != edge.target:
            ends = [edge.source, edge.target]
            why = text_of(list(edge.why))
            yield {"what": EDGE, "name": edge.kind, "detail": why, "lines": ends} | {
                "begun": [begun[end] for end in ends]
            }


def _shown(anomaly: Anomaly) -> dict[str, Any]:
    row = anomaly_row(anomaly)
    return {name: row[name] for name in ("name", "detail", "lines")}


# --- cycles ---------------------------------------------------------------------------------------


class _Mark(NamedTuple):
    """A transaction that began, or an edge from it (then it has a kind)."""

    history: str
    stretch: int
    at: int
    complete_index: int | None
    process: int | None
    type: str
    lines: list[int]
    kind: str
    why: str

    @property
    def edge(self) -> Edge:
        """That it is."""
        source, target, *_ = self.lines
        return Edge(source, target, self.kind, hashable(value_of(self.why)))


def _cycles(batches: Iterable[pa.RecordBatch], wanted: Cycles) -> Iterator[pa.RecordBatch]:
    return _in_batches(_cycle_rows(batches, wanted), _FOUND)


def _cycle_rows(batches: Iterable[pa.RecordBatch], wanted: Cycles) -> Iterator[dict[str, Any]]:
    rows = (_Mark(**row) for batch in batches for row in batch.to_pylist())
    for (history, _), mine in groupby(rows, key=lambda row: (row.history, row.stretch)):
        marks = list(mine)
        begun = [_operation(mark) for mark in marks if not mark.kind]
        edges = sorted((mark for mark in marks if mark.kind), key=lambda mark: mark.lines)
        for cycle in _within(begun, [mark.edge for mark in edges], wanted):
            yield {"history": history, "key": NO_KEY, **_shown(cycle)}


def _operation(mark: _Mark) -> Operation:
    process = mark.process or 0
    invoke = Op(mark.at, 0, process, OpType.INVOKE, "txn")
    if mark.complete_index is None:
        return Operation(invoke, None)
    return Operation(invoke, Op(mark.complete_index, 0, process, OpType(mark.type), "txn"))


def _within(mine: list[Operation], edges: list[Edge], wanted: Cycles) -> list[Anomaly]:
    """The cycles of a stretch. Edges that leave it are part of none."""
    known = {end for edge in edges for end in (edge.source, edge.target)}
    vertices = {}
    for one in mine:
        vertex = (one.completion or one.invoke).index
        if one.type is OpType.OK or vertex in known:
            vertices[one.invoke.index] = vertex
    inside = set(vertices.values())
    graph = Graph()
    for edge in edges:
        if edge.source in inside and edge.target in inside:
            graph.add(edge)
    for edge in order_edges(mine, vertices, wanted.orders):
        graph.add(edge)
    return find_cycles(graph, wanted.kinds, wanted.orders, wanted.forbidden)

"""Logs: their records are packed by key, and tasks judge some keys at a time.

What concerns several keys goes around that: facts about a history as a whole, and the points where
processes start again, are collected on the driver and sent to all tasks. Parts of transactions are
joined in SQL. Offsets that groups commit are few, and are judged by the checker of one process.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sql

from jepsen.checkers.kafka import ALLOWED, ALLOWED_SUBSCRIBED, LOOKS, offset_regressions
from jepsen.checkers.kafka.log import call_of
from jepsen.history.table import READ_COLUMNS, batches_of, operations_of, text_of
from jepsen.spark._findings import FOUND, FOUND_SQL, Findings, kept, refusal, refused_by_tasks
from jepsen.spark._search import ANOMALY, anomaly_row
from jepsen.spark._transactions import SHOWN_SQL
from jepsen.spark.logs._anomalies import FINDERS, Logs, last_sent, parts
from jepsen.spark.logs._block import NEVER, Block
from jepsen.spark.logs._cycles import graph_rows, is_early, log_cycles
from jepsen.spark.logs._records import (
    BOTH,
    MOVED,
    POLLED_OK,
    RECORD,
    RECORDS,
    REFUSED,
    RESET,
    SENT,
    SENT_OK,
    SPREAD,
    TOLD,
    packed_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from jepsen.history import Operation
    from jepsen.spark.input import Histories

BLOCK_RECORDS = 500_000
"""So many records at least are judged at a time, if keys are smaller; a key is never cut, and takes
about half a kilobyte of memory for each of its records."""
PART = pa.struct(
    [
        pa.field("call", pa.int64(), nullable=False),
        pa.field("shown", pa.int64()),
        pa.field("value", pa.string()),
    ]
)
JUDGED = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("operations", pa.int64(), nullable=False),
        pa.field("last_sent", pa.int64(), nullable=False),
        pa.field("anomalies", pa.list_(ANOMALY), nullable=False),
        pa.field("parts", pa.list_(PART), nullable=False),
        pa.field("early", pa.bool_(), nullable=False),
    ]
)
"""A row a key. `parts` are what transactions of several sends sent to it: `shown` is the line where
it was first read, and if there is none `value` its value as JSON; `last_sent` is the latest
invocation of what was read of the key; `early`: a poll ended before what it returned was sent."""
JUDGED_SQL = (
    "history string, key string, operations long, last_sent long, anomalies array<struct<"
    "name: string, detail: string, lines: array<long>, allowed: boolean>>, "
    "parts array<struct<call: long, shown: long, value: string>>, early boolean"
)
_SHOWN_SQL = "history string, call long"
_SHOWN = pa.schema([pa.field("history", pa.string()), pa.field("call", pa.int64())])

_TORN = """
WITH parts AS (
    SELECT history, key, last_sent, part.* FROM (
        SELECT history, key, last_sent, explode(parts) AS part FROM {judged} WHERE size(parts) > 0)
), shown AS (
    SELECT history, call, min(shown) AS shown FROM parts WHERE shown IS NOT NULL
    GROUP BY history, call
)
SELECT parts.history, key, 'torn-transaction' AS name, concat('{{"key": ',
    CASE WHEN key LIKE '#%' THEN substring(quoted, 6, length(quoted) - 6) ELSE key END,
    ', "value": ', value, '}}') AS detail, array(parts.call, shown.shown) AS lines, false AS allowed
FROM (SELECT *, to_json(named_struct('v', key)) AS quoted FROM parts) parts
JOIN shown ON parts.history = shown.history AND parts.call = shown.call
WHERE parts.shown IS NULL AND last_sent > shown.shown
"""

_VERDICTS = """
WITH wrong AS (
    SELECT DISTINCT history, key, true AS wrong FROM {anomalies} WHERE NOT allowed
), keys AS (
    SELECT history, key, sum(operations) AS operations FROM (
        SELECT history, key, operations FROM {judged}
        UNION ALL SELECT history, key, 0L FROM wrong
    ) GROUP BY history, key
)
SELECT told.history, coalesce(keys.key, 'null') AS key,
    CASE WHEN coalesce(wrong, false) THEN 'false' WHEN why_unknown <> '' THEN 'unknown'
        ELSE 'true' END AS valid,
    coalesce(operations, 0L) AS operations, 'blocks' AS method,
    CASE WHEN coalesce(wrong, false) THEN '' ELSE why_unknown END AS why_unknown
FROM {told} told LEFT JOIN keys ON told.history = keys.history
LEFT JOIN wrong ON keys.history = wrong.history AND keys.key = wrong.key
"""


class Reset(NamedTuple):
    """From this line on a process stands nowhere in the logs but those kept."""

    process: int
    call: int
    kept: frozenset[str] | None
    """Keys as text, or None for none at all."""


@dataclass
class About:
    """What is to be known of a history for judging one of its keys."""

    words: set[str] = field(default_factory=set)
    """See `jepsen.spark.logs._records`."""
    resets: list[Reset] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    """Lines of operations of unknown outcome that took effect."""

    @property
    def why_unknown(self) -> str:
        """Why nothing can be said if nothing is wrong."""
        if SENT_OK not in self.words:
            return "no send has succeeded"
        return "" if POLLED_OK in self.words else "no poll has returned anything"

    @property
    def allowed(self) -> frozenset[str]:
        """Anomalies that are none here."""
        return ALLOWED | ALLOWED_SUBSCRIBED if MOVED in self.words else ALLOWED


def check_log(histories: Histories, scratch: Path) -> Findings:
    """All anomalies of logs. Raises InputError for other operations."""
    spark = histories.operations.sparkSession
    packed = kept(packed_of(histories.operations), scratch / "records")
    about = _about(packed)
    by_key = packed.where(f"kind = '{RECORDS}'").select("history", "key", "texts", "records")
    by_key = by_key.repartition("history", "key").sortWithinPartitions("history", "key")
    if any(SPREAD in one.words for one in about.values()):
        for row in by_key.mapInArrow(_shown, _SHOWN_SQL).distinct().toArrow().to_pylist():
            about[row["history"]].committed.append(row["call"])
    judged = by_key.mapInArrow(partial(_judged, about=about), JUDGED_SQL)
    judged = kept(judged, scratch / "judged")
    anomalies = judged.selectExpr("history", "key", "inline(anomalies)")
    anomalies = anomalies.unionByName(spark.sql(_TORN, judged=judged))
    with refused_by_tasks():
        anomalies = anomalies.unionByName(regressions_of(histories.operations))
        if cyclic := _may_have_cycles(about, scratch / "judged"):
            mine = by_key.where(sql.col("history").isin(cyclic))
            shown = kept(mine.mapInArrow(_graph, SHOWN_SQL), scratch / "shown")
            anomalies = anomalies.unionByName(log_cycles(shown, scratch))
        anomalies = kept(anomalies, scratch / "found")
    told = spark.createDataFrame(
        [(history, one.why_unknown) for history, one in about.items()],
        "history string, why_unknown string",
    )
    verdicts = spark.sql(_VERDICTS, anomalies=anomalies, told=told, judged=judged)
    return Findings(verdicts, anomalies)


def _may_have_cycles(about: dict[str, About], judged: Path) -> list[str]:
    """The histories that may have cycles.

    What was read was sent before that, and process and real time lead only onwards. So a cycle
    needs who both sends and polls, or a poll that ended before what it returned was sent.
    """
    found = {history for history, one in about.items() if BOTH in one.words}
    # Read without Spark: a job takes longer, and nearly always there is nothing.
    keys = pq.read_table(judged, columns=["history", "early"])
    return sorted(found.union(keys.filter(keys["early"])["history"].to_pylist()))


def _about(packed: DataFrame) -> dict[str, About]:
    """By history. Raises InputError."""
    rows = packed.where(f"kind <> '{RECORDS}'").drop("records", "key")
    return about_of(rows.toArrow().to_pylist())


def about_of(rows: Iterable[dict[str, Any]]) -> dict[str, About]:
    """By history what rows of `PACKED` that are no records say. Raises InputError."""
    about: defaultdict[str, About] = defaultdict(About)
    for row in rows:
        mine, kind, texts = about[row["history"]], row["kind"], row["texts"]
        if kind == REFUSED:
            raise refusal(row["history"], texts[0])
        if kind == RESET:
            keys = None if texts is None else frozenset(texts)
            mine.resets.append(Reset(row["process"], row["call"], keys))
        elif kind == TOLD:
            mine.words.update(texts)
    return dict(about)


# --- in tasks -------------------------------------------------------------------------------------


class _Keys:
    """Whole keys, from their packed rows."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        """(history, key)."""
        self._sizes: list[int] = []
        self._records: list[Any] = []
        self.size = 0
        """How many records there are in all."""
        self._texts: list[str] = []

    def add(self, name: tuple[str, str], texts: list[str], records: pa.Buffer) -> None:
        """One row; those of a key follow each other."""
        if not self.names or self.names[-1] != name:
            self.names.append(name)
            self._sizes.append(0)
        count = len(records) // RECORD.itemsize
        self._sizes[-1] += count
        self.size += count
        self._records.append(records)
        self._texts += texts

    def block(self) -> Block:
        """All of them."""
        records = np.frombuffer(b"".join(self._records), RECORD)
        return Block(np.repeat(np.arange(len(self._sizes)), self._sizes), records, self._texts)


def _blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[list[tuple[str, str]], Block]]:
    """(names of some keys, all their records)."""
    mine = _Keys()
    for batch in batches:
        histories, keys, texts = (batch.column(at).to_pylist() for at in range(3))
        for *name, words, records in zip(histories, keys, texts, batch.column(3), strict=True):
            if mine.size >= BLOCK_RECORDS and mine.names[-1] != tuple(name):
                yield mine.names, mine.block()
                mine = _Keys()
            mine.add((name[0], name[1]), words, records.as_buffer())
    if mine.size:
        yield mine.names, mine.block()


def _shown(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Operations of unknown outcome of which a record was read."""
    for names, block in _blocks(batches):
        rows = block.shown()
        histories = np.array([history for history, _ in names], object)[block.group[rows]]
        columns = [pa.array(histories, pa.string()), pa.array(block.call[rows])]
        yield pa.RecordBatch.from_arrays(columns, schema=_SHOWN)


def _graph(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for names, block in _blocks(batches):
        yield from graph_rows(block, names)


def _judged(
    batches: Iterable[pa.RecordBatch], *, about: dict[str, About]
) -> Iterator[pa.RecordBatch]:
    for names, block in _blocks(batches):
        mine = [about[history] for history, _ in names]
        took = [(group, call) for group, one in enumerate(mine) for call in one.committed]
        block.place(np.array(took, np.int64).reshape(-1, 2).T)
        sends = np.array([SENT in one.words for one in mine])
        keys = [key for _, key in names]
        logs = Logs(block, keys, _reset_counts(block, keys, mine), sends)
        anomalies: list[list[dict[str, Any]]] = [[] for _ in names]
        for finder in FINDERS:
            for found in finder(logs):
                one = {"name": found.name, "detail": found.detail, "lines": found.lines}
                allowed = found.name in mine[found.group].allowed
                anomalies[found.group].append({**one, "allowed": allowed})
        operations = np.bincount(block.group[_first(block)], minlength=len(names))
        columns = [
            pa.array([history for history, _ in names]),
            pa.array(keys),
            pa.array(operations),
            pa.array(last_sent(block, len(names))),
            pa.array(anomalies, pa.list_(ANOMALY)),
            _parts(logs),
            pa.array(is_early(block, len(names))),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=JUDGED)


def _first(block: Block) -> Any:
    """The first record of each operation on each key."""
    return np.flatnonzero(np.diff(block.operation, prepend=-1))


def _parts(logs: Logs) -> pa.Array:
    """What `PART` says, by key."""
    block = logs.block
    rows, shown = parts(block)
    nobody = shown == NEVER
    texts: Any = np.full(len(rows), None, object)
    texts[nobody] = [logs.shown(row) for row in rows[nobody].tolist()]
    columns = [
        pa.array(block.call[rows]),
        pa.array(shown, mask=nobody),
        pa.array(texts, pa.string()),
    ]
    keys = np.arange(len(logs.keys) + 1)
    ends: Any = np.searchsorted(block.group[rows], keys).astype(np.int32)
    mine = pa.StructArray.from_arrays(columns, fields=list(PART))
    return pa.ListArray.from_arrays(pa.array(ends), mine)


def _reset_counts(block: Block, keys: list[str], about: list[About]) -> Any:
    """How many resets each record's process has had in its key up to it."""
    resets = [
        (group, one.process, one.call)
        for group, (key, mine) in enumerate(zip(keys, about, strict=True))
        for one in mine.resets
        if one.kept is None or key not in one.kept
    ]
    if not resets:
        return np.zeros(len(block.call), np.int64)
    columns = zip(np.array(resets).T, (block.group, block.process, block.call), strict=True)
    group, process, call = (np.concatenate(pair) for pair in columns)
    is_reset = np.arange(len(group)) < len(resets)
    order = np.lexsort((~is_reset, call, process, group))
    counts: Any = np.empty(len(group), np.int64)
    counts[order] = np.cumsum(is_reset[order])
    return counts[len(resets) :]


def regressions_of(operations: DataFrame) -> DataFrame:
    """The anomalies (`FOUND`) of commits. One task has all commits of a history."""
    mine = operations.where(f"f IN {LOOKS} AND type <> 'fail'").select(*READ_COLUMNS)
    ordered = mine.repartition("history").sortWithinPartitions("history", "invoke_index")
    return ordered.mapInArrow(_judged_commits, FOUND_SQL)


def _judged_commits(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    groups = groupby(operations_of(batches), key=itemgetter(0))
    rows = (
        row
        for history, group in groups
        for row in _commit_rows(history, [one for *_, one in group])
    )
    return batches_of(rows, FOUND)


def _commit_rows(history: str, mine: list[Operation]) -> Iterator[tuple[Any, ...]]:
    calls = sorted(map(call_of, mine), key=lambda call: call.index)
    try:
        for anomaly in offset_regressions(calls):
            row = anomaly_row(anomaly)
            key = text_of(anomaly.detail["key"])
            yield history, key, row["name"], row["detail"], row["lines"], row["allowed"]
    except (ValueError, TypeError, AttributeError) as error:
        raise refusal(history, str(error)) from None

"""Logs: their records are packed by key, and tasks judge some keys at a time.

What concerns several keys goes around that: facts about a history as a whole, and the points where
processes start again, are collected on the driver and sent to all tasks. Parts of transactions are
joined in SQL. Offsets that groups commit are few, and are judged by the checker of one process.
"""

from __future__ import annotations

import json
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

from jepsen.checkers.kafka import (
    ALLOWED,
    ALLOWED_SUBSCRIBED,
    KINDS,
    LOOKS,
    ORDERS,
    WRONG,
    offset_regressions,
)
from jepsen.checkers.kafka.log import call_of
from jepsen.history.table import READ_COLUMNS, batches_of, operations_of, text_of, value_of
from jepsen.spark._findings import FOUND, FOUND_SQL, Findings, kept, refusal, refused_by_tasks
from jepsen.spark._search import ANOMALY, ROWS_A_BATCH, anomaly_row
from jepsen.spark._transactions import EDGE, SHOWN, SHOWN_SQL, Cycles, cycles_of
from jepsen.spark.logs._records import (
    BOTH,
    MARKS,
    MOVED,
    NEVER,
    NO_OFFSET,
    POLLED_OK,
    RECORD,
    RECORDS,
    REFUSED,
    RESET,
    SENT,
    SENT_OK,
    SPREAD,
    Block,
    Steps,
    packed_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from jepsen.history import Operation
    from jepsen.spark.input import Histories


# --- cycles ---------------------------------------------------------------------------------------
#
# Cycles of sends and polls, as `jepsen.checkers.kafka` has them. An edge leads from the operation
# that first sent a value to the one that polled it with success; process and real time are the
# others. `jepsen.spark._transactions` says how cycles are found.


VERTEX = "vertex"
"""A row of `SHOWN`, one for each key at least: `name` is how the operation ended, `lines` its
vertex and its process, `begun` the line of its invocation."""
_WR, _OK, _INFO = "wr", "ok", "info"

# What never ended has the line of its invocation for a vertex.
_OPERATIONS = f"""
SELECT DISTINCT history, 'txn' AS f, name AS type, lines[1] AS process, begun[0] AS invoke_index,
    nullif(lines[0], begun[0]) AS complete_index
FROM {{shown}} WHERE what = '{VERTEX}'
"""


def log_cycles(shown: DataFrame, scratch: Path) -> DataFrame:
    """Return the cycles (`FOUND`) that the rows of `graph_rows` make."""
    operations = shown.sparkSession.sql(_OPERATIONS, shown=shown)
    return cycles_of(shown, operations, scratch, Cycles(KINDS, ORDERS, frozenset(WRONG)))


# --- in tasks -------------------------------------------------------------------------------------


class _Reads(NamedTuple):
    """Arrays of equal length: records polled with success that somebody sent who has not failed."""

    reader: Any
    """Numbers of records."""
    writer: Any


def _reads(block: Block) -> _Reads:
    reader = np.flatnonzero(block.read)
    writer = block.writer[block.value[reader]]
    # The number -1 stands for the last record, which does no harm.
    mine = (writer >= 0) & ~block.failed[writer]
    return _Reads(reader[mine], writer[mine])


def is_early(block: Block, groups: int) -> Any:
    """Return for each group whether a poll ended before the send of a record it returned."""
    reader, writer = _reads(block)
    found: Any = np.zeros(groups, bool)
    found[block.group[reader[block.call[reader] < block.invoked[writer]]]] = True
    return found


def graph_rows(block: Block, names: Sequence[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    """Return the vertices and edges of some keys as rows of `SHOWN`. `names`: by group (history,
    key).
    """
    reads = _reads(block)
    for at in range(0, len(reads.reader), ROWS_A_BATCH):
        yield _edges(block, names, _Reads(*(rows[at : at + ROWS_A_BATCH] for rows in reads)))
    first = np.flatnonzero(block.ok & (np.diff(block.operation, prepend=-1) != 0))
    took = block.shown()
    for name, rows in ((_OK, first), (_INFO, took)):
        for at in range(0, len(rows), ROWS_A_BATCH):
            yield _vertices(block, names, rows[at : at + ROWS_A_BATCH], name)
    # Who took effect is a vertex even if another sent the same first: an edge to itself says so.
    for at in range(0, len(took), ROWS_A_BATCH):
        rows = took[at : at + ROWS_A_BATCH]
        yield _edges(block, names, _Reads(rows, rows))


def _edges(block: Block, names: Sequence[tuple[str, str]], reads: _Reads) -> pa.RecordBatch:
    reader, writer = reads
    pairs = zip(block.group[reader].tolist(), block.value[reader].tolist(), strict=True)
    why = [_why(names[group][1], block.text(value)) for group, value in pairs]
    # A poll's records follow each other by their turns, those of a turn as they are.
    lines = (block.call[writer], block.call[reader], block.turn[reader], reader)
    begun = (block.invoked[writer], block.invoked[reader])
    return _rows(_named(block, names, reader), (EDGE, _WR), why, _lists(*lines), _lists(*begun))


def _vertices(
    block: Block, names: Sequence[tuple[str, str]], rows: Any, name: str
) -> pa.RecordBatch:
    lines = _lists(block.call[rows], block.process[rows])
    nothing = [""] * len(rows)
    begun = _lists(block.invoked[rows])
    return _rows(_named(block, names, rows), (VERTEX, name), nothing, lines, begun)


def _why(key: str, value: str) -> str:
    """Both of them as one text."""
    if key.startswith("#") or value.startswith("#"):
        return text_of([value_of(key), value_of(value)])
    return f"[{key},{value}]"


def _named(block: Block, names: Sequence[tuple[str, str]], rows: Any) -> list[tuple[str, str]]:
    return [names[group] for group in block.group[rows].tolist()]


def _lists(*columns: Any) -> pa.Array:
    """A list for each row of the columns."""
    table = np.stack(columns, axis=1).astype(np.int64)
    ends = np.arange(len(table) + 1, dtype=np.int32) * np.int32(len(columns))
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(table.ravel()))


def _rows(
    named: list[tuple[str, str]],
    words: tuple[str, str],
    detail: list[str],
    lines: pa.Array,
    begun: pa.Array,
) -> pa.RecordBatch:
    """Rows of `SHOWN`; `words` are `what` and `name` of all."""
    histories, keys = zip(*named, strict=True)
    what, name = ([word] * len(named) for word in words)
    texts = [pa.array(column, pa.string()) for column in (histories, keys, what, name, detail)]
    return pa.RecordBatch.from_arrays([*texts, lines, begun], schema=SHOWN)


# --- anomalies of a block -------------------------------------------------------------------------
#
# Each as `jepsen.checkers.kafka` defines it. Lists of skipped values are cut at `SKIPPED_MAX`.


SKIPPED_MAX = 100


class Found(NamedTuple):
    """An anomaly of a key."""

    group: int
    name: str
    detail: str
    """JSON."""
    lines: list[int]


class Logs(NamedTuple):
    """Some logs, and what is to be known of them for telling what is wrong."""

    block: Block
    keys: Sequence[str]
    """The key of each group."""
    resets: Any
    """The number of resets of each record's process before it."""
    has_sends: Any
    """By group, True if its history has a send, to this key or another."""

    def found(self, row: int, name: str, lines: Iterable[int], **fields: object) -> Found:
        """Return an anomaly of the record's key; the fields are JSON or numbers."""
        group = int(self.block.group[row])
        return Found(group, name, _object(key=shown(self.keys[group]), **fields), [*lines])

    def shown(self, row: int) -> str:
        """Return the record's value as JSON."""
        return self.value(self.block.value[row])

    def value(self, value: int) -> str:
        """Return a value as JSON."""
        return shown(self.block.text(value))

    def writers(self, values: Iterable[int]) -> list[int]:
        """Return the lines of the sends of these values, as far as there are any."""
        rows = [int(self.block.writer[value]) for value in values]
        return [self.block.line(row) for row in rows if row >= 0]


def shown(text: str) -> str:
    """Return the text of a value as JSON, also if it is EDN."""
    return json.dumps(text, ensure_ascii=False) if text.startswith("#") else text


def _object(**fields: object) -> str:
    inside = (f'"{name.replace("_", "-")}": {value}' for name, value in fields.items())
    return "{" + ", ".join(inside) + "}"


def _list(parts: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, parts)) + "]"


def _places(mask: Any) -> Iterator[int]:
    yield from np.flatnonzero(mask).tolist()


# --- of values and places -------------------------------------------------------------------------


def _duplicates(logs: Logs) -> Iterator[Found]:
    block = logs.block
    pairs = zip(*(column.tolist() for column in block.moved), strict=True)
    for value, places in groupby(pairs, lambda pair: pair[0]):
        offsets = [int(block.offset[block.place_row[place]]) for _, place in places]
        fields = {"value": logs.value(value), "count": len(offsets), "offsets": _list(offsets)}
        yield logs.found(int(block.example[value]), "duplicate", logs.writers([value]), **fields)


def _inconsistent_offsets(logs: Logs) -> Iterator[Found]:
    block = logs.block
    for place in np.unique(block.shared.place).tolist():
        row = int(block.place_row[place])
        values = sorted(block.values_at(place), key=lambda value: _rank(block.text(value)))
        fields = {"offset": block.offset[row], "index": block.index(place)}
        texts = _list(map(logs.value, values))
        lines = logs.writers(values)
        yield logs.found(row, "inconsistent-offsets", lines, **fields, values=texts)


def _rank(text: str) -> tuple[str, int, str]:
    """Numbers first, each kind of values in its own order."""
    if text.lstrip("-").isdecimal():
        return "int", int(text), text
    return "str" if text.startswith('"') else "other", 0, text


def _spurious_zero_offsets(logs: Logs) -> Iterator[Found]:
    block = logs.block
    polled: Any = np.zeros(len(block.example), bool)
    at_zero: Any = np.zeros(len(block.example), bool)
    polled[block.value[block.poll]] = True
    at_zero[block.value[block.poll & (block.offset == 0)]] = True
    acknowledged = block.send & block.ok & (block.offset == 0)
    for row in _places(acknowledged & (polled & ~at_zero)[block.value]):
        lines = [block.line(row)]
        yield logs.found(row, "spurious-zero-offset", lines, value=logs.shown(row))


# --- of reads -------------------------------------------------------------------------------------


def _aborted_reads(logs: Logs) -> Iterator[Found]:
    block = logs.block
    aborted = (block.writer >= 0) & block.failed[block.writer]
    for row in _places(block.read & aborted[block.value]):
        lines = [*logs.writers([block.value[row]]), block.line(row)]
        fields = {"value": logs.shown(row), "writer": lines[0], "reader": lines[1]}
        yield logs.found(row, "G1a", lines, **fields)


def _unexpected(logs: Logs) -> Iterator[Found]:
    block = logs.block
    nobody = block.poll & (block.writer < 0)[block.value]
    for row in _places(nobody & logs.has_sends[block.group]):
        offset = "null" if block.offset[row] == NO_OFFSET else block.offset[row]
        lines = [block.line(row)]
        yield logs.found(row, "unexpected", lines, value=logs.shown(row), offset=offset)


def _precommitted_reads(logs: Logs) -> Iterator[Found]:
    for row in _places(logs.block.read & logs.block.own):
        lines = [logs.block.line(row)]
        yield logs.found(row, "precommitted-read", lines, value=logs.shown(row))


# --- of what nobody has read ----------------------------------------------------------------------


def _lost_writes(logs: Logs) -> Iterator[Found]:
    block = logs.block
    reads = block.placed(block.read)
    place = block.place_of[block.value[reads]]
    furthest: Any = np.full(len(logs.keys), -1, np.int64)
    np.maximum.at(furthest, block.group[reads], place)
    who = reads[place == furthest[block.group[reads]]][::-1]
    reader: Any = np.full(len(logs.keys), -1, np.int64)
    reader[block.group[who]] = who  # the first stays
    mine = block.placed(block.certain & ~block.seen[block.value])
    place = block.place_of[block.value[mine]]
    for row in mine[place <= furthest[block.group[mine]]].tolist():
        group, at = block.group[row], block.place_of[block.value[row]]
        lines = [block.line(row), block.line(reader[group])]
        fields = {"index": block.index(at), "max_read_index": block.index(furthest[group])}
        names = {"writer": lines[0], "max_read": lines[1]}
        yield logs.found(row, "lost-write", lines, value=logs.shown(row), **fields, **names)


def _unseen(logs: Logs) -> Iterator[Found]:
    block = logs.block
    missing = _places(block.send & block.ok & ~block.seen[block.value])
    for _, rows in groupby(missing, lambda row: int(block.group[row])):
        mine = list(rows)
        messages = _list(map(logs.shown, mine))
        lines = map(block.line, mine)
        yield logs.found(mine[0], "unseen", lines, count=len(mine), messages=messages)


# --- of steps from one record to the next ---------------------------------------------------------


def _poll_steps(logs: Logs) -> Iterator[Found]:
    block = logs.block
    for one, other, internal, delta in _taken(block.steps(block.poll, block.ok, logs.resets)):
        ops, values = _ends(logs, one, other)
        inside = {"values": values, "delta": delta, "op": ops[1]}
        if delta > 1:
            skipped = _skipped(logs, one, delta)
            if internal:
                yield logs.found(one, "int-poll-skip", ops[1:], **inside, skipped=skipped)
            else:
                fields = {"delta": delta, "ops": _list(ops), "skipped": skipped}
                yield logs.found(one, "poll-skip", ops, **fields)
        elif internal:
            yield logs.found(one, "int-nonmonotonic-poll", ops[1:], **inside)
        else:
            fields = {"delta": delta, "ops": _list(ops), "values": values}
            yield logs.found(one, "nonmonotonic-poll", ops, **fields)


def _skipped(logs: Logs, one: int, delta: int) -> str:
    first = int(logs.block.place_of[logs.block.value[one]]) + 1
    places = range(first, first + min(delta - 1, SKIPPED_MAX))
    return _list(min(map(logs.value, logs.block.values_at(place))) for place in places)


def _send_steps(logs: Logs) -> Iterator[Found]:
    steps = logs.block.steps(logs.block.send, ~logs.block.failed, logs.resets)
    # Others may send in between, so that from one operation to the next it may go far.
    odd = steps.internal | (steps.delta < 1)
    for one, other, internal, delta in _taken(Steps(*(column[odd] for column in steps))):
        ops, values = _ends(logs, one, other)
        if internal:
            name = "int-send-skip" if delta > 1 else "int-nonmonotonic-send"
            yield logs.found(one, name, ops[1:], values=values, delta=delta, op=ops[1])
        elif delta < 1:
            fields = {"values": values, "delta": delta, "ops": _list(ops)}
            yield logs.found(one, "nonmonotonic-send", ops, **fields)


def _taken(steps: Steps) -> Iterator[tuple[int, int, bool, int]]:
    yield from zip(*(column.tolist() for column in steps), strict=True)


def _ends(logs: Logs, one: int, other: int) -> tuple[list[int], str]:
    """(the lines of the two records, their values)."""
    ops = [logs.block.line(one), logs.block.line(other)]
    return ops, _list((logs.shown(one), logs.shown(other)))


FINDERS: tuple[Callable[[Logs], Iterator[Found]], ...] = (
    _duplicates,
    _inconsistent_offsets,
    _spurious_zero_offsets,
    _aborted_reads,
    _unexpected,
    _precommitted_reads,
    _lost_writes,
    _unseen,
    _poll_steps,
    _send_steps,
)
"""All but transactions that are torn, which takes a look at several keys."""


# --- for transactions that are torn ---------------------------------------------------------------


class Parts(NamedTuple):
    """Arrays of equal length: what transactions of several sends sent to a key."""

    row: Any
    shown: Any
    """The line of the operation that first read it, else NEVER."""


def parts(block: Block) -> Parts:
    """Return the parts of all transactions that have not failed."""
    rows = np.flatnonzero(block.send & block.txn & block.several & ~block.failed)
    reader = block.reader[block.value[rows]]
    return Parts(rows, np.where(reader < 0, NEVER, block.call[reader]))


def last_sent(block: Block, groups: int) -> Any:
    """Return for each group the latest invocation of a send whose value was read, or -1."""
    found: Any = np.full(groups, -1, np.int64)
    writer = block.writer[block.value[block.read]]
    writer = writer[writer >= 0]
    np.maximum.at(found, block.group[writer], block.invoked[writer])
    return found


BLOCK_RECORDS = 500_000
"""The records judged at a time at least, if keys are smaller. A key is never cut, and takes about
half a kilobyte of memory for each of its records."""
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
SELECT marks.history, coalesce(keys.key, 'null') AS key,
    CASE WHEN coalesce(wrong, false) THEN 'false' WHEN why_unknown <> '' THEN 'unknown'
        ELSE 'true' END AS valid,
    coalesce(operations, 0L) AS operations, 'blocks' AS method,
    CASE WHEN coalesce(wrong, false) THEN '' ELSE why_unknown END AS why_unknown
FROM {marks} marks LEFT JOIN keys ON marks.history = keys.history
LEFT JOIN wrong ON keys.history = wrong.history AND keys.key = wrong.key
"""


class Reset(NamedTuple):
    """Line from which a process has no position in the logs, except those kept."""

    process: int
    call: int
    kept: frozenset[str] | None
    """Keys as text, or None for none at all."""


@dataclass
class About:
    """Facts of a history that judging one of its keys needs."""

    words: set[str] = field(default_factory=set)
    """See `jepsen.spark.logs._records`."""
    resets: list[Reset] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    """Lines of operations of unknown outcome that took effect."""

    @property
    def why_unknown(self) -> str:
        """The reason for an unknown verdict if nothing is wrong; empty if it is valid."""
        if SENT_OK not in self.words:
            return "no send has succeeded"
        return "" if POLLED_OK in self.words else "no poll has returned anything"

    @property
    def allowed(self) -> frozenset[str]:
        """Anomalies that are none here."""
        return ALLOWED | ALLOWED_SUBSCRIBED if MOVED in self.words else ALLOWED


def check_log(histories: Histories, scratch: Path) -> Findings:
    """Return all anomalies of logs. Raises InputError for other operations."""
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
    marks = spark.createDataFrame(
        [(history, one.why_unknown) for history, one in about.items()],
        "history string, why_unknown string",
    )
    verdicts = spark.sql(_VERDICTS, anomalies=anomalies, marks=marks, judged=judged)
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
    """Return each history's facts in rows of `PACKED` that are no records. Raises InputError."""
    about: defaultdict[str, About] = defaultdict(About)
    for row in rows:
        mine, kind, texts = about[row["history"]], row["kind"], row["texts"]
        if kind == REFUSED:
            raise refusal(row["history"], texts[0])
        if kind == RESET:
            keys = None if texts is None else frozenset(texts)
            mine.resets.append(Reset(row["process"], row["call"], keys))
        elif kind == MARKS:
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
    """Return the anomalies (`FOUND`) of commits. One task has all commits of a history."""
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

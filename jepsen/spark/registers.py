"""Linearizability of registers on Spark.

A key is judged as a whole, so work is divided by `(history, key)`. Registers of whole numbers
go to the compiled search, all keys of a task in one call. It only decides that a key is
linearizable. Everything else goes to the checker of one process, key by key: it finds and
explains anomalies.

A key with very many operations is cut where no operation is under way. Tasks make a relation of
each part, from the values with which it may begin to those with which it may end, and the
driver composes them.

This package decides which way a key takes. It must not decide what linearizable means: that is
`jepsen.checkers.linearizable` and `jepsen.compiled.registers`.

Invariants:
* A key that a fast way finds invalid is judged again by the checker of one process.
* Every key gets exactly one verdict; beyond the limits it is unknown, never true.
* After an operation of unknown outcome that may still take effect, no key is cut.

Sources: Lowe, "Testing for linearizability"; Gibbons and Korach, "Testing shared memories".
`docs/decisions/0023-judging-registers.md` has the measurements behind the choice of ways.
"""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from jepsen import compiled
from jepsen.checkers.linearizable import Budget, Exhausted
from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.linearizable.quiescence import ELSE, comes_through, relation
from jepsen.checkers.registry import model_named
from jepsen.compiled import codes
from jepsen.compiled.codes import CAS, FAILED_CAS, NEVER, OPEN, READ, WRITE
from jepsen.history.edn import hashable
from jepsen.history.table import (
    NULL,
    OPERATIONS,
    READ_COLUMNS,
    ddl,
    operations_of,
    text_of,
    value_of,
)
from jepsen.spark._findings import kept
from jepsen.spark._search import INVALID, VALID, VERDICTS_SQL, Limits, check_keys
from jepsen.spark.input import coded, over_pieces, read_piece, rows_of_keys
from jepsen.spark.session import tune

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Row

    from jepsen.history import Operation
    from jepsen.spark.input import Histories, Piece


# --- packing --------------------------------------------------------------------------------------
#
# Operations travel as arrays of small numbers, a few bytes each. A piece of a history is divided
# into as many packages as there are tasks to judge it; all operations on a key go to the same one.
# Whole numbers are their own codes, and nil has one that no such number is. A key with any other
# value is marked, and is left to the search in Python. Texts are parsed once each, not once a row:
# columns have dictionaries.


SILENT, OTHER = 4, 5
"""Codes besides those of `jepsen.compiled.codes`. SILENT: it constrains nothing, and is only
counted; OTHER: it is not for the compiled search."""
NIL = -(2**63)
"""The code of nil; other values have eighteen digits at most."""
COLUMNS = tuple(name for name in READ_COLUMNS if name != "process")
"""The columns that packages are made of."""
_NUMBERS = ("key", "f", "a", "b", "invoked", "took")
PACKAGES = pa.schema(
    [
        pa.field("part", pa.int32(), nullable=False),
        pa.field("keys", pa.list_(pa.string()), nullable=False),
        pa.field("histories", pa.list_(pa.string()), nullable=False),
        *(pa.field(name, pa.binary(), nullable=False) for name in _NUMBERS),
    ]
)
"""A row a package. `keys` and `histories` are a text each for every key in it, `key` refers to
these by place (int32). `f` is int8; `a` is what is read, written or expected, `b` what a cas
writes, `invoked` the line at which it begins, and `took` how many lines later it returns, 0 if it
never does: all int32 if all numbers of a piece have room there, else int64."""
PACKAGES_SQL = (
    "part int, keys array<string>, histories array<string>, key binary, f binary, a binary, "
    "b binary, invoked binary, took binary"
)
_SMALL_NIL = -(2**31)
_NUMBER = f"-?[1-9][0-9]{{0,17}}|0|{NULL}"
_PAIR = rf"^\[(?P<one>{_NUMBER}),(?P<other>{_NUMBER})\]$"
_FUNCTIONS = {"read": READ, "write": WRITE, "cas": CAS}
_OK, _FAIL, _INFO = range(3)
_TYPES = {"ok": _OK, "fail": _FAIL, "info": _INFO}
Array = Any
"""An array of numpy."""


class _Values(NamedTuple):
    """Texts as numbers, by row."""

    codes: Array
    known: Array
    """Whether the text is one of those that have a code."""


class Operations(NamedTuple):
    """A row an operation."""

    key: Array
    f: Array
    a: Array
    b: Array
    invoked: Array
    returned: Array


def packages(pieces: Iterable[pa.Table], parts: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of `PACKAGES` of tables with the columns `COLUMNS`."""
    for piece in pieces:
        if piece.num_rows:
            yield _packages(piece, parts)


def _packages(piece: pa.Table, parts: int) -> pa.RecordBatch:
    keys, histories, found = _numbered(piece)
    key_part = _parts_of(keys, histories, parts)
    key_order = np.argsort(key_part, kind="stable")
    key_ends: Array = np.searchsorted(key_part[key_order], np.arange(parts + 1))
    keys, histories = keys.take(pa.array(key_order)), histories.take(pa.array(key_order))
    # The number that a key has among those of its part.
    place = np.empty_like(key_order)
    place[key_order] = np.arange(len(key_order)) - key_ends[key_part[key_order]]
    ends, columns = _parted(found, key_part, place, parts)
    arrays = [
        pa.array(np.arange(parts, dtype=np.int32)),
        *(
            pa.ListArray.from_arrays(key_ends.astype(np.int32), texts)
            for texts in (keys, histories)
        ),
        *(_cut(column, ends) for column in columns),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=PACKAGES)
    filled = np.diff(ends) > 0
    return batch if filled.all() else batch.filter(pa.array(filled))


def _cut(column: Array, ends: Array) -> pa.Array:
    """The bytes of each part, where they are."""
    offsets = pa.array((ends * column.itemsize).astype(np.int32)).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(column)], 0
    )


def _parted(
    found: Operations, key_part: Array, key_place: Array, parts: int
) -> tuple[Array, tuple[Array, ...]]:
    """(where each part begins, and the last ends; the columns of `PACKAGES` that are numbers)."""
    from jepsen.compiled.registers import are_small, parted

    columns, rows = tuple(found[2:]), len(found.f)
    small = are_small(found.f, columns, NIL)
    kind, nil = (np.int32, _SMALL_NIL) if small else (np.int64, NIL)
    key: Array = np.empty(rows, np.int32)
    f: Array = np.empty(rows, np.int8)
    out: Array = np.empty((len(columns), rows), kind)
    ends: Array = np.zeros(parts + 1, np.int64)
    parted(found.key, found.f, columns, key_part, key_place, (NIL, nil), ends[1:], (key, f, out))
    return ends, (key, f, *out)


def _parts_of(keys: pa.Array, histories: pa.Array, parts: int) -> Array:
    """The part of each key, the same in every task; as small numbers, which are sorted fast."""
    began = {one: crc32(one.encode()) for one in pc.unique(histories).to_pylist()}
    both = zip(histories.to_pylist(), keys.to_pylist(), strict=True)
    hashes = [crc32(key.encode(), began[history]) for history, key in both]
    return (np.array(hashes, np.int64) % parts).astype(np.uint16)


def _numbered(piece: pa.Table) -> tuple[pa.Array, pa.Array, Operations]:
    """(the text of each key, that of its history, the operations)."""
    key, keys = coded(piece.column("key"))
    history, histories = coded(piece.column("history"))
    both, numbers = dense(history * len(keys) + key, len(histories) * len(keys))
    own_keys = keys.take(pa.array(both % len(keys)))
    own_histories = histories.take(pa.array(both // len(keys)))
    return own_keys, own_histories, Operations(numbers, *_operations(piece))


def dense(numbers: Array, below: int) -> tuple[Array, Array]:
    """(those that there are, the place among them of each): as `np.unique`, and seldom sorts."""
    if below > 2 * len(numbers):
        return np.unique(numbers, return_inverse=True)
    there = np.bincount(numbers, minlength=below) > 0
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]


def _named(column: pa.ChunkedArray, names: dict[str, int], otherwise: int) -> Array:
    """The number of each row's name."""
    rows, texts = coded(column)
    return np.array([names.get(text, otherwise) for text in texts.to_pylist()], np.int8)[rows]


def _values(rows: Array, texts: pa.Array) -> _Values:
    codes, known = _codes(texts)
    return _Values(codes[rows], known[rows])


def _codes(texts: pa.Array) -> tuple[Array, Array]:
    """(the code of each text, whether it has one)."""
    known = pc.match_substring_regex(texts, f"^({_NUMBER})$")
    nil = pc.equal(texts, NULL)
    digits = pc.if_else(pc.and_not(known, nil), texts, "0")
    codes = pc.if_else(nil, pa.scalar(NIL, pa.int64()), pc.cast(digits, pa.int64()))
    return codes.to_numpy(), known.to_numpy(zero_copy_only=False)


def _pairs(rows: Array, texts: pa.Array) -> tuple[_Values, _Values]:
    """The two values of each text that is a list of these."""
    found = pc.extract_regex(texts, _PAIR)
    halves = [pc.fill_null(pc.struct_field(found, name), "") for name in ("one", "other")]
    expected, new = (_values(rows, half) for half in halves)
    return expected, new


def _operations(piece: pa.Table) -> tuple[Array, Array, Array, Array, Array]:
    """(f, a, b, invoked, returned) of each operation, as the model of a register sees it."""
    lenient = piece.column("lenient").to_numpy()
    argument, result = coded(piece.column("argument")), coded(piece.column("result"))
    f = _named(piece.column("f"), _FUNCTIONS, OTHER)
    how = _named(piece.column("type"), _TYPES, OTHER)
    ended = piece.column("complete_index").is_valid().to_numpy()
    how[~ended & (how <= _INFO)] = _INFO
    asked, answered = _values(*argument), _values(*result)
    expected, new = _pairs(*argument)
    read, cas = f == READ, f == CAS
    a = np.where(read, answered.codes, np.where(cas, expected.codes, asked.codes))
    known = np.where(read, answered.known, np.where(cas, expected.known & new.known, asked.known))
    failed = cas & (how == _FAIL) & ~lenient & piece.column("error").is_null().to_numpy()
    silent = (how == _FAIL) & ~failed
    silent |= (how == _INFO) & (read | (cas & known & (expected.codes == new.codes)))
    silent |= read & lenient & known & (a == NIL)
    invoked = piece.column("invoke_index").to_numpy()
    completed = pc.fill_null(piece.column("complete_index"), NEVER).to_numpy()
    returned = np.where(how == _INFO, NEVER, completed)
    other = (f == OTHER) | (how == OTHER) | (~known & ~silent) | (returned <= invoked)
    f = np.where(failed, FAILED_CAS, f)
    f = np.where(other, OTHER, np.where(silent, SILENT, f)).astype(np.int8)
    return f, a, np.where(cas, new.codes, 0), invoked, returned


def unpacked(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Array, pa.Array, Operations]:
    """(the text of each key, that of its history, the operations) of rows of `PACKAGES`.

    A key may be there several times, with a number for each package that has it.
    """
    own = list(batches)
    table = pa.Table.from_batches(own) if own else PACKAGES.empty_table()
    keys, histories = (_flat(table.column(name)) for name in ("keys", "histories"))
    key_counts = pc.list_value_length(table.column("keys")).to_pylist()
    rows = pc.sum(pc.binary_length(table.column("f"))).as_py() or 0
    f: Array = np.empty(rows, np.int8)
    columns: Array = np.empty((5, rows), np.int64)
    at = first = 0
    texts = zip(*(table.column(name) for name in _NUMBERS), strict=True)
    for count, (key, what, *numbers) in zip(key_counts, texts, strict=True):
        here = slice(at, at + len(what.as_buffer()))
        f[here] = _read(what, np.int8)
        columns[0, here] = _read(key, np.int32)
        columns[0, here] += first
        _widen(numbers, columns[1:, here])
        at, first = here.stop, first + count
    key, *others = columns
    return keys, histories, Operations(key, f, *others)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *(one.flatten() for one in column.chunks)])


def _read(text: pa.BinaryScalar, kind: Any) -> Array:
    return np.frombuffer(text.as_buffer(), kind)


def _widen(numbers: Sequence[pa.BinaryScalar], columns: Array) -> None:
    """Write (a, b, invoked, returned) of a package."""
    small = len(numbers[0].as_buffer()) < columns[0].nbytes
    for number, column in zip(numbers, columns, strict=True):
        column[:] = _read(number, np.int32 if small else np.int64)
    if small:
        values = columns[:2]
        values[values == _SMALL_NIL] = NIL
    _, _, invoked, took = columns
    columns[3] = np.where(took == 0, NEVER, invoked + took)


KERNEL_OPERATIONS = 100_000
"""Fewer are searched before the compiled search is there."""
PART_OPERATIONS = 1_000_000
"""The operations that one task judges, roughly; its keys are whole."""
WHOLE_OPERATIONS_MAX = 4_000_000
"""A key with more is left: a task would need too much memory, 200 bytes for each operation."""
PARTS_MAX = 1 << 16
LEFT_KEYS_MAX = 50_000
"""The keys that are looked for by name, if that many are left for other searches."""
_NUMBERS_MAX = 10**18
JUDGED = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("operations", pa.int64(), nullable=False),
        pa.field("verdict", pa.int8(), nullable=False),
    ]
)
"""A row a key; verdicts are those of `jepsen.compiled.codes`."""
JUDGED_SQL = "history string, key string, operations long, verdict byte"


def is_for_kernel(histories: Histories, initial: Any) -> bool:
    """Return whether the compiled search exists, knows the first value, and is worth its start."""
    known = initial is None or (type(initial) is int and abs(initial) < _NUMBERS_MAX)
    return known and histories.rows >= KERNEL_OPERATIONS and _is_there()


def _is_there() -> bool:
    if not compiled.available():
        return False
    try:
        importlib.import_module("jepsen.compiled.registers")
    except ImportError:  # numba may be there and refuse the numpy that is
        return False
    return True


def judge_all(histories: Histories, initial: Any) -> DataFrame:
    """Return a row of `JUDGED` for each key. OPEN ones are left to other algorithms."""
    spark = histories.operations.sparkSession
    cores = spark.sparkContext.defaultParallelism
    parts = min(PARTS_MAX, max(cores, histories.rows // PART_OPERATIONS + 1))
    if histories.pieces:
        made = partial(_packages_of_pieces, parts=parts)
        packed = over_pieces(spark, histories.pieces, made, PACKAGES_SQL)
    else:
        rows = histories.operations.select(*COLUMNS)
        packed = rows.mapInArrow(partial(_packages_of_rows, parts=parts), PACKAGES_SQL)
    code = NIL if initial is None else initial
    judged = partial(_judged, initial=code, hot=WHOLE_OPERATIONS_MAX)
    return packed.repartitionById(parts, "part").mapInArrow(judged, JUDGED_SQL)


def rest_of(histories: Histories, left: DataFrame, keys: int) -> DataFrame:
    """Return the operations on so many keys that are left: (history, key)."""
    operations = histories.operations
    if not histories.pieces or keys > LEFT_KEYS_MAX:
        mine = operations.join(left, ["history", "key"], "left_semi")
        return mine.select(*OPERATIONS.names)
    wanted = frozenset((row["history"], row["key"]) for row in left.collect())
    found = partial(rows_of_keys, wanted=wanted)
    return over_pieces(operations.sparkSession, histories.pieces, found, ddl(OPERATIONS))


def _packages_of_pieces(pieces: Iterable[Piece], *, parts: int) -> Iterator[pa.RecordBatch]:
    return packages((read_piece(piece, COLUMNS) for piece in pieces), parts)


def _packages_of_rows(batches: Iterable[pa.RecordBatch], *, parts: int) -> Iterator[pa.RecordBatch]:
    return packages((pa.Table.from_batches([batch]) for batch in batches), parts)


def _judged(
    batches: Iterable[pa.RecordBatch], *, initial: int, hot: int
) -> Iterator[pa.RecordBatch]:
    yield judged(batches, initial, hot)


def judged(batches: Iterable[pa.RecordBatch], initial: int, hot: int) -> pa.RecordBatch:
    """Judge all keys in the packages, which must be whole; return rows of `JUDGED`.

    Keys with other operations or values than the search knows, or more than `hot` operations, stay
    OPEN.
    """
    from jepsen.compiled.registers import CONFIGURATIONS_MAX, judge_table, sorted_rows

    keys, histories, found = unpacked(batches)
    of_key, all_keys = coded(pa.chunked_array([keys]))
    of_history, all_histories = coded(pa.chunked_array([histories]))
    numbers = of_history * len(all_keys) + of_key
    both, numbers = dense(numbers, len(all_histories) * len(all_keys))
    key = numbers[found.key]
    operations = np.bincount(key, minlength=len(both))
    left = np.bincount(key[found.f == OTHER], minlength=len(both)) > 0
    left |= operations > hot
    starts, rows = sorted_rows(key, *found[1:], left)
    verdicts, _ = judge_table(starts, rows, initial, CONFIGURATIONS_MAX)
    verdicts[left] = OPEN
    arrays = [
        all_histories.take(pa.array(both // max(1, len(all_keys)))),
        all_keys.take(pa.array(both % max(1, len(all_keys)))),
        pa.array(operations),
        pa.array(verdicts),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=JUDGED)


HOT_OPERATIONS = 100_000
"""A key with more is cut."""
CHUNK_OPERATIONS = 20_000
_TASKS_A_CORE = 12
"""Chunks are shared out by chance: with few tasks, one has twice as many as another."""
_NEVER = "9223372036854775807L"

# What never returns may take effect at any time, but for reads, which then say nothing.
_CHUNKS = f"""
WITH mine AS (
    SELECT operations.*, CASE
        WHEN type <> 'info' AND complete_index IS NOT NULL THEN complete_index
        WHEN f = 'read' THEN -1L ELSE {_NEVER} END AS returned
    FROM {{operations}} operations LEFT SEMI JOIN {{hot}} hot USING (history, key)
), placed AS (
    SELECT *, row_number() OVER (PARTITION BY history, key ORDER BY invoke_index) - 1 AS place,
        coalesce(max(returned) OVER (
            PARTITION BY history, key ORDER BY invoke_index
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), -1L) < invoke_index AS quiet
    FROM mine
)
SELECT {", ".join(READ_COLUMNS)}, max(CASE WHEN quiet THEN place DIV :chunk END) OVER (
        PARTITION BY history, key ORDER BY invoke_index
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS chunk
FROM placed
"""
_HOT_SQL = "history string, key string, operations long"
RELATIONS = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("chunk", pa.int64(), nullable=False),
        pa.field("start", pa.string(), nullable=False),
        pa.field("ends", pa.list_(pa.string())),
    ]
)
"""A row a chunk and value that it may begin with; without `ends` the search ran into its limits.
`_ELSE` stands for any other value."""
_RELATIONS_SQL = "history string, key string, chunk long, start string, ends array<string>"
_ELSE = ""
_Group = tuple[str, str, int, bool]


def judged_by_segments(
    operations: DataFrame, keys: list[Row], model: str, initial: Any, limits: Limits
) -> DataFrame | None:
    """Return those of the keys (history, key, operations: how many) that are linearizable.

    None if there are none. Keys that are not, and those whose search ran into its limits, are left
    for other searches to explain.
    """
    spark = operations.sparkSession
    hot = spark.createDataFrame(keys, _HOT_SQL)
    chunks = spark.sql(_CHUNKS, args={"chunk": CHUNK_OPERATIONS}, operations=operations, hot=hot)
    order = ("history", "key", "chunk")
    made = partial(_relations, model=model, initial=initial, limits=limits)
    rows = (
        chunks.repartition(spark.sparkContext.defaultParallelism * _TASKS_A_CORE, *order)
        .sortWithinPartitions(*order, "invoke_index")
        .mapInArrow(made, _RELATIONS_SQL)
        .collect()
    )
    # Here, since Spark would make all relations once more to see how to share the sorting out.
    rows.sort(key=itemgetter(*order))
    valid = {
        key
        for key, mine in groupby(rows, key=lambda row: (row["history"], row["key"]))
        if _linearizable(list(mine), hashable(initial))
    }
    found = [row for row in keys if (row["history"], row["key"]) in valid]
    return spark.createDataFrame(found, _HOT_SQL) if found else None


def _linearizable(rows: list[Any], initial: Any) -> bool:
    if any(row["ends"] is None for row in rows):
        return False
    relations = (
        {_value(row["start"]): frozenset(map(_value, row["ends"])) for row in mine}
        for _, mine in groupby(rows, key=lambda row: row["chunk"])
    )
    return comes_through(initial, relations)


def _value(text: str) -> Any:
    return ELSE if text == _ELSE else hashable(value_of(text))


def _text(value: Any) -> str:
    return _ELSE if value is ELSE else text_of(value)


def _relations(
    batches: Iterable[pa.RecordBatch], *, model: str, initial: Any, limits: Limits
) -> Iterator[pa.RecordBatch]:
    for group, rows in groupby(_placed(batches), key=lambda row: row[0]):
        history, key, chunk, lenient = group
        register = cast("Register", model_named(model, lenient=lenient, initial=initial))
        found = _relation([operation for _, operation in rows], register, limits)
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "history": history,
                    "key": key,
                    "chunk": chunk,
                    "start": _text(start),
                    "ends": None if ends is None else [_text(end) for end in ends],
                }
                for start, ends in found.items()
            ],
            RELATIONS,
        )


def _placed(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[_Group, Operation]]:
    for batch in batches:
        chunks = batch.column("chunk").to_pylist()
        for chunk, row in zip(chunks, operations_of([batch]), strict=True):
            history, lenient, key, operation = row
            yield (history, key, chunk, lenient), operation


def _relation(
    mine: list[Operation], model: Register, limits: Limits
) -> Mapping[Any, frozenset[Any] | None]:
    """Of a chunk; the search runs out or refuses: None for what it may end with."""
    deadline = time.monotonic() + limits.time_s
    try:
        return relation(mine, model, Budget(limits.memory_bytes, deadline, time.monotonic))
    except (Exhausted, ValueError, TypeError, IndexError):
        return {ELSE: None}


_KEY = ["history", "key"]
_KEYS = """
SELECT history, key, count(*) AS operations, every(f IN ('read', 'write', 'cas')) AS register
FROM {operations} GROUP BY history, key
"""


def check_linearizable(
    histories: Histories, model: str, initial: Any, limits: Limits, scratch: Path
) -> DataFrame:
    """Return a row of `VERDICTS` for each key. Intermediate tables are written below `scratch`.

    A key that is found invalid without a search is searched nevertheless: for the operations that
    show it.
    """
    question = _Question(model, initial, limits)
    if not isinstance(model_named(model), Register):
        return question.searched(histories.operations)
    if not is_for_kernel(histories, initial):
        return _without_kernel(histories.operations, histories.rows, question, scratch)
    judged = kept(judge_all(histories, initial), scratch / "judged")
    valid = _valid(judged.where(f"verdict = {codes.VALID}"), "kernel")
    left = judged.where(f"verdict <> {codes.VALID}")
    counts = left.agg(sql.count("*"), sql.sum("operations")).first()
    keys, rows = (counts[0], counts[1] or 0) if counts else (0, 0)
    if not keys:
        return valid
    operations = histories.operations
    if rows < histories.rows:
        tune(operations.sparkSession, rows)
        operations = kept(rest_of(histories, left.select(*_KEY), keys), scratch / "rest")
    found = _without_kernel(operations, rows, question, scratch)
    wrong = left.where(f"verdict = {codes.INVALID}")
    return valid.unionByName(_confirmed(found, wrong))


@dataclass(frozen=True)
class _Question:
    model: str
    initial: Any
    limits: Limits

    def searched(self, operations: DataFrame) -> DataFrame:
        """By the search of one process."""
        return check_keys(
            operations,
            self.model,
            self.initial,
            time_limit_s=self.limits.time_s,
            memory_bytes=self.limits.memory_bytes,
        )


def _without_kernel(
    operations: DataFrame, row_count: int, question: _Question, scratch: Path
) -> DataFrame:
    """Return a row of `VERDICTS` for each key: hot ones by segments, all others by the search."""
    if row_count <= HOT_OPERATIONS:
        return question.searched(operations)
    keys = kept(operations.sparkSession.sql(_KEYS, operations=operations), scratch / "keys")
    large = keys.where(sql.col("operations") > HOT_OPERATIONS).where("register")
    hot = large.select(*_KEY, "operations").collect()
    if not hot:
        return question.searched(operations)
    cut = judged_by_segments(operations, hot, question.model, question.initial, question.limits)
    if cut is None:
        return question.searched(operations)
    left = operations.join(cut, _KEY, "left_anti")
    return _valid(cut, "segments").unionByName(question.searched(left))


def _valid(keys: DataFrame, method: str) -> DataFrame:
    """Rows of `VERDICTS` for keys that are linearizable."""
    return keys.select(
        *_KEY,
        sql.lit(VALID).alias("valid"),
        "operations",
        sql.lit(method).alias("method"),
        *(sql.lit("").alias(name) for name in ("why_unknown", "refused")),
        sql.from_json(sql.lit("[]"), VERDICTS_SQL.partition("anomalies ")[2]).alias("anomalies"),
    )


def _confirmed(found: DataFrame, wrong: DataFrame) -> DataFrame:
    """What others found invalid stays so if the search has run into its limits."""
    wrong = wrong.select(*_KEY, sql.lit(True).alias("wrong"))
    certain = sql.coalesce("wrong", sql.lit(False))
    return (
        found.join(wrong, _KEY, "left")
        .withColumn("valid", sql.when(certain, INVALID).otherwise(sql.col("valid")))
        .withColumn("why_unknown", sql.when(certain, "").otherwise(sql.col("why_unknown")))
        .drop("wrong")
    )

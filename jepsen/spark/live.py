"""Live judgement: histories that are judged while they are being written.

`watch` follows a stream of operations. After each micro-batch it reports the verdict on
everything so far, including operations that are still open. The verdict is that of `jepsen
check` on the lines up to there, except for anomalies that only the end of a history can show.

Where keys are judged one by one, only keys with new operations are. A task reads a checkpoint
of each from the folder of the last micro-batch: the states in which it may have been when
nothing was under way, and the operations since. It writes the next checkpoint into the folder
of this one. Other checkers judge the whole history each time.

This package decides what a micro-batch costs. It must not change what a checker would say.

Invariants:
* No file is ever changed, so a micro-batch that is repeated after a failure starts from the
  same checkpoint and counts nothing twice.
* A key without new operations costs nothing.
* An anomaly that later lines can explain, such as a late poll, is withdrawn when they come.

Source files of a micro-batch: `CHECKPOINTS` of a partition's keys lie below the folder of the
micro-batch. The operations that are still needed (`NEEDED`) stay below the folder of the
micro-batch that last had operations of their key, to which its checkpoint refers.

Registers are encoded as numbers for the compiled search, whole columns at a time. Where values
have one spelling each, their texts are equal exactly if the values are, so a number for each text
is enough. Keys with other values or functions are judged in Python.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException

from jepsen import compiled
from jepsen.checkers.linearizable import STATES_SHARED_MAX, Budget, Machine, nonlinearizable
from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.linearizable.quiescence import (
    RECHECKED_OPERATIONS,
    KeyCheckpoint,
    check_growing,
)
from jepsen.checkers.registry import model_named
from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.compiled import codes
from jepsen.errors import InputError
from jepsen.history import OpType
from jepsen.history.edn import hashable
from jepsen.history.table import (
    ATOM,
    NULL,
    OPERATIONS,
    READ_COLUMNS,
    ddl,
    operations_of,
    text_of,
    value_of,
)
from jepsen.spark._findings import refusal
from jepsen.spark._search import INVALID, UNKNOWN, VALID, anomaly_row, verdict_word
from jepsen.spark.check import SHOWN_MAX, judge
from jepsen.spark.input import Histories, HistorySource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from jepsen.checkers.verdict import Valid
    from jepsen.history import Operation
    from jepsen.spark.check import Question

CHECKPOINTS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("states", pa.list_(pa.string())),
        pa.field("since", pa.int64(), nullable=False),
        pa.field("until", pa.int64()),
        pa.field("operations", pa.int64(), nullable=False),
        pa.field("valid", pa.string(), nullable=False),
        pa.field("why_unknown", pa.string(), nullable=False),
        pa.field("needs", pa.int64(), nullable=False),
        pa.field("kept", pa.int64(), nullable=False),
    ]
)
"""A row a key: its `KeyCheckpoint`, how many operations have ended, the verdict so far, how many
operations it needs, and the number of the micro-batch below whose folder they are."""
NEEDED = pa.schema([OPERATIONS.field(name) for name in READ_COLUMNS])
"""The operations that the checkpoints need."""
_SEEN = pa.schema(
    [
        *(
            pa.field(name, pa.int64())
            for name in ("keys", "operations", "keys_invalid", "keys_unknown")
        ),
        *(pa.field(name, pa.string()) for name in ("why_unknown", "refused", "anomalies", "kept")),
    ]
)
"""What a task says of all of its keys. JSON lists are `why_unknown`, `anomalies` (name, detail,
lines, key) of those judged, and `kept`: the micro-batches whose folders still are needed."""
_SEEN_SQL = (
    "keys long, operations long, keys_invalid long, keys_unknown long, why_unknown string, "
    "refused string, anomalies string, kept string"
)


COMPILED_MIN = 5_000
"""The operations of a task from which loading the compiled search pays."""
LIVE_SHARE_MIN = 0.25
"""The needed share of a file of `NEEDED` below which its needed rows are moved to a new file."""


class Asked(NamedTuple):
    """Question of a task, and the place of the state that is known."""

    question: Question
    scratch: Path
    before: int | None
    """The last micro-batch, if there was one."""
    number: int
    """The number of this micro-batch."""
    shown_max: int
    """Anomalies that a task hands back, the first in the history."""

    def folder(self, number: int) -> Path:
        """Return the folder in which a micro-batch leaves its state."""
        return self.scratch / f"known-{number}"


def judged(operations: DataFrame, partitions: int, asked: Asked) -> list[dict[str, Any]]:
    """Judge the keys with new operations in a micro-batch of `OPERATIONS`.

    Returns `_SEEN` of all keys, by partition.

    `partitions` is the same for all micro-batches.
    """
    mine = operations.select(*READ_COLUMNS).repartition(partitions, "key")
    rows = mine.mapInArrow(partial(_task, asked=asked), _SEEN_SQL).collect()
    return [row.asDict() for row in rows]


def _task(batches: Iterable[pa.RecordBatch], *, asked: Asked) -> Iterator[pa.RecordBatch]:
    context = cast("TaskContext", TaskContext.get())
    came = [pa.RecordBatch.from_arrays(one.columns, schema=NEEDED) for one in batches]
    table = pa.Table.from_batches(came, NEEDED)
    yield taken(table, asked, context.partitionId(), context.taskAttemptId())


def taken(came: pa.Table, asked: Asked, partition: int, attempt: int) -> pa.RecordBatch:
    """Return what is known of a partition's keys (`_SEEN`) with these rows of `NEEDED`, the
    operations that have ended and those that are open.

    It may run twice, even at the same time, as another `attempt`.
    """
    files = _Files(asked, partition, attempt)
    keys = pc.unique(came["key"].filter(pc.is_valid(came["complete_index"])))
    checkpoints, others = _split(files.checkpoints(), keys)
    judge = _KeyJudge(asked.question, lenient=pc.any(came["lenient"]).as_py() or False)
    updated, needs = judge.judge(checkpoints, files.needed(checkpoints), _split(came, keys)[0])
    others, moved = files.moved(others)
    counts = dict(zip(*_counts(needs["key"]), strict=True))
    needed = pa.array([counts.get(key, 0) for key in updated["key"].to_pylist()])
    checkpoints = pa.concat_tables([others, files.kept_here(updated, needed)])
    files.write(checkpoints, pa.concat_tables([needs, moved]))
    return _summary(checkpoints, judge, asked.shown_max)


def _counts(keys: pa.ChunkedArray) -> tuple[list[str], list[int]]:
    found = pc.value_counts(keys)
    return found.field("values").to_pylist(), found.field("counts").to_pylist()


class _Files:
    """What is known of a partition's keys."""

    def __init__(self, asked: Asked, partition: int, attempt: int) -> None:
        self._asked = asked
        self._partition = partition
        self._attempt = attempt

    def checkpoints(self) -> pa.Table:
        """Of all keys, before this micro-batch."""
        before = self._asked.before
        return CHECKPOINTS.empty_table() if before is None else self._read("checkpoints", before)

    def needed(self, checkpoints: pa.Table) -> pa.Table:
        """The operations that these checkpoints need."""
        found = [NEEDED.empty_table()]
        for number in pc.unique(checkpoints["kept"]).to_pylist():
            keys = checkpoints.filter(pc.equal(checkpoints["kept"], number))["key"]
            found.append(_split(self._read("needed", number), keys)[0])
        return pa.concat_tables(found)

    def moved(self, checkpoints: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(the checkpoints, what is needed of a file most of which nobody needs any more).

        One file is looked at each time.
        """
        files = sorted(pc.unique(checkpoints["kept"]).to_pylist())
        if not files:
            return checkpoints, NEEDED.empty_table()
        number = files[self._asked.number % len(files)]
        is_there = pc.equal(checkpoints["kept"], number)
        mine = checkpoints.filter(is_there)
        rows = self._read("needed", number).num_rows
        if pc.sum(mine["needs"]).as_py() >= LIVE_SHARE_MIN * rows:
            return checkpoints, NEEDED.empty_table()
        others = checkpoints.filter(pc.invert(is_there))
        return pa.concat_tables([others, self.kept_here(mine, mine["needs"])]), self.needed(mine)

    def kept_here(self, checkpoints: pa.Table, needs: pa.Array | pa.ChunkedArray) -> pa.Table:
        """The checkpoints with what they need below the folder of this micro-batch."""
        here = pa.repeat(pa.scalar(self._asked.number, pa.int64()), len(checkpoints))
        columns = {name: checkpoints[name] for name in CHECKPOINTS.names}
        return pa.table(columns | {"needs": needs, "kept": here}, CHECKPOINTS)

    def write(self, checkpoints: pa.Table, needed: pa.Table) -> None:
        """What is known now; each file as a whole or not at all."""
        self._asked.folder(self._asked.number).mkdir(parents=True, exist_ok=True)
        for name, table in (("checkpoints", checkpoints), ("needed", needed)):
            path = self._path(name, self._asked.number)
            mine = path.with_name(f"{path.name}.{self._attempt}")
            with pa.ipc.new_file(mine, table.schema) as file:
                file.write(table)
            mine.replace(path)

    def _read(self, name: str, number: int) -> pa.Table:
        with pa.memory_map(str(self._path(name, number))) as file:
            return pa.ipc.open_file(file).read_all()

    def _path(self, name: str, number: int) -> Path:
        return self._asked.folder(number) / f"{name}-{self._partition}.arrow"


def _split(table: pa.Table, keys: pa.Array) -> tuple[pa.Table, pa.Table]:
    """The rows of these keys, and the others."""
    among = pc.is_in(table["key"], keys)
    return table.filter(among), table.filter(pc.invert(among))


def _summary(checkpoints: pa.Table, judge: _KeyJudge, shown_max: int) -> pa.RecordBatch:
    valid = checkpoints["valid"]
    first = sorted(judge.anomalies, key=lambda one: (one["lines"], one["key"]))[:shown_max]
    why = pc.unique(checkpoints.filter(pc.equal(valid, UNKNOWN))["why_unknown"]).to_pylist()
    row = {
        "keys": len(checkpoints),
        "operations": pc.sum(checkpoints["operations"]).as_py() or 0,
        "keys_invalid": pc.sum(pc.equal(valid, INVALID)).as_py() or 0,
        "keys_unknown": pc.sum(pc.equal(valid, UNKNOWN)).as_py() or 0,
        "why_unknown": json.dumps(sorted(why)),
        "refused": judge.refused,
        "anomalies": json.dumps(first),
        "kept": json.dumps(pc.unique(checkpoints["kept"]).to_pylist()),
    }
    return pa.RecordBatch.from_pylist([row], _SEEN)


class _KeyJudge:
    """Judge the keys of a task with new operations."""

    def __init__(self, question: Question, *, lenient: bool) -> None:
        self._question = question
        self._model = model_named(question.model, lenient=lenient, initial=question.initial)
        self._machine: Machine | None = None
        self.anomalies: list[dict[str, Any]] = []
        self.refused = ""
        """Why the operations are none of the model's, if they are not."""

    def judge(
        self, checkpoints: pa.Table, needed: pa.Table, came: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        """Return (the new checkpoints, what they need).

        Arguments are the checkpoints of these keys, what those need, and the new operations.
        """
        known = {row["key"]: row for row in checkpoints.to_pylist()}
        both = pa.concat_tables([needed, came])
        ended = came["key"].filter(pc.is_valid(came["complete_index"])).value_counts().to_pylist()
        rows = {
            one["values"]: known.get(one["values"], _NEW | {"key": one["values"]}) for one in ended
        }
        for one in ended:
            rows[one["values"]]["operations"] += one["counts"]
        certain = self._certain(rows, both)
        for key in certain:
            rows[key] |= {"valid": VALID, "why_unknown": ""}
        mine, others = _split(both, pa.array(certain, pa.string()))
        found = others.take(pa.array(self._searched(rows, others), pa.int64()))
        kept = pa.concat_tables([mine.filter(pc.is_valid(mine["complete_index"])), found])
        return pa.Table.from_pylist(list(rows.values()), CHECKPOINTS), kept

    def _certain(self, rows: Mapping[str, dict[str, Any]], operations: pa.Table) -> list[str]:
        """Keys that the compiled search finds linearizable; their checkpoints may stay."""
        enough = len(operations) >= COMPILED_MIN and compiled.available()
        if not enough or type(self._model) is not Register:
            return []
        fits = {
            key: row["states"]
            for key, row in rows.items()
            if row["until"] is None and len(row["states"] or ("",)) == 1
        }
        states = {key: mine[0] for key, mine in fits.items() if mine is not None}
        initial = text_of(self._model.initial)
        lenient = self._model.nil_read_matches
        found = valid_keys(
            operations, initial, states, lenient=lenient, operations_min=RECHECKED_OPERATIONS
        )
        return [key for key in found if key in fits]

    def _searched(self, rows: Mapping[str, dict[str, Any]], operations: pa.Table) -> list[int]:
        """Judge keys one by one; which of the operations are needed."""
        mine: dict[str, list[tuple[int, Operation]]] = {}
        for number, (_, _, key, one) in enumerate(operations_of(operations.to_batches())):
            mine.setdefault(key, []).append((number, one))
        needs = []
        for key, numbered in mine.items():
            checkpoint = self._look(rows[key], [one for _, one in numbered])
            needs += [
                number
                for number, one in numbered
                if one.completion is not None and checkpoint.needs(one)
            ]
        return needs

    def _look(self, row: dict[str, Any], mine: Sequence[Operation]) -> KeyCheckpoint:
        """Judge a key, and write into its row what is known of it."""
        checkpoint = _checkpoint_of(row)
        row["valid"], row["why_unknown"] = UNKNOWN, ""
        limits = self._question.limits
        budget = Budget(limits.memory_bytes, time.monotonic() + limits.time_s, time.monotonic)
        try:
            subject = hashable(value_of(row["key"]))
            result, found = check_growing(
                subject, checkpoint, mine, self._model, budget, self._shared_machine()
            )
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            self.refused = str(error) or "its values are others"
            return checkpoint
        row["valid"], row["why_unknown"] = verdict_word(result.valid), result.why_unknown
        if result.valid is False:
            self.anomalies.append(anomaly_row(nonlinearizable(result)) | {"key": row["key"]})
        written = _written(found)
        if _checkpoint_of(written) != found:
            return checkpoint  # a state that text does not bring back is not relied on
        row |= written
        return found

    def _shared_machine(self) -> Machine:
        if self._machine is None or len(self._machine.states) > STATES_SHARED_MAX:
            self._machine = Machine(self._model)
        return self._machine


_NEW: dict[str, Any] = {
    "states": None,
    "since": 0,
    "until": None,
    "operations": 0,
    "needs": 0,
    "kept": 0,
}


def _checkpoint_of(row: dict[str, Any]) -> KeyCheckpoint:
    states = row["states"]
    known = None if states is None else tuple(hashable(value_of(one)) for one in states)
    return KeyCheckpoint(known, row["since"], row["until"])


def _written(checkpoint: KeyCheckpoint) -> dict[str, Any]:
    """The columns that `_checkpoint_of` reads."""
    states = None if checkpoint.states is None else list(map(text_of, checkpoint.states))
    return {"states": states, "since": checkpoint.since, "until": checkpoint.until}


_SILENT, _UNFIT = -1, -2
"""Meanings besides those of `jepsen.compiled.codes`."""
_FAR = 1 << 40
"""Lines are fewer."""
_ONE_VALUE = ATOM.removeprefix("^(").removesuffix(")$")
_PAIR = rf"^\[(?P<a>{_ONE_VALUE}),(?P<b>{_ONE_VALUE})\]$"


def valid_keys(
    operations: pa.Table,
    initial: str,
    states: Mapping[str, str],
    *,
    lenient: bool,
    operations_min: int,
) -> list[str]:
    """Return the keys that are certainly linearizable; the columns are those of `NEEDED`.

    Keys with `operations_min` operations or more before a quiescent point are left out. `initial`
    is the value of a register before its first operation, `states` that of some keys; both are
    text.
    """
    from jepsen.compiled.registers import judge_rows

    keys = operations["key"].combine_chunks().dictionary_encode()
    names = keys.dictionary.to_pylist()
    number = _integers(keys.indices)
    meant, a, b = _meanings(operations, lenient=lenient)
    begun = [(place, states[name]) for place, name in enumerate(names) if name in states]
    starts = pa.array([state for _, state in begun], pa.string())
    every = pa.concat_arrays([a, b, starts, pa.array([initial])])
    encoded = every.dictionary_encode()
    code = _integers(encoded.indices)
    is_atom = _flags(pc.match_substring_regex(encoded.dictionary, ATOM))[code]
    count = len(number)
    fits = (meant != _UNFIT) & is_atom[:count] & is_atom[count : 2 * count]
    left = set(np.unique(number[~fits]).tolist())
    left |= {key for (key, _), fit in zip(begun, is_atom[2 * count : -1], strict=True) if not fit}
    if not is_atom[-1]:
        return []
    invoked, returned = _times(operations)
    rows = np.column_stack(
        [meant, code[:count], code[count : 2 * count], invoked, returned, number]
    )
    # What a register holds already it was written before all else.
    before = [
        [codes.WRITE, code[2 * count + n], 0, -2, -1, key] for n, (key, _) in enumerate(begun)
    ]
    table = np.concatenate([rows, np.array(before, np.int64).reshape(-1, 6)])
    found = judge_rows(bytearray(table.tobytes()), int(code[-1]))
    left |= _quiescent(number, meant, invoked, returned, operations, operations_min)
    return [names[key] for key, verdict, *_ in found if verdict == codes.VALID and key not in left]


def _integers(array: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = array.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _meanings(
    operations: pa.Table, *, lenient: bool
) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    """What operations do, and their values as text; as `jepsen.checkers.linearizable._check`
    has it."""
    f, argument, result = (operations[name] for name in ("f", "argument", "result"))
    kind, error = operations["type"], operations["error"]
    ok, info = _flags(pc.equal(kind, str(OpType.OK))), _flags(pc.equal(kind, str(OpType.INFO)))
    failed = ~ok & ~info & _flags(pc.is_null(error))
    read, write, cas = (_flags(pc.equal(f, name)) for name in ("read", "write", "cas"))
    pairs = pc.extract_regex(argument.combine_chunks(), _PAIR)
    says = ~(lenient & _flags(pc.equal(result, NULL)))
    meant = np.select(
        [
            ~(read | write | cas) | (cas & ~_flags(pairs.is_valid())),
            read & ok & says,
            write & (ok | info),
            cas & (ok | info),
            cas & failed & (not lenient),
        ],
        [_UNFIT, codes.READ, codes.WRITE, codes.CAS, codes.FAILED_CAS],
        _SILENT,
    ).astype(np.int64)
    is_cas, is_read = pa.array(cas), pa.array(read)
    first = pc.if_else(is_cas, pc.struct_field(pairs, "a"), pc.if_else(is_read, result, argument))
    second = pc.if_else(is_cas, pc.struct_field(pairs, "b"), NULL)
    spoken = pa.array(meant >= 0)
    return meant, *(_texts(pc.if_else(spoken, one, NULL)) for one in (first, second))


def _flags(array: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.asarray(array).astype(bool)
    return found


def _texts(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _times(operations: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where operations begin and return; codes.NEVER where it is not known."""
    unknown = pc.or_(
        pc.equal(operations["type"], str(OpType.INFO)), pc.is_null(operations["complete_index"])
    )
    returned = pc.if_else(unknown, codes.NEVER, operations["complete_index"])
    return np.asarray(operations["invoke_index"]), np.asarray(returned)


def _quiescent(
    number: NDArray[np.int64],
    meant: NDArray[np.int64],
    invoked: NDArray[np.int64],
    returned: NDArray[np.int64],
    operations: pa.Table,
    operations_min: int,
) -> set[int]:
    """The keys with so many operations before a moment when nothing was under way."""
    order = np.lexsort((invoked, number))
    key, begin = number[order], invoked[order]
    opened = _flags(pc.is_null(operations["complete_index"]))
    says = (meant >= 0) | opened
    until = np.where(says, np.minimum(returned, _FAR - 1), -1)[order] + key * _FAR
    latest = np.maximum.accumulate(until)
    fresh: NDArray[np.bool_] = np.append(True, key[1:] != key[:-1])
    first = np.maximum.accumulate(np.where(fresh, np.arange(len(key)), 0))
    place = np.arange(len(key)) - first
    quiet = (place >= operations_min) & (np.append(0, latest[:-1]) < begin + key * _FAR)
    return set(np.unique(key[quiet]).tolist())


NOT_YET = frozenset({"unseen"})
"""Anomalies that only the end of a history shows."""
_LOOK_S = 0.2
"""How often the file is looked at while nothing is to be judged."""
_STARTING = "Initializing"
"""How the message of a query's status begins until it looks for data."""
_ENDED = "complete_index IS NOT NULL"
_REFUSED = re.compile(r"HistoryError: (.+)")


class Seen(NamedTuple):
    """Findings on a part of the history."""

    operations: int
    """The number of operations that have ended."""
    verdict: Verdict


class _Whole:
    """Judges all that has come, again with each micro-batch."""

    def __init__(self, history: str, question: Question, scratch: Path) -> None:
        self._history = history
        self._question = question
        self._scratch = scratch
        self._ended: dict[int, int] = {}
        """By micro-batch, how many operations ended in it."""

    def judge(self, batch: DataFrame, number: int) -> Seen:
        """What has come with this micro-batch and before. Raises InputError."""
        # By its number, so that one that comes again after a failure is not there twice.
        mine = self._scratch / "came" / f"n={number}"
        batch.write.mode("overwrite").parquet(str(mine))
        spark = batch.sparkSession
        table = spark.read.schema(ddl(OPERATIONS))
        self._ended[number] = table.parquet(str(mine)).where(_ENDED).count()
        ended = sum(self._ended.values())
        came = spark.read.schema(f"{ddl(OPERATIONS)}, n int").parquet(str(self._scratch / "came"))
        rows = came.where(f"{_ENDED} OR n = {number}").select(*OPERATIONS.names)
        folder = self._scratch / f"turn-{number}"
        histories = Histories(rows, (self._history,), ended)
        found = judge(spark, histories, self._question, folder / "kept", folder)
        shutil.rmtree(folder)
        return Seen(ended, so_far(found[self._history]))


class _ByKey:
    """Judge the keys with new operations, from their checkpoints."""

    def __init__(self, history: str, question: Question, partitions: int, scratch: Path) -> None:
        self._history = history
        self._question = question
        self._partitions = partitions
        self._scratch = scratch
        self._known: list[int] = []
        """Micro-batches whose folders are there; the next one goes on from the last of them."""
        self._needed: set[int] = set()
        """Those whose folders the last one left in use, should the next one come again."""

    def judge(self, batch: DataFrame, number: int) -> Seen:
        """What is known with this micro-batch. Raises InputError."""
        batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")  # nothing to adapt
        earlier = [one for one in self._known if one < number]
        before = earlier[-1] if earlier else None
        asked = Asked(self._question, self._scratch, before, number, SHOWN_MAX)
        parts = judged(batch, self._partitions, asked)
        refused = next(filter(None, (one["refused"] for one in parts)), "")
        if refused:
            raise refusal(self._history, refused)
        needed = {number, *(kept for one in parts for kept in json.loads(one["kept"]))}
        known = {*earlier, number}
        for old in known - needed - self._needed:
            shutil.rmtree(asked.folder(old))
        self._known = sorted(known & (needed | self._needed))
        self._needed = needed
        return _seen(parts)


def _seen(parts: Sequence[dict[str, Any]]) -> Seen:
    """What the tasks say together."""
    names = ("keys", "operations", "keys_invalid", "keys_unknown")
    sums = {name: sum(one[name] for one in parts) for name in names}
    rows = [row for one in parts for row in json.loads(one["anomalies"])]
    rows.sort(key=lambda row: (row["lines"], row["key"]))
    found = [Anomaly(row["name"], json.loads(row["detail"]), tuple(row["lines"])) for row in rows]
    valid: Valid = not sums["keys_invalid"] and (not sums["keys_unknown"] or "unknown")
    why = sorted({why for one in parts for why in json.loads(one["why_unknown"])})
    unknown = "; ".join(why) if valid == "unknown" else ""
    return Seen(sums["operations"], Verdict(valid, tuple(found[:SHOWN_MAX]), (), sums, unknown))


class _BatchJudge:
    """Takes the micro-batches."""

    def __init__(
        self, judge: Callable[[DataFrame, int], Seen], tell: Callable[[Seen], bool]
    ) -> None:
        self._judge = judge
        self._tell = tell
        self.goes_on = True
        self.refused: InputError | None = None
        """Why there is nothing to be judged."""
        self.last_s = time.monotonic()
        """When the last micro-batch was judged."""

    def take(self, batch: DataFrame, number: int) -> None:
        """Judge all that has come with this micro-batch."""
        try:
            seen = self._judge(batch, number)
        except InputError as error:
            self.refused, self.goes_on = error, False
        else:
            self.goes_on = self._tell(seen)
        self.last_s = time.monotonic()


def so_far(verdict: Verdict) -> Verdict:
    """Return the verdict without what only the end can show."""
    found = tuple(one for one in verdict.anomalies if one.name not in NOT_YET)
    if found == verdict.anomalies:
        return verdict  # it may be invalid without a word, where the search for one ran out
    return replace(verdict, anomalies=found, valid=verdict.valid if found else True)


def watch(
    spark: SparkSession,
    history: str,
    failures: str,
    question: Question,
    scratch: Path,
    tell: Callable[[Seen], bool],
    *,
    idle_s: float,
) -> None:
    """Call `tell` with the findings of each micro-batch, until it returns False.

    It also ends when the history has not grown for `idle_s` seconds. `history` is JSON lines or a
    run folder, and need not be there yet. Intermediate files go below `scratch`, which every worker
    must see. Raises InputError for files that are no history, or not of this checker.
    """
    spark.dataSource.register(HistorySource)
    judge_one = (
        _ByKey(history, question, spark.sparkContext.defaultParallelism, scratch).judge
        if question.by_key
        else _Whole(history, question, scratch).judge
    )
    judging = _BatchJudge(judge_one, tell)
    stream = (
        spark.readStream.format(HistorySource.name())
        .option("failures", failures)
        .option("open", "true")
    )
    query = (
        stream.load(history)
        .writeStream.foreachBatch(judging.take)
        .trigger(processingTime=f"{_LOOK_S} seconds")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .start()
    )
    try:
        _follow(query, judging, idle_s)
    except StreamingQueryException as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise
        raise InputError(f"{history}: {refused[1]}") from None
    finally:
        query.stop()
    if judging.refused is not None:
        raise judging.refused


def _follow(query: StreamingQuery, judging: _BatchJudge, idle_s: float) -> None:
    """Return when the judge wants no more, or for so long nothing has come.

    What it takes to start the stream and to look for the first time does not count: that may be
    longer than the time in which a writer has written all.
    """
    started = False
    while judging.goes_on:
        query.awaitTermination(_LOOK_S)
        status = query.status
        busy = status["isDataAvailable"] or status["isTriggerActive"]
        if not started:
            started = not (busy or status["message"].startswith(_STARTING))
            judging.last_s = time.monotonic()
        elif not busy and time.monotonic() - judging.last_s > idle_s:
            return

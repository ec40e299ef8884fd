"""Keys judged one by one while their history is written: each micro-batch from what is known.

A task has the keys of one partition, the same each time. It finds what was known of them before in
`STANDINGS` below the folder of the last micro-batch, judges the keys that have news, and leaves
what is known now below the folder of this one. The operations that are still needed (`NEEDED`) stay
below the folder of the micro-batch that had the last news of their key, to which its standing
refers: a key without news costs nothing. No file changes, so a micro-batch that comes again after
a failure finds the same as the first time, and nothing is counted twice.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from jepsen import compiled
from jepsen.checkers.linearizable import STATES_SHARED_MAX, Budget, Machine, nonlinearizable
from jepsen.checkers.linearizable.checkpoints import SETTLE_OPERATIONS, Standing, look
from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.registry import model_named
from jepsen.history.edn import hashable
from jepsen.history.table import OPERATIONS, READ_COLUMNS, operations_of, text_of, value_of
from jepsen.spark._search import INVALID, UNKNOWN, VALID, anomaly_row, verdict_word
from jepsen.spark.live._encoding import valid_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from jepsen.history import Operation
    from jepsen.spark.check import Question

STANDINGS = pa.schema(
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
"""A row a key: its `Standing`, how many operations have ended, the verdict so far, how many
operations it needs, and the number of the micro-batch below whose folder they are."""
NEEDED = pa.schema([OPERATIONS.field(name) for name in READ_COLUMNS])
"""The operations that the standings need."""
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
lines, key) of those with news, and `kept`: the micro-batches whose folders still are needed."""
_SEEN_SQL = (
    "keys long, operations long, keys_invalid long, keys_unknown long, why_unknown string, "
    "refused string, anomalies string, kept string"
)


COMPILED_MIN = 5_000
"""From so many operations a task on it pays to load the compiled search."""
LIVE_SHARE_MIN = 0.25
"""Of a file of `NEEDED`; with less, what is needed of it is moved on."""


class Asked(NamedTuple):
    """What a task is to find out, and where what is known stands."""

    question: Question
    scratch: Path
    before: int | None
    """The last micro-batch, if there was one."""
    number: int
    """Of this one."""
    shown_max: int
    """Anomalies that a task hands back, the first in the history."""

    def folder(self, number: int) -> Path:
        """Where a micro-batch leaves what is known."""
        return self.scratch / f"known-{number}"


def judged(operations: DataFrame, partitions: int, asked: Asked) -> list[dict[str, Any]]:
    """Judges the keys that a micro-batch of `OPERATIONS` has news of; by partition what is known of
    all keys (`_SEEN`).

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
    """What is known of a partition's keys (`_SEEN`) with these rows of `NEEDED`, the operations
    that have ended and those that are open.

    It may run twice, even at the same time, as another `attempt`.
    """
    files = _Files(asked, partition, attempt)
    keys = pc.unique(came["key"].filter(pc.is_valid(came["complete_index"])))
    standings, others = _split(files.standings(), keys)
    judge = _Judge(asked.question, lenient=pc.any(came["lenient"]).as_py() or False)
    news, needs = judge.judge(standings, files.needed(standings), _split(came, keys)[0])
    others, moved = files.moved(others)
    counts = dict(zip(*_counts(needs["key"]), strict=True))
    needed = pa.array([counts.get(key, 0) for key in news["key"].to_pylist()])
    standings = pa.concat_tables([others, files.kept_here(news, needed)])
    files.write(standings, pa.concat_tables([needs, moved]))
    return _told(standings, judge, asked.shown_max)


def _counts(keys: pa.ChunkedArray) -> tuple[list[str], list[int]]:
    found = pc.value_counts(keys)
    return found.field("values").to_pylist(), found.field("counts").to_pylist()


class _Files:
    """What is known of a partition's keys."""

    def __init__(self, asked: Asked, partition: int, attempt: int) -> None:
        self._asked = asked
        self._partition = partition
        self._attempt = attempt

    def standings(self) -> pa.Table:
        """Of all keys, before this micro-batch."""
        before = self._asked.before
        return STANDINGS.empty_table() if before is None else self._read("standings", before)

    def needed(self, standings: pa.Table) -> pa.Table:
        """The operations that these standings need."""
        found = [NEEDED.empty_table()]
        for number in pc.unique(standings["kept"]).to_pylist():
            keys = standings.filter(pc.equal(standings["kept"], number))["key"]
            found.append(_split(self._read("needed", number), keys)[0])
        return pa.concat_tables(found)

    def moved(self, standings: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(the standings, what is needed of a file most of which nobody needs any more).

        One file is looked at each time.
        """
        files = sorted(pc.unique(standings["kept"]).to_pylist())
        if not files:
            return standings, NEEDED.empty_table()
        number = files[self._asked.number % len(files)]
        is_there = pc.equal(standings["kept"], number)
        mine = standings.filter(is_there)
        rows = self._read("needed", number).num_rows
        if pc.sum(mine["needs"]).as_py() >= LIVE_SHARE_MIN * rows:
            return standings, NEEDED.empty_table()
        others = standings.filter(pc.invert(is_there))
        return pa.concat_tables([others, self.kept_here(mine, mine["needs"])]), self.needed(mine)

    def kept_here(self, standings: pa.Table, needs: pa.Array | pa.ChunkedArray) -> pa.Table:
        """The standings with what they need below the folder of this micro-batch."""
        here = pa.repeat(pa.scalar(self._asked.number, pa.int64()), len(standings))
        columns = {name: standings[name] for name in STANDINGS.names}
        return pa.table(columns | {"needs": needs, "kept": here}, STANDINGS)

    def write(self, standings: pa.Table, needed: pa.Table) -> None:
        """What is known now; each file as a whole or not at all."""
        self._asked.folder(self._asked.number).mkdir(parents=True, exist_ok=True)
        for name, table in (("standings", standings), ("needed", needed)):
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


def _told(standings: pa.Table, judge: _Judge, shown_max: int) -> pa.RecordBatch:
    valid = standings["valid"]
    first = sorted(judge.anomalies, key=lambda one: (one["lines"], one["key"]))[:shown_max]
    why = pc.unique(standings.filter(pc.equal(valid, UNKNOWN))["why_unknown"]).to_pylist()
    row = {
        "keys": len(standings),
        "operations": pc.sum(standings["operations"]).as_py() or 0,
        "keys_invalid": pc.sum(pc.equal(valid, INVALID)).as_py() or 0,
        "keys_unknown": pc.sum(pc.equal(valid, UNKNOWN)).as_py() or 0,
        "why_unknown": json.dumps(sorted(why)),
        "refused": judge.refused,
        "anomalies": json.dumps(first),
        "kept": json.dumps(pc.unique(standings["kept"]).to_pylist()),
    }
    return pa.RecordBatch.from_pylist([row], _SEEN)


class _Judge:
    """Judges the keys of a task that have news."""

    def __init__(self, question: Question, *, lenient: bool) -> None:
        self._question = question
        self._model = model_named(question.model, lenient=lenient, initial=question.initial)
        self._machine: Machine | None = None
        self.anomalies: list[dict[str, Any]] = []
        self.refused = ""
        """Why the operations are none of the model's, if they are not."""

    def judge(
        self, standings: pa.Table, needed: pa.Table, came: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        """From the standings of these keys, what they need, and the news: (the standings now, what
        they need).
        """
        known = {row["key"]: row for row in standings.to_pylist()}
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
        return pa.Table.from_pylist(list(rows.values()), STANDINGS), kept

    def _certain(self, rows: Mapping[str, dict[str, Any]], operations: pa.Table) -> list[str]:
        """Keys that the compiled search finds linearizable; their standings may stay."""
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
        found = valid_keys(operations, initial, states, lenient=lenient, settle=SETTLE_OPERATIONS)
        return [key for key in found if key in fits]

    def _searched(self, rows: Mapping[str, dict[str, Any]], operations: pa.Table) -> list[int]:
        """Judges keys one by one; which of the operations are needed."""
        mine: dict[str, list[tuple[int, Operation]]] = {}
        for number, (_, _, key, one) in enumerate(operations_of(operations.to_batches())):
            mine.setdefault(key, []).append((number, one))
        needs = []
        for key, numbered in mine.items():
            standing = self._look(rows[key], [one for _, one in numbered])
            needs += [
                number
                for number, one in numbered
                if one.completion is not None and standing.needs(one)
            ]
        return needs

    def _look(self, row: dict[str, Any], mine: Sequence[Operation]) -> Standing:
        """Judges a key, and writes into its row what is known of it."""
        standing = _standing(row)
        row["valid"], row["why_unknown"] = UNKNOWN, ""
        limits = self._question.limits
        budget = Budget(limits.memory_bytes, time.monotonic() + limits.time_s, time.monotonic)
        try:
            subject = hashable(value_of(row["key"]))
            result, found = look(
                subject, standing, mine, self._model, budget, self._shared_machine()
            )
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            self.refused = str(error) or "its values are others"
            return standing
        row["valid"], row["why_unknown"] = verdict_word(result.valid), result.why_unknown
        if result.valid is False:
            self.anomalies.append(anomaly_row(nonlinearizable(result)) | {"key": row["key"]})
        written = _written(found)
        if _standing(written) != found:
            return standing  # a state that text does not bring back is not relied on
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


def _standing(row: dict[str, Any]) -> Standing:
    states = row["states"]
    known = None if states is None else tuple(hashable(value_of(one)) for one in states)
    return Standing(known, row["since"], row["until"])


def _written(standing: Standing) -> dict[str, Any]:
    """What `_standing` reads."""
    states = None if standing.states is None else list(map(text_of, standing.states))
    return {"states": states, "since": standing.since, "until": standing.until}

"""Histories with known anomalies, made and written as Parquet. Needs no Spark."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jepsen.history.table import NULL, OPERATIONS
from jepsen.spark.recipe import LOG, POLL_SENDS, UNIQUE_REGISTER, Expected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jepsen.spark.recipe import Recipe


# --- registers ------------------------------------------------------------------------------------
#
# Many side by side: arrays of a row an operation and a column a key. Each operation takes effect at
# one moment between its invocation and its completion, so a history is linearizable; crashed ones
# take effect or not. In a key that is to be invalid three operations, one after the other, write a
# value, write another, and read the first: both occur nowhere else, so that nothing explains it.


DOMAIN = 5
"""Values that operations draw from unless each write has one of its own."""
_READ, _WRITE, _CAS = range(3)
_NAMES = np.array(["read", "write", "cas"])
_NIL = -1
_NEAR = 0.4
"""What two neighbours that reach no further apart from their moments do not overlap."""
Array = Any
"""An array of numpy: a row an operation, a column a key."""


@dataclass
class _Plan:
    """What the operations are to do, before anything has happened."""

    f: Array
    argument: Array
    compared: Array
    """What `cas` compares with."""
    crashed: Array
    effective: Array
    moments: Array
    """When operations take effect, in the order of their numbers; keys have the same."""
    invoked: Array
    completed: Array


def _expected_of_registers(recipe: Recipe) -> Iterator[Expected]:
    """The keys that are not linearizable."""
    for key in range(recipe.keys):
        for _ in recipe.faults_of(key):
            yield Expected(json.dumps(key), "nonlinearizable", None)


def _register_batches(recipe: Recipe, group: int) -> Iterator[dict[str, Any]]:
    """The operations of a group of keys, by column."""
    rng = np.random.default_rng([recipe.seed, group])
    keys = np.array(recipe.keys_of(group))
    plan = _plan(recipe, rng, len(keys))
    wrong = np.flatnonzero([len(recipe.faults_of(key)) for key in keys.tolist()])
    misread = _plant(plan, wrong, recipe, rng)
    found, process = _happen(plan, recipe.processes)
    for at, column, value in misread:
        found[at, column] = value
    invoke_index, complete_index = _lines(plan, keys, recipe.keys)
    failed = (plan.f == _CAS) & (found != plan.compared)
    kind = np.where(plan.crashed, "info", np.where(failed, "fail", "ok"))
    # A process is one key's alone, and after a crash goes on as another.
    first = keys * (2 * recipe.processes + recipe.operations_a_key)
    argument = _arguments(plan)
    read = pa.array(((plan.f == _READ) & ~plan.crashed & (found != _NIL)).ravel())
    yield {
        "key": pc.cast(pa.array(np.broadcast_to(keys, plan.f.shape).ravel()), pa.string()),
        "process": (process + first).ravel(),
        "f": _NAMES[plan.f].ravel(),
        "type": kind.ravel(),
        "invoke_index": invoke_index.ravel(),
        "complete_index": complete_index.ravel(),
        "argument": argument,
        "result": pc.if_else(read, _text(found), argument),
    }


def _plan(recipe: Recipe, rng: np.random.Generator, keys: int) -> _Plan:
    shape = recipe.operations_a_key, keys
    numbers = np.arange(shape[0])[:, None]
    unique = recipe.workload == UNIQUE_REGISTER
    # The next operation of the same process comes `processes` later: they never overlap.
    reach = recipe.processes / 2
    moments = numbers
    crashed = rng.random(shape) < recipe.crashes
    f = rng.integers(_WRITE + 1 if unique else _CAS + 1, size=shape)
    if recipe.barrier_every:
        # Those on both sides of a barrier reach no further than to its middle.
        moments = numbers + numbers // recipe.barrier_every * recipe.processes
        crashed &= f == _READ
    return _Plan(
        f=f,
        argument=np.tile(numbers, keys) if unique else rng.integers(DOMAIN, size=shape),
        compared=rng.integers(DOMAIN, size=shape),
        crashed=crashed,
        effective=~crashed | (rng.random(shape) < 0.5),
        moments=moments[:, 0],
        invoked=moments - rng.random(shape) * reach,
        completed=moments + rng.random(shape) * reach,
    )


def _plant(
    plan: _Plan, wrong: Array, recipe: Recipe, rng: np.random.Generator
) -> list[tuple[int, int, int]]:
    """Put the three operations into the keys; (operation, key, value) of what is read wrongly."""
    count = len(plan.f)
    one, other = count + DOMAIN, count + DOMAIN + 1
    misread = []
    for column in wrong.tolist():
        at = int(rng.integers(count - 2))
        here = slice(at, at + 3), column
        plan.f[here] = _WRITE, _WRITE, _READ
        plan.argument[here] = one, other, 0
        plan.crashed[here] = False
        plan.effective[here] = True
        plan.invoked[here] = plan.moments[at : at + 3] - _NEAR
        plan.completed[here] = plan.moments[at : at + 3] + _NEAR
        misread.append((at + 2, column, one))
    return misread


def _happen(plan: _Plan, processes: int) -> tuple[Array, Array]:
    """(the value that each operation finds, the process that does it)."""
    found, process = np.empty_like(plan.f), np.empty_like(plan.f)
    state = np.full(plan.f.shape[1], _NIL)
    clients = np.tile(np.arange(processes)[:, None], plan.f.shape[1])
    for at, f in enumerate(plan.f):
        found[at] = state
        client = clients[at % processes]
        process[at] = client
        client += processes * plan.crashed[at]
        writes = (f == _WRITE) | ((f == _CAS) & (state == plan.compared[at]))
        state = np.where(writes & plan.effective[at], plan.argument[at], state)
    return found, process


def _lines(plan: _Plan, keys: Array, all_keys: int) -> tuple[Array, Array]:
    """(invoke_index, complete_index): the keys take turns, so lines differ, and within a key they
    are in the order of the moments.
    """
    order = np.argsort(np.concatenate((plan.invoked, plan.completed)), axis=0)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(order))[:, None], axis=0)
    invoked, completed = np.split(ranks * all_keys + keys, 2)
    return invoked, completed


def _arguments(plan: _Plan) -> pa.Array:
    """What was asked, as text."""
    value = _text(plan.argument)
    pairs = pc.binary_join_element_wise("[", _text(plan.compared), ",", value, "]", "")
    written = pc.if_else(pa.array((plan.f == _CAS).ravel()), pairs, value)
    return pc.if_else(pa.array((plan.f == _READ).ravel()), NULL, written)


def _text(numbers: Array) -> pa.Array:
    return pc.cast(pa.array(numbers.ravel()), pa.string())


# --- logs -----------------------------------------------------------------------------------------
#
# Producers send, a consumer polls all of it, and faults are of known kinds. Each send takes effect
# at one moment, so the log's order is the order of these moments. A poll returns the values of
# `POLL_SENDS` sends in a row. A fault lies in the midst of such a row, at most one in each, so that
# none interferes with another, nor with a send whose outcome is unknown.


LOST, DUPLICATE, ABORTED, UNEXPECTED, INCONSISTENT, BACKWARDS, SKIPPED = KINDS = (
    "lost-write",
    "duplicate",
    "G1a",
    "unexpected",
    "inconsistent-offsets",
    "nonmonotonic-poll",
    "poll-skip",
)
"""The faults take turns."""
_FOLLOWS = {LOST: ("int-poll-skip",), DUPLICATE: ("int-poll-skip", "int-nonmonotonic-poll")}
"""What the one poll that shows it also shows: a place left out, a value that comes again."""
_OF_A_VALUE = (LOST, DUPLICATE, ABORTED, UNEXPECTED)
_MIDDLE = POLL_SENDS // 2
_BATCH_ROWS = 20_000
_COLUMNS = ("process", "f", "type", "invoked", "completed", "argument", "result")
Row = tuple[Any, ...]
"""The values of `_COLUMNS`."""
Pairs = list[tuple[int, int]]
"""(offset, value) of what was polled."""


def name_of(key: int) -> str:
    """Return a log's key."""
    return f"log-{key}"


def planted(recipe: Recipe, key: int) -> dict[int, str]:
    """Return the faults of a key: number of the send to kind."""
    faults = recipe.faults_of(key)
    rng = random.Random(f"{recipe.seed} {key} faults")
    polls = range(1, recipe.operations_a_key // POLL_SENDS - 1)
    chosen = sorted(rng.sample(polls, len(faults)))
    kinds = (KINDS[fault % len(KINDS)] for fault in faults)
    return dict(zip((poll * POLL_SENDS + _MIDDLE for poll in chosen), kinds, strict=True))


def _expected_of_logs(recipe: Recipe) -> Iterator[Expected]:
    """All anomalies that are in the history."""
    for number in range(recipe.keys):
        key = json.dumps(name_of(number))
        faults = planted(recipe, number)
        for value, kind in faults.items():
            yield Expected(key, kind, value if kind in _OF_A_VALUE else None)
            for name in _FOLLOWS.get(kind, ()):
                yield Expected(key, name, None)
        if LOST in faults.values():
            yield Expected(key, "unseen", None)


def _log_batches(recipe: Recipe, key: int) -> Iterator[dict[str, Any]]:
    """The operations on one log, by column, as they end."""
    rows = sorted(_Log(recipe, key).rows(), key=lambda row: row[4])
    lines = {moment: line for line, moment in enumerate(sorted(_moments(rows)))}
    first = key * (2 * recipe.processes + 2 * recipe.operations_a_key)
    while rows:
        columns = dict(zip(_COLUMNS, zip(*rows[:_BATCH_ROWS], strict=True), strict=True))
        del rows[:_BATCH_ROWS]
        for column, moments in (("invoke_index", "invoked"), ("complete_index", "completed")):
            columns[column] = tuple(
                lines[moment] * recipe.keys + key for moment in columns.pop(moments)
            )
        columns["process"] = tuple(first + process for process in columns["process"])
        yield {"key": ["null"] * len(columns["process"]), **columns}


def _moments(rows: list[Row]) -> Iterator[float]:
    for row in rows:
        yield row[3]
        yield row[4]


class _Log:
    """One log and all who use it. Moments are counted in sends; a value is its send's number."""

    def __init__(self, recipe: Recipe, key: int) -> None:
        self._recipe = recipe
        self._key = name_of(key)
        self._rng = random.Random(f"{recipe.seed} {key}")
        self._faults = planted(recipe, key)
        self._crashed = recipe.processes
        """The name of the next process: those that crashed do not come again."""
        self._log: Pairs = []
        """What the next poll returns."""
        self._offset = 0

    def rows(self) -> Iterator[Row]:
        """All operations."""
        processes = list(range(self._recipe.processes))
        count = self._recipe.operations_a_key
        consumer = self._fresh()
        for value in range(count):
            yield from self._send(value, processes)
            if (value + 1) % POLL_SENDS == 0 or value + 1 == count:
                yield from self._poll(value, consumer)

    def _fresh(self) -> int:
        self._crashed += 1
        return self._crashed - 1

    def _moment(self, value: int) -> tuple[float, float]:
        """(invoked, completed); the same process' next send comes after that."""
        reach = self._recipe.processes / 2
        return value - self._rng.random() * reach, value + self._rng.random() * reach

    def _send(self, value: int, processes: list[int]) -> Iterator[Row]:
        """The send of a value, unless nobody is to have sent it."""
        fault = self._faults.get(value)
        known = value - value % POLL_SENDS + _MIDDLE in self._faults
        crashed = not known and self._rng.random() < self._recipe.crashes
        kind = "ok" if not crashed else self._rng.choice(("fail", "info"))
        written = kind == "ok" or (kind == "info" and self._rng.random() < 0.5)
        place = value % len(processes)
        if fault == ABORTED:
            kind = "fail"
        if fault != UNEXPECTED:
            asked = f'[["send","{self._key}",{value}]]'
            acknowledged = f'[["send","{self._key}",[{self._offset},{value}]]]'
            result = acknowledged if kind == "ok" else asked
            yield (processes[place], "send", kind, *self._moment(value), asked, result)
        if kind == "info":
            processes[place] = self._fresh()
        if written:
            self._append(value, fault)

    def _append(self, value: int, fault: str | None) -> None:
        if fault != LOST:
            self._log.append((self._offset, value))
        self._offset += 1
        if fault == DUPLICATE:
            self._log.append((self._offset, value))
            self._offset += 1

    def _poll(self, last: int, consumer: int) -> Iterator[Row]:
        """The poll of what the sends up to this one have written, and those that show a fault."""
        records, self._log = self._log, []
        begin = last + self._recipe.processes / 2
        fault = last + 1 - POLL_SENDS + _MIDDLE
        kind = self._faults.get(fault)
        yield self._polled(consumer, begin, 0, records)
        if kind in (BACKWARDS, SKIPPED, INCONSISTENT):
            yield from self._shown(kind, fault, begin, records)

    def _shown(self, kind: str, fault: int, begin: float, records: Pairs) -> Iterator[Row]:
        """What another consumer sees."""
        other = self._fresh()
        at = [value for _, value in records].index(fault)
        if kind == INCONSISTENT:
            # Sent by somebody who never learnt what became of it, and polled once.
            value = self._recipe.operations_a_key + fault
            asked = f'[["send","{self._key}",{value}]]'
            yield (self._fresh(), "send", "info", *self._moment(fault), asked, asked)
            yield self._polled(other, begin, 1, [(records[at][0], value)])
            return
        polls = (records[at : at + 2], records[at : at + 1])
        if kind == SKIPPED:
            polls = (records[at : at + 1], records[at + 2 : at + 3])
        for turn, mine in enumerate(polls, 1):
            yield self._polled(other, begin, turn, mine)

    def _polled(self, process: int, begin: float, turn: int, records: Pairs) -> Row:
        """A poll. Those of one moment follow each other by their turns, well before the next."""
        shown = ",".join(f"[{offset},{value}]" for offset, value in records)
        result = f'[["poll",{{"{self._key}":[{shown}]}}]]'
        invoked = begin + turn + 0.1
        return process, "poll", "ok", invoked, invoked + 0.5, '[["poll"]]', result


_FILE_OPERATIONS = 500_000
"""A file is what one task reads, roughly."""
_LINE_NS = 1000
_SCHEMA = pa.schema([field for field in OPERATIONS if field.name != "history"])


def generate(recipe: Recipe, folder: Path) -> None:
    """Make `folder` with `operations`, Parquet with the columns of `OPERATIONS`, and
    `expected.json`: each anomaly that is to be found. Raises InputError; see `Recipe.refuse`.
    """
    recipe.refuse()
    operations = folder / "operations"
    operations.mkdir(parents=True)
    a_file = max(1, _FILE_OPERATIONS // (recipe.group_keys * recipe.operations_a_key))
    for number, first in enumerate(range(0, recipe.groups, a_file)):
        with pq.ParquetWriter(operations / f"part-{number:05}.parquet", _SCHEMA) as writer:
            for group in range(first, min(first + a_file, recipe.groups)):
                for batch in group_batches(recipe, group):
                    writer.write_batch(batch)
    anomalies = [one._asdict() for one in expected(recipe)]
    (folder / "expected.json").write_text(json.dumps({"anomalies": anomalies}) + "\n")


def expected(recipe: Recipe) -> Iterator[Expected]:
    """Return each anomaly that is to be found."""
    return _expected_of_logs(recipe) if recipe.workload == LOG else _expected_of_registers(recipe)


def group_batches(recipe: Recipe, group: int) -> Iterator[pa.RecordBatch]:
    """Return the operations of a group of keys, with the columns of `OPERATIONS` but `history`."""
    make = _log_batches if recipe.workload == LOG else _register_batches
    for columns in make(recipe, group):
        yield _batch(columns)


def _batch(columns: dict[str, Any]) -> pa.RecordBatch:
    rows = len(columns["f"])
    columns |= {"lenient": [False] * rows, "error": [None] * rows}
    for moment in ("invoke", "complete"):
        lines = pa.array(columns[f"{moment}_index"], pa.int64())
        columns[f"{moment}_time"] = pc.multiply(lines, _LINE_NS)
    arrays = [pa.array(columns[field.name], field.type) for field in _SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)

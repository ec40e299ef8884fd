"""Histories of registers with known verdicts, as large as one likes, made on Spark.

A key's history is made by a register that takes each operation at one moment between its invocation
and its completion, so it is linearizable; those that crash take effect or not. In the keys that are
to be wrong three operations follow, one after the other: a write, a write of another value, and a
read that returns the first. Values that occur nowhere else make sure that nothing explains it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jepsen.spark.schema import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

DOMAIN = 5
"""Values that operations draw from unless each write has one of its own."""
_BATCH_ROWS = 20_000
_TASK_OPERATIONS = 250_000
_COLUMNS = ("key", "process", "f", "type", "invoke_index", "complete_index", "argument", "result")
_SQL = (
    "lenient boolean, key string, process long, f string, type string, invoke_index long, "
    "complete_index long, invoke_time long, complete_time long, argument string, result string, "
    "error string"
)
_SCHEMA = pa.schema([field for field in OPERATIONS if field.name != "history"])


@dataclass(frozen=True)
class Recipe:
    """What the history is to be like."""

    operations: int
    keys: int
    faults: int = 0
    """Keys that are not linearizable."""
    processes: int = 5
    """How many work on a key at a time."""
    crashes: float = 0.01
    """The share of operations whose outcome nobody knows."""
    unique: bool = False
    """Only reads and writes, no value written twice in a key."""
    seed: int = 0

    def is_wrong(self, key: int) -> bool:
        """Whether that key is not linearizable: as many as `faults`, evenly spread."""
        return (key + 1) * self.faults // self.keys > key * self.faults // self.keys

    @property
    def operations_a_key(self) -> int:
        """How many, but for the three that make a key wrong."""
        return max(1, self.operations // self.keys)


def generate(spark: SparkSession, recipe: Recipe, folder: Path) -> None:
    """Writes `operations`, a folder of Parquet, and `expected.json`: the keys that are wrong."""
    tasks = max(1, recipe.operations // _TASK_OPERATIONS)
    keys = spark.range(0, recipe.keys, 1, tasks)
    made = keys.mapInArrow(partial(_batches, recipe=recipe), _SQL)
    made.write.parquet(str(folder / "operations"))
    wrong = [str(key) for key in range(recipe.keys) if recipe.faults and recipe.is_wrong(key)]
    (folder / "expected.json").write_text(json.dumps({"invalid": wrong}) + "\n")


def _batches(batches: Iterable[pa.RecordBatch], *, recipe: Recipe) -> Iterator[pa.RecordBatch]:
    keys = (key for batch in batches for key in batch.column(0).to_pylist())
    rows = (row for key in keys for row in key_rows(recipe, key))
    while chunk := list(islice(rows, _BATCH_ROWS)):
        columns: dict[str, Any] = dict(zip(_COLUMNS, zip(*chunk, strict=True), strict=True))
        columns["invoke_time"] = columns["invoke_index"]
        columns["complete_time"] = columns["complete_index"]
        columns["lenient"] = [False] * len(chunk)
        columns["error"] = [None] * len(chunk)
        arrays = [pa.array(columns[field.name], type=field.type) for field in _SCHEMA]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


Row = tuple[Any, ...]
"""The values of `_COLUMNS`."""


def key_rows(recipe: Recipe, key: int) -> Iterator[Row]:
    """The operations on one key, in the order in which they end."""
    rng = random.Random(f"{recipe.seed} {key}")
    # The keys take turns, so that lines differ and the order within a key is that of its events.
    lines = count(key, recipe.keys)
    register = _Register(rng, recipe)
    first_process = key * 1_000_000
    for process, f, kind, invoked, completed, argument, result in register.rows(lines):
        texts = json.dumps(argument), json.dumps(result)
        yield (str(key), first_process + process, f, kind, invoked, completed, *texts)
    if recipe.faults and recipe.is_wrong(key):
        one, other = recipe.operations + DOMAIN + 1, recipe.operations + DOMAIN + 2
        process = first_process + 999_999
        for f, argument, result in (
            ("write", one, one),
            ("write", other, other),
            ("read", None, one),
        ):
            texts = json.dumps(argument), json.dumps(result)
            yield (str(key), process, f, "ok", next(lines), next(lines), *texts)


class _Register:
    """A register and the processes that use it."""

    def __init__(self, rng: random.Random, recipe: Recipe) -> None:
        self._rng = rng
        self._recipe = recipe
        self._value: int | None = None
        self._written = 0

    def rows(self, lines: Iterator[int]) -> Iterator[Row]:
        """(process, f, type, invoked, completed, argument, result) as operations end."""
        rng, left = self._rng, self._recipe.operations_a_key
        fresh = count(self._recipe.processes)
        idle = list(range(self._recipe.processes))
        pending: list[list[Any]] = []
        while left or pending:
            if left and idle and (not pending or rng.random() < 0.5):
                f, argument = self._ask()
                # The last field tells how it ended, once it has taken effect.
                pending.append([idle.pop(rng.randrange(len(idle))), f, next(lines), argument, None])
                left -= 1
                continue
            at = rng.randrange(len(pending))
            process, f, invoked, argument, done = pending[at]
            if done is None and rng.random() < 0.5:
                pending[at][4] = self._take(f, argument)
                continue
            del pending[at]
            if rng.random() < self._recipe.crashes:
                kind, result = "info", argument
                idle.append(next(fresh))
            else:
                kind, result = done or self._take(f, argument)
                idle.append(process)
            yield process, f, kind, invoked, next(lines), argument, result

    def _ask(self) -> tuple[str, Any]:
        """(function, argument) of the next operation."""
        rng = self._rng
        if self._recipe.unique:
            self._written += 1
            return ("write", self._written) if rng.random() < 0.5 else ("read", None)
        f = rng.choice(("read", "write", "cas"))
        if f == "cas":
            return f, [rng.randrange(DOMAIN), rng.randrange(DOMAIN)]
        return f, None if f == "read" else rng.randrange(DOMAIN)

    def _take(self, f: str, argument: Any) -> tuple[str, Any]:
        """(type, result) of the operation, which takes effect now."""
        if f == "read":
            return "ok", self._value
        if f == "cas" and argument[0] != self._value:
            return "fail", argument
        self._value = argument[1] if f == "cas" else argument
        return "ok", argument

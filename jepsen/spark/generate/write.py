"""Writes a history as Parquet, and what is wrong with it beside it. Needs no Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jepsen.history.table import OPERATIONS
from jepsen.spark.generate import _logs as logs
from jepsen.spark.generate import _registers as registers
from jepsen.spark.generate.recipe import LOG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jepsen.spark.generate.recipe import Expected, Recipe

_FILE_OPERATIONS = 500_000
"""A file is what one task reads, roughly."""
_LINE_NS = 1000
_SCHEMA = pa.schema([field for field in OPERATIONS if field.name != "history"])


def generate(recipe: Recipe, folder: Path) -> None:
    """Makes `folder` with `operations`, Parquet with the columns of `OPERATIONS`, and
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
    """Each anomaly that is to be found."""
    return logs.expected(recipe) if recipe.workload == LOG else registers.expected(recipe)


def group_batches(recipe: Recipe, group: int) -> Iterator[pa.RecordBatch]:
    """The operations of a group of keys, with the columns of `OPERATIONS` but `history`."""
    make = logs.batches if recipe.workload == LOG else registers.batches
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

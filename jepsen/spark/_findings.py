"""Findings of a checker on Spark, and the tables that it keeps on the way."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from jepsen.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_REFUSED = re.compile(r"InputError: (.+)")

FOUND = pa.schema(
    [
        pa.field("history", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
        pa.field("lines", pa.list_(pa.int64()), nullable=False),
        pa.field("allowed", pa.bool_(), nullable=False),
    ]
)
"""An anomaly: `detail` is JSON; those allowed are notes."""
FOUND_SQL = (
    "history string, key string, name string, detail string, lines array<long>, allowed boolean"
)


@dataclass(frozen=True)
class Findings:
    """The verdicts of all keys, and why."""

    verdicts: DataFrame
    """(history, key, valid, operations, method, why_unknown): a row a key; nothing is null."""
    anomalies: DataFrame
    """The anomalies, with the columns of `FOUND`."""

    @classmethod
    def of_rows(cls, rows: DataFrame) -> Findings:
        """Return the findings of a kept table with the columns of `jepsen.spark._search.VERDICTS`.
        See `refuse`.
        """
        refuse(rows.where("refused <> ''"))
        anomalies = rows.select("history", "key", sql.explode("anomalies").alias("anomaly"))
        return cls(
            rows.drop("anomalies", "refused"), anomalies.select("history", "key", "anomaly.*")
        )


def kept(table: DataFrame, path: Path) -> DataFrame:
    """Return the table as a file, so that it is computed once."""
    table.write.parquet(str(path))
    # With its schema, or a job would look it up in the file.
    return table.sparkSession.read.schema(table.schema).parquet(str(path))


def refuse(rows: DataFrame) -> None:
    """Raise InputError if there is a row (history, refused: why)."""
    row = rows.first()
    if row is not None:
        raise refusal(row["history"], row["refused"])


def refusal(history: str, why: str) -> InputError:
    """Return the refusal of a history that is none for the checker."""
    return InputError(
        f"{history}: not a history for this checker ({why}): choose another --checker or --model"
    )


@contextmanager
def refused_by_tasks() -> Iterator[None]:
    """Raise the InputError that a task has raised."""
    try:
        yield
    except PythonException as error:
        refused = _REFUSED.search(str(error))
        if refused is None:
            raise
        raise InputError(refused[1]) from None

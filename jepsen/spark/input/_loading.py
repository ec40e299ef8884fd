"""From what the command line names to one table of operations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from jepsen.errors import InputError
from jepsen.history.table import ADDED, OPERATIONS, ddl
from jepsen.spark.input._parquet_parts import Piece, pieces_of
from jepsen.spark.input._staging import stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

TEST = "test.json"


@dataclass(frozen=True)
class Histories:
    """Histories to be judged."""

    operations: DataFrame
    """With the columns of `jepsen.history.table.OPERATIONS`."""
    names: tuple[str, ...]
    """Of those that are known to be there, be they empty."""
    rows: int
    """Operations in all."""
    pieces: tuple[Piece, ...] = ()
    """The operations as they lie in files; none if they do not."""


def load(spark: SparkSession, files: Sequence[str], failures: str, scratch: Path) -> Histories:
    """Histories by name: run folders, JSON lines, EDN, Jepsen's log, Parquet files and folders.

    Text is turned into Parquet below `scratch` first. Raises InputError.
    """
    tables = [file for file in files if _is_table(Path(file))]
    texts = [file for file in files if file not in tables]
    lenient = failures == "ignore"
    parts = [_table(spark, file, lenient=lenient) for file in tables]
    pieces = [one for file in tables for one in _pieces(file, lenient=lenient)]
    rows = sum(map(_row_count, tables))
    if texts:
        staged = scratch / "operations"
        stage(texts, failures, staged)
        parts.append(spark.read.schema(ddl(OPERATIONS)).parquet(str(staged)))
        rows += _row_count(str(staged))
        pieces += [one for path in _parts(str(staged)) for one in pieces_of(path, "", None)]
    operations = parts[0]
    for part in parts[1:]:
        operations = operations.unionByName(part)
    single = [file for file in tables if "history" not in _schema(file).names]
    names = tuple(dict.fromkeys([*texts, *single]))
    return Histories(operations, names, rows, tuple(pieces))


def _is_table(path: Path) -> bool:
    if not path.exists():
        raise InputError(f"{path}: cannot be read: there is no such file")
    if path.is_dir():
        return not (path / TEST).is_file()
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _parts(file: str) -> list[Path]:
    path = Path(file)
    found = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not found:
        raise InputError(f"{file}: neither a run ({TEST}) nor Parquet files are in it")
    return found


def _pieces(file: str, *, lenient: bool) -> Iterator[Piece]:
    """As `_table` has it."""
    told = None if "lenient" in _schema(file).names and not lenient else lenient
    return (one for path in _parts(file) for one in pieces_of(path, file, told))


def _schema(file: str) -> pa.Schema:
    return pq.read_schema(_parts(file)[0])


def _row_count(file: str) -> int:
    return sum(pq.read_metadata(part).num_rows for part in _parts(file))


def _table(spark: SparkSession, file: str, *, lenient: bool) -> DataFrame:
    """A file of operations; several histories in one are told apart by their names behind it."""
    schema = _schema(file)
    for field in OPERATIONS:
        if field.name in ADDED and field.name not in schema.names:
            continue
        if field.name not in schema.names:
            raise InputError(f"{file}: not a history: it lacks the column {field.name}")
        if schema.field(field.name).type != field.type:
            found = schema.field(field.name).type
            raise InputError(
                f"{file}: not a history: the column {field.name} is {found}, "
                f"write it as {field.type}"
            )
    table = spark.read.parquet(file)
    name = sql.lit(file)
    if "history" in schema.names:
        name = sql.concat(name, sql.lit(":"), sql.col("history"))
    table = table.withColumn("history", name)
    if lenient or "lenient" not in schema.names:
        table = table.withColumn("lenient", sql.lit(lenient))
    return table.select(*OPERATIONS.names)

"""How Spark plans, by how much there is to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

LINE_BYTES = 150
"""Of a history, and of what a dump tells of a record, roughly."""
TASK_ROWS = 250_000
"""Operations that one task sorts and checks, roughly."""


def tune_for(spark: SparkSession, files: Iterable[Path]) -> None:
    """As `tune`, by the size of files of lines, as far as there are such files."""
    tune(spark, sum(path.stat().st_size for path in files if path.is_file()) // LINE_BYTES)


def tune(spark: SparkSession, rows: int) -> None:
    """What takes few moments is not worth the compiling and planning that what takes long is."""
    tasks = max(spark.sparkContext.defaultParallelism, rows // TASK_ROWS + 1)
    spark.conf.set("spark.sql.shuffle.partitions", tasks)
    for key in ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled"):
        spark.conf.set(key, str(rows > TASK_ROWS).lower())

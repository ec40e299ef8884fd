"""Linearizability: by the compiled search if it is there, in SQL for keys that qualify, and all
other keys one by one as in one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from jepsen.checkers.linearizable.models import Register
from jepsen.checkers.registry import model_named
from jepsen.compiled import codes
from jepsen.spark._findings import kept
from jepsen.spark._search import INVALID, VALID, VERDICTS_SQL, Limits, check_keys
from jepsen.spark._tuning import tune
from jepsen.spark.registers import _segments as segments
from jepsen.spark.registers._kernel import is_for_kernel, judge_all, rest_of

if TYPE_CHECKING:
    from pathlib import Path

    from jepsen.spark.input import Histories

_KEY = ["history", "key"]
_KEYS = """
SELECT history, key, count(*) AS operations, every(f IN ('read', 'write', 'cas')) AS register
FROM {operations} GROUP BY history, key
"""


def check_linearizable(
    histories: Histories, model: str, initial: Any, limits: Limits, scratch: Path
) -> DataFrame:
    """A row of `VERDICTS` for each key. Intermediate tables are written below `scratch`.

    A key that is found invalid without a search is searched nevertheless: for the operations that
    show it.
    """
    question = _Question(model, initial, limits)
    if not isinstance(model_named(model), Register):
        return question.searched(histories.operations)
    if not is_for_kernel(histories, initial):
        return _without_kernel(histories.operations, histories.rows, question, scratch)
    judged = kept(judge_all(histories, initial), scratch / "judged")
    settled = _valid(judged.where(f"verdict = {codes.VALID}"), "kernel")
    left = judged.where(f"verdict <> {codes.VALID}")
    counts = left.agg(sql.count("*"), sql.sum("operations")).first()
    keys, rows = (counts[0], counts[1] or 0) if counts else (0, 0)
    if not keys:
        return settled
    operations = histories.operations
    if rows < histories.rows:
        tune(operations.sparkSession, rows)
        operations = kept(rest_of(histories, left.select(*_KEY), keys), scratch / "rest")
    found = _without_kernel(operations, rows, question, scratch)
    wrong = left.where(f"verdict = {codes.INVALID}")
    return settled.unionByName(_confirmed(found, wrong))


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
    if row_count <= segments.HOT_OPERATIONS:
        return question.searched(operations)
    keys = kept(operations.sparkSession.sql(_KEYS, operations=operations), scratch / "keys")
    large = keys.where(sql.col("operations") > segments.HOT_OPERATIONS).where("register")
    hot = large.select(*_KEY, "operations").collect()
    if not hot:
        return question.searched(operations)
    cut = segments.settled_by_segments(
        operations, hot, question.model, question.initial, question.limits
    )
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

"""Judges histories with a checker, keeps the verdicts as Parquet, and sums them up by history."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.errors import InputError
from jepsen.spark.linearizable import Limits, check_linearizable
from jepsen.spark.loading import load
from jepsen.spark.search import INVALID, TASK_ROWS, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from jepsen.checkers.verdict import Valid
    from jepsen.spark.loading import Histories

SHOWN_MAX = 100
"""Anomalies of a kind and history that are brought to the driver; all are in the Parquet."""


@dataclass(frozen=True)
class Question:
    """What is to be found out."""

    checker: str
    model: str = "cas-register"
    initial: Any = None
    limits: Limits = field(default_factory=Limits)


def check(
    spark: SparkSession,
    files: Sequence[str],
    failures: str,
    question: Question,
    folder: Path,
    scratch: Path,
) -> dict[str, Verdict]:
    """By history its verdict. `folder` gets `verdicts` and `anomalies`, both Parquet.

    What is made on the way goes below `scratch`, which every worker must see.

    Raises InputError for files that are no histories, or not of this checker.
    """
    histories = load(spark, files, failures, scratch)
    tasks = max(spark.sparkContext.defaultParallelism, histories.rows // TASK_ROWS + 1)
    spark.conf.set("spark.sql.shuffle.partitions", tasks)
    verdicts = check_linearizable(
        histories, question.model, question.initial, question.limits, scratch
    )
    path = str(folder / "verdicts")
    verdicts.write.parquet(path)
    verdicts = spark.read.parquet(path)
    _refuse(verdicts)
    anomalies = verdicts.select("history", "key", sql.explode("anomalies").alias("anomaly"))
    anomalies = anomalies.select("history", "key", "anomaly.*")
    anomalies.write.parquet(str(folder / "anomalies"))
    return _summed_up(histories, verdicts, spark.read.parquet(str(folder / "anomalies")))


def _refuse(verdicts: DataFrame) -> None:
    refused = verdicts.where("refused <> ''").first()
    if refused is not None:
        raise InputError(
            f"{refused['history']}: no history for this checker ({refused['refused']}): choose "
            "another --checker or --model"
        )


def _summed_up(
    histories: Histories, verdicts: DataFrame, anomalies: DataFrame
) -> dict[str, Verdict]:
    shown = anomalies.withColumn(
        "place", sql.expr("row_number() OVER (PARTITION BY history, name ORDER BY lines, key)")
    ).where(sql.col("place") <= SHOWN_MAX)
    found: dict[str, list[Anomaly]] = {}
    for row in shown.orderBy("history", "name", "place").collect():
        one = Anomaly(row["name"], json.loads(row["detail"]), tuple(row["lines"]))
        found.setdefault(row["history"], []).append(one)
    by_history = verdicts.groupBy("history").agg(
        sql.count("*").alias("keys"),
        sql.sum("operations").alias("operations"),
        sql.count_if(sql.col("method") == "zones").alias("keys_by_zones"),
        sql.count_if(sql.col("valid") == INVALID).alias("keys_invalid"),
        sql.count_if(sql.col("valid") == UNKNOWN).alias("keys_unknown"),
        sql.array_join(sql.array_sort(sql.collect_set("why_unknown")), "; ").alias("why"),
    )
    summed = {name: Verdict(True, statistics={"keys": 0}) for name in histories.names}
    for row in by_history.collect():
        statistics = row.asDict()
        name, why = statistics.pop("history"), statistics.pop("why").strip("; ")
        valid: Valid = not row["keys_invalid"] and (not row["keys_unknown"] or "unknown")
        anomalies_of = tuple(found.get(name, ()))
        summed[name] = Verdict(
            valid, anomalies_of, (), statistics, why if valid == "unknown" else ""
        )
    return summed

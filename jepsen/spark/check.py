"""Judges histories with a checker, keeps the verdicts as Parquet, and sums them up by history."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from jepsen.checkers.linearizable import Budget
from jepsen.checkers.registry import LINEARIZABLE, TRACE, checker_named, model_named
from jepsen.checkers.transactions.consistency import CONSISTENCY
from jepsen.checkers.verdict import Anomaly, Verdict
from jepsen.spark._findings import Findings, kept
from jepsen.spark._search import INVALID, UNKNOWN, Limits, check_histories
from jepsen.spark._transactions import check_cycles
from jepsen.spark.input import load
from jepsen.spark.logs import check_log
from jepsen.spark.registers import check_linearizable
from jepsen.spark.replicas import check_trace
from jepsen.spark.series import keep_series
from jepsen.spark.session import tune

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from jepsen.checkers.verdict import Valid
    from jepsen.spark.input import Histories

__all__ = ["SHOWN_MAX", "Limits", "Question", "check", "judge"]

KAFKA_LOG = "kafka-log"
LIST_APPEND = "list-append"
SHOWN_MAX = 100
"""Anomalies of a kind and history that are brought to the driver; all are in the Parquet."""


@dataclass(frozen=True)
class Question:
    """Question that a check answers."""

    checker: str
    model: str = "cas-register"
    initial: Any = None
    limits: Limits = field(default_factory=Limits)
    consistency: str = CONSISTENCY[-1]
    """The consistency model of transactions on lists."""

    @property
    def by_key(self) -> bool:
        """Return whether a key's verdict has nothing to do with other keys."""
        return self.checker == LINEARIZABLE


def check(
    spark: SparkSession,
    files: Sequence[str],
    failures: str,
    question: Question,
    folder: Path,
    scratch: Path,
    *,
    series: bool = False,
) -> dict[str, Verdict]:
    """Judge histories, and return the verdict of each by its name.

    `folder` gets `verdicts` and `anomalies`, both Parquet, and with `series` the tables of
    `keep_series`. Intermediate tables go below `scratch`, which every worker must see. Raises
    InputError for files that are no histories, or not of this checker.
    """
    if question.checker == TRACE:
        return _verdicts_of(check_trace(spark, files, scratch), files, question, folder)
    histories = load(spark, files, failures, scratch)
    verdicts = judge(spark, histories, question, folder, scratch)
    if series:
        keep_series(histories.operations, folder)
    return verdicts


def judge(
    spark: SparkSession, histories: Histories, question: Question, folder: Path, scratch: Path
) -> dict[str, Verdict]:
    """Judge histories that are loaded, as `check` does."""
    tune(spark, histories.rows)
    return _verdicts_of(_found(histories, question, scratch), histories.names, question, folder)


def _verdicts_of(
    found: Findings, names: Sequence[str], question: Question, folder: Path
) -> dict[str, Verdict]:
    """By history its verdict; of those named also where nothing was found."""
    verdicts = kept(found.verdicts, folder / "verdicts")
    anomalies = kept(found.anomalies, folder / "anomalies")
    return _nothing(names, question) | _summed_up(verdicts, anomalies)


def _found(histories: Histories, question: Question, scratch: Path) -> Findings:
    if question.checker == KAFKA_LOG:
        return check_log(histories, scratch)
    if question.checker == LIST_APPEND:
        return check_cycles(histories, scratch, question.consistency)
    if question.checker == LINEARIZABLE:
        rows = check_linearizable(
            histories, question.model, question.initial, question.limits, scratch
        )
    else:
        rows = check_histories(histories.operations, question.checker)
    return Findings.of_rows(kept(rows, scratch / "rows"))


def _nothing(names: Sequence[str], question: Question) -> dict[str, Verdict]:
    """The verdicts on histories in which no client did anything."""
    name = "kafka" if question.checker == KAFKA_LOG else question.checker
    return dict.fromkeys(names, checker_named(name, model_named(question.model), Budget)([]))


def _summed_up(verdicts: DataFrame, anomalies: DataFrame) -> dict[str, Verdict]:
    found = _first(anomalies)
    counts: dict[str, dict[str, int]] = {}
    for row in anomalies.groupBy("history", "name").count().orderBy("history", "name").collect():
        counts.setdefault(row["history"], {})[row["name"]] = row["count"]
    by_history = verdicts.groupBy("history").agg(
        sql.count("*").alias("keys"),
        sql.sum("operations").alias("operations"),
        sql.count_if(sql.col("method") == "kernel").alias("keys_by_kernel"),
        sql.count_if(sql.col("method") == "segments").alias("keys_by_segments"),
        sql.count_if(sql.col("valid") == INVALID).alias("keys_invalid"),
        sql.count_if(sql.col("valid") == UNKNOWN).alias("keys_unknown"),
        sql.array_join(sql.array_sort(sql.collect_set("why_unknown")), "; ").alias("why"),
    )
    summed = {}
    for row in by_history.orderBy("history").collect():
        statistics = row.asDict()
        name, why = statistics.pop("history"), statistics.pop("why").strip("; ")
        statistics["found"] = counts.get(name, {})
        valid: Valid = not row["keys_invalid"] and (not row["keys_unknown"] or "unknown")
        summed[name] = Verdict(
            valid,
            tuple(found.get((name, False), ())),
            tuple(found.get((name, True), ())),
            statistics,
            why if valid == "unknown" else "",
        )
    return summed


def _first(anomalies: DataFrame) -> dict[tuple[str, bool], list[Anomaly]]:
    """By history and whether they are allowed: the first of each kind."""
    place = "row_number() OVER (PARTITION BY history, name ORDER BY lines, key, detail)"
    shown = anomalies.withColumn("place", sql.expr(place)).where(sql.col("place") <= SHOWN_MAX)
    found: dict[tuple[str, bool], list[Anomaly]] = {}
    for row in shown.orderBy("history", "name", "place").collect():
        one = Anomaly(row["name"], json.loads(row["detail"]), tuple(row["lines"]))
        found.setdefault((row["history"], row["allowed"]), []).append(one)
    return found

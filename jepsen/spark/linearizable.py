"""Linearizability: in SQL for keys that qualify, all other keys one by one as in one process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from jepsen.checkers.models import Register
from jepsen.checkers.registry import model_named
from jepsen.spark import segments
from jepsen.spark.findings import kept
from jepsen.spark.schema import text_of
from jepsen.spark.search import INVALID, VALID, VERDICTS_SQL, check_keys
from jepsen.spark.zones import check_zones

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row

    from jepsen.spark.loading import Histories

_KEY = ["history", "key"]
_KEYS = """
SELECT history, key, count(*) AS operations, every(f IN ('read', 'write')) AS plain,
    every(f IN ('read', 'write', 'cas')) AS register
FROM {operations} GROUP BY history, key
"""


@dataclass(frozen=True)
class Limits:
    """What the search of one key may take; after that the key is unknown."""

    time_s: float = 300.0
    memory_bytes: int = 1 << 30


def check_linearizable(
    histories: Histories, model: str, initial: Any, limits: Limits, scratch: Path
) -> DataFrame:
    """A row of `VERDICTS` for each key. Intermediate tables are written below `scratch`.

    A key that SQL finds invalid is searched nevertheless: for the operations that show it.
    """

    def searched(operations: DataFrame) -> DataFrame:
        return check_keys(
            operations,
            model,
            initial,
            time_limit_s=limits.time_s,
            memory_bytes=limits.memory_bytes,
        )

    operations = histories.operations
    if not isinstance(model_named(model), Register):
        return searched(operations)
    keys = kept(operations.sparkSession.sql(_KEYS, operations=operations), scratch / "keys")
    zones = kept(check_zones(operations, keys, text_of(initial)), scratch / "zones")
    counts = zones.where("valid").agg(sql.sum("operations")).first()
    settled = (counts and counts[0]) or 0
    by_zones = _valid(zones.where("valid"), "zones")
    if settled == histories.rows:
        return by_zones
    done = [by_zones] if settled else []
    rest = operations.join(by_zones, _KEY, "left_anti") if settled else operations
    hot = _hot(keys, by_zones) if histories.rows > segments.HOT_OPERATIONS else []
    cut = segments.settled_by_segments(rest, hot, model, initial, limits) if hot else None
    if cut is not None:
        done.append(_valid(cut, "segments"))
        rest = rest.join(cut, _KEY, "left_anti")
    return reduce(DataFrame.unionByName, [*done, _confirmed(searched(rest), zones)])


def _hot(keys: DataFrame, by_zones: DataFrame) -> list[Row]:
    """The keys that are to be cut, and how many operations each has."""
    large = keys.where(sql.col("operations") > segments.HOT_OPERATIONS).where("register")
    return list(large.join(by_zones, _KEY, "left_anti").select(*_KEY, "operations").collect())


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


def _confirmed(found: DataFrame, zones: DataFrame) -> DataFrame:
    """What SQL found invalid stays so if the search has run into its limits."""
    wrong = zones.where("NOT valid").select(*_KEY, sql.lit(True).alias("wrong"))
    certain = sql.coalesce("wrong", sql.lit(False))
    return (
        found.join(wrong, _KEY, "left")
        .withColumn("valid", sql.when(certain, INVALID).otherwise(sql.col("valid")))
        .withColumn("why_unknown", sql.when(certain, "").otherwise(sql.col("why_unknown")))
        .drop("wrong")
    )

"""Series of histories by the second: latencies of operations, and their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from jepsen.report.steps import Series
from jepsen.spark._findings import kept
from jepsen.spark.session import tune

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_SECOND_NS = 1_000_000_000
_RANKS = 10_000
"""Quantiles are that of the nearest rank, of more latencies than this within 1/10,000 of it."""
STEPS_MAX = 200
FUNCTIONS_MAX = 5
"""The number of functions of a history that are shown, those with most successes."""

_LATENCY = f"""
WITH ended AS (
    SELECT history, f, type, invoke_time DIV {_SECOND_NS} AS second,
        complete_time - invoke_time AS took
    FROM {{operations}} WHERE complete_time IS NOT NULL
), grouped AS (
    SELECT history, f, type, second, count(*) AS operations, max(took) AS max_ns,
        percentile_approx(took, array(0.5, 0.95, 0.99), {_RANKS}) AS quantiles
    FROM ended GROUP BY history, f, type, second
)
SELECT history, f, type, second, operations, quantiles[0] AS p50_ns, quantiles[1] AS p95_ns,
    quantiles[2] AS p99_ns, max_ns
FROM grouped ORDER BY history, second, f, type
"""
_AVAILABILITY = f"""
SELECT history, f, coalesce(complete_time, invoke_time) DIV {_SECOND_NS} AS second,
    count_if(type = 'ok') AS ok, count_if(type = 'fail') AS fail, count_if(type = 'info') AS info
FROM {{operations}} GROUP BY ALL ORDER BY history, second, f
"""


def keep_series(operations: DataFrame, folder: Path) -> None:
    """Write `latency` and `availability` below the folder, both Parquet with a row a history,
    function and second of the test.

    `latency`: of operations that began in that second, by how they ended: how many, p50_ns, p95_ns,
    p99_ns, max_ns. `availability`: how many ended there as ok, fail and info; those that never
    ended are info where they began.
    """
    spark = operations.sparkSession
    for name, query in (("latency", _LATENCY), ("availability", _AVAILABILITY)):
        kept(spark.sql(query, operations=operations), folder / name)


_STEPS = f"""
WITH seconds AS (
    SELECT history, second FROM {{latency}} UNION ALL SELECT history, second FROM {{availability}}
)
SELECT history, min(second) AS first_s, max(second) - min(second) + 1 AS seconds,
    (max(second) - min(second)) DIV {STEPS_MAX} + 1 AS step_s
FROM seconds GROUP BY history
"""
_ENDED = """
SELECT history, first_s, seconds, step_s, (second - first_s) DIV step_s AS step,
    sum(ok) AS ok, sum(fail) AS fail, sum(info) AS info
FROM {availability} JOIN {steps} USING (history) GROUP BY ALL
"""
_WORST = f"""
WITH functions AS (
    SELECT history, f, sum(operations) AS operations
    FROM {{latency}} WHERE type = 'ok' GROUP BY history, f
), ranked AS (
    SELECT history, f, count(*) OVER (PARTITION BY history) AS functions,
        row_number() OVER (PARTITION BY history ORDER BY operations DESC, f) AS place
    FROM functions
)
SELECT history, f, place, functions, (second - first_s) DIV step_s AS step,
    max(p50_ns) AS p50_ns, max(p95_ns) AS p95_ns, max(p99_ns) AS p99_ns, max(max_ns) AS max_ns
FROM {{latency}} JOIN ranked USING (history, f) JOIN {{steps}} USING (history)
WHERE type = 'ok' AND place <= {FUNCTIONS_MAX} GROUP BY ALL ORDER BY history, place
"""


def read_series(spark: SparkSession, folder: Path, names: Sequence[str]) -> dict[str, Series]:
    """Read the tables of `keep_series` below the folder, for the histories named.

    Seconds are merged into steps, no more than `STEPS_MAX` a history: counts are added up, and of
    each quantile there is that of the second in which it was highest. So no more than `STEPS_MAX` *
    (1 + `FUNCTIONS_MAX`) rows a history come to the driver. Histories without operations are not
    there.
    """
    # However long a history is, its seconds are few.
    tune(spark, 0)
    latency, availability = (
        spark.read.parquet(str(folder / name)).where(sql.col("history").isin(list(names)))
        for name in ("latency", "availability")
    )
    steps = spark.sql(_STEPS, latency=latency, availability=availability)
    found: dict[str, Series] = {}
    for row in spark.sql(_ENDED, availability=availability, steps=steps).collect():
        of = Series(row["first_s"], row["seconds"], row["step_s"])
        mine = found.setdefault(row["history"], of)
        mine.ended[row["step"]] = (row["ok"], row["fail"], row["info"])
    for row in spark.sql(_WORST, latency=latency, steps=steps).collect():
        mine = found[row["history"]]
        quantiles = [row[name] / 1e6 for name in ("p50_ns", "p95_ns", "p99_ns", "max_ns")]
        mine.latency.setdefault(row["f"], {})[row["step"]] = tuple(quantiles)
        mine.functions = row["functions"]
    return found

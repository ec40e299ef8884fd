"""How histories went on from second to second: what operations took, and how they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.spark.findings import kept

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

_SECOND_NS = 1_000_000_000
_RANKS = 10_000
"""Quantiles are that of the nearest rank, of more latencies than this within 1/10,000 of it."""

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
    """Writes `latency` and `availability` below the folder, both Parquet with a row a history,
    function and second of the test.

    `latency`: of operations that began in that second, by how they ended: how many, p50_ns, p95_ns,
    p99_ns, max_ns. `availability`: how many ended there as ok, fail and info; those that never
    ended are info where they began.
    """
    spark = operations.sparkSession
    for name, query in (("latency", _LATENCY), ("availability", _AVAILABILITY)):
        kept(spark.sql(query, operations=operations), folder / name)

"""Registers whose writes are unique, judged in SQL alone: n log n, whatever the concurrency.

All operations on one value of a key are a cluster: the write and the reads that returned it. A
cluster's zone reaches from its earliest completion to its latest invocation; it is forward if they
are in this order, else backward. The history is linearizable exactly if no read ends before its
write begins or lacks one, no two forward zones overlap, and no backward zone lies within a forward
one. A write whose outcome is not known never completes, and if nobody read it it did not happen.
Source: Gibbons and Korach, "Testing Shared Memories"; Golab, Li and Shah for the zones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.history.table import ATOM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEVER = "9223372036854775807L"

# Every comparison with what may be null is wrapped: a null is no verdict.
_QUERY = f"""
WITH mine AS (
    SELECT history, key, f, type, invoke_index AS invoked,
        CASE WHEN type = 'info' OR complete_index IS NULL THEN {_NEVER}
            ELSE complete_index END AS returned,
        CASE WHEN f = 'write' THEN argument ELSE result END AS value
    FROM {{operations}}
    WHERE type <> 'fail' AND f IN ('read', 'write')
        AND NOT (f = 'read' AND (type = 'info' OR (lenient AND result = 'null')))
), clusters AS (
    SELECT history, key,
        count_if(f = 'write') + max(CASE WHEN value = :initial THEN 1 ELSE 0 END) AS writes,
        count_if(f = 'read') AS reads,
        every(type = 'info') AS unknown,
        every(value RLIKE :atom) AS comparable,
        CASE WHEN value = :initial THEN -1L ELSE min(CASE WHEN f = 'write' THEN invoked END) END
            AS write_invoked,
        min(CASE WHEN f = 'read' THEN returned END) AS read_returned,
        CASE WHEN value = :initial THEN -1L ELSE min(returned) END AS first_returned,
        max(invoked) AS last_invoked
    FROM mine GROUP BY history, key, value
), zones AS (
    SELECT history, key, writes, comparable,
        writes = 0 OR coalesce(read_returned < write_invoked, false) AS impossible,
        first_returned < last_invoked AS forward,
        least(first_returned, last_invoked) AS low,
        greatest(first_returned, last_invoked) AS high
    FROM clusters WHERE NOT (unknown AND reads = 0 AND writes <= 1)
), beside AS (
    SELECT *, max(CASE WHEN forward THEN high END) OVER (
        PARTITION BY history, key ORDER BY low ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS forward_high
    FROM zones
), judged AS (
    SELECT history, key, every(writes <= 1 AND comparable) AS qualifies,
        NOT bool_or(impossible OR coalesce(high < forward_high, false)
            OR (forward AND coalesce(low < forward_high, false))) AS valid
    FROM beside GROUP BY history, key
)
SELECT keys.history, keys.key, keys.operations, coalesce(judged.valid, true) AS valid
FROM {{keys}} keys LEFT JOIN judged ON keys.history = judged.history AND keys.key = judged.key
WHERE keys.plain AND coalesce(judged.qualifies, true)
"""


def check_zones(operations: DataFrame, keys: DataFrame, initial: str) -> DataFrame:
    """(history, key, operations, valid) of all keys that qualify: only `read` and `write`, every
    value written once at most and never the `initial` one (as text), values with one spelling.

    `keys`: (history, key, operations: how many, plain: whether only `read` and `write`) of all.
    """
    spark = operations.sparkSession
    arguments = {"initial": initial, "atom": ATOM}
    return spark.sql(_QUERY, args=arguments, operations=operations, keys=keys)

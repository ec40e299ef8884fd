"""Checkers on Spark, for histories that are too large for one process.

A history is a table of operations, one row from invocation to completion
(`jepsen.history.table`). Values are text, so that SQL can compare them and a history of any
model fits. A verdict is that of the checker of one process: arrays and SQL decide the many
simple cases, and everything else goes to that checker, a key or a stretch of time at a time.

    check      judges histories with a checker, and sums verdicts up by history
    series     latency and availability by the second
    replicas   compares dumps of replicas
    report     the page of a judgement
    session    the Spark session, and what it needs on the machine
    preflight  what is refused before a JVM starts
    package    the archive that spark-submit takes
    input      histories in files and streams, as tables and as packed arrays
    registers  linearizability
    logs       Kafka logs
    live       histories that are still being written
    topics     topics of a live cluster as a Spark data source
    generate   generated histories with known anomalies

Nothing outside this package imports pyspark. This door imports nothing, because `preflight`,
`report` and `generate` are used before Spark is needed, and where it is not installed.

Invariants:
* A verdict is true, false or unknown, never null.
* Every key has exactly one row in `verdicts`.
* The driver sees only sums and the first anomalies of each kind.
"""

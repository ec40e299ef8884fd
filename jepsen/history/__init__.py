"""The history of a test: operations in the order in which they began and ended.

An operation is recorded twice: when it is invoked and when it completes. It completes with `ok`
(it happened), `fail` (it did not happen) or `info` (the outcome is unknown). A process whose
operation ended with `info` is never used again. `operations` pairs both records.

The package decides what a valid history is and how it is written:

* JSON lines, written while the test runs. A line that a crash cut short is ignored.
* EDN and the log of Jepsen (`edn`), and Knossos' and Porcupine's test data (`formats`).
* a table with one row for each client operation (`table`), and its Parquet file (`parquet`).

It must not know what operations mean: values are opaque JSON. `table` and `parquet` need
pyarrow and are imported only where it is installed; nothing here needs Spark.

Invariants: a process has at most one open operation. A completion follows its invocation.
Values read back are what JSON can hold, so a tuple comes back as a list.

Source: Jepsen's history format.
"""

from jepsen.history._operations import (
    TXN,
    HistoryError,
    Op,
    Operation,
    OpType,
    ended_operations,
    operations,
)

__all__ = [
    "TXN",
    "HistoryError",
    "Op",
    "OpType",
    "Operation",
    "ended_operations",
    "operations",
]

"""Kafka logs on Spark: anomalies of keys, cycles of transactions, and committed offsets.

Reading packs what a piece of a history sent and polled into one array for each key, so a
shuffle moves few rows however many records there are. A block numbers the values and offsets of
some keys, and knows who wrote each and who first read it. Anomalies are masks over a block:
nearly every record is innocent, so only suspicious ones become rows.

What concerns several keys goes around that. Facts about a whole history, and the points where
processes start again, are collected on the driver and sent to all tasks. Parts of a transaction
are joined in SQL. Committed offsets are few, and are judged by the checker of one process.

Definitions of anomalies are those of `jepsen.checkers.kafka`. This package must not define its
own.

Invariants:
* A key is never cut; its task needs about half a kilobyte of memory for each record.
* The anomalies of a history are those that `jepsen check` finds in one process, except that
  lists of skipped values are cut at a maximum.

Source: Jepsen's `jepsen.kafka` workload, whose names of anomalies are used.
"""

from jepsen.spark.logs._kafka import check_log

__all__ = [
    "check_log",
]

"""The checker of logs: what producers sent and consumers polled, by key (a partition of a topic).

    send       [["send", key, value]] becomes [["send", key, [offset, value]]], offset or nil
    poll       [["poll"]] becomes [["poll", {key: [[offset, value], ...]}]]
    txn        several of both in one transaction
    final-poll a poll that begins at the start of every key
    assign, subscribe   a list of keys
    commit, committed   {key: offset} of a consumer group, written and read

The order of values is inferred from the offsets that were acknowledged and polled. From it
follow the anomalies: lost and duplicate writes, skipped and nonmonotonic sends and polls,
aborted reads, offsets that went back, and cycles between transactions.

The checker must not know partitions beyond their name, leaders, or client libraries.

Invariants: values are unique in a key. A value counts as lost only if a later offset of the
same key was read by a process that should have read it. Anomalies that Kafka allows, such as
interleaved sends of transactions, are reported but leave the history valid.

Source: `jepsen.tests.kafka`, whose names the anomalies have.
"""

from jepsen.checkers.kafka._anomalies import LOOKS, offset_regressions
from jepsen.checkers.kafka._check import (
    ALLOWED,
    ALLOWED_SUBSCRIBED,
    KINDS,
    ORDERS,
    SUBSCRIBED,
    WRONG,
    check_kafka,
)

__all__ = [
    "ALLOWED",
    "ALLOWED_SUBSCRIBED",
    "KINDS",
    "LOOKS",
    "ORDERS",
    "SUBSCRIBED",
    "WRONG",
    "check_kafka",
    "offset_regressions",
]

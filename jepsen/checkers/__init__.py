"""Checkers: pure functions from a history to a verdict.

A verdict is valid, invalid or unknown, and carries anomalies with the operations that show them
(`verdict`). `registry` finds a checker or model by the name that the command line uses.

Small checkers stand here: availability, bank, lock, queue, counter, sets, consumer groups,
watched keys, topics and rules of access. Larger ones have packages of their own:

    linearizable    registers, sets, queues and mutexes, one key at a time
    transactions    cycles of dependencies between transactions of list appends
    kafka           sends, polls and offsets of partitions
    replication     the logs and the metadata of a cluster's nodes

A checker must not know the cluster, the clock, files or Spark. Where a search can run out of
time or memory, the limit is an argument.

Invariants: "invalid" needs a witness in the history. An operation with an unknown outcome may
have happened at any time after its invocation, or never. A search that was cut short yields
"unknown", never "valid".

Sources: Jepsen, Knossos and Elle, whose names the anomalies have.
"""

from jepsen.checkers._acl import ALLOWED, DENIED, check_acl
from jepsen.checkers._key_watches import check_watch
from jepsen.checkers._set_full import check_set_full
from jepsen.checkers._simple import check_availability, check_bank, check_group, check_lock
from jepsen.checkers._topics import ABSENT, TOPICS, check_topics

__all__ = [
    "ABSENT",
    "ALLOWED",
    "DENIED",
    "TOPICS",
    "check_acl",
    "check_availability",
    "check_bank",
    "check_group",
    "check_lock",
    "check_set_full",
    "check_topics",
    "check_watch",
]

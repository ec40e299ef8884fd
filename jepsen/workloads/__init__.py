"""Workloads: operations, the clients that perform them and the checkers that judge them.

A `Workload` has a generator, a factory of clients, a generator of final reads and checkers.
Each is loaded by name, since each needs client libraries of its own:

    kv, key_watches                    keys and values: register, set, lock, watch
    queue, list_append, bank, group    logs, transactions and consumer groups
    topics                             creation, growth and deletion of topics
    verifiable                         Apache Kafka's own command-line clients

A workload must not know the environment beyond `Environment`, and nothing of faults.

Invariants: a client claims only what it knows. An operation whose request may have reached the
cluster ends with `info`, and its client is not used again. Values are unique, so every read
names its write.

Sources: Jepsen's `jepsen.tests.kafka`, `jepsen.tests.bank` and Elle's list-append.
"""

from jepsen.workloads._base import Workload, WorkloadOptions

__all__ = [
    "Workload",
    "WorkloadOptions",
]

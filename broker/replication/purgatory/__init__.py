"""The purgatory: requests that wait for partitions to change, each until a deadline.

`Purgatory` keeps delayed operations by the partitions that they watch. A change of a
partition wakes its watchers; those that are complete are answered. Deadlines are on a
hierarchical timing wheel, so that starting and cancelling one costs the same however many
wait. `DelayedProduce` and `DelayedDelete` wait for replicas, `DelayedFetch` for bytes.

Decides when a waiting request is answered. Must not know sockets or requests on the wire, and
never reads a clock itself: the event loop provides the time.

Invariants:

- an operation is answered exactly once, and then watches nothing and has no timer;
- every waiting operation has one timer and is listed under each partition that it watches;
- operations are woken in the order in which they came;
- the event loop has one timer for each purgatory, never later than the next deadline.

The number of waiting operations is bounded by the connections, each of which has a bounded
number of requests.

Source: Apache Kafka's DelayedOperationPurgatory; Varghese and Lauck, "Hashed and Hierarchical
Timing Wheels" (1987), scheme 7.
"""

from broker.replication.purgatory._delayed import (
    Awaited,
    DelayedDelete,
    DelayedFetch,
    DelayedProduce,
    is_enough,
)
from broker.replication.purgatory._purgatory import DelayedOperation, Purgatory

__all__ = [
    "Awaited",
    "DelayedDelete",
    "DelayedFetch",
    "DelayedOperation",
    "DelayedProduce",
    "Purgatory",
    "is_enough",
]

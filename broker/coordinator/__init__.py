"""The coordinator runtime: replicated state machines, one for each partition of an internal topic.

A coordinator owns the ids that hash to the partitions it leads. Groups live in
`__consumer_offsets`, transactional ids in `__transaction_state`. The rules of both are cores:
pure state machines without clock and network. This package runs any such core and knows the
rules of none.

    core             the seam: `Core`, `Journal`, `KeyValue`, effects
    record_format    records of internal topics: a version, then its fields
    internal_topics  creation of these topics, and the hash from an id to its partition
    topic_patterns   regular expressions of clients, matched in linear time (RE2)

`Coordinator` has a shard for each partition that this broker leads. `Shard` loads the log of
its partition into a core. It hands the core requests and the passing of time, and appends the
records that the core writes.

`BrokerQueues` asks other brokers, many things in one request.

Invariants:

- A core changes only by `replay` of a record; a record is replayed as soon as it is appended.
- An effect that depends on a record is released after that record is committed. A new leader
  that replays the log therefore knows everything that a client was answered.
- A leader epoch has its own shard: nothing survives the loss of leadership.
- Long work is done in steps (`StepQueue`, `TurnQueue`), so that no group holds up the others.

Source: KIP-848 ("Group Coordinator"), Apache Kafka's CoordinatorRuntime.
"""

from broker.coordinator._batches import in_batches
from broker.coordinator._broker_queues import BrokerQueues, Form
from broker.coordinator._cooperative import STEP_ITEMS, STEPS, StepQueue
from broker.coordinator._coordinator import Coordinator
from broker.coordinator._shard import Replicas, Shard

__all__ = [
    "STEPS",
    "STEP_ITEMS",
    "BrokerQueues",
    "Coordinator",
    "Form",
    "Replicas",
    "Shard",
    "StepQueue",
    "in_batches",
]

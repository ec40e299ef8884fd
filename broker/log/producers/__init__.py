"""Producer state: the last batches and the open transactions of one partition's producers.

`ProducerStates` recognises repeated batches by their sequence numbers and knows the first
offset of every open transaction. `producer_snapshot` is its file beside the log, which spares
recovery the batches below it.

Decides whether a batch is the next one, a duplicate of one of the last five, or out of order;
and where the last stable offset is. Must not know the network, the leader or the coordinator:
leaders check a batch first, followers and recovery only note what the log contains.

Invariants:

- every replica derives the same states from the same batches;
- a truncation restores the states exactly: undo entries are kept down to the high watermark;
- the first unstable offset is the start of the oldest transaction whose end may be undone;
- a producer with an open transaction, or with batches above the high watermark, never
  expires.

Source: KIP-98 (idempotence and transactions), KIP-360 (unknown producers), KIP-890 (epochs of
transactions), and Apache Kafka's ProducerStateManager.
"""

from broker.log.producers._producer_state import Producer, ProducerStates

__all__ = [
    "Producer",
    "ProducerStates",
]

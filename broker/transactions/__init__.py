"""Transactions: transactional ids, their two-phase outcome, and the markers that end them.

One core holds all transactional ids of one partition of `__transaction_state`, run by a shard
of `broker.coordinator`. An id goes through

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -> ONGOING ...
                     -> PREPARE_ABORT  -> COMPLETE_ABORT

The outcome is decided when PREPARE is committed in the log. From then on the marker sender
writes markers to the leaders of all partitions of the transaction, again and again, until each
has one.

`TransactionVerifier` is the side of a partition's leader: it asks the coordinator whether a
partition belongs to the transaction before the first batch is appended (KIP-890).

The package must not know the versions of requests, or how a partition stores markers.

Invariants:

- The epoch of a producer only grows; a request of an older epoch is fenced.
- A decided outcome is never changed.
- A transaction is complete only when every one of its partitions has its marker.

Source: KIP-98, KIP-360 (recovery of producers), KIP-664, KIP-890.
"""

from broker.transactions._coordinator import TransactionCoordinator
from broker.transactions._core import AddPartitions, EndTransaction, InitProducer, ProducerGoesOn
from broker.transactions._state import TRANSACTION_V2, Transaction, TransactionState
from broker.transactions._verifier import Check, TransactionVerifier

__all__ = [
    "TRANSACTION_V2",
    "AddPartitions",
    "Check",
    "EndTransaction",
    "InitProducer",
    "ProducerGoesOn",
    "Transaction",
    "TransactionCoordinator",
    "TransactionState",
    "TransactionVerifier",
]

"""A transaction takes no step that the protocol does not have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.transactions._state import EPOCH_MAX, Transaction, TransactionState, check_succession
from broker.types import TopicPartition
from raftctl.errors import InvariantViolation

ONGOING = Transaction(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=1_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("t", 0)}),
    updated_ms=10,
    started_ms=10,
)
PREPARED = ONGOING.decided(commit=True, now_ms=20, bump=False, client_version=0)
COMPLETE = PREPARED.completed(30)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ONGOING),
        (ONGOING, replace(ONGOING, state=TransactionState.EMPTY)),
        (ONGOING, replace(ONGOING, partitions=frozenset())),
        (ONGOING, replace(PREPARED, partitions=frozenset())),
        (ONGOING, replace(PREPARED, started_ms=11)),
        (ONGOING, replace(PREPARED, producer_id=8, producer_epoch=0)),
        (PREPARED, replace(PREPARED, state=TransactionState.PREPARE_ABORT)),
        (PREPARED, replace(COMPLETE, state=TransactionState.COMPLETE_ABORT)),
        (PREPARED, replace(COMPLETE, partitions=PREPARED.partitions)),
        (COMPLETE, replace(COMPLETE, state=TransactionState.EMPTY)),
        (COMPLETE, COMPLETE.renewed(8, 1_000, 40)),
        (COMPLETE, replace(COMPLETE.renewed(7, 1_000, 40), producer_epoch=EPOCH_MAX)),
        (COMPLETE, replace(COMPLETE.renewed(7, 1_000, 40), producer_epoch=2)),
    ],
)
def test_a_transaction_takes_no_other_step(before: Transaction | None, after: Transaction) -> None:
    with pytest.raises(InvariantViolation):
        check_succession(before, after)

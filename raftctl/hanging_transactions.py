"""Transactions that hang: open in a partition, while no coordinator will ever end them.

A pure decision that the console and `raftctl transactions` share. Source: KIP-664.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

LONGEST_MS = 15 * 60_000
"""`transaction.max.timeout.ms` by default: a coordinator ends one that is open for longer."""


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, as the partition's leader describes it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    """Of the last record that its producer has written there."""


def may_hang(one: OpenTransaction, now_ms: int, longest_ms: int = LONGEST_MS) -> bool:
    """Return whether nothing has come into it for so long that its coordinator is to be asked."""
    return one.last_timestamp_ms < now_ms - longest_ms


def hanging(
    suspects: Iterable[OpenTransaction], attended: Collection[tuple[int, str, int]]
) -> list[OpenTransaction]:
    """Return those of the suspects that no coordinator attends to, in order.

    `attended` has (producer id, topic, partition) of each transaction that a coordinator knows.
    """
    return sorted(
        one for one in suspects if (one.producer_id, one.topic, one.partition) not in attended
    )

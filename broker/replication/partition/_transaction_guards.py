"""Which batches may begin a producer's transaction in a partition (row T3).

The coordinator is asked whether a partition belongs to the transaction; its answer is about the
moment of the question. A guard says whether it still holds when the batch is to be appended: it
does not if a marker has ended the producer's transaction here meanwhile, or another leader epoch
has begun. The guard also keeps the first sequence of all batches that wait, so that one sent later
is not taken for the producer's first. Pure. Source: KIP-890.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.log.batches.record_batch import NO_SEQUENCE

if TYPE_CHECKING:
    from broker.types import EndMarker

_HELD_MAX = 10_000


class Sender(NamedTuple):
    """Producer of a batch."""

    producer_id: int
    producer_epoch: int
    sequence: int = NO_SEQUENCE
    """Of the first record."""


class Guard:
    """Guard of one producer; only its identity counts."""

    __slots__ = ("leader_epoch", "lowest_sequence")

    def __init__(self, leader_epoch: int, lowest_sequence: int) -> None:
        self.leader_epoch = leader_epoch
        self.lowest_sequence = lowest_sequence


class TransactionGuards:
    """Of one partition. A guard that makes room for newer ones does not hold: who has it asks
    again.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], Guard] = {}

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, sender: Sender, leader_epoch: int) -> Guard:
        """Return the guard for a batch that waits for the coordinator's answer."""
        key = sender.producer_id, sender.producer_epoch
        guard = self._held.get(key)
        if guard is None or guard.leader_epoch != leader_epoch:
            while len(self._held) >= _HELD_MAX:
                del self._held[next(iter(self._held))]
            guard = self._held[key] = Guard(leader_epoch, sender.sequence)
        guard.lowest_sequence = min(guard.lowest_sequence, sender.sequence)
        return guard

    def holds(self, sender: Sender, guard: Guard, leader_epoch: int) -> bool:
        """Return whether the coordinator's answer still counts."""
        held = self._held.get((sender.producer_id, sender.producer_epoch))
        return held is guard and guard.leader_epoch == leader_epoch

    def drop(self, sender: Sender) -> None:
        """Drop a guard: the first batch is on its way to the log, or belongs to no transaction."""
        self._held.pop((sender.producer_id, sender.producer_epoch), None)

    def ended(self, marker: EndMarker) -> None:
        """Forget the guards of the transaction that a marker ends.

        A marker of transaction version 2 has the epoch in which the producer goes on. A batch that
        waits in that epoch belongs to the next transaction.
        """
        newest = marker.producer_epoch - marker.bears_next_epoch
        for producer_id, epoch in list(self._held):
            if producer_id == marker.producer_id and epoch <= newest:
                del self._held[producer_id, epoch]

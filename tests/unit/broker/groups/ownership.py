"""What holds of a group's partitions, whoever gives them: for models, and for planted bugs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.groups._consumer_records import Slot

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Ownership:
    """Who was told that it owns a partition, by epoch or generation."""

    owners: dict[tuple[int, Slot], str] = field(default_factory=dict)

    def own(self, epoch: int, slots: Iterable[Slot], member_id: str) -> None:
        """A member is told of its partitions."""
        for slot in slots:
            owner = self.owners.setdefault((epoch, slot), member_id)
            assert owner == member_id, f"{slot} has two owners in epoch {epoch}"

    def begin_anew(self) -> None:
        """The group is without members: epochs may begin anew."""
        self.owners.clear()


def check_shares(held: Iterable[frozenset[Slot]]) -> None:
    """Nobody has what another one has."""
    slots = [slot for one in held for slot in one]
    assert len(slots) == len(set(slots)), "a partition is read by two members"

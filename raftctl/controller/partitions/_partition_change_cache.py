"""What becomes of partitions, decided once for all that are alike.

Many partitions have the same replicas, ISR and leader: of millions a few thousand differ. What the
rule makes of one does not depend on its ids and epochs, so it holds for all of them.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from raftctl.controller.partitions._partition_change import (
    change_record,
    elect,
    settled,
    without_eligible,
)
from raftctl.ids import ZERO_UUID
from raftctl.metadata.image import PartitionImage
from raftctl.metadata.records import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.controller.partitions._availability import Availability
    from raftctl.controller.partitions._partition_change import ElectionRules

Change = tuple[Any, ...]
"""The fields of a PartitionChangeRecord after its ids."""
KNOWN_MAX = 1 << 14
_AFTER_EPOCHS = PartitionImage._fields.index("partition_epoch") + 1
_IDS = 2
_change_of: Callable[[PartitionChangeRecord], Change] = attrgetter(
    *PartitionChangeRecord.__slots__[_IDS:]
)


class ChangeMemo:
    """The rule for partitions while who is available, and what else it asks for, stays the same."""

    def __init__(self, available: Availability, forgetful: frozenset[int], *, rules: bool) -> None:
        """`forgetful` brokers may have lost what they had not flushed.

        `rules`: how many must be in sync has changed, so that eligible leaders may be none.
        """
        self._available = available
        self._forgetful = forgetful
        self._rules_changed = rules
        self._known: dict[Any, Change | None] = {}

    def holds(self, available: Availability, forgetful: frozenset[int], *, rules: bool) -> bool:
        """Whether this is the rule for these circumstances."""
        known = (self._available, self._forgetful, self._rules_changed)
        return known == (available, forgetful, rules)

    def of(self, partition: PartitionImage, rules: ElectionRules) -> Change | None:
        """The change that makes the partition right; None if it is."""
        alike = (partition[:3], partition[_AFTER_EPOCHS:], rules)
        try:
            return self._known[alike]
        except KeyError:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            record = self._decide(partition, rules)
            change = self._known[alike] = None if record is None else _change_of(record)
            return change

    def _decide(
        self, partition: PartitionImage, rules: ElectionRules
    ) -> PartitionChangeRecord | None:
        unclean, min_isr = rules
        active = self._available.replicas_of(partition)
        forgetful = self._forgetful.intersection(partition.isr + partition.elr)
        may_be_stale = self._rules_changed and partition.elr
        if not may_be_stale and (not forgetful or not min_isr):
            return elect(ZERO_UUID, 0, partition, active, unclean=unclean, min_isr=min_isr)
        after = settled(partition, active, rules)
        if min_isr:
            after = without_eligible(after, forgetful)
        return change_record(ZERO_UUID, 0, partition, after)

"""What time does to transactions, each in steps (`StepQueue`): a partition may have many ids.

Between two steps everything may have changed, so each step decides and writes by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator import STEP_ITEMS, in_batches
from broker.transactions._records import written
from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.coordinator.core import Journal
    from broker.transactions._ids import TransactionIds

_COMMAND = 5
"""To ask for markers takes as long as to look at so many ids."""
_ABORT = 20
"""To write that one transaction is aborted, too."""


class TransactionUpkeep:
    """Of one partition of `__transaction_state`."""

    def __init__(
        self,
        ids: TransactionIds,
        journal: Journal,
        ask_for_markers: Callable[[str], None],
        abort: Callable[[str], None],
    ) -> None:
        """What is done to one id: `abort` may be refused with KafkaError."""
        self._ids = ids
        self._journal = journal
        self._ask_for_markers = ask_for_markers
        self._abort = abort

    def resume(self) -> Iterator[None]:
        """Asks for the markers of all that was decided under another coordinator.

        Until then such a transaction stays as it is: what comes after it waits for its markers.
        """
        for count, name in enumerate(list(self._ids.prepared), 1):
            self._ask_for_markers(name)
            if count % (STEP_ITEMS // _COMMAND) == 0:
                yield

    def abort_late(self, wall_ms: int) -> Iterator[None]:
        """Aborts what takes too long. If the log takes nothing now the next round tries again."""
        left = STEP_ITEMS
        for name in list(self._ids.ongoing):
            left -= 1
            if name in self._ids.ongoing and self._ids.known[name].ends_ms <= wall_ms:
                try:
                    self._abort(name)
                except KafkaError:
                    return
                left -= _ABORT
            if left <= 0:
                yield
                left = STEP_ITEMS

    def expire(self, before_ms: int) -> Iterator[None]:
        """Ids that nobody has used since then are forgotten."""
        names = list(self._ids.known)
        for start in range(0, len(names), STEP_ITEMS):
            part = names[start : start + STEP_ITEMS]
            gone = [written(name, None) for name in part if self._is_silent(name, before_ms)]
            try:
                for batch in in_batches(gone):
                    self._journal.append(batch)
            except KafkaError:
                return
            yield

    def _is_silent(self, name: str, before_ms: int) -> bool:
        ids = self._ids
        found = ids.known.get(name)
        if found is None or name in ids.ongoing or name in ids.prepared:
            return False
        return found.updated_ms < before_ms

"""The transactional ids of one partition of `__transaction_state`: the replay of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.transactions import _records as transaction_records
from broker.transactions._state import TransactionState

if TYPE_CHECKING:
    from broker.transactions._state import Transaction


class TransactionIds:
    """Each with its newest transaction."""

    def __init__(self) -> None:
        self.known: dict[str, Transaction] = {}
        self.ongoing: dict[str, None] = {}
        """Whose transaction is ongoing, in the order in which they were seen."""
        self.prepared: dict[str, None] = {}
        """Whose transaction is decided, and whose markers are on their way."""

    def replay(self, key: bytes, value: bytes | None) -> str:
        """Takes a record, and returns whose it is; ValueError if it cannot be understood."""
        name, found = transaction_records.read(key, value)
        self.ongoing.pop(name, None)
        self.prepared.pop(name, None)
        if found is None:
            self.known.pop(name, None)
            return name
        self.known[name] = found
        if found.state is TransactionState.ONGOING:
            self.ongoing[name] = None
        elif found.state.is_prepared:
            self.prepared[name] = None
        return name

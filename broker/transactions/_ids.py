"""The transactional ids of one partition of `__transaction_state`: the replay of its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.transactions import _records as transaction_records
from broker.transactions._state import TransactionState
from raftctl.errors import invariant

if TYPE_CHECKING:
    from broker.transactions._state import Transaction


class TransactionIds:
    """The ids with their newest transactions, and two indexes of these.

    The indexes are what time needs: without them each round would look at every id, of which a
    partition may have a million, to find the few transactions that are late.
    """

    def __init__(self) -> None:
        self.known: dict[str, Transaction] = {}
        self.ongoing: dict[str, None] = {}
        """Whose transaction is ongoing, in the order in which they were seen."""
        self.prepared: dict[str, None] = {}
        """Whose transaction is decided, and whose markers are on their way."""

    def invariants(self) -> None:
        """Stop the program unless the indexes say what the transactions do."""
        ongoing = {n for n, one in self.known.items() if one.state is TransactionState.ONGOING}
        invariant(self.ongoing.keys() == ongoing, "what is ongoing is found when it is late")
        prepared = {n for n, one in self.known.items() if one.state.is_prepared}
        invariant(self.prepared.keys() == prepared, "what is decided is found for its markers")

    def replay(self, key: bytes, value: bytes | None) -> str:
        """Take a record of the log; return the transactional id that it is of.

        Raises ValueError of a record that cannot be understood, before anything has changed.
        """
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

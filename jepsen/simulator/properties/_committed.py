"""Committed records of a log, as an observer of its replicas remembers them.

A record is committed once some replica has called it so by its high watermark; that is remembered
for ever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """A batch of a log: what it is, not where it stands."""

    base_offset: int
    end_offset: int
    epoch: int
    digest: int


class Log:
    """The committed batches of one log, as the history knows them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def end_offset(self) -> int:
        """Everything below has been called committed by somebody."""
        return self.entries[-1].end_offset if self.entries else 0

    def conflict(self, found: Sequence[Entry]) -> str | None:
        """Return how batches of a replica differ from the committed ones; None if they do not."""
        if not found:
            return None
        at = bisect_left(self.entries, found[0].base_offset, key=attrgetter("base_offset"))
        for entry, known in zip(found, self.entries[at:], strict=False):
            if entry != known:
                return f"{entry} instead of the committed {known}"
        return None

    def agrees_to(self, found: Sequence[Entry], begin: int) -> int:
        """Up to which offset batches of a replica, from `begin` on, are the committed ones."""
        for entry in found:
            if self.conflict([entry]) is not None or entry.end_offset > self.end_offset:
                break
            begin = entry.end_offset
        return begin

    def commit(self, found: Sequence[Entry]) -> list[Entry]:
        """Add the batches that are new, and return them."""
        new = [entry for entry in found if entry.base_offset >= self.end_offset]
        self.entries += new
        return new


ReadLog = Callable[[int, int], list[Entry]]
"""`read(from offset, to offset)`: the batches of a replica's log in between, as it sees them."""


class Replica(Protocol):
    """A replica: the part that the views of all kinds of logs have in common."""

    @property
    def node_id(self) -> int:
        """The id of its node."""

    @property
    def log_end(self) -> int:
        """The offset of its next batch."""

    @property
    def read(self) -> ReadLog:
        """Its log."""


def lacks(committed: Log, replica: Replica, end_offset: int) -> str | None:
    """Return how a replica differs from the committed log below an offset; None if it does not."""
    if replica.log_end < end_offset:
        return f"{replica.node_id} ends at {replica.log_end}, committed to {end_offset}"
    return committed.conflict(replica.read(0, end_offset))

"""Label values that clients choose, bounded: a client cannot make a node hold without limit.

Topics, client ids, principals and software names come from outside. The first ones have a series
each, and all later ones share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OTHER = "(other)"
"""The label of what has no series of its own; no topic may be called so."""
LABEL_CHARACTERS_MAX = 255

Counts = TypeVar("Counts")


class Bounded(Generic[Counts]):
    """Counts by a label: at most `limit` of their own, and one for all others."""

    def __init__(self, limit: int, make: Callable[[], Counts]) -> None:
        invariant(limit >= 0, "a limit of labels is at least 0")
        self._limit = limit
        self._make = make
        self._counts: dict[str, Counts] = {}
        self.other: Counts | None = None
        """None until a label found no place."""

    def __getitem__(self, label: str) -> Counts:
        """The counts of the label, made if there is place."""
        counts = self._counts.get(label)
        if counts is not None:
            return counts
        if len(self._counts) < self._limit:
            counts = self._counts[label] = self._make()
            return counts
        if self.other is None:
            self.other = self._make()
        return self.other

    def discard(self, label: str) -> Counts | None:
        """Forget a label, such as a deleted topic; return its counts if it had its own."""
        return self._counts.pop(label, None)

    def items(self) -> Iterator[tuple[str, Counts]]:
        """Pairs of label, cut to what a scrape takes, and counts."""
        for label, counts in self._counts.items():
            yield label[:LABEL_CHARACTERS_MAX], counts
        if self.other is not None:
            yield OTHER, self.other

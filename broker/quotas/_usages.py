"""What clients have used, bounded in number and age."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable

EXPIRY_MS = 3_600_000
"""What a client has used is forgotten after this long without a request."""
SCOPES_MAX = 10_000
"""Measured at once, of each type; beyond it the one that is unused for longest is forgotten."""

Key = TypeVar("Key", bound=Hashable)
Usage = TypeVar("Usage")


class Usages(Generic[Key, Usage]):
    """The usage of each scope or address, in the order of their last use."""

    def __init__(self, make: Callable[[], Usage]) -> None:
        """`make` returns the usage of one that has used nothing."""
        self._make = make
        self._usages: dict[Key, tuple[Usage, int]] = {}
        """Each with the time of its last use."""

    def __len__(self) -> int:
        return len(self._usages)

    def of(self, key: Key, now_ms: int) -> Usage:
        """Return the usage of a scope, and note that it is in use."""
        usages = self._usages
        known = usages.pop(key, None)
        usage = self._make() if known is None else known[0]
        usages[key] = usage, now_ms
        oldest = next(iter(usages))
        if len(usages) > SCOPES_MAX or now_ms - usages[oldest][1] > EXPIRY_MS:
            del usages[oldest]
        invariant(len(usages) <= SCOPES_MAX, "the clients that are measured at once are bounded")
        return usage

"""The seam to the system under test: how operations are done, and what they came to.

A client belongs to one process. What it cannot know it must not claim: an operation that may have
happened ends with `info`, and neither the client nor its process is used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jepsen.history import OpType

if TYPE_CHECKING:
    from jepsen.history import Op


class Completion(NamedTuple):
    """Outcome of an operation."""

    type: OpType
    value: Any = None
    error: str | None = None


def ok(value: Any = None) -> Completion:
    """It happened."""
    return Completion(OpType.OK, value)


def failed(value: Any, error: str | None = None) -> Completion:
    """It certainly did not happen; without an error, because of what was found."""
    return Completion(OpType.FAIL, value, error)


def unknown(value: Any, error: str) -> Completion:
    """Nobody knows whether it happened, or will."""
    return Completion(OpType.INFO, value, error)


class Client(Protocol):
    """A process of the test, as the system sees it."""

    async def open(self) -> None:
        """Gets ready; may raise, then the operation is not tried and has failed."""

    async def invoke(self, op: Op) -> Completion:
        """Perform the operation; an exception counts as `info`."""

    async def close(self) -> None:
        """End without waiting for unknown outcomes."""

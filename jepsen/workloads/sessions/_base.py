"""The seam to the libraries that talk to Kafka, so that each workload is written once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from jepsen.environments import Entrance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Batch = dict[str, list[tuple[int, bytes]]]
"""By key, which is a partition as text: (offset, value) of each record, in the order of the log."""
REQUEST_TIMEOUT_MS = 3_000
DELIVERY_MS = 5_000
"""How long a producer tries to send a record."""
POLL_MS = 200
POLL_RECORDS = 500
TRANSACTION_TIMEOUT_MS = 5_000
"""After which a coordinator aborts what a process has left open."""
SESSION_TIMEOUT_MS = 6_000
"""After which a group goes on without a member; the least that brokers allow by default."""
HEARTBEAT_MS = 500


class SessionError(Exception):
    """A call went wrong; `certain` if it certainly had no effect."""

    def __init__(self, message: str, *, certain: bool) -> None:
        super().__init__(message)
        self.certain = certain


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a process that uses a topic."""

    entrance: Entrance
    topic: str
    acks: str = "all"
    transactional_id: str = ""
    """Empty: the producer has no transactions; the consumer reads what is not committed too."""
    group: str = ""
    """Empty: the process commits nothing and cannot subscribe."""

    @property
    def committed_only(self) -> bool:
        """True if the consumer reads committed records only."""
        return bool(self.transactional_id)


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """Place of a consumer in its group."""

    member_id: str
    generation: int
    keys: tuple[str, ...]
    """The partitions it has in that generation."""


class LogSession(Protocol):
    """A producer and a consumer, both made when first needed. Calls come one after the other.

    Every call raises SessionError.
    """

    async def close(self) -> None:
        """End both without waiting for unknown outcomes."""

    async def renew_producer(self) -> None:
        """End the producer; the next call makes another."""

    async def begin(self) -> None:
        """Begin a transaction."""

    async def send(self, key: str, value: bytes) -> int:
        """Send a record, wait until it is acknowledged, and return its offset."""

    async def commit(self) -> None:
        """Commits the transaction."""

    async def abort(self) -> None:
        """Abort the transaction."""

    async def assign(self, positions: Mapping[str, int]) -> None:
        """Read these keys, each from that offset on."""

    async def subscribe(self) -> None:
        """Join the group, which decides what is read; begin at the committed offsets, else at 0."""

    async def leave(self) -> None:
        """End the consumer, which leaves its group if it can; the next call makes another."""

    async def poll(self) -> Batch:
        """Return the next records, none if there are none for POLL_MS."""

    async def positions(self, keys: Sequence[str]) -> dict[str, int]:
        """Up to where each key has been read, also what is shown to nobody."""

    def membership(self) -> GroupMembership | None:
        """Return the member's place in its group now; None if it has none, or if unknown."""

    async def ends(self, keys: Sequence[str], *, committed_only: bool) -> dict[str, int]:
        """Return the last stable offset of each key, or its high watermark."""

    async def commit_offsets(self, offsets: Mapping[str, int]) -> None:
        """Commits the offsets for the group."""

    async def committed(self, keys: Sequence[str]) -> dict[str, int | None]:
        """Return the group's committed offsets, None where there is none."""

"""The seam to a cluster: what a test starts, asks for addresses, breaks and heals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import random

Link = tuple[str, str]
"""Names of nodes: what the first sends does not reach the second."""


class Quality(NamedTuple):
    """How a link carries what it carries; by default as well as it can."""

    delay_ms: float = 0.0
    """Of everything."""
    loss: float = 0.0
    """The chance that a piece arrives late, as TCP sends again what was lost."""
    bytes_per_s: float | None = None


RETRANSMIT_S = 0.2
"""How late what was lost arrives, each time it is lost: the least of usual systems."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What cluster a test wants."""

    controllers: int = 3
    brokers: int = 3
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Configuration keys of all nodes."""
    bootstrap_servers: str = ""
    """Of an external cluster."""
    control: str = ""
    """The command of a program that breaks it."""


class Environment(Protocol):
    """A cluster for one test."""

    @property
    def controllers(self) -> Sequence[str]:
        """The names of the nodes that vote."""

    @property
    def brokers(self) -> Sequence[str]:
        """The names of the nodes that serve Kafka clients."""

    @property
    def bootstrap_servers(self) -> str:
        """Where Kafka clients begin."""

    @property
    def disk_faults(self) -> Mapping[str, Sequence[str]]:
        """What can be done to a disk, and to those of which nodes."""

    @property
    def features(self) -> Mapping[str, tuple[int, int]]:
        """The lowest and the highest level at which each of its features can be finalized."""

    def kv_client(self, timeout_s: float, rng: random.Random) -> KeyValues:
        """A client of keys and values that is not open yet."""

    async def leader(self) -> str | None:
        """The node that is the active controller, if one is known."""

    def broker_name(self, broker_id: int) -> str | None:
        """The node that Kafka clients know by that id."""

    async def settled(self) -> bool:
        """Whether every broker is active and every replica in sync, as far as anybody says."""

    async def leadership(self) -> tuple[str, int] | None:
        """That node and the epoch in which it leads."""

    async def replicas(self) -> Mapping[str, Mapping[str, Any]]:
        """What each controller that answers tells of its copy of the metadata log.

        By its name: the value of `replica` in a trace (`jepsen.checkers.replication.trace`). Empty
        where nobody tells, or where all is known anyway.
        """

    async def kill(self, node: str) -> None:
        """Ends its process at once; what it had written stays. Raises if it does not run."""

    async def terminate(self, node: str) -> None:
        """Asks its process to end, and waits for that."""

    async def start_node(self, node: str) -> None:
        """Starts a node that does not run; does nothing to one that does."""

    async def pause(self, node: str) -> None:
        """Stops its process where it is. Raises if it does not run."""

    async def resume(self, node: str) -> None:
        """Lets it go on; does nothing to one that is not paused."""

    async def block(self, links: Sequence[Link]) -> None:
        """Nothing passes these links until `unblock`; others are as they were."""

    async def unblock(self) -> None:
        """Everything passes everywhere."""

    async def degrade(self, links: Sequence[Link], quality: Quality) -> None:
        """These links are no better than that until `restore`."""

    async def restore(self) -> None:
        """Every link is as good as it was."""

    async def skew_clock(self, node: str, by_ms: int) -> None:
        """Its wall clock shows so much more, or less."""

    async def reset_clocks(self) -> None:
        """Every wall clock shows the time again."""

    async def remove_voter(self, node: str) -> bool:
        """Takes its vote from a controller, which goes on; False: perhaps, it may take longer."""

    async def add_voter(self, node: str) -> bool:
        """Lets a controller vote, if it does not; False as for `remove_voter`."""

    async def replace_disk(self, node: str) -> None:
        """Gives a node that does not run an empty disk, formatted for the cluster."""

    async def break_disk(self, node: str, kind: str) -> bool:
        """Its disk fails in one of the ways of `disk_faults`; False if it cannot do so now."""

    async def mend_disks(self) -> None:
        """Every disk is well, and the nodes run that ended because of theirs."""


class Change(NamedTuple):
    """A key was set, or removed (value None)."""

    version: int
    """Grows over all keys."""
    key: str
    value: bytes | None


class KeyValues(Protocol):
    """A client of keys and values; every call raises KeyValueError."""

    async def open(self) -> None:
        """Connects."""

    async def close(self) -> None:
        """Gives sessions and connections up."""

    async def read(self, key: str) -> bytes | None:
        """The value, None if there is none."""

    async def write(self, key: str, value: bytes) -> int:
        """Sets the value; the version that this made."""

    async def delete(self, key: str) -> int | None:
        """Removes the key; the version that this made, None if there was no such key."""

    async def cas(self, key: str, expected: bytes, value: bytes) -> bool:
        """Sets the value if it is the expected one; whether it was."""

    async def keys(self, prefix: str) -> list[str]:
        """The keys with that prefix, without it."""

    async def listed(self, prefix: str) -> tuple[int, list[Change]]:
        """The few keys with that prefix as a version left them, and that version."""

    def changes(self, prefix: str, start: int) -> AsyncGenerator[Change]:
        """The changes of keys with that prefix from a version on, for ever."""

    async def acquire(self, lock: str, session_timeout_s: float) -> int:
        """Waits for the lock; its fencing token."""

    async def write_guarded(self, key: str, value: bytes, lock: str, token: int) -> None:
        """Sets the value if the token is that of the lock's holder."""

    async def release(self) -> None:
        """Gives the lock back."""


class KeyValueError(Exception):
    """A call went wrong; `certain` if it certainly did nothing."""

    def __init__(self, message: str, *, certain: bool) -> None:
        super().__init__(message)
        self.certain = certain

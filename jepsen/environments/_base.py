"""The seam to a cluster: what a test starts, asks for addresses, breaks and heals."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jepsen.environments._access import AccessControl, Security
from jepsen.environments._entrance import Entrance

if TYPE_CHECKING:
    import random

Link = tuple[str, str]
"""Names of nodes: what the first sends does not reach the second."""


class Quality(NamedTuple):
    """Quality of a link; by default it is not degraded."""

    delay_ms: float = 0.0
    """Added to the latency of every piece."""
    loss: float = 0.0
    """The chance that a piece is lost; it arrives late, since TCP sends it again."""
    bytes_per_s: float | None = None


RETRANSMIT_S = 0.2
"""The delay of a lost piece, each time it is lost: the shortest of usual systems."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The cluster that a test needs."""

    controllers: int = 3
    brokers: int = 3
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Configuration keys of all nodes."""
    bootstrap_servers: str = ""
    """Addresses of an external cluster: HOST:PORT, separated by commas."""
    control: str = ""
    """The command of the program that injects faults into an external cluster."""
    command_config: str = ""
    """The file with which clients log in to an external cluster, of Apache Kafka's tools."""
    security: str = Security.PLAINTEXT
    """What clients of a cluster that is made for the test speak: a name of `Security`."""


class Machines(Protocol):
    """The primitives of faults: what can go wrong with the machines and links of a cluster.

    Links and clocks are declared as a whole, so that of several faults each can end alone.
    """

    async def kill(self, node: str) -> None:
        """Kill a node's process; its written data stays. Raises if it does not run."""

    async def terminate(self, node: str) -> None:
        """Ask a node's process to end, and wait until it has."""

    async def start_node(self, node: str) -> None:
        """Start a node that does not run; no effect on a running one."""

    async def pause(self, node: str) -> None:
        """Stop a node's process, as by SIGSTOP. Raises if it does not run."""

    async def resume(self, node: str) -> None:
        """Resume a paused node; no effect on another."""

    async def set_blocked(self, links: Sequence[Link]) -> None:
        """Let these links carry nothing from now on, and all others everything."""

    async def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        """Degrade these links from now on, and restore all others."""

    async def set_clocks(self, offsets_ms: Mapping[str, int]) -> None:
        """Move the wall clocks of these nodes off the time, and set all others right."""

    async def inject(self, kind: str, nodes: Sequence[str], amount: float | None) -> bool:
        """Begin a fault of disks or machines; False if it is impossible now.

        `kind`: of `jepsen.nemesis.plan.FAULTS`, as far as the environment has it. `amount`: in the
        kind's unit; None: the environment draws it.
        """

    async def relieve(self, kind: str, nodes: Sequence[str]) -> None:
        """End such a fault, and start the nodes that ended because of it.

        No effect if it did not begin.
        """


class Environment(Machines, Protocol):
    """A cluster for one test."""

    @property
    def controllers(self) -> Sequence[str]:
        """Return the names of the controllers."""

    @property
    def brokers(self) -> Sequence[str]:
        """Return the names of the brokers."""

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses at which Kafka clients begin."""

    @property
    def entrance(self) -> Entrance:
        """Return these addresses, with the login of clients if the cluster asks for one.

        The user of `access` has no password before the test gives it one.
        """
        access = self.access
        return Entrance(self.bootstrap_servers) if access is None else access.entrance(access.user)

    @property
    def operator(self) -> Entrance:
        """Return the entrance of an administrator, who may do everything."""
        access = self.access
        return self.entrance if access is None else access.entrance(access.operator)

    @property
    def access(self) -> AccessControl | None:
        """Return the users and rules of the cluster; None where the test cannot change them."""
        return None

    @property
    def disk_faults(self) -> Mapping[str, Sequence[str]]:
        """Return the faults of disks for random tests, each with the nodes that can have it."""

    @property
    def features(self) -> Mapping[str, tuple[int, int]]:
        """Return the lowest and highest level of each feature."""

    def kv_client(self, timeout_s: float, rng: random.Random) -> KeyValues:
        """Return a client of keys and values that is not open yet."""

    async def leader(self) -> str | None:
        """Return the node of the active controller; None if unknown."""

    def broker_name(self, broker_id: int) -> str | None:
        """Return the node with this broker id; None if unknown."""

    async def is_in_sync(self) -> bool:
        """Return whether every broker is active and every replica in sync, as reported now."""

    async def leadership(self) -> tuple[str, int] | None:
        """Return the node of the active controller and its epoch; None if unknown."""

    async def replicas(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the state of the metadata log of each controller that answers.

        By its name: the value of `replica` in a trace (`jepsen.checkers.replication.trace`). Empty
        where no controller reports it, or all is known anyway.
        """

    async def remove_voter(self, node: str) -> bool:
        """Remove a controller from the voters; it keeps running. False: the outcome is unknown."""

    async def add_voter(self, node: str) -> bool:
        """Add a controller to the voters. False: the outcome is unknown."""

    async def replace_disk(self, node: str) -> None:
        """Give a stopped node an empty disk, formatted for the cluster."""


class Change(NamedTuple):
    """A key was set, or removed (value None)."""

    version: int
    """Grows over all keys."""
    key: str
    value: bytes | None


class KeyValues(Protocol):
    """A client of keys and values; every call raises KeyValueError."""

    async def open(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Give sessions and connections up."""

    async def read(self, key: str) -> bytes | None:
        """Return the value, None if there is none."""

    async def write(self, key: str, value: bytes) -> int:
        """Set the value; the version that this made."""

    async def delete(self, key: str) -> int | None:
        """Remove the key; the version that this made, None if there was no such key."""

    async def cas(self, key: str, expected: bytes, value: bytes) -> bool:
        """Set the value if it is the expected one; whether it was."""

    async def keys(self, prefix: str) -> list[str]:
        """Return the keys with that prefix, without it."""

    async def listed(self, prefix: str) -> tuple[int, list[Change]]:
        """Return the few keys with that prefix as a version left them, and that version."""

    def changes(self, prefix: str, start: int) -> AsyncGenerator[Change]:
        """Return the changes of keys with that prefix from a version on, for ever."""

    async def acquire(self, lock: str, session_timeout_s: float) -> int:
        """Wait for the lock; its fencing token."""

    async def write_guarded(self, key: str, value: bytes, lock: str, token: int) -> None:
        """Set the value if the token is that of the lock's holder."""

    async def release(self) -> None:
        """Give the lock back."""


class KeyValueError(Exception):
    """A call went wrong; `certain` if it certainly did nothing."""

    def __init__(self, message: str, *, certain: bool) -> None:
        super().__init__(message)
        self.certain = certain

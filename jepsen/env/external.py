"""The environment `external`: any Kafka-compatible cluster, told by its address, never broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen.errors import InputError

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from jepsen.env.base import ClusterSpec, KeyValues, Link, Quality


class ExternalEnvironment:
    """See `jepsen.env.base.Environment`."""

    controllers: Sequence[str] = ()
    brokers: Sequence[str] = ()

    def __init__(self, spec: ClusterSpec) -> None:
        self.bootstrap_servers = spec.bootstrap_servers
        self.disk_faults: Mapping[str, Sequence[str]] = {}

    def kv_client(self, timeout_s: float, rng: random.Random) -> KeyValues:
        """InputError: such a cluster has no keys and values."""
        raise InputError("--env external: it has no keys and values")

    async def leader(self) -> str | None:
        """Nobody that is known."""
        return None

    def broker_name(self, broker_id: int) -> str | None:
        """There is no node to be named."""
        return None

    async def settled(self) -> bool:
        """As far as anybody knows."""
        return True

    async def leadership(self) -> tuple[str, int] | None:
        """Nobody that is known."""
        return None

    async def kill(self, node: str) -> None:
        """There is no node to be named."""

    async def terminate(self, node: str) -> None:
        """There is no node to be named."""

    async def start_node(self, node: str) -> None:
        """There is no node to be named."""

    async def pause(self, node: str) -> None:
        """There is no node to be named."""

    async def resume(self, node: str) -> None:
        """There is no node to be named."""

    async def block(self, links: Sequence[Link]) -> None:
        """There is no link to be named."""

    async def unblock(self) -> None:
        """Nothing was blocked."""

    async def degrade(self, links: Sequence[Link], quality: Quality) -> None:
        """There is no link to be named."""

    async def restore(self) -> None:
        """Nothing was degraded."""

    async def skew_clock(self, node: str, by_ms: int) -> None:
        """There is no node to be named."""

    async def reset_clocks(self) -> None:
        """No clock was changed."""

    async def remove_voter(self, node: str) -> bool:
        """There is no node to be named."""
        return False

    async def add_voter(self, node: str) -> bool:
        """There is no node to be named."""
        return False

    async def break_disk(self, node: str, kind: str) -> None:
        """There is no node to be named."""

    async def mend_disks(self) -> None:
        """No disk was broken."""

"""The environment `external`: any Kafka-compatible cluster, told by its address.

It is broken only where its owner gives a program that does it
(`jepsen.environments.external._control`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jepsen.environments.external._control import Control
from jepsen.environments.external._reachable import Witness, broker_addresses
from jepsen.errors import InputError

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from jepsen.environments._base import ClusterSpec, KeyValues, Link, Quality


UNDO = {"kill": "start", "stop": "start", "pause": "resume"}
"""What has to stop a node from answering, and what ends that."""


class ExternalEnvironment:
    """See `jepsen.environments._base.Environment`."""

    def __init__(self, spec: ClusterSpec) -> None:
        """InputError for a program that does not control the cluster."""
        self.bootstrap_servers = spec.bootstrap_servers
        self._control = Control(spec.control) if spec.control else None
        self._addresses: dict[int, tuple[str, int]] = {}
        """Of brokers, by id, as far as they are known."""
        self.disk_faults: Mapping[str, Sequence[str]] = {}
        self.features: Mapping[str, tuple[int, int]] = {}

    @property
    def controllers(self) -> Sequence[str]:
        """None that could be broken without a program."""
        return self._control.names("controller") if self._control else ()

    @property
    def brokers(self) -> Sequence[str]:
        """None that could be broken without a program."""
        return self._control.names("broker") if self._control else ()

    def kv_client(self, timeout_s: float, rng: random.Random) -> KeyValues:
        """InputError: such a cluster has no keys and values."""
        raise InputError("--env external: it has no keys and values")

    async def leader(self) -> str | None:
        """Nobody that is known: clients of brokers are not told who is the active controller."""
        return None

    async def replicas(self) -> Mapping[str, Mapping[str, Any]]:
        """See `Environment`: Kafka's clients are told nothing of the kind."""
        return {}

    def broker_name(self, broker_id: int) -> str | None:
        """See `Environment`."""
        nodes = self._control.nodes if self._control else ()
        found = [node.name for node in nodes if (node.role, node.node_id) == ("broker", broker_id)]
        return found[0] if found else None

    async def is_in_sync(self) -> bool:
        """As far as clients are told."""
        if self._control is None:
            return True
        # Not imported where nothing is broken.
        from jepsen.environments.admin import all_in_sync

        return await all_in_sync(self.bootstrap_servers, len(self.brokers))

    async def leadership(self) -> tuple[str, int] | None:
        """Nobody that is known."""
        return None

    async def _do(self, what: str, node: str) -> None:
        """RuntimeError where it failed, or had no effect although the program says it is done."""
        control = self._control
        if control is None:
            return
        if what not in UNDO:
            await control.do(what, node)
            return
        witness = await self._witness(node)
        try:
            await control.do(what, node)
            if witness is not None and await witness.still_answers():
                # Whatever comes late must not stay: nobody will undo what is not counted.
                await control.do(UNDO[what], node)
                raise RuntimeError(
                    f"{what} {node}: --control reports success, but the broker still answers"
                )
        finally:
            if witness is not None:
                await witness.close()

    async def _witness(self, node: str) -> Witness | None:
        """None for controllers, which clients cannot ask, and for whoever answers nothing now."""
        nodes = self._control.nodes if self._control else ()
        ids = [one.node_id for one in nodes if (one.role, one.name) == ("broker", node)]
        if not ids:
            return None
        self._addresses |= await broker_addresses(self.bootstrap_servers)
        address = self._addresses.get(ids[0])
        return None if address is None else await Witness.open(*address)

    async def kill(self, node: str) -> None:
        """See `Environment`."""
        await self._do("kill", node)

    async def terminate(self, node: str) -> None:
        """See `Environment`."""
        await self._do("stop", node)

    async def start_node(self, node: str) -> None:
        """See `Environment`."""
        await self._do("start", node)

    async def pause(self, node: str) -> None:
        """See `Environment`."""
        await self._do("pause", node)

    async def resume(self, node: str) -> None:
        """See `Environment`."""
        await self._do("resume", node)

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

    async def replace_disk(self, node: str) -> None:
        """There is no word for that."""

    async def break_disk(self, node: str, kind: str) -> bool:
        """There is no node to be named."""
        return False

    async def mend_disks(self) -> None:
        """No disk was broken."""

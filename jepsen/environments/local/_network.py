"""How the nodes of a local cluster reach each other, and what can be done to their links."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from jepsen.environments._base import Link, Quality
    from raftctl.localcluster.layout import LocalNode

RELAYS, NAMESPACES = "relays", "namespaces"
NETWORKS = (RELAYS, NAMESPACES)


class Network:
    """Plain loopback, whose links cannot be cut; in the order in which the methods are called."""

    def hosts(self, count: int) -> Sequence[str]:
        """Where so many nodes listen; empty: all on loopback."""
        del count
        return ()

    def prepare(self, nodes: Sequence[LocalNode], directory: Path) -> None:
        """Called when the nodes are configured, in that order and below the directory."""

    def prefix(self, node: str) -> Sequence[str]:
        """The program, with its arguments, that has the node run in its place."""
        del node
        return ()

    async def open(self, pids: Callable[[], Mapping[str, int]]) -> None:
        """Called when they have been started; `pids` are those of the nodes that run, by name."""

    async def set_blocked(self, links: Iterable[Link]) -> None:
        """These links carry nothing now, all others do."""

    async def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        """These links are no better than that now, all others are as good as they can."""

    async def close(self) -> None:
        """Nothing is held up any more; not in use after that."""

    def remove(self) -> None:
        """Takes away what is left when all nodes have ended, however far the start came."""

"""Networks of a local cluster: plain loopback, and relays that can block or degrade links.

A relay stands before each node. It finds the node that opened a connection by the process that owns
the connection's port, and looks only while links are blocked or degraded. Data of a blocked link is
delivered after the heal, as TCP would send it again; connections stay open. A degraded link carries
one piece after the other, each with all data that came meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from jepsen.environments._base import RETRANSMIT_S
from raftctl.localcluster.layout import HOST
from raftctl.localcluster.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from jepsen.environments._base import Link, Quality
    from raftctl.localcluster.layout import LocalNode


class Network:
    """Plain loopback, whose links cannot be cut; in the order in which the methods are called."""

    def hosts(self, count: int) -> Sequence[str]:
        """Return the addresses of that many nodes; none if all listen on loopback."""
        del count
        return ()

    def prepare(self, nodes: Sequence[LocalNode], directory: Path) -> None:
        """Prepare for nodes that are configured, in that order and below the directory."""

    def prefix(self, node: str) -> Sequence[str]:
        """Return the program, with its arguments, that has the node run in its place."""
        del node
        return ()

    async def open(self, pids: Callable[[], Mapping[str, int]]) -> None:
        """Open the network of nodes that have been started; `pids` are those that run, by name."""

    async def set_blocked(self, links: Iterable[Link]) -> None:
        """Cut these links and restore all others."""

    async def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        """Degrade these links to these qualities and restore all others."""

    async def close(self) -> None:
        """Release everything that is delayed. The network is not used afterwards."""

    def remove(self) -> None:
        """Take away what is left when all nodes have ended, however far the start came."""


LISTENERS = "listeners="
PIECE_BYTES = 64 * 1024
OUTSIDE = ""
"""The name of all that are no nodes."""


@dataclass(eq=False)
class _Connection:
    """One that a relay has accepted."""

    target: str
    port: int
    """Of the end that connected."""
    source: str | None = None
    """None until somebody has asked."""

    def link(self, *, back: bool) -> Link:
        """The link that one direction uses."""
        source = self.source or OUTSIDE
        return (self.target, source) if back else (source, self.target)


class RelayNetwork(Network):
    """Each node listens on a hidden port; its relay listens on the known one."""

    def __init__(self) -> None:
        self._ways: list[tuple[str, int, int]] = []
        """The name of a node, the port of a relay before it, and the port behind the relay."""
        self._relays: Relays | None = None

    def prepare(self, nodes: Sequence[LocalNode], directory: Path) -> None:
        for node in nodes:
            ways = _hidden(directory / node.name / "node.properties")
            self._ways += [(node.name, known, behind) for known, behind in ways]

    async def open(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._relays = Relays(pids)
        for node, known, behind in self._ways:
            await self._relays.open(node, known, behind)

    async def set_blocked(self, links: Iterable[Link]) -> None:
        if self._relays is not None:
            self._relays.set_blocked(links)

    async def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        if self._relays is not None:
            self._relays.set_quality(qualities)

    async def close(self) -> None:
        if self._relays is not None:
            await self._relays.close()


def _hidden(properties: Path) -> list[tuple[int, int]]:
    """Have a node listen behind relays; return each known port with the one behind it."""
    lines = properties.read_text().splitlines()
    place = next(at for at, line in enumerate(lines) if line.startswith(LISTENERS))
    listeners = lines[place].removeprefix(LISTENERS)
    names, known = zip(*(_listener(one) for one in listeners.split(",")), strict=True)
    behind = free_ports(len(known))
    hidden = (f"{name}://{HOST}:{port}" for name, port in zip(names, behind, strict=True))
    lines[place] = LISTENERS + ",".join(hidden)
    lines.append(f"advertised.{LISTENERS}{listeners}")
    properties.write_text("\n".join(lines) + "\n")
    return list(zip(known, behind, strict=True))


def _listener(text: str) -> tuple[str, int]:
    """The name and the port of `NAME://HOST:PORT`."""
    name, _, address = text.partition("://")
    return name, int(address.rpartition(":")[2])


class Relays:
    """One relay a node; to be used within one event loop."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        """`pids` are those of the nodes that run, by name."""
        self._pids = pids
        self._servers: list[asyncio.Server] = []
        self._links: frozenset[Link] = frozenset()
        self._qualities: dict[Link, Quality] = {}
        self._random = random.Random()
        self._changed = asyncio.Event()
        self._connections: dict[_Connection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: asyncio.Task[None] | None = None

    async def open(self, node: str, port: int, behind: int) -> None:
        """Relay what comes to `port` to the node, which listens on the port `behind`."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            # The caller that closes the relays does not ask how their connections ended.
            with contextlib.suppress(asyncio.CancelledError):
                await self._relay(node, behind, reader, writer)

        self._servers.append(await asyncio.start_server(accept, HOST, port))

    async def close(self) -> None:
        """End every connection."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set_blocked(self, links: Iterable[Link]) -> None:
        """Cut these links and restore all others."""
        self._links = frozenset(links)
        self._changed.set()
        self._changed = asyncio.Event()

    def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        """Degrade these links to these qualities and restore all others."""
        self._qualities = dict(qualities)

    async def _relay(
        self, node: str, behind: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = _Connection(node, writer.get_extra_info("peername")[1])
        self._connections[connection] = None
        writers = [writer]
        try:
            await self._passable(connection, back=False)
            inner_reader, inner_writer = await asyncio.open_connection(HOST, behind)
            writers.append(inner_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(connection, reader, inner_writer, back=False))
                group.create_task(self._pump(connection, inner_reader, writer, back=True))
        except* OSError:
            pass
        finally:
            del self._connections[connection]
            for one in writers:
                one.transport.abort()

    async def _pump(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        back: bool,
    ) -> None:
        """Carry one direction to its end."""
        while piece := await reader.read(PIECE_BYTES):
            if self._links:
                await self._passable(connection, back=back)
            if self._qualities:
                await self._crossed(connection, len(piece), back=back)
            writer.write(piece)
            await writer.drain()
        await self._passable(connection, back=back)
        writer.write_eof()

    async def _crossed(self, connection: _Connection, size: int, *, back: bool) -> None:
        """Take as long as the link needs for a piece."""
        while connection.source is None:
            await self._ask()
        quality = self._qualities.get(connection.link(back=back))
        if quality is not None:
            await asyncio.sleep(crossing_s(quality, size, self._random))

    async def _passable(self, connection: _Connection, *, back: bool) -> None:
        while self._links:
            while connection.source is None:
                await self._ask()
            if connection.link(back=back) not in self._links:
                return
            await self._changed.wait()

    async def _ask(self) -> None:
        """Find out who has the connections; one look serves all that wait."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._look())
        await asyncio.shield(self._asking)

    async def _look(self) -> None:
        unknown = [one for one in self._connections if one.source is None]
        owners = await asyncio.to_thread(_owners, dict(self._pids()))
        for one in unknown:
            one.source = owners.get(one.port, OUTSIDE)


def crossing_s(quality: Quality, size: int, rng: random.Random) -> float:
    """Return the seconds for which a piece of `size` bytes is under way."""
    seconds = quality.delay_ms / 1000
    if quality.bytes_per_s:
        seconds += size / quality.bytes_per_s
    while rng.random() < quality.loss:
        seconds += RETRANSMIT_S
    return seconds


def _owners(pids: Mapping[str, int]) -> dict[int, str]:
    """Local port to the node whose process has a connection from there."""
    found = {}
    for name, pid in pids.items():
        with contextlib.suppress(psutil.Error):
            for one in psutil.Process(pid).net_connections("tcp4"):
                if one.laddr and one.raddr:
                    found[one.laddr.port] = name
    return found

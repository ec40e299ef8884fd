"""Relays on loopback: others reach a node through one, which can hold up what a link carries.

Who connects is told by who owns the connection's port. What is held up is delivered after the heal,
as the network does with what TCP sends again; connections stay.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jepsen.env.base import Link

HOST = "127.0.0.1"
PIECE_BYTES = 64 * 1024
OUTSIDE = ""
"""The name of whoever is no node."""


class Relays:
    """One relay a node; to be used within one event loop."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        """`pids` are those of the nodes that run, by name."""
        self._pids = pids
        self._servers: list[asyncio.Server] = []
        self._links: frozenset[Link] = frozenset()
        self._changed = asyncio.Event()
        self._pumps: set[asyncio.Task[None]] = set()

    async def open(self, node: str, port: int, behind: int) -> None:
        """Relays what comes to `port` to the node, which listens on the port `behind`."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task is not None:
                self._pumps.add(task)
                task.add_done_callback(self._pumps.discard)
            await self._relay(node, behind, reader, writer)

        self._servers.append(await asyncio.start_server(accept, HOST, port))

    async def close(self) -> None:
        """Ends every connection."""
        for server in self._servers:
            server.close()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def set_blocked(self, links: Iterable[Link]) -> None:
        """These links carry nothing now, all others do."""
        self._links = frozenset(links)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _relay(
        self, node: str, behind: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writers = [writer]
        try:
            port = writer.get_extra_info("peername")[1]
            source = await asyncio.to_thread(_owner, port, dict(self._pids()))
            await self._passable((source, node))
            inner_reader, inner_writer = await asyncio.open_connection(HOST, behind)
            writers.append(inner_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump((source, node), reader, inner_writer))
                group.create_task(self._pump((node, source), inner_reader, writer))
        except* (OSError, EOFError):
            pass
        finally:
            for one in writers:
                one.transport.abort()

    async def _pump(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carries one direction; its end is the end of the connection."""
        while piece := await reader.read(PIECE_BYTES):
            await self._passable(link)
            writer.write(piece)
            await writer.drain()
        await self._passable(link)
        with contextlib.suppress(OSError):
            writer.write_eof()

    async def _passable(self, link: Link) -> None:
        while link in self._links:
            await self._changed.wait()


def _owner(port: int, pids: Mapping[str, int]) -> str:
    """The node whose process has a connection from that port."""
    for name, pid in pids.items():
        try:
            connections = psutil.Process(pid).net_connections("tcp4")
        except psutil.Error:
            continue
        if any(one.laddr and one.laddr.port == port for one in connections):
            return name
    return OUTSIDE

"""The network between nodes: addresses, links, partitions, and making connections.

A link is directed. It delays every segment by a seeded latency and, if it has a bandwidth, by the
bytes before it. A blocked link holds segments back, as TCP does by retransmitting, and lets them
through some time after the heal; a cut also resets the connections that cross it. Connecting over a
blocked link waits for the heal or for the time-out of the operating system.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import functools
import itertools
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from jepsen.simulator._errno import os_error
from jepsen.simulator.kernel.process import Process, current_process
from jepsen.simulator.network._connection import (
    SEGMENT_BYTES_MAX,
    Address,
    Endpoint,
    Flow,
    Link,
    Listener,
    sockets_of,
)
from jepsen.simulator.network._transport import SimServer, SimTransport

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from jepsen.simulator.kernel import SimLoop, Trace
    from jepsen.simulator.kernel.process import SimNode

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)

CONNECT_TIMEOUT_S = 127.0
RETRANSMIT_MAX_S = 0.2
SHORT_SEGMENT_CHANCE = 0.02
LOOPBACK_ADDRESS = "127.0.0.1"
WILDCARDS = (None, "", "0.0.0.0", "::")
LOOPBACK_NAMES = ("localhost", LOOPBACK_ADDRESS)


class Network:
    """All nodes and the links between them."""

    def __init__(self, loop: SimLoop, random: random.Random, trace: Trace) -> None:
        self.loop = loop
        self.trace = trace
        self.nodes: dict[str, SimNode] = {}
        self._random = random
        self._links: dict[tuple[str, str], Link] = {}
        self._stalled: dict[Flow, None] = {}
        self._serials = itertools.count(1)

    # Links

    def link(self, source: str, target: str) -> Link:
        """Return the link from one node to another, to read or to change."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
        return link

    def arrival_s(self, link: Link, size: int) -> float:
        """Return the virtual time at which `size` bytes sent now over the link arrive."""
        now_s = self.loop.now_s
        if link.bytes_per_s is not None:
            link.busy_until_s = max(now_s, link.busy_until_s) + size / link.bytes_per_s
            now_s = link.busy_until_s
        while link.loss and self._random.random() < link.loss:
            now_s += RETRANSMIT_MAX_S
        extra_ms = self._random.expovariate(1.0) * link.latency_extra_mean_ms
        return now_s + (link.latency_min_ms + extra_ms) / 1000

    def segment_bytes(self) -> int:
        """Return the size of the next segment: mostly the largest, now and then any smaller one."""
        if self._random.random() < SHORT_SEGMENT_CHANCE:
            return self._random.randint(1, SEGMENT_BYTES_MAX)
        return SEGMENT_BYTES_MAX

    def restore_links(self) -> None:
        """Make every link as quick and as sure as a new one; blocked ones stay blocked."""
        for link in self._links.values():
            new = Link()
            link.latency_min_ms, link.bytes_per_s = new.latency_min_ms, new.bytes_per_s
            link.latency_extra_mean_ms, link.loss = new.latency_extra_mean_ms, new.loss

    def stall(self, flow: Flow) -> None:
        """Remember a flow that waits for a heal."""
        self._stalled[flow] = None

    def block(self, source: str, target: str) -> None:
        """Block one direction."""
        self.link(source, target).blocked = True

    def unblock(self, source: str, target: str) -> None:
        """Open one direction; what stalled arrives within the time of a retransmission."""
        self.link(source, target).blocked = False
        self.retry_stalled()

    def unblock_all(self) -> None:
        """Open every link; what stalled arrives within the time of a retransmission."""
        for link in self._links.values():
            link.blocked = False
        self.retry_stalled()

    def retry_stalled(self) -> None:
        """Let every stalled flow try again soon."""
        stalled, self._stalled = self._stalled, {}
        for flow in stalled:
            delay_s = self._random.uniform(0, RETRANSMIT_MAX_S)
            self.loop.deliver_at(self.loop.now_s + delay_s, Flow.drain, flow)

    def reset_between(self, one: SimNode, other: SimNode) -> None:
        """Reset every connection between two nodes at both ends, at once."""
        for here, there in ((one, other), (other, one)):
            if here.process is not None:
                for endpoint in list(sockets_of(here.process).endpoints.values()):
                    if endpoint.remote_node is there:
                        endpoint.on_reset()

    def forget_between(self, one: SimNode, other: SimNode) -> list[Flow]:
        """Lose every connection between two nodes without a notice to either.

        Return the flows to refuse when the network answers again.
        """
        flows = [
            endpoint.flow
            for here, there in ((one, other), (other, one))
            if here.process is not None
            for endpoint in sockets_of(here.process).endpoints.values()
            if endpoint.remote_node is there
        ]
        for flow in flows:
            flow.forget()
        return flows

    # Names

    def resolve(self, host: str | None, process: Process | None) -> str:
        """Return the address of a host name as `process` sees it.

        Raises `socket.gaierror` if there is none.
        """
        if host in LOOPBACK_NAMES or (host in WILDCARDS and process is not None):
            return LOOPBACK_ADDRESS
        for node in self.nodes.values():
            if host in (node.name, node.address):
                return node.address
        raise socket.gaierror(socket.EAI_NONAME, f"unknown host {host!r}")

    def _node_at(self, address: str, process: Process) -> SimNode:
        if address == LOOPBACK_ADDRESS:
            return process.node
        return next(node for node in self.nodes.values() if node.address == address)

    # Listening

    def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None,
        port: int,
        *,
        start: bool,
    ) -> SimServer:
        """Listen on one or more addresses of the calling process's node; return the server."""
        process = _calling_process()
        hosts = host if isinstance(host, Sequence) and not isinstance(host, str) else [host]
        addresses: set[str] = set()
        for name in hosts:
            addresses |= self._local_addresses(name, process)
        number = port or _ephemeral_port(process)
        server = SimServer(self.loop, process, frozenset(addresses), number, protocol_factory)
        if start:
            server.start()
        return server

    def _local_addresses(self, host: str | None, process: Process) -> set[str]:
        if host in WILDCARDS:
            return {LOOPBACK_ADDRESS, process.node.address}
        address = self.resolve(host, process)
        if address not in (LOOPBACK_ADDRESS, process.node.address):
            raise os_error(errno.EADDRNOTAVAIL, f"{host} is not an address of {process.node.name}")
        return {address}

    # Connecting

    async def connect(
        self, protocol_factory: Callable[[], ProtocolT], host: str | None, port: int | None
    ) -> tuple[asyncio.Transport, ProtocolT]:
        """Open a connection as `loop.create_connection` does.

        Raises ConnectionRefusedError if there is no listener, TimeoutError without an answer for
        `CONNECT_TIMEOUT_S`, `socket.gaierror` for an unknown host.
        """
        process = _calling_process()
        address = (self.resolve(host, process), int(port or 0))
        endpoint = self._new_endpoint(process, self._node_at(address[0], process), address)
        answer = self.loop.create_future()
        self._send_open(endpoint, process, answer)
        expiry = self.loop.call_later(
            CONNECT_TIMEOUT_S, _complete, answer, os_error(errno.ETIMEDOUT, f"connect to {address}")
        )
        try:
            await answer
        except BaseException:
            endpoint.close()
            raise
        finally:
            expiry.cancel()
        protocol = protocol_factory()
        transport = SimTransport(self.loop, endpoint, protocol)
        transport.start()
        return transport, protocol

    def _new_endpoint(self, process: Process, target: SimNode, address: Address) -> Endpoint:
        node = process.node
        local_host = LOOPBACK_ADDRESS if address[0] == LOOPBACK_ADDRESS else node.address
        return Endpoint(
            Flow(self, node, target),
            serial=next(self._serials),
            process=process,
            context=contextvars.copy_context(),
            local=(local_host, _ephemeral_port(process)),
            remote=address,
        )

    def _send_open(
        self, endpoint: Endpoint, process: Process, answer: asyncio.Future[None]
    ) -> None:
        back = Flow(self, endpoint.remote_node, process.node)
        there = Flow(self, process.node, endpoint.remote_node)
        self.trace.add(
            process.node.name, "connect", f"connection={endpoint.serial} {endpoint.remote}"
        )
        # The answer runs in the client's own context, so that it waits while the client is paused.
        reply = functools.partial(
            self.loop.call_soon, _complete, answer, context=contextvars.copy_context()
        )

        def on_open() -> None:
            listener = _listener_at(endpoint.remote_node, endpoint.remote)
            if listener is None:
                error = os_error(errno.ECONNREFUSED, f"connect to {endpoint.remote}")
                back.send(functools.partial(reply, error))
            else:
                self._accept(endpoint, listener, back)
                back.send(reply)

        there.send(on_open)

    def _accept(self, client: Endpoint, listener: Listener, back: Flow) -> None:
        server = Endpoint(
            back,
            serial=next(self._serials),
            process=listener.process,
            context=listener.context.copy(),
            local=client.remote,
            remote=client.local,
        )
        client.peer, server.peer = server, client
        detail = f"connection={client.serial} as={server.serial}"
        self.trace.add(listener.process.node.name, "accept", detail)
        if client.closed:
            # The client gave up while its request was under way.
            server.on_reset()
        self.loop.call_soon(listener.accept, server, context=server.context)


def _listener_at(node: SimNode, address: Address) -> Listener | None:
    if node.process is None:
        return None
    listener = sockets_of(node.process).listeners.get(address[1])
    return listener if listener is not None and address[0] in listener.addresses else None


def _ephemeral_port(process: Process) -> int:
    return process.node.ephemeral_port(sockets_of(process).listeners)


def _calling_process() -> Process:
    process = current_process.get()
    if process is None:
        raise RuntimeError("only a process of a node can use the network")
    return process


def _complete(answer: asyncio.Future[None], error: OSError | None = None) -> None:
    if not answer.done():
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)

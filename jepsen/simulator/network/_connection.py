"""TCP as the operating systems at both ends keep it: flows, endpoints, listeners.

An endpoint outlives a paused process (the kernel goes on buffering) and dies with a killed one. A
flow is one direction of one connection: whatever is sent arrives once and in order, late if the
link is slow, after the heal if it is blocked, never if an end vanished. What arrives is handled by
the network; a process that runs looks at it in the same turn, a paused one when it goes on.
Source: RFC 9293 (segments, reset, half-closed connections), without loss, since loss only delays.
"""

from __future__ import annotations

import contextvars
import enum
import errno
import functools
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from jepsen.simulator._errno import os_error
from jepsen.simulator.kernel.process import ProcessState
from raftctl.failures import ENDS_OF_PROGRAMS, HandingTo

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from jepsen.simulator.kernel import SimLoop, Trace
    from jepsen.simulator.kernel.process import Process, SimNode

Address = tuple[str, int]

WINDOW_BYTES = 256 * 1024
SEGMENT_BYTES_MAX = 64 * 1024
HEADER_BYTES = 40
LOOPBACK_LATENCY_S = 0.000_02
NOTIFIED = (("sender", "receiver"), ("receiver",), ("sender",))
"""The ends that are notified of one reset after the other."""
RUNNING = ProcessState.RUNNING


class Passage(enum.Enum):
    """The fate of one connection's segments in the network between."""

    OPEN = "open"
    LOST = "lost"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Reset:
    """A connection ends in the middle of a segment, of which so many bytes still arrive."""

    after_bytes: int
    notifies_sender: bool
    notifies_receiver: bool


@dataclass(slots=True)
class Link:
    """One direction between two nodes; latency is the minimum plus an exponential part."""

    latency_min_ms: float = 0.1
    latency_extra_mean_ms: float = 0.2
    bytes_per_s: float | None = None
    loss: float = 0.0
    """The chance that a segment is lost, each time it is sent; it arrives late then."""
    blocked: bool = False
    busy_until_s: float = 0.0
    reset_every_bytes: int | None = None
    """After so many bytes the connection that carries them is reset."""
    resets: int = 0
    """The number of such resets; the ends that are notified change from one to the next."""
    _until_reset: int = 0

    def resets_within(self, size: int) -> Reset | None:
        """Return the reset within the next `size` payload bytes, if there is one."""
        if self.reset_every_bytes is None:
            return None
        left, self._until_reset = self._until_reset, self._until_reset - size
        if left >= size:
            return None
        self._until_reset = self.reset_every_bytes
        self.resets += 1
        ends = NOTIFIED[self.resets % len(NOTIFIED)]
        return Reset(left, notifies_sender="sender" in ends, notifies_receiver="receiver" in ends)

    def reset_every(self, size: int | None) -> None:
        """Reset connections after each so many bytes from now on; None for never."""
        self.reset_every_bytes = size
        self._until_reset = size or 0


class Net(Protocol):
    """The network as a flow uses it."""

    loop: SimLoop
    trace: Trace

    def link(self, source: str, target: str) -> Link:
        """Return the link from one node to another."""

    def arrival_s(self, link: Link, size: int) -> float:
        """Return when `size` bytes sent now over the link arrive, in virtual seconds."""

    def segment_bytes(self) -> int:
        """Return the size of the next segment."""

    def stall(self, flow: Flow) -> None:
        """Remember a flow that waits for a heal."""


class Flow:
    """One direction of a connection between two nodes."""

    def __init__(self, network: Net, source: SimNode, target: SimNode) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.link = network.link(source.name, target.name)
        self._arrival_s = 0.0
        self.owner: Endpoint | None = None
        """The connection whose segments these are."""
        self.passage = Passage.OPEN
        self._swallowed = False
        self._stalled: deque[Callable[[], object]] = deque()

    def send(self, deliver: Callable[[], object], size: int = 0) -> None:
        """Put a segment of `size` payload bytes on the link; `deliver` runs when it arrives."""
        network = self.network
        if self._is_forgotten():
            return
        if self.source is self.target:
            arrival_s = network.loop.now_s + LOOPBACK_LATENCY_S
        else:
            arrival_s = network.arrival_s(self.link, size + HEADER_BYTES)
        self._arrival_s = max(self._arrival_s, arrival_s)
        network.loop.deliver_at(self._arrival_s, self._arrive, deliver)

    def drain(self) -> None:
        """Deliver what stalled, if the link lets it through now."""
        while self._stalled and self._passes:
            self._stalled.popleft()()
        if self._stalled:
            self.network.stall(self)

    def _arrive(self, deliver: Callable[[], object]) -> None:
        # Behind a stalled segment everything waits, or a connection would reorder.
        if self._is_forgotten():
            return
        if self._stalled:
            self._stalled.append(deliver)
        elif self._passes:
            deliver()
        else:
            self._stalled.append(deliver)
            self.network.stall(self)

    def forget(self) -> None:
        """Lose all segments from now on, as if a firewall between had lost its state."""
        self.passage = Passage.LOST
        self._swallowed = bool(self._stalled)
        self._stalled.clear()

    def refuse(self) -> None:
        """Send lost segments again, and answer those sent from now on with a reset."""
        if self.passage is Passage.LOST:
            self.passage = Passage.REFUSED
            if self._swallowed and self.owner is not None:
                self.owner.on_reset()

    def _is_forgotten(self) -> bool:
        if self.passage is Passage.OPEN:
            return False
        self._swallowed = True
        if self.passage is Passage.REFUSED and self.owner is not None:
            self.network.loop.deliver_at(
                self.network.loop.now_s + LOOPBACK_LATENCY_S, Endpoint.on_reset, self.owner
            )
        return True

    @property
    def _passes(self) -> bool:
        """Whether segments arrive now."""
        target = self.target
        return target.reachable and (self.source is target or not self.link.blocked)


class Endpoint:
    """One end of a connection. `wake` is called in the process when there is something to see."""

    def __init__(
        self,
        flow: Flow,
        *,
        serial: int,
        process: Process | None,
        context: contextvars.Context,
        local: Address,
        remote: Address,
    ) -> None:
        self.serial = serial
        self.local = local
        self.remote = remote
        self.context = context
        self.peer: Endpoint | None = None
        self.wake: Callable[[], None] | None = None
        self.end_of_stream = False
        self.error: OSError | None = None
        self.closed = False
        self._flow = flow
        self._process = process
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._credit_bytes = WINDOW_BYTES
        self._unannounced_bytes = 0
        self._shut_down = False
        self._waking: asyncio.Handle | None = None
        flow.owner = self
        if process is not None:
            sockets_of(process).endpoints[serial] = self

    @property
    def remote_node(self) -> SimNode:
        """The node at the other end."""
        return self._flow.target

    @property
    def readable(self) -> bool:
        """True if bytes are waiting."""
        return self._unread_bytes > 0

    @property
    def ended(self) -> bool:
        """True if the peer has ended the connection, one way or the other."""
        return self.end_of_stream or self.error is not None

    # Called by the process

    def send(self, data: memoryview) -> int:
        """Take as many bytes as the window has room for and return their number."""
        peer = self.peer
        if peer is None or self.closed or self._shut_down or self.error is not None:
            return 0
        left = min(len(data), self._credit_bytes)
        taken = 0
        while taken < left:
            size = min(left - taken, self._flow.network.segment_bytes())
            reset = self._flow.link.resets_within(size)
            segment = bytes(data[taken : taken + (size if reset is None else reset.after_bytes)])
            self._credit_bytes -= size
            taken += size
            self._flow.send(functools.partial(peer.on_data, segment), len(segment))
            if reset is not None:
                self._break(reset, peer)
                break
        return taken

    def _break(self, reset: Reset, peer: Endpoint) -> None:
        """Reset the connection in between; an end that is not notified learns it by sending."""
        if reset.notifies_receiver:
            self._flow.send(peer.on_reset)
        if reset.notifies_sender:
            loop = self._flow.network.loop
            loop.deliver_at(loop.now_s + LOOPBACK_LATENCY_S, Endpoint.on_reset, self)

    @property
    def flow(self) -> Flow:
        """The flow that carries this end's segments to the other."""
        return self._flow

    def receive(self, size_max: int) -> bytes:
        """Take up to `size_max` waiting bytes and reopen the window by as much."""
        if len(self._unread) == 1 and self._unread_bytes <= size_max:
            self._unread_bytes = 0
            only = self._unread.popleft()
            self._announce(len(only))
            return only
        parts = []
        size = 0
        while self._unread and size < size_max:
            part = self._unread.popleft()
            if size + len(part) > size_max:
                keep = size_max - size
                self._unread.appendleft(part[keep:])
                part = part[:keep]
            parts.append(part)
            size += len(part)
        self._unread_bytes -= size
        self._announce(size)
        return b"".join(parts)

    def shut_down(self) -> None:
        """Signal to the peer that no more bytes follow."""
        if not self._shut_down and not self.closed and self.peer is not None:
            self._shut_down = True
            self._flow.send(self.peer.on_end)

    def close(self, *, reset: bool = False) -> None:
        """Close the connection; unread bytes or `reset` make it a reset for the peer."""
        if self.closed:
            return
        if self.error is not None:
            pass  # There is no connection any more on which to say goodbye.
        elif reset or self._unread_bytes:
            self._send_reset()
        else:
            self.shut_down()
        self.vanish()

    def vanish(self) -> None:
        """Drop this end without a notice to the peer."""
        self.closed = True
        self._unread.clear()
        self._unread_bytes = 0
        if self._process is not None:
            sockets_of(self._process).endpoints.pop(self.serial, None)

    def notify(self) -> None:
        """Make the process look at this endpoint soon."""
        if self.wake is not None and self._waking is None:
            loop = self._flow.network.loop
            self._waking = loop.call_soon(self._wake, context=self.context)

    # Called when a segment arrives

    def on_data(self, segment: bytes) -> None:
        """Buffer bytes from the peer; a closed end answers with a reset."""
        trace = self._flow.network.trace
        digest = zlib.crc32(segment)
        detail = f"connection={self.serial} bytes={len(segment)} crc={digest:08x}"
        trace.add(self._flow.source.name, "receive" if not self.closed else "stray", detail)
        if self.closed or self.error is not None:
            # Behind a reset bytes are missing.
            self._send_reset()
            return
        self._unread.append(segment)
        self._unread_bytes += len(segment)
        self._tell()

    def on_window(self, size: int) -> None:
        """Note that the peer has consumed `size` bytes."""
        self._credit_bytes += size
        self._tell()

    def on_end(self) -> None:
        """Note that the peer sends no more."""
        self.end_of_stream = True
        self._tell()

    def on_reset(self) -> None:
        """Note that the peer, or the network between, has dropped the connection."""
        if self.error is None and not self.closed:
            self._flow.network.trace.add(
                self._flow.source.name, "reset", f"connection={self.serial}"
            )
            self.error = os_error(errno.ECONNRESET)
            self.notify()

    def _tell(self) -> None:
        """Lets the process look now, as its loop would after the arrival of a segment."""
        process = self._process
        if self.wake is None or self._waking is not None:
            return
        if process is None or process.state is not RUNNING:
            self.notify()
            return
        loop = self._flow.network.loop
        loop.handles_run += 1
        with HandingTo(self._report, but=ENDS_OF_PROGRAMS):
            self.context.run(self.wake)
        if process.watch is not None:
            process.watch()

    def _report(self, error: BaseException) -> None:
        """As a handle of the process would."""
        failure = {"message": "the transport failed", "exception": error}
        self.context.run(self._flow.network.loop.call_exception_handler, failure)

    def _wake(self) -> None:
        self._waking = None
        if self.wake is not None:
            self.wake()

    def _announce(self, size: int) -> None:
        # A quarter of the window at a time: the sender never starves and most reads send nothing.
        self._unannounced_bytes += size
        if self._unannounced_bytes >= WINDOW_BYTES // 4 and self.peer is not None:
            announced, self._unannounced_bytes = self._unannounced_bytes, 0
            self._flow.send(functools.partial(self.peer.on_window, announced))

    def _send_reset(self) -> None:
        if self.peer is not None:
            self._flow.send(self.peer.on_reset)


class Listener:
    """A listening port of one process."""

    def __init__(
        self,
        process: Process,
        addresses: frozenset[str],
        port: int,
        accept: Callable[[Endpoint], None],
    ) -> None:
        self.process = process
        self.addresses = addresses
        self.port = port
        self.accept = accept
        # What `create_server` ran in: accepted connections inherit it, as they do on a real loop.
        self.context = contextvars.copy_context()

    def close(self) -> None:
        """Refuse new connections from now on."""
        listeners = sockets_of(self.process).listeners
        if listeners.get(self.port) is self:
            del listeners[self.port]


@dataclass(frozen=True, slots=True)
class Sockets:
    """The sockets of one process."""

    endpoints: dict[int, Endpoint] = field(default_factory=dict)
    """Connected ones, by serial number."""
    listeners: dict[int, Listener] = field(default_factory=dict)
    """Listening ones, by port."""


def sockets_of(process: Process) -> Sockets:
    """Return the sockets of a process, which die with it."""
    if process.sockets is None:
        process.sockets = Sockets()
    assert isinstance(process.sockets, Sockets)
    return process.sockets

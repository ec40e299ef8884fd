"""Listeners and their connections: frames in, answers out, in the order of the requests (R9, N3).

Requests of a connection are processed one at a time: the next one starts when nothing before it is
unanswered. Produce requests are the exception: one may start while earlier Produce requests wait
for replication. A client cannot tell the difference: what these do, appending, is done when their
handlers return, so appends happen in order of arrival; it reads nothing of what the earlier ones
wait for; and answers leave in order in any case. All else waits, since a ListOffsets sent after a
Produce must see what the Produce's answer promises. So does a Produce behind one that must ask a
transaction's coordinator before it appends: the producer would take it for out of order.

What waits is bounded: a request that cannot start yet stays a frame, one a connection, and the
socket is not read until it starts. Produce requests started beyond the first are bounded for each
connection and, by `queued.max.requests`, for the broker. The first request of a connection needs no
such permit, so a follower's fetch, which the waiting produces wait for, always goes ahead. Answers
that the client does not read stop the next request in the same way.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

from broker.apis.handler import HangUpError, Reply
from broker.protocol import FrameReader
from broker.protocol.codec import MalformedError
from broker.request_context import ClientConnection, RequestContext, SaslState, host_text
from raftctl.errors import ConfigError, InvariantViolation, invariant
from raftctl.metadata.records import Endpoint
from raftctl.runtime import Deadline
from raftctl.security import Principal
from raftctl.tracing import RequestIds, follow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from broker.apis import Response, Serve
    from broker.protocol.codec import Frame
    from broker.server._connection_limits import ConnectionLimits
    from raftctl.runtime.api import Buffer, Piece, Sender

    MakeSender = Callable[[asyncio.BaseTransport], Sender | None]
    OnSent = Callable[[RequestContext], None]

    from raftctl.config import NodeConfig
    from raftctl.config.addresses import Listener
    from raftctl.security.tls import NodeTls, TlsConnection, TlsListener

PIPELINED_MAX = 32
"""Produce requests of one connection that may be unanswered at once."""
_SEND_BYTES = 64 * 1024
_PRODUCE = b"\0\0"
CHUNK_BYTES = 128 * 1024
"""More than the transport keeps before it says that it is full."""
LOGIN_SECONDS = 30.0
"""Until a connection of a SASL listener must have authenticated: each has its buffers."""
LINGER_SECONDS = 30.0
"""For how long the last answers may leave a connection that ends. A peer that never reads them must
not hold it."""
_BUFFERS = (bytes, bytearray, memoryview)


class Outbox:
    """What is to be sent on one connection, in order: buffers, and parts of files.

    Buffers are handed to the transport as they come. A part of a file is neither read nor sent
    before the connection can take it, so that what a slow client has asked for stays on disk. Where
    the runtime has a `Sender` for the connection, the file's bytes never come into this process
    (row L9). Elsewhere, and when the connection is full, they go through the transport in pieces.
    Its owner reports when the transport is full.
    """

    def __init__(self, transport: asyncio.Transport, make_sender: MakeSender) -> None:
        self.is_writable = True
        """Whether the transport takes more; for the owner to set."""
        self.size = 0
        """Bytes that neither a sender nor the transport has."""
        self._transport = transport
        self._make_sender: MakeSender | None = make_sender
        self._sender: Sender | None = None
        self._pieces: deque[Piece] = deque()
        self._start = 0
        """What of the first piece has gone."""
        self._holds_files = False

    def put(self, pieces: Iterable[Piece]) -> None:
        """Add pieces, which `send` sends."""
        for piece in pieces:
            if len(piece):
                self._pieces.append(piece)
                self.size += len(piece)
                self._holds_files |= not isinstance(piece, _BUFFERS)

    def send(self) -> None:
        """Send what can be sent now. OSError if the connection or a file fails."""
        if not self._holds_files:
            self._send_buffers()
            return
        self._have_sender()
        while self._pieces and self.is_writable and not self._transport.is_closing():
            if self._sender is None or self._transport.get_write_buffer_size():
                self._write_some()
                continue
            sent = self._sender.send(self._pieces, self._start)
            self._advance(sent)
            if not sent:
                # The transport says when the connection takes more.
                self._write_some()

    def close(self) -> None:
        """Forget the unsent pieces: the connection is lost."""
        self._pieces.clear()
        self.size = 0
        self._make_sender = None
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _have_sender(self) -> None:
        if self._make_sender is None:
            return
        self._sender, self._make_sender = self._make_sender(self._transport), None
        if self._sender is not None:
            # Resumed when its buffer is empty: before that nothing can be sent past it.
            self._transport.set_write_buffer_limits(high=CHUNK_BYTES // 2, low=0)

    def _send_buffers(self) -> None:
        if self._pieces:
            invariant(self._start == 0, "buffers alone are sent whole")
            pieces, self._pieces, self.size = self._pieces, deque(), 0
            self._transport.writelines(cast("deque[Buffer]", pieces))

    def _write_some(self) -> None:
        """Hand the transport the next bytes at once: for TLS each call is a send of its own."""
        chunk: list[Buffer] = []
        room, start = CHUNK_BYTES, self._start
        for piece in self._pieces:
            if isinstance(piece, _BUFFERS):
                data = memoryview(piece)[start:]
            else:
                data = memoryview(piece.read(start, room))
            chunk.append(data)
            room -= len(data)
            if room <= 0 or start + len(data) < len(piece):
                break
            start = 0
        # First, since the transport may say at once that it is full.
        self._advance(sum(map(len, chunk)))
        self._transport.writelines(chunk)

    def _advance(self, count: int) -> None:
        self.size -= count
        count += self._start
        while self._pieces and count >= len(self._pieces[0]):
            count -= len(self._pieces.popleft())
        self._start = count
        self._holds_files &= bool(self._pieces)
        begun = not self._start or self._start < len(self._pieces[0])
        invariant(begun, "what was sent whole is forgotten")
        invariant(bool(self._pieces) == (self.size > 0), "the size is that of what waits")


class _Unanswered:
    """A place in the queue of responses: a reply that is awaited, or the frame that it became."""

    __slots__ = ("context", "permit", "response")

    def __init__(
        self, response: Reply[Response] | Response, context: RequestContext, *, permit: bool
    ) -> None:
        self.response = response
        self.context = context
        self.permit = permit
        """Whether it takes one of the permits of `ConnectionLimits`."""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one accepted socket."""

    def __init__(
        self,
        limits: ConnectionLimits,
        serve: Serve,
        log: FilteringBoundLogger,
        make_sender: MakeSender,
        client: ClientConnection,
        on_sent: OnSent,
    ) -> None:
        """`make_sender` is the runtime's; `client` says by which listener it came.

        `on_sent` is called with each request once its answer has left for the connection.
        """
        self._on_sent = on_sent
        self._sending: list[RequestContext] = []
        """Of answers that are in the outbox."""
        self._client = client
        self._limits = limits
        self._serve_frame = serve
        self._log = log
        self._make_sender = make_sender
        self._frames = FrameReader(limits.frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unanswered: deque[_Unanswered] = deque()
        self._pipelining = False
        """Whether the unanswered requests are Produce requests."""
        self._held: Frame | None = None
        self._outbox: Outbox | None = None
        """None before the connection is made and once it is lost."""
        self._is_gathering = False
        """Whether answers wait for the end of the turn to leave."""
        self._ending = False
        """Whether to close once the outbox is empty."""
        self._leaving: asyncio.Transport | None = None
        """The transport, once nothing more is read from it."""
        self._is_reported = False
        """Whether the log has the reason for its end."""
        self._reading = True
        self._door: TlsConnection | None = None
        """What waits to be let in before its handshake."""
        self._is_in = False
        """Whether its limits have let it in."""
        self._made_at = self.active_at = self._received_at = self._loop.time()
        """When the client last sent something, or an answer came, by the event loop's time."""
        self._idle_timer = Deadline(self._loop, self._watch_idleness)
        self._mute_timer = Deadline(self._loop, self.advance)
        self._requests = 0
        """How many requests have started."""

    # --- what the event loop calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask to join the broker's connections, which may have it wait, or close it."""
        self._transport = cast("asyncio.Transport", transport)
        self._outbox = Outbox(self._transport, self._make_sender)
        if self._is_in:
            if self._client.sasl is None:
                self._limits.counts[self._client.listener].logged_in(succeeded=True)
            self._begin()
            return
        self._arrive(transport.get_extra_info("peername"))
        # Unread until it is let in: its requests wait in the system's buffers.
        self._read(go_on=self._is_in)

    def arrived(self, connection: TlsConnection) -> None:
        """Ask to join before the handshake of TLS, which is not begun until it is let in."""
        self._door = connection
        self._arrive(connection.peer)

    def gone(self) -> None:
        """Count out a connection that has ended before its handshake was done."""
        if self._is_in:
            self._limits.counts[self._client.listener].logged_in(succeeded=False)
        self._let_go()
        self._limits.forget(self)

    def let_in(self) -> None:
        """Read the connection from now on."""
        self._is_in = True
        if self._door is not None and self._transport is None:
            self._door.begin()
        else:
            self._begin()

    def _arrive(self, peer: object) -> None:
        self._log = self._log.bind(peer=_address(peer))
        self._client.host = client_host(peer)
        self._client.port = peer[1] if isinstance(peer, tuple) else 0
        self._limits.arrive(self, self._client.listener, self._client.host)

    def _begin(self) -> None:
        # Its time does not run while it waits to be let in.
        self._made_at = self.active_at = self._loop.time()
        self._log.debug("connection_begins")
        self._read(go_on=True)
        self._watch_idleness()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the room for the next bytes."""
        del sizehint
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Start the requests that are now whole."""
        self.active_at = self._received_at = self._loop.time()
        self._frames.received(nbytes)
        self.advance()

    def pause_writing(self) -> None:
        """Start no further request: the client does not read."""
        if self._outbox is not None:
            self._outbox.is_writable = False

    def resume_writing(self) -> None:
        """Go on: the client reads again."""
        if self._outbox is not None:
            self._outbox.is_writable = True
            self._send()
            self.advance()

    def eof_received(self) -> bool:
        """Keep the connection until every answer has left; the client sends nothing more."""
        self._ending = self._outbox is not None and self._outbox.size > 0
        return self._ending

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the unanswered requests. Their appends stand."""
        # Of bytes that are not TLS its layer has given the reason.
        self._is_reported |= self._ending or isinstance(exc, ssl.SSLError)
        if self._client.refusal is not None:
            self._report(self._client.refusal)
        elif self._frames.partial:
            self._report("it ended within a request")
        elif self._must_log_in:
            self._report("it closed the connection before it had authenticated")
        else:
            self._log_end()
        self._transport = None
        if self._outbox is not None:
            self._outbox.close()
            self._outbox = None
        self._sending.clear()
        self._let_go()
        for waiting in self._unanswered:
            self._limits.permits += waiting.permit
            if isinstance(waiting.response, Reply):
                waiting.response.cancel()
        self._unanswered.clear()
        self._limits.forget(self)

    def _let_go(self) -> None:
        """Leave no cycle through this connection, whose buffer is large: it is freed at once."""
        self._idle_timer.close()
        self._mute_timer.close()
        self._door = None

    # --- requests -------------------------------------------------------------------------------

    def advance(self, done: _Unanswered | None = None) -> None:
        """Start every request that may start; send every answer that may leave, that of `done` too.

        Any error ends this connection only; a violated invariant ends the broker. Answers of other
        connections that this completes leave in the same turn.
        """
        with self._limits.turn:
            self._guard(partial(self._go_on, done))
            self._send()

    def _go_on(self, done: _Unanswered | None) -> None:
        if done is not None:
            self._complete(done)
        while self._start_next():
            pass

    def _guard(self, step: Callable[[], None]) -> None:
        """Take a step; its errors end what `advance` says."""
        log = self._log
        try:
            step()
        except (MalformedError, HangUpError) as error:
            self.hang_up(str(error))
        except InvariantViolation as violation:
            self._limits.fail(violation)
        except Exception:
            self._is_reported = True
            log.exception("connection_failed")
            self.close()

    def close(self) -> None:
        """End the connection for a reason of the broker's own."""
        if self._client.refusal is not None:
            self._report(self._client.refusal)
        self._is_reported = True
        if self._transport is not None:
            self._transport.abort()
        elif self._door is not None:
            self._door.abort()

    def _start_next(self) -> bool:
        """Start the next request, if it is whole and may start; return whether it was started."""
        outbox, count = self._outbox, len(self._unanswered)
        if self._transport is None or self._ending or outbox is None:
            return False
        if self._client.muted_until and self._is_muted():
            return False
        if self._client.sasl is not None and not self._may_go_on(self._client.sasl):
            return False
        frame = self._held if self._held is not None else self._frames.next()
        if frame is None:
            self._read(go_on=True)
            return False
        is_produce = frame.startswith(_PRODUCE)
        follows = (
            self._pipelining and is_produce and count < PIPELINED_MAX and self._limits.permits > 0
        )
        if (count and not follows) or not (self._limits.open and outbox.is_writable):
            self._held = frame
            self._read(go_on=False)
            return False
        self._held = None
        invariant(not count or self._pipelining, "nothing overtakes a request that has not acted")
        invariant(count < PIPELINED_MAX, "the unanswered requests of a connection are bounded")
        context = RequestContext(self._client, len(frame), self._received_at, self._loop.time())
        self._requests = context.number = self._requests + 1
        follow(context)
        response = self._serve_frame(frame, context)
        context.returned_at = self._loop.time()
        if not isinstance(response, Reply):
            context.answered_at = context.returned_at
            if response is None or not self._unanswered:
                context.queued_at = context.answered_at
                self._queue(response, context)
                return True
        self._pipelining = is_produce and (not isinstance(response, Reply) or response.has_acted)
        waiting = _Unanswered(response, context, permit=bool(self._unanswered))
        self._limits.permits -= waiting.permit
        self._unanswered.append(waiting)
        if isinstance(response, Reply):
            response.on_done(lambda future: self._finished(waiting, future))
        return True

    def _may_go_on(self, sasl: SaslState) -> bool:
        """Whether the connection goes on after what was answered; bounds its next frame."""
        if self._client.refusal is not None and not self._unanswered:
            self.hang_up(self._client.refusal)
            return False
        bytes_max = self._limits.frame_bytes_max
        if not sasl.has_authenticated:
            bytes_max = min(bytes_max, sasl.frame_bytes_max)
        self._frames.bound(bytes_max, is_request=not sasl.takes_raw_tokens)
        return True

    def _is_muted(self) -> bool:
        """Whether a quota keeps the next request waiting; its socket is not read meanwhile."""
        muted_until = self._client.muted_until
        if self._loop.time() < muted_until:
            self._read(go_on=False)
            self._mute_timer.set(muted_until)
            return True
        self._client.muted_until, self._client.unmuted_at = 0.0, muted_until
        return False

    def _finished(self, waiting: _Unanswered, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self.close()
        elif self._transport is None:
            self._forget_error(future)
        else:
            waiting.context.answered_at = self.active_at = self._loop.time()
            turn = self._limits.turn
            if not turn.is_entered:
                self.advance(waiting)
                return
            # Others may be complete in this turn: their answers leave with this one.
            self._guard(partial(self._complete, waiting))
            if not self._is_gathering:
                self._is_gathering = True
                turn.at_end(self._send_gathered)

    def _send_gathered(self) -> None:
        self._is_gathering = False
        self.advance()

    def _complete(self, waiting: _Unanswered) -> None:
        if isinstance(waiting.response, Reply):
            waiting.response = waiting.response.result()
        while self._unanswered:
            first = self._unanswered[0]
            if isinstance(first.response, Reply):
                return
            self._unanswered.popleft()
            self._limits.permits += first.permit
            first.context.queued_at = waiting.context.answered_at
            self._queue(first.response, first.context)

    def _forget_error(self, future: asyncio.Future[Any]) -> None:
        """Looks at an error that no client waits for any more, lest asyncio complains of it."""
        error = future.exception()
        if isinstance(error, InvariantViolation):
            self._limits.fail(error)

    # --- the socket -----------------------------------------------------------------------------

    def _queue(self, frame: list[Piece] | None, context: RequestContext) -> None:
        if self._outbox is None:
            return
        if frame is None:
            context.sent_at = context.queued_at
            self._on_sent(context)
            return
        self._outbox.put(frame)
        self._sending.append(context)
        if self._outbox.size >= _SEND_BYTES:
            self._send()

    def _send(self) -> None:
        if self._outbox is None or not self._outbox.size:
            return
        try:
            self._outbox.send()
            if not self._outbox.size:
                self._sent()
        except OSError as error:
            # Of the connection or of a file: the answer cannot be finished.
            self._report(str(error))
            self.close()
        if self._ending:
            self._close_if_sent()

    def _sent(self) -> None:
        """Report the requests whose answers the connection has taken."""
        now = self._loop.time()
        for context in self._sending:
            context.sent_at = now
            self._on_sent(context)
        self._sending.clear()

    def _read(self, *, go_on: bool) -> None:
        if self._transport is None or go_on == self._reading or self._transport.is_closing():
            return
        self._reading = go_on
        if go_on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def hang_up(self, reason: str) -> None:
        """Close with one line in the log; what was answered still leaves."""
        if self._transport is None and self._door is not None and not self._door.is_closing:
            self._report(reason)
            self._door.abort()
            return
        if self._transport is None or self._transport.is_closing() or self._ending:
            return
        self._report(reason)
        self._read(go_on=False)
        self._ending = True
        self._leave(self._transport)
        self._send()
        self._close_if_sent()

    def _report(self, reason: str) -> None:
        """Log why the connection ends, unless that is known."""
        if not self._is_reported:
            self._is_reported = True
            self._log.warning("connection_closed", reason=reason)

    def _log_end(self) -> None:
        client = self._client
        self._log.debug(
            "connection_ends",
            principal=str(client.principal),
            software=client.client_software_name,
            software_version=client.client_software_version,
            unanswered=len(self._unanswered),
        )

    def _close_if_sent(self) -> None:
        if self._transport is None or (self._outbox is not None and self._outbox.size):
            return
        transport, self._transport = self._transport, None
        transport.close()
        self._leave(transport)

    def _leave(self, transport: asyncio.Transport) -> None:
        """Bound the time that the last answers take."""
        if self._outbox is not None and self._leaving is None:
            self._leaving = transport
            self._idle_timer.set(self._loop.time() + LINGER_SECONDS)

    @property
    def _must_log_in(self) -> bool:
        sasl = self._client.sasl
        return (
            self._limits.open
            and sasl is not None
            and not (sasl.has_authenticated or sasl.is_renewal)
        )

    def _watch_idleness(self) -> None:
        """Closes after `connections.max.idle.ms` without a request or an answer.

        Whatever it sends, a connection has `LOGIN_SECONDS` to authenticate.
        """
        if self._leaving is not None:
            self._leaving.abort()
            return
        # A client that is not read cannot show that it is there.
        active_at = max(self.active_at, self._client.muted_until)
        quiet_until = active_at + self._limits.idle_ms_max / 1000
        if self._unanswered:
            quiet_until = self._loop.time() + self._limits.idle_ms_max / 1000
        reason = "idle"
        if self._must_log_in and self._made_at + LOGIN_SECONDS < quiet_until:
            quiet_until, reason = self._made_at + LOGIN_SECONDS, "it does not authenticate"
        if self._loop.time() >= quiet_until:
            self._is_reported = True
            self._log.info("connection_closed", reason=reason)
            self.close()
            return
        self._idle_timer.set(quiet_until)


def _identify(client: ClientConnection, name: str | None) -> None:
    """Take the name by a client's certificate; where it logs in by SASL, that decides."""
    if client.security_protocol == "SSL" and name is not None:
        client.principal = Principal.of_user(name)


def client_host(peer: object) -> str:
    """Return the address as rules name it."""
    host = str(peer[0]) if isinstance(peer, tuple) else str(peer)
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return host_text(address)


def _address(peer: object) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)


class Listeners:
    """The listening sockets of one broker."""

    def __init__(
        self,
        config: NodeConfig,
        limits: ConnectionLimits,
        log: FilteringBoundLogger,
        make_sender: MakeSender,
        tls: NodeTls,
        on_sent: OnSent = lambda _context: None,
        ids: RequestIds | None = None,
    ) -> None:
        """`make_sender` is the runtime's; `tls` is closed with the listeners.

        `on_sent` is called with each request that was answered. Requests have ids of `ids`.
        """
        self._on_sent = on_sent
        self._ids = ids or RequestIds(config.node_id, 0)
        self._config = config
        self._tls = tls
        self._make_sender = make_sender
        self._limits = limits
        self._log = log
        self._servers: dict[str, asyncio.Server] = {}
        self._tls_listeners: dict[str, TlsListener] = {}

    async def bind(self, serve_on: Callable[[str], Serve]) -> list[Endpoint]:
        """Bind all listeners and return the endpoints to advertise.

        `serve_on` returns the function that serves the frames of one listener, by its name. Raises
        ConfigError, which names the address that cannot be bound.
        """
        try:
            for listener in self._config.broker_listeners:
                self._servers[listener.name] = await self._bind_one(
                    listener, serve_on(listener.name)
                )
        except ConfigError:
            self.close()
            raise
        return [self._endpoint(listener) for listener in self._config.advertised]

    def reconfigure(self, config: NodeConfig) -> None:
        """Take up the stores and limits of a configuration with the same listeners."""
        for name, tls in self._tls_listeners.items():
            settings = config.listener_security(name).tls
            if settings is not None:
                tls.update(settings)
        self._limits.reconfigure(config)

    def close(self) -> None:
        """Accept no more and closes every connection."""
        self._tls.close()
        for server in self._servers.values():
            server.close()
        self._limits.close_all()

    async def _bind_one(self, listener: Listener, serve: Serve) -> asyncio.Server:
        accept = self._acceptor(listener, serve)
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_server(accept, listener.host, listener.port)
        except OSError as error:
            raise ConfigError(
                f"listeners: {listener} cannot be bound ({error.strerror}): choose a free port"
            ) from error

    def _acceptor(self, listener: Listener, serve: Serve) -> Callable[[], asyncio.BaseProtocol]:
        """Return what makes the protocol of an accepted connection."""
        log = self._log.bind(listener=listener.name)
        security = self._config.listener_security(listener.name)
        sasl = security.sasl

        def accept() -> tuple[Connection, ClientConnection]:
            state = None if sasl is None else SaslState(sasl.server_max_receive_size)
            prefix = self._ids.of_connection()
            client = ClientConnection(
                listener.name, security.protocol, sasl=state, id_prefix=prefix
            )
            return (
                Connection(self._limits, serve, log, self._make_sender, client, self._on_sent),
                client,
            )

        if security.tls is None:
            return lambda: accept()[0]
        tls = self._tls.listener(security.tls, listener.name)
        self._tls_listeners[listener.name] = tls

        def accept_tls() -> asyncio.BaseProtocol:
            connection, client = accept()
            return tls.wrap(connection, lambda name: _identify(client, name), connection)

        return accept_tls

    def _endpoint(self, advertised: Listener) -> Endpoint:
        name = advertised.name
        # Port 0 means the one that the system chose.
        port = advertised.port or self._servers[name].sockets[0].getsockname()[1]
        return Endpoint(name, advertised.host, port, self._config.security_protocol(name))

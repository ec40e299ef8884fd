"""The server of remote calls: an aiohttp route that keeps one WebSocket for each peer.

A handler belongs to a class of requests and gets a function to call with the answer, now or later.
A future or a task for each request would cost more than most requests do. A KafkaError becomes a
refusal at the caller. A malformed message costs its sender the connection and this node one line of
log, nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiohttp import WSCloseCode, WSMsgType, web

from raftctl.codec import Columns
from raftctl.errors import ConfigError, ErrorCode, KafkaError, invariant
from raftctl.failures import OF_PROGRAMS, HandingTo
from raftctl.rpc._channel import CLOSE_TIMEOUT_S, Channel
from raftctl.rpc.codec import (
    HELLO_ID,
    MESSAGE_BYTES_MAX,
    PATH,
    PROTOCOL_VERSION,
    Failure,
    FrameError,
    FramePacker,
    FrameUnpacker,
    Hello,
    LoginToken,
)
from raftctl.runtime.api import bind_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from raftctl.rpc.codec import Run
    from raftctl.runtime.api import Runtime

    Handler = Callable[[Any, Callable[[Any], None], int], None]
    Wrap = Callable[[asyncio.BaseProtocol], asyncio.BaseProtocol]
    BatchHandler = Callable[[Sequence[Any], Callable[[Sequence[Any]], None]], None]

BATCH_MAX = 256
"""Requests that a batch handler is given at once. Fewer let leader and followers work side by side,
but twice as many batches cost more than that wins (docs/benchmarks/quorum.md)."""
REQUESTS_MAX = 4096
"""Requests of one connection that wait for their answers."""
HELLO_TIMEOUT_S = 2.0
LOGIN_TIMEOUT_S = 5.0
LOGIN_BYTES_MAX = 512 * 1024
"""The largest message of a login."""
DELAYED = "sent too long ago, perhaps: ask again"
HEARTBEAT_S = 10.0
"""The time after which an idle peer is asked for a sign of life."""


class PeerLogin(Protocol):
    """The server's side of one peer's login."""

    lifetime_s: float | None
    """How long the connection may last once the peer has logged in; None: for ever."""

    async def take(self, mechanism: str, token: bytes) -> tuple[bytes, bool]:
        """Return the challenge to a message, and whether the peer has logged in.

        KafkaError if it is refused.
        """


class RpcServer:
    """The calls that this node answers."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        cluster_id: str,
        node_id: int,
        fail: Callable[[BaseException], None] | None = None,
        login: Callable[[str], PeerLogin] | None = None,
        login_bytes_max: int = LOGIN_BYTES_MAX,
    ) -> None:
        """`fail` ends the node after an `InvariantViolation` in a handler.

        `login` begins the login of a peer at a host; None if peers do not log in by SASL. A message
        of one has at most `login_bytes_max`.
        """
        self._login = login
        self._login_bytes_max = login_bytes_max
        self._log = bind_log(runtime, logger="raftctl.rpc")
        self._fail = fail
        self._hello = Hello(PROTOCOL_VERSION, cluster_id, node_id)
        self._handlers: dict[type, Handler] = {}
        self._batch_handlers: dict[type, BatchHandler] = {}
        self._connections: dict[_Connection, None] = {}
        self._newest: dict[int, _Connection] = {}
        """The connection that was opened last, by client."""

    def on(self, request_class: type, handler: Handler) -> None:
        """Register `handler(request, reply, peer_id)` for a class of requests.

        It raises, or calls `reply` once, now or later, with the response or a KafkaError.
        `peer_id` is the node id in the peer's hello.
        """
        invariant(request_class not in self._handlers, f"one handler for {request_class.__name__}")
        self._handlers[request_class] = handler

    def on_batch(self, request_class: type, handler: BatchHandler) -> None:
        """Register `handler(requests, reply)` for requests that come in numbers.

        It gets those that stand next to each other in a message, at most `BATCH_MAX`. It raises, or
        calls `reply` once, now or later, with a response or a KafkaError for each, in order. It
        takes the place of a handler of the class.
        """
        self._batch_handlers[request_class] = handler

    def fence(self, refusals: Mapping[type, ErrorCode]) -> None:
        """Refuse requests of these classes that were sent before now, each with its error.

        A connection that hung for long may deliver what its client has given up since and had done
        elsewhere. So each open connection is refused until its peer has answered a ping that is
        sent now.
        """
        for connection in self._connections:
            connection.fence(refusals)

    def mount(self, application: web.Application) -> None:
        """Add the route; the application closes the connections when it shuts down."""
        application.router.add_get(PATH, self._serve)
        application.on_shutdown.append(self._shut_down)

    async def _shut_down(self, application: web.Application) -> None:
        leaving = (WSCloseCode.GOING_AWAY, "shutting down")
        await asyncio.gather(*[each.channel.close(*leaving) for each in self._connections])

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        # A channel reads messages itself: the bound of aiohttp counts before there is one.
        longest = MESSAGE_BYTES_MAX if self._login is None else self._login_bytes_max
        socket = web.WebSocketResponse(
            timeout=CLOSE_TIMEOUT_S, compress=False, max_msg_size=longest
        )
        if request.transport is None or not socket.can_prepare(request).ok:
            await socket.prepare(request)  # refuses
            return socket
        challenge: bytes | None = None
        login = None if self._login is None else self._login(request.remote or "")
        if login is not None:
            await socket.prepare(request)
            challenge = await self._log_in(socket, login, request)
            if challenge is None:
                return socket
        # Before the peer learns that it may speak, so that not a byte gets past it.
        channel = Channel(socket, request.transport, masks=False)
        if challenge is None:
            await socket.prepare(request)
        else:
            channel.send(HELLO_ID, LoginToken("", challenge))
        connection = _Connection(
            channel,
            self._hello,
            self._handlers,
            self._batch_handlers,
            self._newest,
            self._log,
            self._fail,
        )
        self._connections[connection] = None
        expiry: asyncio.TimerHandle | None = None
        if login is not None and login.lifetime_s is not None:
            # The client connects again, and logs in.
            expiry = asyncio.get_running_loop().call_later(login.lifetime_s, channel.abort)
        try:
            await connection.run()
        except (FrameError, TimeoutError) as error:
            why = str(error) or "no hello in time"
            self._log.warning("rpc_peer_dropped", peer=request.remote, why=why)
            await connection.channel.close(WSCloseCode.PROTOCOL_ERROR, why)
        finally:
            if expiry is not None:
                expiry.cancel()
            del self._connections[connection]
            connection.forget()
            await connection.channel.close()
        return socket

    async def _log_in(
        self, socket: web.WebSocketResponse, login: PeerLogin, request: web.Request
    ) -> bytes | None:
        """Return the last challenge once the peer has logged in; None: it was refused."""
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                return await _exchange(socket, login)
        except (FrameError, KafkaError, TimeoutError) as error:
            why = str(error) or "no login in time"
            self._log.warning("rpc_peer_dropped", peer=request.remote, why=why)
            with contextlib.suppress(ConnectionError):
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"not logged in")
        return None


async def _exchange(socket: web.WebSocketResponse, login: PeerLogin) -> bytes:
    """Answer the messages of a login; the last challenge is returned, to be sent.

    Raises FrameError, and KafkaError for a login that is refused, after the peer has its answer.
    """
    packer, unpacker = FramePacker(), FrameUnpacker()
    while True:
        message = await socket.receive()
        if message.type is not WSMsgType.BINARY:
            raise FrameError("the connection ended before a login")
        try:
            match unpacker.unpack(message.data):
                case [(_, LoginToken(mechanism, token))]:
                    challenge, is_done = await login.take(mechanism, token)
                case _:
                    why = "the listener speaks SASL: log in first"
                    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, why)
        except KafkaError as error:
            await socket.send_bytes(packer.pack(HELLO_ID, Failure(error.code, error.message)))
            raise
        if is_done:
            return challenge
        await socket.send_bytes(packer.pack(HELLO_ID, LoginToken(mechanism, challenge)))


class _Connection:
    """One peer's connection and its requests that wait for an answer."""

    def __init__(
        self,
        channel: Channel,
        hello: Hello,
        handlers: dict[type, Handler],
        batch_handlers: dict[type, BatchHandler],
        newest: dict[int, _Connection],
        log: FilteringBoundLogger,
        fail: Callable[[BaseException], None] | None,
    ) -> None:
        self.channel = channel
        self._fail = fail
        self._hello = hello
        self._handlers = handlers
        self._batch_handlers = batch_handlers
        self._newest = newest
        self._log = log
        self._peer_id = -1
        self._client = 0
        self.number = -1
        """How many connections the client had opened before; -1 before its hello."""
        self._fenced: Mapping[type, ErrorCode] = {}
        """What is refused until the peer is known to be alive."""
        self._patience = asyncio.timeout(None)
        """How long to wait for the peer's hello."""
        self._waiting = 0
        """How many requests wait for their answers."""

    async def run(self) -> None:
        """Greet, then dispatches until the connection ends. Raises FrameError."""
        async with asyncio.timeout(HELLO_TIMEOUT_S) as self._patience:
            await self.channel.run(self._take, HEARTBEAT_S)

    def _greet(self, hello: object) -> None:
        """Check the peer's hello and answer it."""
        if not isinstance(hello, Hello):
            raise FrameError("the first frame is not a hello")
        refusal = self._refusal_of_hello(hello)
        if refusal is not None:
            self.channel.send(HELLO_ID, refusal)
            raise FrameError(refusal.message)
        self._replace_older(hello)
        self.channel.send(HELLO_ID, self._hello)
        self._peer_id = hello.node_id

    def _replace_older(self, hello: Hello) -> None:
        """A client that connects again has given up what it asked over older connections.

        What these deliver late must not be done after what it asks over this one.
        """
        self._client, self.number = hello.client, hello.connection
        if hello.client == 0:
            return
        other = self._newest.get(hello.client)
        if other is not None and other.number > hello.connection:
            raise FrameError("this client has opened another connection since")
        if other is not None:
            other.channel.abort()
        self._newest[hello.client] = self

    def forget(self) -> None:
        """The connection has ended."""
        if self._newest.get(self._client) is self:
            del self._newest[self._client]

    def fence(self, refusals: Mapping[type, ErrorCode]) -> None:
        """See `RpcServer.fence`."""
        self._fenced = refusals
        self.channel.when_alive(self._unfence)

    def _unfence(self) -> None:
        self._fenced = {}

    def _refusal_of_hello(self, hello: Hello) -> Failure | None:
        ours = self._hello
        if hello.version != ours.version:
            why = f"node {ours.node_id} speaks version {ours.version}, not {hello.version}"
            return Failure(ErrorCode.UNSUPPORTED_VERSION, why)
        if hello.cluster_id != ours.cluster_id:
            why = f"node {ours.node_id} is of cluster {ours.cluster_id}, not {hello.cluster_id}"
            return Failure(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
        if hello.peer_id not in (-1, ours.node_id):
            why = f"this is node {ours.node_id}, not {hello.peer_id}"
            return Failure(ErrorCode.UNKNOWN_CONTROLLER_ID, why)
        if hello.node_id < 0:
            return Failure(ErrorCode.INVALID_REQUEST, f"{hello.node_id} is no node id")
        return None

    def _take(self, runs: list[Run]) -> None:
        """Hand the requests of a message to their handlers; the first frame of all is a hello."""
        if self._peer_id < 0:
            self._patience.reschedule(None)
            self._greet(runs[0].messages[0])
            runs = [rest for rest in (runs[0].part(1), *runs[1:]) if rest.correlation_ids]
        for run in runs:
            request_class = run.message_class
            refusal = self._refusal_of_requests(request_class)
            if refusal is not None:
                for correlation_id in run.correlation_ids:
                    self.channel.send(correlation_id, refusal)
            elif request_class in self._batch_handlers:
                handler = self._batch_handlers[request_class]
                for begin in range(0, len(run.correlation_ids), BATCH_MAX):
                    self._dispatch_batch(handler, *run.part(begin, begin + BATCH_MAX))
            else:
                for correlation_id, request in run.frames():
                    self._expect(1)
                    reply = partial(self._reply, correlation_id)
                    with HandingTo(reply, OF_PROGRAMS):
                        self._handlers[request_class](request, reply, self._peer_id)

    def _refusal_of_requests(self, request_class: type) -> Failure | None:
        if request_class in self._fenced:
            return Failure(self._fenced[request_class], DELAYED)
        if request_class in self._batch_handlers or request_class in self._handlers:
            return None
        why = f"this node does not answer {request_class.__name__}"
        return Failure(ErrorCode.INVALID_REQUEST, why)

    def _dispatch_batch(
        self, handler: BatchHandler, correlation_ids: Sequence[int], requests: Sequence[Any]
    ) -> None:
        self._expect(len(requests))
        reply = partial(self._reply_batch, correlation_ids)
        with HandingTo(lambda error: reply([error] * len(requests)), OF_PROGRAMS):
            handler(requests, reply)

    def _reply_batch(self, correlation_ids: Sequence[int], answers: Sequence[object]) -> None:
        self._waiting -= len(correlation_ids)
        if not isinstance(answers, Columns):
            answers = [
                self._failure(answer) if isinstance(answer, BaseException) else answer
                for answer in answers
            ]
        self.channel.send_all(correlation_ids, answers)

    def _expect(self, count: int) -> None:
        if self._waiting + count > REQUESTS_MAX:
            raise FrameError(f"more than {REQUESTS_MAX} requests wait for an answer")
        self._waiting += count

    def _reply(self, correlation_id: int, answer: object) -> None:
        self._waiting -= 1
        if isinstance(answer, BaseException):
            answer = self._failure(answer)
        self.channel.send(correlation_id, answer)

    def _failure(self, error: BaseException) -> Failure:
        if isinstance(error, KafkaError):
            return Failure(error.code, error.message)
        if self._fail is not None and not isinstance(error, Exception):
            self._fail(error)
        self._log.error("rpc_handler_failed", peer_id=self._peer_id, exc_info=error)
        return Failure(ErrorCode.UNKNOWN_SERVER_ERROR, type(error).__name__)


class _Site(web.BaseSite):
    """A listening socket, whose connections may be wrapped."""

    def __init__(self, runner: web.AppRunner, host: str, port: int, wrap: Wrap | None) -> None:
        super().__init__(runner)
        self._host, self._port, self._wrap = host, port, wrap

    @property
    def name(self) -> str:
        """See `web.BaseSite`."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """See `web.BaseSite`."""
        await super().start()
        invariant(self._runner.server is not None, "a runner is set up before its sites start")
        server, wrap = cast("web.Server", self._runner.server), self._wrap

        def accept() -> asyncio.BaseProtocol:
            protocol: asyncio.BaseProtocol = server()
            return protocol if wrap is None else wrap(protocol)

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(accept, self._host, self._port, backlog=128)


async def start_http(
    application: web.Application,
    host: str,
    port: int,
    *,
    key: str = "listeners",
    wrap: Wrap | None = None,
) -> tuple[web.AppRunner, int]:
    """Serve the application; return its runner and the port (of use when `port` is 0).

    `wrap` makes the protocol of a connection, such as one of TLS, around the one of HTTP. Raises
    ConfigError, which names the config `key`, when the address cannot be bound.
    """
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=CLOSE_TIMEOUT_S)
    await runner.setup()
    try:
        await _Site(runner, host, port, wrap).start()
    except OSError as error:
        with contextlib.suppress(OSError):
            await runner.cleanup()
        why = error.strerror or str(error)
        raise ConfigError(f"{key}: {host}:{port} cannot be bound ({why}); choose another") from None
    return runner, runner.addresses[0][1]

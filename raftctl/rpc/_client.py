"""Calls to one peer: many at a time over one connection, which is opened when it is needed.

A call fails at its deadline at the latest and never leaves in silence: `RpcUnreachable` when there
is no connection or it ends, `RpcTimedOut` when no answer comes, `RpcRefused` when the peer says no.
After the first two it is not known whether the peer has acted. Attempts to connect are spaced by an
exponential backoff with jitter; calls made meanwhile wait for the next attempt and share its fate.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import aiohttp
from aiohttp import WSMsgType

from raftctl.errors import KafkaError
from raftctl.failures import resolve
from raftctl.rpc._channel import CLOSE_TIMEOUT_S, Channel
from raftctl.rpc._counts import ChannelCounts
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
from raftctl.runtime import Deadline
from raftctl.runtime.api import bind_log
from raftctl.runtime.connector import LoopConnector

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.errors import ErrorCode
    from raftctl.rpc.codec import Run
    from raftctl.runtime.api import Runtime
    from raftctl.security.tls import TlsClient

CALLS_MAX = 1024
"""Calls under way on one connection; below what a server accepts."""
CONNECT_TIMEOUT_S = 2.0
TIMER_RESOLUTION_S = 0.001
CLIENT_BITS = 63
BACKOFF_S = 0.02
BACKOFF_S_MAX = 0.5


class RpcError(Exception):
    """A call got no answer that can be used."""


class RpcUnreachable(RpcError):
    """No connection, or it ended before the answer came."""


class RpcNotConnected(RpcUnreachable):
    """No connection could be opened: the peer has not heard of the call."""


class RpcTimedOut(RpcError):
    """The deadline came before the answer."""


class RpcRefused(RpcError):
    """The peer answered with an error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code.name}: {message}")


class ClientLogin(Protocol):
    """The login of a node (`raftctl.security.sasl.login.NodeLogin`)."""

    mechanism: str

    async def begin(self) -> Any:
        """Start an exchange. KafkaError if there is nothing to log in with."""

    async def respond(self, mechanism: Any, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, the first of which is empty; None at the end.

        KafkaError if the other side does not prove what it must.
        """


class RpcClient:
    """The way to one peer. Opens its connection at the first call and again after it ended."""

    def __init__(
        self,
        runtime: Runtime,
        host: str,
        port: int,
        *,
        cluster_id: str,
        node_id: int,
        peer_id: int = -1,
        tls: TlsClient | None = None,
        login: ClientLogin | None = None,
        counts: ChannelCounts | None = None,
    ) -> None:
        """`node_id` is this node; a peer that is not `peer_id` refuses, unless that is -1.

        `tls` is there where the peer speaks it, `login` where it has nodes log in by SASL.
        """
        self._login = login
        self.counts = ChannelCounts() if counts is None else counts
        """What passes over its connections."""
        self._peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        client = runtime.random.getrandbits(CLIENT_BITS)
        self._hello = Hello(PROTOCOL_VERSION, cluster_id, node_id, peer_id, client)
        self._random = runtime.random
        self._log = bind_log(runtime, logger="raftctl.rpc", peer=self._peer, peer_id=peer_id)
        self._connect_by = None if tls is None else tls.connect
        self._session: aiohttp.ClientSession | None = None
        self._link: _Link | None = None
        self._attempt: asyncio.Task[_Link] | None = None
        self._receivers: dict[asyncio.Task[None], None] = {}
        self._failures = 0
        self._not_before = 0.0
        self._complaint = ""
        self._closed = False

    async def call(self, request: object, timeout_ms: int) -> Any:
        """Send the request and return the response. Raises RpcError, within `timeout_ms`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        link = self._link
        if link is None:
            link = await self._connected(deadline)
        if link.full:
            raise RpcUnreachable("the connection has ended or has too many calls under way")
        future: asyncio.Future[Any] = loop.create_future()
        correlation_id = link.send(request, deadline, partial(resolve, future))
        try:
            return await future
        finally:
            link.forget(correlation_id)

    def ask(self, request: object, timeout_ms: int, done: Callable[[Any], None]) -> bool:
        """Do what `call` does without a task, if there is a connection; return whether there is.

        `done` is called once, later, with the response or the RpcError.
        """
        if self._link is None or self._link.full:
            return False
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        self._link.send(request, deadline, done)
        return True

    async def close(self) -> None:
        """End the connection; calls under way fail."""
        self._closed = True
        if self._link is not None:
            self._link.end("this client was closed")
        if self._attempt is not None:
            self._attempt.cancel()
            await asyncio.wait([self._attempt])
        if self._receivers:
            await asyncio.wait(self._receivers)
        if self._session is not None:
            await self._session.close()

    # --- connecting ---------------------------------------------------------------------------

    async def _connected(self, deadline: float) -> _Link:
        if self._closed:
            raise RpcUnreachable(f"{self._peer}: this client is closed")
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._connect())
            self._attempt.add_done_callback(self._attempted)
        attempt = self._attempt
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(attempt)
        except TimeoutError:
            raise RpcTimedOut(f"{self._peer}: no connection in time") from None
        except asyncio.CancelledError:
            if attempt.cancelled():
                raise RpcUnreachable(f"{self._peer}: this client was closed") from None
            raise

    async def _connect(self) -> _Link:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                channel = await self._open()
        except (aiohttp.ClientError, OSError, TimeoutError, FrameError) as error:
            self._back_off()
            raise RpcNotConnected(f"{self._peer}: {str(error) or 'timed out'}") from error
        except RpcRefused:
            self._back_off()
            raise
        self._link = link = _Link(self, channel)
        receiver = loop.create_task(link.run())
        self._receivers[receiver] = None
        receiver.add_done_callback(partial(self._receivers.pop))
        link.receiver = receiver
        # A task that is cancelled before its first step closes nothing: let it take that step.
        await asyncio.sleep(0)
        return link

    async def _open(self) -> Channel:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=LoopConnector(connect=self._connect_by),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        hello = self._hello
        # Before it is known whether this one opens: the peer may have heard the hello all the same.
        self._hello = replace(hello, connection=hello.connection + 1)
        return await open_channel(self._session, self._peer, hello, self._login, self.counts)

    def _attempted(self, attempt: asyncio.Task[_Link]) -> None:
        self._attempt = None
        if attempt.cancelled():
            return
        error = attempt.exception()  # also when every waiting call has given up
        # aiohttp names its default of TLS, which connections between nodes do not have.
        self._complain("" if error is None else str(error).replace(" ssl:default", ""))

    def _back_off(self) -> None:
        delay = min(BACKOFF_S * 2**self._failures, BACKOFF_S_MAX) * self._random.uniform(0.5, 1)
        self._not_before = asyncio.get_running_loop().time() + delay
        self._failures = min(self._failures + 1, 10)

    def _complain(self, complaint: str) -> None:
        """One log line for each change, not for each attempt."""
        if complaint == self._complaint:
            return
        self._complaint = complaint
        if complaint:
            self._log.warning("peer_unreachable", why=complaint)
        else:
            self._log.info("peer_reachable")

    # --- for the link -------------------------------------------------------------------------

    def answered(self) -> None:
        """Note that the peer has answered a call: the next loss is the first again."""
        self._failures = 0

    def lost(self, link: _Link, why: str) -> None:
        """Note that the link has ended; the next call opens another."""
        if self._link is link:
            self._link = None
        if not self._closed:
            self._back_off()
            self._complain(why)


class _Call(NamedTuple):
    """A call under way; times in the loop's seconds."""

    done: Callable[[Any], None]
    """Takes the response or the RpcError."""
    sent_at: float
    deadline: float


class _Link:
    """One connection and the calls under way on it.

    One timer serves all calls: it is set for the earliest deadline and finds the others when it
    fires. Nearly all calls are answered long before, and cost no timer of their own.
    """

    def __init__(self, client: RpcClient, channel: Channel) -> None:
        self._client = client
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._pending: dict[int, _Call] = {}
        self._timer = Deadline(self._loop, self._time_out)
        self._last_id = HELLO_ID
        self._received_at = self._loop.time()
        self._ended = False
        self.receiver: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """Whether no call can be sent."""
        return self._ended or len(self._pending) >= CALLS_MAX or self._channel.congested

    def send(self, request: object, deadline: float, done: Callable[[Any], None]) -> int:
        """Send a call unless this link is `full`; return its correlation id.

        `deadline` is on the loop's clock (s); `done` takes the response or the RpcError.
        """
        self._last_id = correlation_id = self._last_id + 1
        self._pending[correlation_id] = _Call(done, self._loop.time(), deadline)
        self._client.counts.requests.count += 1
        self._channel.send(correlation_id, request)
        self._timer.set_at_latest(deadline)
        return correlation_id

    def forget(self, correlation_id: int) -> None:
        """Drop the call, if it has no outcome yet: its caller has given up."""
        self._pending.pop(correlation_id, None)

    def _time_out(self) -> None:
        """Fail the calls whose deadline has come and wait for the next one's."""
        soon = self._loop.time() + TIMER_RESOLUTION_S
        late = [key for key, call in self._pending.items() if call.deadline <= soon]
        calls = [self._pending.pop(key) for key in late]
        self._timer.set(min((call.deadline for call in self._pending.values()), default=None))
        if any(self._received_at <= call.sent_at for call in calls):
            # Not a word since a call that has timed out was sent: a connection may be dead for
            # long before the operating system notices.
            self.end("nothing heard in time")
        for call in calls:
            call.done(RpcTimedOut("no answer in time"))

    async def run(self) -> None:
        """Receive until the connection ends, then fails the calls that are left."""
        why = "connection lost"
        try:
            await self._channel.run(self._take)
        except FrameError as error:
            why = f"malformed answer: {error}"
        finally:
            self._fail_calls(why)
            await self._channel.close()

    def _take(self, runs: list[Run]) -> None:
        self._received_at = self._loop.time()
        for run in runs:
            self._client.counts.responses.count += len(run.correlation_ids)
            for correlation_id, response in run.frames():
                call = self._pending.pop(correlation_id, None)
                if call is None:
                    continue  # it has timed out or was cancelled
                if isinstance(response, Failure):
                    call.done(RpcRefused(response.error, response.message))
                else:
                    call.done(response)
        self._client.answered()

    def end(self, why: str) -> None:
        """Fail the calls under way and have the receiving task close the connection."""
        if not self._ended and self.receiver is not None:
            self._fail_calls(why)
            self.receiver.cancel()

    def _fail_calls(self, why: str) -> None:
        if self._ended:
            return
        self._ended = True
        self._client.lost(self, why)
        self._timer.set(None)
        pending, self._pending = self._pending, {}
        for call in pending.values():
            call.done(RpcUnreachable(why))


async def open_channel(
    session: aiohttp.ClientSession,
    peer: str,
    hello: Hello,
    login: ClientLogin | None = None,
    counts: ChannelCounts | None = None,
) -> Channel:
    """Connect to `host:port`, log in and say hello; the session has a `LoopConnector`.

    Raises RpcRefused, FrameError for an answer that is none, ClientError or OSError.
    """
    socket = await session.ws_connect(
        f"http://{peer}{PATH}",
        timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),
        max_msg_size=MESSAGE_BYTES_MAX,
        compress=0,
    )
    connector = session.connector
    transport = connector.transport if isinstance(connector, LoopConnector) else None
    try:
        if login is not None:
            await _log_in(socket, login)
        await socket.send_bytes(FramePacker().pack(HELLO_ID, hello))
        _check_hello(await socket.receive())
        if transport is None or transport.is_closing():
            raise FrameError("the connection has ended")
    except BaseException:
        await socket.close()
        raise
    return Channel(socket, transport, masks=True, counts=counts)


async def _log_in(socket: aiohttp.ClientWebSocketResponse, login: ClientLogin) -> None:
    """Raise RpcRefused if either side does not accept the other."""
    try:
        mechanism, challenge = await login.begin(), b""
        while (response := await login.respond(mechanism, challenge)) is not None:
            message = LoginToken(login.mechanism, response)
            await socket.send_bytes(FramePacker().pack(HELLO_ID, message))
            challenge = _challenge(await socket.receive())
    except KafkaError as error:
        raise RpcRefused(error.code, error.message) from error


def _challenge(message: aiohttp.WSMessage) -> bytes:
    match _frames_of(message):
        case [(_, LoginToken(_, token))]:
            return token
        case [(_, Failure(code, why))]:
            raise RpcRefused(code, why)
        case _:
            raise FrameError("the peer does not take logins")


def _frames_of(message: aiohttp.WSMessage) -> list[tuple[int, Any]]:
    return FrameUnpacker().unpack(message.data) if message.type is WSMsgType.BINARY else []


def _check_hello(message: aiohttp.WSMessage) -> None:
    match _frames_of(message):
        case [(_, Hello())]:
            return
        case [(_, Failure(code, why))]:
            raise RpcRefused(code, why)
        case _:
            raise FrameError("no hello came back")

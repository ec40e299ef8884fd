"""A connection from this broker to another's listener: one request at a time.

An answer is handed over in the turn of the event loop in which its last byte arrives. One timer
serves all requests of a connection: it is moved when it fires, not with each of them. The records
in an answer are views of the frame it came in, and are copied only once more, into the log.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from broker.protocol import FrameReader
from broker.protocol.codec import MalformedError, decode_response, encode_request
from broker.protocol.versions import ApiKey
from raftctl.errors import ErrorCode, KafkaError
from raftctl.failures import resolve
from raftctl.runtime import Deadline
from raftctl.security.sasl.login import node_login
from raftctl.security.tls import NodeTls

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.protocol.codec import Frame, Message
    from raftctl.config import NodeConfig
    from raftctl.metadata.records import Endpoint
    from raftctl.runtime.api import Runtime
    from raftctl.security.sasl.login import NodeLogin
    from raftctl.security.tls import TlsClient

    Answered = Callable[[dict[str, Any] | KafkaError], None]
    """What is called with the answer, or with the error that came in its place."""

RENEWED_AFTER = 0.9
"""Of a session's lifetime: before a request could reach the other side too late."""


class BrokerConnection(asyncio.BufferedProtocol):
    """Made by `connect`. After an error it is closed and of no further use."""

    def __init__(self, client_id: str, response_bytes_max: int) -> None:
        self.client_id = client_id
        """As requests are sent with from now on."""
        self._frames = FrameReader(response_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._answered: Answered | None = None
        """Of the request that waits for its answer."""
        self._asked = (0, 0)
        """The api key and version of that request."""
        self._correlation_id = 0
        self._loop = asyncio.get_running_loop()
        self._due_at = 0.0
        """When the answer must have come, by the event loop's time."""
        self._timer = Deadline(self._loop, self._watch_time)
        self._login: NodeLogin | None = None
        self._renew_at: float | None = None
        """When to log in again, by the event loop's time (KIP-368)."""

    @property
    def is_open(self) -> bool:
        """True if neither side has closed it, as far as this one knows."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def must_renew(self) -> bool:
        """True if it must log in again before the next request."""
        return self._renew_at is not None and self._loop.time() >= self._renew_at

    async def renew(self, timeout_ms: int) -> None:
        """Log in again if the session would expire; KafkaError as of `log_in`."""
        if self.must_renew and self._login is not None:
            await self.log_in(self._login, timeout_ms)

    async def call(
        self, api_key: int, version: int, message: Message, timeout_ms: int
    ) -> dict[str, Any]:
        """Send a request and return the answer; its records are views of one buffer.

        Raises KafkaError: NETWORK_EXCEPTION, or REQUEST_TIMED_OUT; those of `log_in` if the
        session must be renewed before.
        """
        await self.renew(timeout_ms)
        return await self._exchange(api_key, version, message, timeout_ms)

    async def log_in(self, login: NodeLogin, timeout_ms: int) -> None:
        """Authenticate; `call` does so again before the session expires.

        Raises KafkaError: what the other side refuses with, SASL_AUTHENTICATION_FAILED if it does
        not prove what it must, or as `call` does.
        """
        self._login = login
        answer = await self._exchange(
            ApiKey.SASL_HANDSHAKE, 1, {"mechanism": login.mechanism}, timeout_ms
        )
        if answer["error_code"]:
            text = f"{login.mechanism} is not enabled there"
            raise KafkaError(ErrorCode(answer["error_code"]), text)
        mechanism, challenge, lifetime_ms = await login.begin(), b"", 0
        while (response := await login.respond(mechanism, challenge)) is not None:
            answer = await self._exchange(
                ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": response}, timeout_ms
            )
            if answer["error_code"]:
                raise KafkaError(ErrorCode(answer["error_code"]), answer["error_message"] or "")
            challenge, lifetime_ms = bytes(answer["auth_bytes"]), answer["session_lifetime_ms"]
        self._renew_at = None
        if lifetime_ms:
            lifetime = lifetime_ms / 1000 * RENEWED_AFTER
            self._renew_at = self._loop.time() + lifetime

    async def _exchange(
        self, api_key: int, version: int, message: Message, timeout_ms: int
    ) -> dict[str, Any]:
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        answered = partial(resolve, future)
        self.send(api_key, version, message, timeout_ms, answered)
        try:
            return await future
        finally:
            if self._answered is answered:
                # The caller was cancelled: the answer will find nobody.
                self._answered = None

    def send(
        self,
        api_key: int,
        version: int,
        message: Message,
        timeout_ms: int,
        answered: Answered,
    ) -> None:
        """Send a request; see `call`. `answered` is called once, never before this returns.

        It is given a KafkaError instead of the answer: NETWORK_EXCEPTION, or REQUEST_TIMED_OUT.
        Raises KafkaError(NETWORK_EXCEPTION) if the connection is closed.
        """
        if self._transport is None or self._transport.is_closing():
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection is closed")
        self._correlation_id += 1
        request = encode_request(api_key, version, self._correlation_id, self.client_id, message)
        self._answered, self._asked = answered, (api_key, version)
        self._due_at = self._loop.time() + timeout_ms / 1000
        self._timer.set_at_latest(self._due_at)
        self._transport.write(request)

    def _answer(self, answer: dict[str, Any] | KafkaError) -> None:
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(answer)

    def _watch_time(self) -> None:
        if self._answered is None:
            return
        if self._loop.time() < self._due_at:
            self._timer.set(self._due_at)
            return
        self.close()
        self._answer(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    def close(self) -> None:
        """Drop the connection; a call that waits fails."""
        if self._transport is not None:
            self._transport.abort()

    # --- the event loop's side ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        # No cycle with it is left: the buffer goes with the connection.
        self._timer.close()
        text = str(exc) if exc else "closed by the other side"
        self._answer(KafkaError(ErrorCode.NETWORK_EXCEPTION, text))

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        del sizehint
        return self._frames.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._frames.received(nbytes)
        try:
            while (frame := self._frames.next()) is not None:
                self._received(frame)
        except MalformedError:
            self.close()

    def _received(self, frame: Frame) -> None:
        if self._answered is None:
            # Nothing was asked: the other side does not speak this protocol.
            self.close()
            return
        answer: dict[str, Any] | KafkaError
        try:
            correlation_id, answer = decode_response(*self._asked, frame)
            if correlation_id != self._correlation_id:
                raise MalformedError(f"answer {correlation_id} to request {self._correlation_id}")
        except MalformedError as error:
            self.close()
            answer = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
        self._answer(answer)


async def connect(
    host: str,
    port: int,
    *,
    client_id: str,
    response_bytes_max: int,
    timeout_ms: int,
    tls: TlsClient | None = None,
) -> BrokerConnection:
    """Open a connection; KafkaError(NETWORK_EXCEPTION) if that fails or takes too long."""

    def make() -> BrokerConnection:
        return BrokerConnection(client_id, response_bytes_max)

    try:
        async with asyncio.timeout(timeout_ms / 1000):
            if tls is not None:
                return await tls.connect(make, host, port)
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(make, host, port)
    except OSError as error:
        text = f"cannot connect to {host}:{port}: {error}"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, text) from error
    return connection


class Connector:
    """Opens connections to other brokers, by the security protocol of their common listener."""

    def __init__(self, config: NodeConfig, runtime: Runtime | None = None) -> None:
        """`runtime` is needed where brokers log in to each other, or by TLS.

        ConfigError if the stores for TLS cannot be used.
        """
        self._config = config
        security = config.listener_security(config.inter_broker_listener)
        self._login = None if runtime is None else node_login(security, runtime)
        self._tls: NodeTls | None = None
        self._client: TlsClient | None = None
        if runtime is not None and security.tls is not None:
            self._tls = NodeTls(runtime, runtime.log)
            self._client = self._tls.client(security.tls, security.name)

    def reconfigure(self, config: NodeConfig) -> None:
        """Take up the stores of a configuration with the same listeners."""
        settings = config.listener_security(config.inter_broker_listener).tls
        if self._client is not None and settings is not None:
            self._client.update(settings)

    async def connect(self, endpoint: Endpoint, purpose: str, timeout_ms: int) -> BrokerConnection:
        """Open a connection to an address, and log in.

        KafkaError: NETWORK_EXCEPTION if it fails or takes too long, or of `log_in`.
        """
        config = self._config
        connection = await connect(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{config.node_id}-{purpose}",
            response_bytes_max=config.socket_request_max_bytes,
            timeout_ms=timeout_ms,
            tls=self._client,
        )
        if self._login is not None:
            try:
                await connection.log_in(self._login, timeout_ms)
            except BaseException:
                connection.close()
                raise
        return connection

    def close(self) -> None:
        """End the workers that logins and handshakes compute on."""
        if self._tls is not None:
            self._tls.close()
        if self._login is not None:
            self._login.close()

"""A connection from this broker to another's listener: one request at a time.

The records in an answer are views of the frame it came in, and are copied only once more, into the
log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from broker.protocol import FrameReader
from broker.protocol.codec import MalformedError, decode_response, encode_request
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.protocol.codec import Frame, Message


class BrokerConnection(asyncio.BufferedProtocol):
    """Made by `connect`. After an error it is closed and of no further use."""

    def __init__(self, client_id: str, response_bytes_max: int) -> None:
        self._client_id = client_id
        self._frames = FrameReader(response_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Frame] | None = None
        self._correlation_id = 0

    @property
    def is_open(self) -> bool:
        """True if neither side has closed it, as far as this one knows."""
        return self._transport is not None and not self._transport.is_closing()

    async def call(
        self, api_key: int, version: int, message: Message, timeout_ms: int
    ) -> dict[str, Any]:
        """Send a request and return the answer; its records are views of one buffer.

        Raises KafkaError: NETWORK_EXCEPTION, or REQUEST_TIMED_OUT.
        """
        if self._transport is None or self._transport.is_closing():
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection is closed")
        self._correlation_id += 1
        self._answer = asyncio.get_running_loop().create_future()
        sent_id = self._correlation_id
        self._transport.write(encode_request(api_key, version, sent_id, self._client_id, message))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                frame = await self._answer
            correlation_id, answer = decode_response(api_key, version, frame)
            if correlation_id != sent_id:
                raise MalformedError(f"answer {correlation_id} to request {sent_id}")
        except TimeoutError:
            self.close()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
        except MalformedError as error:
            self.close()
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
        finally:
            self._answer = None
        return answer

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
        if self._answer is not None and not self._answer.done():
            text = str(exc) if exc else "closed by the other side"
            self._answer.set_exception(KafkaError(ErrorCode.NETWORK_EXCEPTION, text))

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
        if self._answer is None or self._answer.done():
            # Nothing was asked: the other side does not speak this protocol.
            self.close()
            return
        self._answer.set_result(frame)


async def connect(
    host: str, port: int, *, client_id: str, response_bytes_max: int, timeout_ms: int
) -> BrokerConnection:
    """Open a connection; KafkaError(NETWORK_EXCEPTION) if that fails or takes too long."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await loop.create_connection(
                lambda: BrokerConnection(client_id, response_bytes_max), host, port
            )
    except OSError as error:
        text = f"cannot connect to {host}:{port}: {error}"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, text) from error
    return connection

"""A connection of TLS: a protocol between the event loop's transport and another protocol.

asyncio's own does handshakes on the event loop, one of which takes as long as tens of requests, and
gives no reason when one fails. Here a handshake is made of steps on other threads (`Handshakes`).
What comes in goes through one buffer that all connections of a listener share: the event loop fills
it and hands it over in one call. Then it is decrypted into the inner protocol's own buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Protocol, cast

from raftctl.security.tls._handshakes import HANDSHAKE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from raftctl.runtime.api import Buffer
    from raftctl.security import Principal
    from raftctl.security.tls._handshakes import Handshakes

RECEIVE_BYTES = 256 * 1024
_ENCRYPT_BYTES = 8 * 16 * 1024
"""Records of 16 KiB that are made before the socket is offered them."""
_READ_BYTES = 64 * 1024
_CERTIFICATE_BYTES = 400
"""A server's messages with a certificate have more, one that asks for another key share has less.
"""
_REASONS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it speaks HTTP without TLS",
    "UNSUPPORTED_PROTOCOL": "its version of TLS is not enabled",
    "NO_SHARED_CIPHER": "it has no cipher suite that is enabled",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
}


def describe(error: BaseException) -> str:
    """Return why a handshake or a connection failed, in words for a log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        words = error.reason.lower().replace("_", " ")
        known = _REASONS.get(error.reason)
        return f"{known} ({words})" if known else words
    return str(error) or type(error).__name__


class Gate(Protocol):
    """Decides when the handshake of an accepted connection begins."""

    def arrived(self, connection: TlsConnection) -> None:
        """Take a connection, whose `begin` or `abort` is to be called, perhaps at once."""

    def gone(self) -> None:
        """Forget the connection, which has ended before its handshake was done."""


class TlsConnection(asyncio.BufferedProtocol):
    """One connection. Its `inner` protocol is connected when the handshake is done."""

    def __init__(
        self,
        inner: asyncio.BaseProtocol,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        scratch: memoryview,
        *,
        server_hostname: str | None = None,
        on_shaken: Callable[[TlsConnection], str | None],
        on_failed: Callable[[TlsConnection, str], None],
        gate: Gate | None = None,
    ) -> None:
        """Speak as the client of `server_hostname`, or as a server without one.

        The handshake begins at once, or when a `gate` has called `begin`. `on_shaken` may return a
        reason to refuse the peer; `on_failed` takes why there will be no connection, that one too.
        `scratch` is where the event loop puts what comes in.
        """
        self._is_client = server_hostname is not None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=not self._is_client,
            server_hostname=server_hostname,
        )
        self._context = context
        self._handshakes = handshakes
        self._scratch = scratch
        self._on_shaken = on_shaken
        self._on_failed = on_failed
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self.raw: asyncio.Transport | None = None
        self.inner = inner
        self._shaking = True
        self._stepping = False
        self._held = b""
        """What came while a step was made, which has the buffers of OpenSSL for itself."""
        self._is_answered = False
        """Whether a server has shown its certificate; what is left to do takes little."""
        self._read_paused = self._write_paused = False
        self._ended = False
        """Whether the peer will send nothing more."""
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._broken: ssl.SSLError | None = None
        """What ended the connection after its handshake."""
        self.peer: object = None
        """The address of the other side, as the event loop has it."""
        self.principal: Principal | None = None
        """Of the peer; the inner protocol's transport has it as extra information."""

    @property
    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        return self._closing or self.raw is None

    @property
    def certificate(self) -> bytes | None:
        """The certificate that the peer has shown, in DER; None if it has shown none."""
        return self._tls.getpeercert(binary_form=True)

    # --- what the event loop calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, or ask the gate."""
        self.raw = cast("asyncio.Transport", transport)
        self.peer = transport.get_extra_info("peername")
        if self._gate is None:
            self._begin()
            return
        # Unread until then: what comes waits in the system's buffers.
        self.raw.pause_reading()
        self._gate.arrived(self)

    def begin(self) -> None:
        """Begin the handshake, once."""
        if self.raw is not None and not self._closing:
            self.raw.resume_reading()
            self._begin()

    def _begin(self) -> None:
        self._timer = self._loop.call_later(HANDSHAKE_S, self._too_slow)
        self._handshakes.wait(self)
        if self._is_client:
            self._step()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the room for the next bytes, which all connections share."""
        del sizehint
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Go on with what came."""
        if self._stepping:
            # A peer that goes by the protocol waits for what the step brings.
            self._held = bytes(self._scratch[:nbytes])
            self._pause()
            return
        self._incoming.write(self._scratch[:nbytes])
        if self._shaking:
            self._step()
        else:
            self._read()

    def eof_received(self) -> bool:
        """Hand the end on; keep the connection if answers are still to leave."""
        if self._shaking:
            self._fail("it closed the connection in its TLS handshake")
            return False
        return self._end()

    def pause_writing(self) -> None:
        """Hand it on: the peer does not read."""
        self._write_paused = True
        if not self._shaking:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Hand it on: the peer reads again."""
        self._write_paused = False
        if not self._shaking:
            self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand it on, or report that there was no handshake."""
        self.raw, self._closing = None, True
        if self._shaking:
            self._report("it closed the connection in its TLS handshake")
            if self._gate is not None:
                self._gate.gone()
        else:
            self.inner.connection_lost(exc or self._broken)
        # So that both are freed at once, with their buffers and the state of OpenSSL.
        self.inner, self._gate = asyncio.BaseProtocol(), None

    # --- the handshake --------------------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Close the connection, whose handshake is not done; the reason goes into the log."""
        self._fail(reason)

    def _step(self) -> None:
        if self.raw is None or self._closing:
            return
        if self._handshakes.is_closed:
            self._fail("the node stops")
        elif self._is_answered and self._context.verify_mode == ssl.CERT_NONE:
            # No certificate comes that would have to be verified: a thread would cost more.
            self._stepped(self._try_handshake())
        else:
            self._stepping = True
            step = self._handshakes.step(self, self._try_handshake)
            step.add_done_callback(self._stepped_aside)

    def _try_handshake(self) -> OSError | None:
        """Go as far as the bytes suffice; return why not to the end. May run on a worker."""
        try:
            self._tls.do_handshake()
        except OSError as error:
            # With its frames it would be a cycle through this connection, since it is a result.
            return error.with_traceback(None)
        return None

    def _stepped_aside(self, step: asyncio.Future[OSError | None]) -> None:
        self._stepping = False
        if self.raw is None or self._closing:
            self._handshakes.forget(self)
            return
        self._stepped(step.result())

    def _stepped(self, error: OSError | None) -> None:
        self._is_answered |= self._flush() >= _CERTIFICATE_BYTES
        held, self._held = self._held, b""
        self._incoming.write(held)
        if isinstance(error, ssl.SSLWantReadError):
            self._handshakes.wait(self)
            if held:
                self._step()
            self._resume()
        elif error is not None:
            self._fail(f"TLS handshake: {describe(error)}")
        elif (refusal := self._on_shaken(self)) is not None:
            self._fail(refusal)
        else:
            self._connect_inner()

    def _pause(self) -> None:
        if self.raw is not None:
            self.raw.pause_reading()

    def _resume(self) -> None:
        if self.raw is not None and not (self._closing or self._stepping):
            self.raw.resume_reading()

    def _connect_inner(self) -> None:
        self._shaking = False
        self._done_shaking()
        # Held by the inner protocol alone: there is no cycle once that is let go.
        self.inner.connection_made(_InnerTransport(self))
        if self._write_paused:
            self.inner.pause_writing()
        if self.raw is not None and not self._closing:
            if not self._read_paused:
                self.raw.resume_reading()
            self._read()

    def _too_slow(self) -> None:
        self._fail(f"its TLS handshake took longer than {HANDSHAKE_S:g} s")

    def _fail(self, reason: str) -> None:
        """Close after what OpenSSL has to say of it, which may be an alert for the peer."""
        raw, self._closing = self.raw, True
        self._report(reason)
        if raw is not None:
            if not self._stepping:
                self._flush()
            if raw.get_write_buffer_size():
                raw.abort()
            else:
                raw.close()

    def _report(self, reason: str) -> None:
        if self._timer is not None:
            self._done_shaking()
            self._on_failed(self, reason)

    def _done_shaking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._handshakes.forget(self)

    # --- bytes ----------------------------------------------------------------------------------

    def _read(self) -> None:
        """Hand on what can be decrypted of what has come."""
        take = (
            self._take_buffered
            if isinstance(self.inner, asyncio.BufferedProtocol)
            else self._take_plain
        )
        try:
            while not (self._read_paused or self._closing or self._ended) and take():
                pass
        except ssl.SSLError as error:
            self._break(error)
            return
        if self._outgoing.pending:
            # Such as the answer to a change of keys.
            self._flush()

    def _take_buffered(self) -> bool:
        """Fill the inner protocol's buffer once; return whether there may be more."""
        inner = cast("asyncio.BufferedProtocol", self.inner)
        buffer = memoryview(inner.get_buffer(-1))
        read, incoming = self._tls.read, self._incoming
        taken, size, is_end = 0, len(buffer), False
        try:
            while taken < size:
                count = cast("int", read(size - taken, cast("bytearray", buffer[taken:])))
                taken += count
                if not count:
                    is_end = True
                    break
                if not incoming.pending and not self._tls.pending():
                    # Without a last attempt, whose exception costs more than a small record.
                    size = 0
        except ssl.SSLWantReadError:
            size = 0
        if taken:
            inner.buffer_updated(taken)
        if is_end:
            self._end_read()
        return size > 0 and not is_end

    def _take_plain(self) -> bool:
        inner = cast("asyncio.Protocol", self.inner)
        try:
            data = self._tls.read(_READ_BYTES)
        except ssl.SSLWantReadError:
            return False
        if not data:
            self._end_read()
            return False
        inner.data_received(data)
        return True

    def _end_read(self) -> None:
        """The peer has said that it sends nothing more."""
        if not self._end():
            self.close()

    def _end(self) -> bool:
        """Return whether the connection is to stay open for what is still to be sent."""
        if self._ended or self._closing:
            return not self._closing
        self._ended = True
        return bool(cast("asyncio.Protocol", self.inner).eof_received())

    def _break(self, error: ssl.SSLError) -> None:
        """End a connection whose bytes are not what TLS allows."""
        if self.raw is None or self._closing:
            return
        self._closing, self._broken = True, error
        self._on_failed(self, f"TLS: {describe(error)}")
        self._flush()
        self.raw.abort()

    def _flush(self) -> int:
        """Send what OpenSSL has to say of itself; return how many bytes that is."""
        data = self._outgoing.read()
        if data and self.raw is not None:
            self.raw.write(data)
        return len(data)

    # --- what the inner protocol's transport calls ----------------------------------------------

    def send(self, data: Buffer) -> None:
        """Encrypt the bytes and write them to the socket."""
        raw = self.raw
        if raw is None or self._closing:
            return
        write, outgoing = self._tls.write, self._outgoing
        view, start = memoryview(data).cast("B"), 0
        size = len(view)
        try:
            while start < size:
                start += write(view[start:] if start else view)
                if start >= size or outgoing.pending >= _ENCRYPT_BYTES:
                    raw.write(outgoing.read())
        except ssl.SSLError as error:
            self._break(error)

    def close(self) -> None:
        """Say to the peer that nothing more comes, and close once it is sent."""
        if self._closing or self.raw is None:
            return
        self._closing = True
        with contextlib.suppress(ssl.SSLError):
            # It leaves its message, and fails since the peer's is not there yet: none waits for it.
            self._tls.unwrap()
        self._flush()
        self.raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        if self.raw is not None:
            self.raw.abort()

    def read_on(self, *, go_on: bool) -> None:
        """Read from the socket, or do not."""
        self._read_paused = not go_on
        if self.raw is None or self._closing:
            return
        if not go_on:
            self.raw.pause_reading()
            return
        self.raw.resume_reading()
        if self._incoming.pending or self._tls.pending():
            self._loop.call_soon(self._read)

    def info(self, name: str, default: Any) -> Any:
        """Return what a transport says of itself."""
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._tls
        if name == "principal":
            return self.principal
        return default if self.raw is None else self.raw.get_extra_info(name, default)


class _InnerTransport(asyncio.Transport):
    """What the inner protocol has for a transport: only the bytes take the long way."""

    def __init__(self, connection: TlsConnection) -> None:
        super().__init__()
        self._connection = connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.BaseTransport`."""
        return self._connection.info(name, default)

    def write(self, data: Buffer) -> None:
        """See `asyncio.WriteTransport`."""
        self._connection.send(data)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """See `asyncio.WriteTransport`. A copy costs less than a record for each of the pieces."""
        self._connection.send(b"".join(list_of_data))

    def close(self) -> None:
        """See `asyncio.BaseTransport`."""
        self._connection.close()

    def abort(self) -> None:
        """See `asyncio.WriteTransport`."""
        self._connection.abort()

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport`."""
        return self._connection.is_closing

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._connection.read_on(go_on=False)

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport`."""
        self._connection.read_on(go_on=True)

    def can_write_eof(self) -> bool:
        """Return False: TLS says it by a message of its own."""
        return False

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport`."""
        raw = self._connection.raw
        return 0 if raw is None else raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport`."""
        raw = self._connection.raw
        if raw is not None:
            raw.set_write_buffer_limits(high, low)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See `asyncio.BaseTransport`."""
        self._connection.inner = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See `asyncio.BaseTransport`."""
        return self._connection.inner

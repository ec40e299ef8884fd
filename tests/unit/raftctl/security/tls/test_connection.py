"""Connections over sockets: bytes, failed handshakes, slow peers, stores that change."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import structlog
from pydantic import SecretStr
from structlog.testing import LogCapture

from raftctl.config.security import StoreSettings, TlsSettings
from raftctl.runtime.real import RealRuntime
from raftctl.security.tls import (
    NodeTls,
    _connection,
    _endpoints,
    _handshakes,
)
from raftctl.security.tls._anonymous import anonymous_file
from tests.kit.certificates import DAY, Authority, Issued, self_signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from raftctl.config.security import ClientAuth
    from raftctl.runtime.api import Buffer

pytestmark = pytest.mark.req("S2")
HOST = "127.0.0.1"
DIALED: list[asyncio.StreamWriter] = []
"""To be closed when the test is over."""


class Echo(asyncio.BufferedProtocol):
    """Sends back what it gets; remembers what happened to it."""

    def __init__(self, size: int = 50_000) -> None:
        self.buffer = bytearray(size)
        self.transport: asyncio.Transport | None = None
        self.ended = self.lost = False
        self.received = bytearray()
        self.echoes = True
        self.full = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport is not None
        self.received += self.buffer[:nbytes]
        if self.echoes:
            self.transport.write(bytes(self.buffer[:nbytes]))

    def pause_writing(self) -> None:
        self.full += 1
        if self.transport is not None:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        assert self.transport is not None
        self.transport.resume_reading()

    def eof_received(self) -> None:
        self.ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Server:
    """A listener of TLS with what it has logged."""

    def __init__(self, settings: TlsSettings) -> None:
        self.logged = LogCapture()
        self.runtime = RealRuntime()
        log = structlog.wrap_logger(structlog.PrintLogger(), processors=[self.logged])
        self.node = NodeTls(self.runtime, log)
        self.handshakes = self.node.handshakes
        self.tls = self.node.listener(settings, "OUTSIDE")
        self.principals: list[str | None] = []
        self.echoes: list[Echo] = []
        self.connections: list[_connection.TlsConnection] = []
        self.port = 0
        self.make: Callable[[], Echo] = Echo
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def _accept(self) -> asyncio.BaseProtocol:
        self.echoes.append(self.make())
        self.connections.append(self.tls.wrap(self.echoes[-1], self.principals.append))
        return self.connections[-1]

    def reasons(self) -> list[str]:
        return [one["reason"] for one in self.logged.entries if one["event"] == "connection_closed"]

    async def reason(self) -> str:
        """The one reason that comes."""
        await until(lambda: bool(self.reasons()))
        await asyncio.sleep(0.02)
        assert len(self.reasons()) == 1
        assert len(self.handshakes) == 0
        return self.reasons()[0]

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.node.close()
        for echo in self.echoes:
            if echo.transport is not None:
                echo.transport.abort()
        self.runtime.close()


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("server")


def identified(issued: Issued) -> StoreSettings:
    return StoreSettings("PEM", key=SecretStr(issued.key_pem()), certificates=issued.pem)


def trusting(authority: Authority) -> StoreSettings:
    return StoreSettings("PEM", certificates=authority.pem)


@pytest.fixture
def settings(authority: Authority, issued: Issued) -> TlsSettings:
    return TlsSettings(keystore=identified(issued), truststore=trusting(authority))


@contextlib.asynccontextmanager
async def serving(settings: TlsSettings) -> AsyncIterator[Server]:
    server = Server(settings)
    await server.start()
    try:
        yield server
    finally:
        server.stop()
        for writer in DIALED:
            writer.transport.abort()
        DIALED.clear()
        # Until the event loop has closed them all.
        await asyncio.sleep(0.01)


def plain_client(authority: Authority, issued: Issued | None = None) -> ssl.SSLContext:
    """A context of Python's own, so that both ends are not ours."""
    context = ssl.create_default_context(cadata=authority.pem)
    if issued is not None:
        _identify(context, issued)
    return context


def _identify(context: ssl.SSLContext, issued: Issued) -> None:
    with anonymous_file((issued.key_pem() + issued.pem).encode()) as path:
        context.load_cert_chain(path)


async def dial(
    port: int, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection; the writer closes it when the test is over."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    DIALED.append(writer)
    return reader, writer


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_bytes_come_back(
    settings: TlsSettings, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = plain_client(authority)
    context.minimum_version = context.maximum_version = version
    async with serving(settings) as server:
        reader, writer = await dial(server.port, context)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        data = bytes(range(256)) * 20_000
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        assert server.principals == [None]
        writer.close()
        await until(lambda: server.echoes[0].lost)
        assert server.echoes[0].ended
        assert server.reasons() == []


async def test_a_peer_that_does_not_read_holds_up_the_writer(
    settings: TlsSettings, authority: Authority
) -> None:
    """Reading stops meanwhile, so what one peer can make a node keep is bounded."""
    async with serving(settings) as server:
        reader, writer = await dial(server.port, plain_client(authority))
        size = 20_000_000
        writer.write(bytes(size))
        await until(lambda: bool(server.echoes) and server.echoes[0].full > 0)
        await asyncio.sleep(0.05)
        assert len(server.echoes[0].received) < size
        assert await reader.readexactly(size) == bytes(size)


async def test_pieces_arrive_in_order(settings: TlsSettings, authority: Authority) -> None:
    async with serving(settings) as server:
        reader, writer = await dial(server.port, plain_client(authority))
        writer.write(b"?")
        await reader.readexactly(1)
        transport = server.echoes[0].transport
        assert transport is not None
        pieces: list[Buffer] = [
            b"a",
            bytearray(b"b" * 100_000),
            memoryview(b"c" * 300_000),
            b"",
            b"d",
        ]
        transport.writelines(pieces)
        transport.close()
        assert await reader.read(-1) == b"".join(pieces)


async def test_small_pieces_are_one_record(
    settings: TlsSettings, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(settings) as server:
        reader, writer = await dial(server.port, plain_client(authority))
        writer.write(b"?")
        await reader.readexactly(1)
        transport = server.echoes[0].transport
        assert transport is not None
        raw = server.connections[0].raw
        assert raw is not None
        written: list[int] = []
        write = raw.write

        def note(data: Buffer) -> None:
            written.append(len(data))
            write(data)

        monkeypatch.setattr(raw, "write", note)
        transport.writelines([b"a" * 10, bytearray(b"b" * 20), memoryview(b"c" * 30)])
        assert await reader.readexactly(60) == b"a" * 10 + b"b" * 20 + b"c" * 30
        # The header, the type that TLS 1.3 hides, and the tag.
        assert written == [60 + 5 + 1 + 16]


async def test_a_protocol_without_buffers_is_served_too(
    settings: TlsSettings, authority: Authority
) -> None:
    async with serving(settings) as server:
        client = server.node.client(settings, "")
        got = asyncio.get_running_loop().create_future()

        class Plain(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                transport.write(b"hello")

            def data_received(self, data: bytes) -> None:
                got.set_result(data)

        await client.connect(Plain, HOST, server.port)
        assert await got == b"hello"


async def test_what_was_sent_at_once_after_the_handshake_is_read(
    settings: TlsSettings, authority: Authority
) -> None:
    """Bytes of the inner protocol may come with the last of the handshake."""
    async with serving(settings) as server:
        for _ in range(20):
            reader, writer = await dial(server.port, plain_client(authority))
            writer.write(b"x" * 100)
            assert await reader.readexactly(100) == b"x" * 100
            writer.close()


@pytest.mark.parametrize("client_auth", ["none", "required"])
async def test_what_comes_during_a_step_waits_for_its_end(
    settings: TlsSettings, authority: Authority, issued: Issued, client_auth: ClientAuth
) -> None:
    """Workers that are busy leave a hello that came in two parts in between."""
    async with serving(replace(settings, client_auth=client_auth)) as server:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = plain_client(authority, issued)
        tls = context.wrap_bio(incoming, outgoing, server_hostname=HOST)
        reader, writer = await dial(server.port, None)
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = outgoing.read()
        for _ in range(_handshakes.WORKERS):
            server.handshakes.run(lambda: time.sleep(0.2))
        for part in (hello[:100], hello[100:200], hello[200:]):
            writer.write(part)
            await asyncio.sleep(0.02)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(await reader.read(65_536))
        tls.write(b"data")
        writer.write(outgoing.read())
        await until(lambda: bool(server.echoes[0].received))
        assert server.echoes[0].received == b"data"
        assert server.reasons() == []


@pytest.mark.parametrize(("client_auth", "steps"), [("none", 1), ("required", 2)])
async def test_what_takes_long_is_done_on_a_worker(
    settings: TlsSettings,
    authority: Authority,
    issued: Issued,
    monkeypatch: pytest.MonkeyPatch,
    client_auth: ClientAuth,
    steps: int,
) -> None:
    """To prove one's own certificate, and to verify the client's."""
    async with serving(replace(settings, client_auth=client_auth)) as server:
        taken: list[object] = []
        step = server.handshakes.step

        def note(shaking: _connection.TlsConnection, call: Callable[[], None]) -> object:
            taken.append(shaking)
            return step(shaking, call)

        monkeypatch.setattr(server.handshakes, "step", note)
        reader, writer = await dial(server.port, plain_client(authority, issued))
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        assert taken == server.connections * steps
        assert len(server.handshakes) == 0


async def test_bytes_that_are_not_of_tls_end_a_connection(
    settings: TlsSettings, authority: Authority
) -> None:
    async with serving(settings) as server:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = plain_client(authority).wrap_bio(incoming, outgoing, server_hostname=HOST)
        reader, writer = await dial(server.port, None)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65_536))
        writer.write(outgoing.read())
        await until(lambda: bool(server.principals))
        writer.write(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert "TLS: decryption failed" in await server.reason()
        await until(lambda: server.echoes[0].lost)


# --- who gets in ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_is_its_certificates_subject(
    settings: TlsSettings, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = plain_client(authority, authority.issue("alice"))
    context.minimum_version = context.maximum_version = version
    async with serving(replace(settings, client_auth="required")) as server:
        await ask(server, context)
        assert server.principals == ["CN=alice,O=Test"]


async def test_a_rule_maps_the_subject(settings: TlsSettings, authority: Authority) -> None:
    rules = "RULE:CN=(\\w+),O=Test/$1/,DEFAULT"
    settings = replace(settings, client_auth="required", principal_mapping_rules=rules)
    async with serving(settings) as server:
        context = plain_client(authority, authority.issue("alice"))
        await ask(server, context)
        assert server.principals == ["alice"]


async def rejected(server: Server, context: ssl.SSLContext) -> str:
    """Why a client is not let in; with TLS 1.3 it learns that only when it reads."""
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await ask(server, context)
    return await server.reason()


async def ask(
    server: Server, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and get one byte back."""
    reader, writer = await dial(server.port, context)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    return reader, writer


async def test_a_client_without_a_certificate_is_rejected_where_one_is_required(
    settings: TlsSettings, authority: Authority
) -> None:
    async with serving(replace(settings, client_auth="required")) as server:
        assert "it showed no certificate" in await rejected(server, plain_client(authority))
        assert server.principals == []


async def test_a_certificate_may_be_left_out_where_it_is_requested(
    settings: TlsSettings, authority: Authority
) -> None:
    async with serving(replace(settings, client_auth="requested")) as server:
        await ask(server, plain_client(authority))
        assert server.principals == [None]


@pytest.mark.parametrize("client_auth", ["requested", "required"])
@pytest.mark.parametrize("kind", ["other authority", "self-signed", "expired", "not yet"])
async def test_a_wrong_certificate_is_rejected(
    settings: TlsSettings, authority: Authority, kind: str, client_auth: ClientAuth
) -> None:
    if kind == "other authority":
        wrong = Authority("Test CA").issue()
    elif kind == "self-signed":
        wrong = self_signed()
    elif kind == "expired":
        wrong = authority.issue(since=-2 * DAY, until=-DAY)
    else:
        wrong = authority.issue(since=DAY)
    async with serving(replace(settings, client_auth=client_auth)) as server:
        reason = await rejected(server, plain_client(authority, wrong))
        assert "certificate" in reason
        assert server.principals == []


async def test_a_subject_without_a_rule_is_rejected(
    settings: TlsSettings, authority: Authority
) -> None:
    settings = replace(settings, client_auth="required", principal_mapping_rules="RULE:CN=x/$0/")
    async with serving(settings) as server:
        reason = await rejected(server, plain_client(authority, authority.issue("alice")))
        assert reason == (
            "no rule of ssl.principal.mapping.rules is for its certificate, CN=alice,O=Test"
        )
        assert server.principals == []


async def test_tls_1_1_is_refused(settings: TlsSettings, authority: Authority) -> None:
    async with serving(settings) as server:
        _, writer = await dial(server.port, None)
        # A ClientHello of TLS 1.1 with one suite of it.
        hello = b"\x03\x02" + bytes(32) + b"\x00\x00\x02\xc0\x13\x01\x00"
        body = b"\x01" + len(hello).to_bytes(3, "big") + hello
        writer.write(b"\x16\x03\x01" + len(body).to_bytes(2, "big") + body)
        assert "its version of TLS is not enabled" in await server.reason()


async def test_a_suite_that_is_not_enabled_is_refused(
    settings: TlsSettings, authority: Authority
) -> None:
    settings = replace(settings, cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",))
    context = plain_client(authority)
    async with serving(settings) as server:
        _, writer = await ask(server, context)
        cipher = writer.get_extra_info("cipher")
        assert cipher[:2] == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert "it has no cipher suite that is enabled" in await rejected(server, context)


async def test_plaintext_is_refused(settings: TlsSettings) -> None:
    async with serving(settings) as server:
        reader, writer = await dial(server.port, None)
        writer.write(b"\0\0\0\x10\0\x12\0\3\0\0\0\1\0\0\0\0\0\0\0\0")
        await reader.read(-1)
        assert "it does not speak TLS" in await server.reason()


async def test_who_goes_away_in_the_handshake_is_reported(settings: TlsSettings) -> None:
    async with serving(settings) as server:
        _, writer = await dial(server.port, None)
        writer.write(b"\x16\x03\x01\x02\x00\x01")
        await writer.drain()
        writer.close()
        assert await server.reason() == "it closed the connection in its TLS handshake"


async def test_a_client_checks_the_servers_name_and_authority(
    settings: TlsSettings, authority: Authority
) -> None:
    named = replace(settings, keystore=identified(authority.issue(hosts=("elsewhere",))))
    async with serving(named) as server:

        async def connect(given: TlsSettings) -> Echo:
            client = server.node.client(given, "")
            return await client.connect(Echo, HOST, server.port)

        with pytest.raises(OSError, match="IP address mismatch"):
            await connect(settings)
        await connect(replace(settings, endpoint_identification_algorithm=""))
        stranger = replace(settings, truststore=trusting(Authority("Other")))
        with pytest.raises(OSError, match="its certificate is not accepted"):
            await connect(replace(stranger, endpoint_identification_algorithm=""))


# --- slow peers and many --------------------------------------------------------------------------


async def test_a_silent_peer_is_given_up(
    settings: TlsSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_connection, "HANDSHAKE_S", 0.1)
    async with serving(settings) as server:
        reader, _ = await dial(server.port, None)
        assert await server.reason() == "its TLS handshake took longer than 0.1 s"
        assert await reader.read(-1) == b""


async def test_silent_peers_do_not_slow_others(settings: TlsSettings, authority: Authority) -> None:
    """Nor peers that send their handshake one byte at a time."""
    context = plain_client(authority)
    async with serving(settings) as server:
        slow = [await dial(server.port, None) for _ in range(50)]
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        for byte in hello:
            for _, writer in slow:
                writer.write(bytes([byte]))
        await until(lambda: len(server.handshakes) == 50)
        began = asyncio.get_running_loop().time()
        await ask(server, context)
        assert asyncio.get_running_loop().time() - began < 2


async def test_the_slowest_goes_when_there_are_too_many(
    settings: TlsSettings, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_handshakes, "HANDSHAKES_MAX", 3)
    async with serving(settings) as server:
        slow = []
        for _ in range(3):
            slow.append(await dial(server.port, None))
            await until(lambda: len(server.handshakes) > len(slow) - 1)
        await ask(server, plain_client(authority))
        assert server.reasons() == ["it was slow in its TLS handshake, and many others wait"]
        assert await slow[0][0].read(-1) == b""


async def test_many_connections_at_once_get_in(settings: TlsSettings, authority: Authority) -> None:
    context = plain_client(authority)

    async def talk(port: int) -> None:
        reader, writer = await dial(port, context)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()

    async with serving(settings) as server:
        await asyncio.gather(*(talk(server.port) for _ in range(100)))
        await until(lambda: all(echo.lost for echo in server.echoes))
        assert len(server.handshakes) == 0


async def test_a_node_that_stops_ends_the_handshakes(settings: TlsSettings) -> None:
    async with serving(settings) as server:
        reader, _ = await dial(server.port, None)
        await until(lambda: len(server.handshakes) == 1)
        server.handshakes.close()
        assert await reader.read(-1) == b""
        assert server.reasons() == ["the node stops"]


async def test_a_client_that_gives_up_leaves_no_connection(settings: TlsSettings) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        gone.set()
        writer.close()

    gone = asyncio.Event()
    server = await asyncio.start_server(accept, HOST, 0)
    runtime = RealRuntime()
    node = NodeTls(runtime, runtime.log)
    client = node.client(settings, "")
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await client.connect(Echo, HOST, port)
    async with asyncio.timeout(5):
        await gone.wait()
    node.close()
    runtime.close()
    server.close()
    gc.collect()


# --- stores that change ---------------------------------------------------------------------------


async def serial(port: int, authority: Authority) -> str:
    """The number of the certificate that a server shows."""
    _, writer = await dial(port, plain_client(authority))
    found = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    return str(found)


async def test_a_changed_file_is_loaded_without_a_restart(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_endpoints, "RELOAD_S", 0.02)
    path = tmp_path / "node.pem"
    first = authority.issue()
    store = StoreSettings("PEM", location=first.store(path))
    path.chmod(0o600)
    async with serving(TlsSettings(keystore=store)) as server:
        reader, writer = await dial(server.port, plain_client(authority))
        old = await serial(server.port, authority)
        authority.issue().store(path)
        await until(lambda: events(server) == ["certificates_reloaded"])
        assert await serial(server.port, authority) != old
        # Who is connected stays so.
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"


async def test_a_file_that_cannot_be_used_leaves_the_old_one_with_one_line(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_endpoints, "RELOAD_S", 0.02)
    path = tmp_path / "node.pem"
    store = StoreSettings("PEM", location=authority.issue().store(path))
    path.chmod(0o600)
    async with serving(TlsSettings(keystore=store)) as server:
        old = await serial(server.port, authority)
        path.write_text("half a fi")
        await until(lambda: events(server) == ["certificates_not_reloaded"])
        await asyncio.sleep(0.2)
        assert events(server) == ["certificates_not_reloaded"]
        assert await serial(server.port, authority) == old
        authority.issue().store(path)
        await until(lambda: events(server)[-1] == "certificates_reloaded")
        assert await serial(server.port, authority) != old


async def test_who_is_trusted_no_more_does_not_resume_a_session(
    settings: TlsSettings,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ticket has the certificate in it that was accepted once; another context takes none."""
    monkeypatch.setattr(_endpoints, "RELOAD_S", 0.02)
    trusted = StoreSettings("PEM", location=authority.store(tmp_path / "trusted.pem"))
    context = plain_client(authority, authority.issue("alice"))
    settings = replace(settings, client_auth="required", truststore=trusted)
    async with serving(settings) as server:
        _, writer = await ask(server, context)
        assert writer.get_extra_info("ssl_object").session.has_ticket
        Authority("Other").store(tmp_path / "trusted.pem")
        await until(lambda: events(server) == ["certificates_reloaded"])
        assert "certificate" in await rejected(server, context)


def events(server: Server) -> list[str]:
    return [one["event"] for one in server.logged.entries if "reloaded" in one["event"]]

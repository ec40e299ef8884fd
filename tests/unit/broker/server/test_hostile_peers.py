"""Peers that mean harm, or know no better: each connection ends, with one line that says why."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import json
import ssl
from typing import TYPE_CHECKING, Any

import pytest
from joserfc import jwk, jwt

from broker.protocol import codec
from broker.protocol.versions import ApiKey
from broker.request_context import ClientConnection, SaslState
from broker.server import _connection
from broker.server._connection import Connection
from raftctl.errors import ErrorCode
from raftctl.metadata.records import RemoveUserScramCredentialRecord
from raftctl.security.sasl import make_client, tokens
from raftctl.security.tls import _connection as tls_connection
from tests.kit.certificates import DAY, Authority, Issued, self_signed
from tests.unit.broker.replication.world import eventually
from tests.unit.broker.server.fakes import Client, FakeBroker, connected, publish, running_with
from tests.unit.broker.server.sasl import (
    KEYS,
    OAUTH_KEYS,
    add_user,
    authenticate,
    handshake,
    log_in,
)
from tests.unit.raftctl.security.sasl.exchanges import jaas

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

pytestmark = pytest.mark.req("S2", "S3")

ALICE = b"\0alice\0alice-secret"
HELLO = b"\0\0\0\x0b\0\x12\0\0\0\0\0\7\0\1x"
"""An ApiVersions, with its length."""
LAG_MS_MAX = 500.0
"""What a well-behaved client may wait beside them, also on a core that others use as well."""


def lines(broker: FakeBroker) -> list[dict[str, Any]]:
    """Of connections that have ended."""
    return broker.events("connection_closed") + broker.events("connection_failed")


async def only_line(broker: FakeBroker) -> dict[str, Any]:
    """The one line, which has who, where and why."""
    await eventually(lambda: bool(lines(broker)) and not broker.limits._connections, 20)
    await asyncio.sleep(0.05)
    (line,) = lines(broker)
    host, _, port = line["peer"].rpartition(":")
    assert (host, port.isdigit()) == ("127.0.0.1", True)
    assert line["listener"] == "PLAINTEXT"
    assert line["event"] == "connection_closed"
    return line


# --- before a login -------------------------------------------------------------------------------


async def trickle(client: Client) -> None:
    """A byte now and then, of a frame that never ends."""
    client.writer.write(b"\0\0\0\x30")
    for _ in range(10):
        await asyncio.sleep(0.02)
        client.writer.write(b"\0")


async def half_a_login(client: Client) -> None:
    """A handshake of SASL, and nothing more."""
    await handshake(client, "PLAIN")


async def silence(client: Client) -> None:
    """Nothing."""


@pytest.mark.parametrize("attack", [trickle, half_a_login, silence])
async def test_who_does_not_log_in_is_dropped_with_one_line(
    monkeypatch: pytest.MonkeyPatch, attack: Callable[[Client], Any]
) -> None:
    monkeypatch.setattr(_connection, "LOGIN_SECONDS", 0.3)
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        await attack(client)
        async with asyncio.timeout(10):
            assert await client.ended()
        assert (await only_line(broker))["reason"] == "it does not authenticate"


async def test_the_time_of_who_waits_to_be_let_in_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_connection, "LOGIN_SECONDS", 2.0)
    keys = {**KEYS, "listener.name.plaintext.max.connections": "1"}
    async with running_with(keys, "t") as broker:
        async with connected(broker) as first:
            await handshake(first, "PLAIN")
            await authenticate(first, ALICE)
            second = await asyncio.open_connection("127.0.0.1", broker.port)
            await asyncio.sleep(2.2)
        client = Client(*second)
        async with asyncio.timeout(20):
            assert not (await handshake(client, "PLAIN"))["error_code"]
            assert not (await authenticate(client, ALICE))["error_code"]
        second[1].close()
        assert lines(broker) == []


@pytest.mark.parametrize("attack", [half_a_login, silence])
async def test_a_half_authenticated_connection_is_idle_like_any(
    attack: Callable[[Client], Any],
) -> None:
    keys = {**KEYS, "connections.max.idle.ms": "200"}
    async with running_with(keys, "t") as broker, connected(broker) as client:
        await attack(client)
        assert await client.ended()
        assert (await only_line(broker))["reason"] == "idle"


@pytest.mark.parametrize("sent", [b"", b"\0\0\0\x30\0"], ids=["between frames", "within a frame"])
async def test_who_leaves_before_a_login_has_a_line(sent: bytes) -> None:
    async with running_with(KEYS, "t") as broker:
        async with connected(broker) as client:
            await handshake(client, "PLAIN")
            client.writer.write(sent)
        reason = (await only_line(broker))["reason"]
        wanted = "within a request" if sent else "before it had authenticated"
        assert wanted in reason


async def test_who_leaves_after_a_login_has_none() -> None:
    async with running_with(KEYS, "t") as broker:
        async with connected(broker) as client:
            await handshake(client, "PLAIN")
            await authenticate(client, ALICE)
        await eventually(lambda: not broker.limits._connections)
        assert lines(broker) == []


OVERSIZED = (524_288 + 1).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (OVERSIZED, "a frame of 524289 bytes, at most 524288"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "it speaks TLS, and the listener does"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
        (b"\0\0\0\x16\x60\x82\x01\x00\x06\x09" + bytes(16), "api 24706 before authentication"),
    ],
    ids=["oversized", "huge", "negative", "TLS", "HTTP", "GSSAPI"],
)
async def test_a_frame_that_is_none_ends_the_connection(sent: bytes, reason: str) -> None:
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        client.writer.write(sent)
        assert await client.ended()
        assert reason in (await only_line(broker))["reason"]


async def test_a_frame_of_the_greatest_size_is_taken() -> None:
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        await handshake(client, "PLAIN", version=0)
        client.writer.write((524_288).to_bytes(4, "big") + bytes(524_288))
        assert await client.ended()
        assert "parts, not 3" in (await only_line(broker))["reason"]


async def test_a_mechanism_that_nobody_has_is_one_line() -> None:
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        answer = await handshake(client, "CRAM-MD5")
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert await client.ended()
        assert "a mechanism that is not enabled" in (await only_line(broker))["reason"]


class _Unread(asyncio.Transport):
    """The transport of a peer that reads nothing: what is closed stays until it is aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else default

    def write(self, data: object) -> None:
        self.calls.append("write")

    def writelines(self, list_of_data: object) -> None:
        self.calls.append("write")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.calls

    def pause_reading(self) -> None:
        """Nothing to do."""

    def resume_reading(self) -> None:
        """Nothing to do."""


async def test_a_peer_that_never_reads_does_not_hold_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_connection, "LINGER_SECONDS", 0.05)
    async with running_with(KEYS, "t") as broker:
        client = ClientConnection("PLAINTEXT", "SASL_PLAINTEXT", sasl=SaslState(1_000))
        serve = broker.serve_on("PLAINTEXT")
        log = broker.log.bind(listener="PLAINTEXT")
        connection = Connection(broker.limits, serve, log, lambda _: None, client, lambda _: None)
        transport = _Unread()
        connection.connection_made(transport)
        for data in (HELLO, b"\xff\xff\xff\xff"):
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
        assert transport.calls == ["write", "close"]
        await asyncio.sleep(0.2)
        assert transport.calls == ["write", "close", "abort"]
        connection.connection_lost(None)
        assert "a frame of -1 bytes" in (await only_line(broker))["reason"]


# --- beside a client that means well --------------------------------------------------------------


class Beside:
    """Asks again and again, as a client that has logged in."""

    def __init__(self) -> None:
        self.waits_ms: list[float] = []

    @contextlib.asynccontextmanager
    async def asking(
        self, broker: FakeBroker, context: ssl.SSLContext | None = None
    ) -> AsyncIterator[Beside]:
        """Ask until the end of the block."""
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
        task = asyncio.ensure_future(self._ask(reader, writer, logs_in=context is None))
        await asyncio.sleep(0.1)
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            writer.close()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, logs_in: bool
    ) -> None:
        async def ask(frame: bytes) -> None:
            writer.write(frame)
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

        if logs_in:
            await ask(
                codec.encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, "x", {"mechanism": "PLAIN"})
            )
            token = {"auth_bytes": ALICE}
            await ask(codec.encode_request(ApiKey.SASL_AUTHENTICATE, 2, 2, "x", token))
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            await ask(HELLO)
            self.waits_ms.append(1000 * (loop.time() - begun))
            await asyncio.sleep(0.002)

    @property
    def p99_ms(self) -> float:
        """What all but one in a hundred answers took at most."""
        ordered = sorted(self.waits_ms)
        assert len(ordered) >= 20, "it has asked"
        return ordered[int(len(ordered) * 0.99)]


async def test_a_thousand_silent_connections_slow_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connection, "LOGIN_SECONDS", 1.0)
    count = 1_000
    async with running_with(KEYS, "t") as broker, Beside().asking(broker) as beside:
        silent = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(count)]
        for reader, _ in silent:
            assert await reader.read(1) == b""
        for _, writer in silent:
            writer.close()
        assert len(lines(broker)) == count
        assert len({line["peer"] for line in lines(broker)}) == count, "one line each"
        assert len(broker.limits._connections) == 1
        assert beside.p99_ms < LAG_MS_MAX


# --- tokens and revocation ------------------------------------------------------------------------


def with_tokens(folder: Path) -> tuple[dict[str, str], jwk.ECKey]:
    """Keys of a broker that takes tokens, and the key of their issuer."""
    key = jwk.ECKey.generate_key("P-256", {"kid": "one"})
    (folder / "keys.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    url = {"sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri()}
    return {**OAUTH_KEYS, **url}, key


def bearer(token: str) -> bytes:
    """The client's message with a token."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


@pytest.mark.parametrize(
    ("header", "claims", "reason"),
    [
        ({"alg": "ES256", "kid": "one"}, {"exp": 1_000}, "has expired"),
        ({"alg": "none"}, {}, "is not one of public keys"),
        ({"alg": "HS256", "kid": "one"}, {}, "is not one of public keys"),
        ({"alg": "ES256", "kid": "two"}, {}, "the token's key is unknown"),
    ],
)
async def test_a_token_that_is_refused_is_one_line(
    tmp_path: Path, header: dict[str, str], claims: dict[str, Any], reason: str
) -> None:
    keys, key = with_tokens(tmp_path)
    whole = {"sub": "alice", "iat": 1, "exp": 9_999_999_999, **claims}
    token = jwt.encode({"alg": "ES256", "kid": "one"}, whole, key, algorithms=["ES256"])
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    if claims == {}:
        token = f"{head}.{token.partition('.')[2]}"
    async with running_with(keys, "t") as broker, connected(broker) as client:
        await handshake(client, "OAUTHBEARER")
        answer = await authenticate(client, bearer(token))
        if not answer["error_code"]:
            # A refusal is a challenge, which the client must answer (RFC 7628).
            assert answer["auth_bytes"] == b'{"status": "invalid_token"}'
            answer = await authenticate(client, b"\x01")
        assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.ended()
        line = await only_line(broker)
        assert reason in line["reason"]
        assert token not in str(broker.logged.entries)


async def test_invented_keys_do_not_have_the_issuer_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connections name keys that are not there, between two fetches is a pause."""
    keys, _ = with_tokens(tmp_path)
    asked: list[str] = []

    def read(url: str, _files: object) -> bytes:
        asked.append(url)
        return (tmp_path / "keys.json").read_bytes()

    monkeypatch.setattr(tokens, "read_document", read)
    count = 50
    async with running_with(keys, "t") as broker:
        for number in range(count):
            head = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"%d"}' % number).decode()
            async with connected(broker) as client:
                await handshake(client, "OAUTHBEARER")
                answer = await authenticate(client, bearer(f"{head.rstrip('=')}.e30.eA"))
                assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert await client.ended()
        assert len(lines(broker)) == count
        assert len(asked) == 1


async def test_a_session_outlives_its_credential_until_it_must_be_renewed() -> None:
    """As with Apache Kafka: revocation ends no connection, the next authentication does."""
    keys = {**KEYS, "listener.name.plaintext.scram-sha-256.connections.max.reauth.ms": "3000"}
    login = jaas(username="bob", password="of-bob")
    async with running_with(keys, "t") as broker:
        add_user(broker, "SCRAM-SHA-256", "bob", "of-bob")
        async with connected(broker) as client, connected(broker) as other:
            for one in (client, other):
                mechanism = make_client("SCRAM-SHA-256", login, "nonce")
                answer = await log_in(one, "SCRAM-SHA-256", mechanism)
                assert answer["session_lifetime_ms"] == 3_000
            publish(broker.metadata, [RemoveUserScramCredentialRecord("bob", 1)])
            metadata: dict[str, Any] = {"topics": []}
            assert (await client.ask(ApiKey.METADATA, 1, metadata))["brokers"], "it lives on"
            mechanism = make_client("SCRAM-SHA-256", login, "nonce")
            answer = await log_in(client, "SCRAM-SHA-256", mechanism)
            assert answer["error_code"] == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.ended()
            await asyncio.sleep(3.1)
            other.send(ApiKey.METADATA, 1, metadata)
            assert await other.ended()
        reasons = [line["reason"] for line in lines(broker)]
        assert len(reasons) == 2, "one line each"
        assert "wrong password, or no such user" in reasons[0]
        assert "the session of User:bob has expired" in reasons[1]


# --- TLS ------------------------------------------------------------------------------------------


class Stores:
    """The files of a broker, and who connects to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.trusted = self.authority.store(folder / "trusted.pem")
        self.broker = self.authority.issue("broker").store(folder / "broker.pem")
        (folder / "broker.pem").chmod(0o600)

    def keys(self, auth: str = "required") -> dict[str, str]:
        """Those of a broker whose only listener speaks TLS."""
        return {
            "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
            "ssl.client.auth": auth,
        }

    def context(self, shown: Issued | None = None) -> ssl.SSLContext:
        """Of a client that shows a certificate."""
        context = ssl.create_default_context(cafile=self.trusted)
        if shown is not None:
            path = self.folder / "shown.pem"
            context.load_cert_chain(shown.store(path))
        return context


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("stores"))


def serving(stores: Stores, auth: str = "required") -> AbstractAsyncContextManager[FakeBroker]:
    """A broker with those stores."""
    return running_with(stores.keys(auth), "t")


async def ask_versions(broker: FakeBroker, context: ssl.SSLContext) -> bytes:
    """The beginning of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
    try:
        writer.write(HELLO)
        return await reader.readexactly(4)
    finally:
        writer.transport.abort()


async def refused(broker: FakeBroker, context: ssl.SSLContext) -> str:
    """Why a client with this context gets no answer, in the words of the log."""
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await ask_versions(broker, context)
    assert broker.contexts == []
    return str((await only_line(broker))["reason"])


_HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda authority: None, "it showed no certificate"),
        (
            lambda authority: authority.issue(since=-2 * DAY, until=-_HOUR),
            "certificate has expired",
        ),
        (lambda authority: authority.issue(since=_HOUR), "certificate is not yet valid"),
        (lambda authority: self_signed(), "self-signed certificate"),
        (
            lambda authority: Authority("Another CA").issue(),
            "self-signed certificate in certificate chain",
        ),
    ],
    ids=["none", "expired", "of tomorrow", "self-signed", "of another authority"],
)
async def test_a_certificate_that_does_not_count_is_one_line(
    stores: Stores, make: Callable[[Authority], Issued | None], reason: str
) -> None:
    async with serving(stores) as broker:
        assert reason in await refused(broker, stores.context(make(stores.authority)))


async def test_an_old_version_of_tls_is_refused(stores: Stores) -> None:
    """A ClientHello of TLS 1.0, written out: libraries of today do not send one."""
    suites = b"\x00\x2f\x00\x35\x00\x0a"
    body = b"\x03\x01" + bytes(32) + b"\0" + len(suites).to_bytes(2, "big") + suites + b"\1\0"
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    async with serving(stores) as broker, connected(broker) as client:
        client.writer.write(b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message)
        alert = await client.reader.read(100)
        assert alert[:3] in (b"\x15\x03\x01", b"\x15\x03\x03")
        assert await client.ended()
        assert "its version of TLS is not enabled" in (await only_line(broker))["reason"]


async def test_a_client_without_tls_is_named_so(stores: Stores) -> None:
    async with serving(stores) as broker, connected(broker) as client:
        client.writer.write(HELLO)
        assert await client.reader.read(100) != HELLO
        assert "it does not speak TLS" in (await only_line(broker))["reason"]


async def shaken(
    broker: FakeBroker, context: ssl.SSLContext
) -> tuple[Client, ssl.SSLObject, ssl.MemoryBIO]:
    """A connection whose records this test makes, after its handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65_536))
    writer.write(outgoing.read())
    return Client(reader, writer), tls, outgoing


def has_half_a_frame(broker: FakeBroker) -> bool:
    """Whether a connection has the beginning of a request."""
    connections = (one for one in broker.limits._connections if isinstance(one, Connection))
    return any(one._frames.partial for one in connections)


async def test_a_broken_record_within_a_request_is_one_line(stores: Stores) -> None:
    async with serving(stores, "none") as broker:
        client, tls, outgoing = await shaken(broker, stores.context())
        with contextlib.closing(client.writer):
            tls.write(HELLO[:6])
            client.writer.write(outgoing.read())
            await eventually(lambda: has_half_a_frame(broker))
            client.writer.write(b"\x17\x03\x03\x00\x20" + bytes(32))
            assert "TLS: decryption failed" in (await only_line(broker))["reason"]


async def test_who_resets_its_connection_in_a_handshake_is_named(stores: Stores) -> None:
    """The line has an address, though the socket has none any more."""
    async with serving(stores) as broker:
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(b"\x16\x03\x01\x02\x00")
        await asyncio.sleep(0.05)
        _reset(writer)
        assert "closed the connection in its TLS handshake" in (await only_line(broker))["reason"]


def _reset(writer: asyncio.StreamWriter) -> None:
    socket = writer.get_extra_info("socket")
    # SO_LINGER with no time: what is closed is reset.
    socket.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


async def test_half_handshakes_end_and_slow_nobody(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some send nothing, some half a ClientHello, some a byte now and then."""
    monkeypatch.setattr(tls_connection, "HANDSHAKE_S", 1.0)
    count = 150
    context = stores.context(stores.authority.issue("alice"))
    async with serving(stores) as broker, Beside().asking(broker, context) as beside:
        begun = asyncio.get_running_loop().time()
        half = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(count)]
        for number, (_, writer) in enumerate(half):
            writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[: number % 12])
        async with asyncio.TaskGroup() as tasks:
            drips = tasks.create_task(_drip([writer for _, writer in half[::3]]))
            for reader, _ in half:
                with contextlib.suppress(ConnectionError):
                    await reader.read(-1)
            drips.cancel()
        assert asyncio.get_running_loop().time() - begun < 30, "they end in bounded time"
        for _, writer in half:
            writer.close()
        assert len(lines(broker)) == count
        assert {line["listener"] for line in lines(broker)} == {"PLAINTEXT"}
        assert len({line["peer"] for line in lines(broker)}) == count
        assert beside.p99_ms < LAG_MS_MAX


async def _drip(writers: list[asyncio.StreamWriter]) -> None:
    while True:
        for writer in writers:
            writer.write(b"\0")
        await asyncio.sleep(0.1)

"""Connections of a SASL listener, frame by frame: what is answered, and what ends them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.apis.handler import HangUpError
from broker.protocol import codec
from broker.protocol.versions import SERVED, ApiKey
from broker.request_context import ClientConnection, RequestContext, SaslState
from broker.server import _connection
from raftctl.errors import ErrorCode
from raftctl.metadata.records import RemoveUserScramCredentialRecord
from raftctl.security import Principal
from raftctl.security.sasl import PLAIN, make_client
from tests.unit.broker.server.fakes import Client, connected, publish, running_with
from tests.unit.broker.server.sasl import KEYS, add_user, authenticate, handshake, log_in
from tests.unit.raftctl.security.sasl.exchanges import jaas

if TYPE_CHECKING:
    from tests.unit.broker.server.fakes import FakeBroker

pytestmark = pytest.mark.req("S3")

ALICE = b"\0alice\0alice-secret"
WRONG = b"\0alice\0wrong"
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
METADATA: dict[str, Any] = {"topics": []}
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


def reasons(broker: FakeBroker) -> list[str]:
    """Why connections were closed, of those with a reason."""
    return [str(line["reason"]) for line in broker.events("connection_closed")]


def principals(broker: FakeBroker) -> set[Principal]:
    """For whom requests were served that came after authentication."""
    return {one.connection.principal for one in broker.contexts if one.connection.sasl is not None}


async def served(client: Client) -> bool:
    """Whether an ordinary request is answered."""
    answer = await client.ask(ApiKey.METADATA, 1, METADATA)
    return bool(answer["brokers"])


@pytest.mark.parametrize("versions_first", [False, True])
async def test_a_client_logs_in_and_is_served(versions_first: bool) -> None:
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        if versions_first:
            assert not (await client.ask(ApiKey.API_VERSIONS, 0, {}))["error_code"]
        answer = await handshake(client, "PLAIN")
        assert answer == {"error_code": 0, "mechanisms": ["PLAIN", SHA_256, SHA_512]}
        answer = await authenticate(client, ALICE)
        assert (answer["error_code"], answer["auth_bytes"]) == (0, b"")
        assert answer["session_lifetime_ms"] == 0
        assert await served(client)
        assert broker.contexts[-1].connection.principal == Principal("User", "alice")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
async def test_credentials_of_the_newest_image_count(mechanism: str) -> None:
    async with running_with(KEYS, "t") as broker:
        login = jaas(username="bob", password="first")
        for password, works in (("none", False), ("first", True), ("second", False)):
            if password != "none":
                add_user(broker, mechanism, "bob", password)
            async with connected(broker) as client:
                answer = await log_in(client, mechanism, make_client(mechanism, login, "nonce"))
                assert (answer["error_code"] == 0) is works
        number = {SHA_256: 1, SHA_512: 2}[mechanism]
        publish(broker.metadata, [RemoveUserScramCredentialRecord("bob", number)])
        async with connected(broker) as client:
            login = jaas(username="bob", password="second")
            answer = await log_in(client, mechanism, make_client(mechanism, login, "nonce"))
            assert answer["error_code"] == FAILED


async def test_the_answer_to_a_failure_does_not_reveal_whether_the_user_exists() -> None:
    async with running_with(KEYS, "t") as broker:
        add_user(broker, SHA_256, "bob", "secret")
        seen = []
        for mechanism, user in (
            ("PLAIN", "alice"),
            ("PLAIN", "eve"),
            (SHA_256, "bob"),
            (SHA_256, "eve"),
        ):
            login = jaas(username=user, password="wrong")
            async with connected(broker) as client:
                answer = await log_in(client, mechanism, make_client(mechanism, login, "nonce"))
                assert answer["error_code"] == FAILED
                assert await client.ended()
                seen.append((answer["error_message"], reasons(broker)[-1]))
        assert seen[0] == seen[1]
        assert seen[2] == seen[3]
        assert len(reasons(broker)) == 4, "one line a connection"
        assert "wrong" not in " ".join(one for one, _ in seen)


async def test_a_mechanism_that_is_not_enabled_is_refused_with_the_list() -> None:
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        answer = await handshake(client, "GSSAPI")
        assert answer["error_code"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer["mechanisms"] == ["PLAIN", SHA_256, SHA_512]
        assert await client.ended()


def requests_before(stage: str) -> list[tuple[int, dict[str, Any]]]:
    """Requests with a short body that may not be sent at a stage."""
    forbidden: list[tuple[int, dict[str, Any]]] = [
        (ApiKey.METADATA, METADATA),
        (ApiKey.LIST_GROUPS, {}),
        (
            ApiKey.DESCRIBE_ACLS,
            {
                "resource_type_filter": 1,
                "pattern_type_filter": 1,
                "operation": 1,
                "permission_type": 1,
                "resource_name_filter": None,
                "principal_filter": None,
                "host_filter": None,
            },
        ),
    ]
    if stage == "tokens":
        return [
            *forbidden,
            (ApiKey.API_VERSIONS, {}),
            (ApiKey.SASL_HANDSHAKE, {"mechanism": PLAIN}),
        ]
    return [*forbidden, (ApiKey.SASL_AUTHENTICATE, {"auth_bytes": ALICE})]


@pytest.mark.parametrize(
    ("stage", "number"),
    [(s, n) for s in ("first", "versions", "tokens") for n in range(len(requests_before(s)))],
)
async def test_any_other_request_ends_the_connection_with_one_line(stage: str, number: int) -> None:
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        if stage == "versions":
            await client.ask(ApiKey.API_VERSIONS, 0, {})
        if stage == "tokens":
            await handshake(client, "PLAIN")
        before = len(broker.contexts)
        key, message = requests_before(stage)[number]
        client.send(key, SERVED[key].start, message)
        assert await client.ended()
        assert len(reasons(broker)) == 1
        assert len(broker.contexts) == before, "nothing was dispatched"


async def test_a_second_request_for_versions_ends_the_connection() -> None:
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        await client.ask(ApiKey.API_VERSIONS, 0, {})
        client.send(ApiKey.API_VERSIONS, 0, {})
        assert await client.ended()
        assert len(reasons(broker)) == 1


async def test_versions_of_an_unknown_version_may_be_asked_again() -> None:
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        header = b"\0\x12\0\x63\0\0\0\x09\0\0"
        client.writer.write(len(header).to_bytes(4, "big") + header)
        size = int.from_bytes(await client.reader.readexactly(4), "big")
        await client.reader.readexactly(size)
        assert not (
            await client.ask(
                ApiKey.API_VERSIONS,
                3,
                {"client_software_name": "x", "client_software_version": "1"},
            )
        )["error_code"]
        assert not (await handshake(client, "PLAIN"))["error_code"]


async def send_raw(client: Client, token: bytes) -> bytes:
    """The answer to a token without a header."""
    client.writer.write(len(token).to_bytes(4, "big") + token)
    size = int.from_bytes(await client.reader.readexactly(4), "big")
    return await client.reader.readexactly(size)


async def test_after_a_handshake_of_version_0_tokens_come_without_headers() -> None:
    async with running_with(KEYS, "t") as broker:
        add_user(broker, SHA_512, "bob", "secret")
        async with connected(broker) as client:
            await handshake(client, "PLAIN", version=0)
            assert await send_raw(client, ALICE) == b""
            assert await served(client)
        async with connected(broker) as client:
            await handshake(client, SHA_512, version=0)
            mechanism = make_client(SHA_512, jaas(username="bob", password="secret"), "nonce")
            challenge = b""
            while (response := mechanism.respond(challenge)) is not None:
                challenge = await send_raw(client, response)
            assert await served(client)
        for token in (WRONG, b"", b"\0a\0b"):
            async with connected(broker) as client:
                await handshake(client, "PLAIN", version=0)
                client.writer.write(len(token).to_bytes(4, "big") + token)
                assert await client.ended(), "there is no form for an answer"
        assert len(reasons(broker)) == 3


@pytest.mark.parametrize("stage", ["first", "tokens", "raw"])
async def test_a_frame_before_authentication_is_bounded(stage: str) -> None:
    async with running_with({**KEYS, "sasl.server.max.receive.size": "1000"}, "t") as broker:
        async with connected(broker) as client:
            if stage != "first":
                await handshake(client, "PLAIN", version=0 if stage == "raw" else 1)
            client.writer.write((1001).to_bytes(4, "big"))
            assert await client.ended()
            assert "1001 bytes" in reasons(broker)[0]
        async with connected(broker) as client:
            await handshake(client, "PLAIN")
            await authenticate(client, ALICE)
            topics = [{"name": f"topic-{n}"} for n in range(200)]
            assert len((await client.ask(ApiKey.METADATA, 1, {"topics": topics}))["topics"]) == 200


async def test_who_does_not_authenticate_in_time_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_connection, "LOGIN_SECONDS", 0.05)
    async with (
        running_with(KEYS, "t") as broker,
        connected(broker) as other,
        connected(broker) as client,
    ):
        await handshake(other, "PLAIN")
        await authenticate(other, ALICE)
        client.writer.write(b"\0\0")
        assert await client.ended()
        assert "does not authenticate" in reasons(broker)[0]
        assert await served(other)


async def test_only_the_answer_to_a_failure_is_delayed() -> None:
    keys = {**KEYS, "connection.failed.authentication.delay.ms": "700"}
    async with running_with(keys, "t") as broker:
        async with connected(broker) as first:
            # The codec of a request is made when it is first asked, which takes time as well.
            await handshake(first, "PLAIN")
            await authenticate(first, ALICE)
            assert await served(first)
        async with connected(broker) as client, connected(broker) as other:
            await handshake(client, "PLAIN")
            await handshake(other, "PLAIN")
            begun = asyncio.get_running_loop().time()
            refused = asyncio.ensure_future(authenticate(client, WRONG))
            assert not (await authenticate(other, ALICE))["error_code"]
            assert await served(other)
            assert not refused.done(), "others are not slowed"
            assert (await refused)["error_code"] == FAILED
            assert asyncio.get_running_loop().time() - begun >= 0.7
            assert await client.ended()
        async with connected(broker) as client:
            await handshake(client, "PLAIN")
            client.send(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": WRONG})
            await client.writer.drain()
        await asyncio.sleep(0.05)
        assert len(reasons(broker)) == 2, "also where the client does not wait for the answer"


# --- sessions -------------------------------------------------------------------------------------


def lasting(ms: int) -> dict[str, str]:
    """Keys by which sessions of PLAIN last so long."""
    return {**KEYS, "listener.name.plaintext.plain.connections.max.reauth.ms": str(ms)}


async def test_a_session_that_has_expired_ends_with_the_next_request() -> None:
    async with running_with(lasting(150), "t") as broker, connected(broker) as client:
        await handshake(client, "PLAIN")
        assert (await authenticate(client, ALICE))["session_lifetime_ms"] == 150
        assert await served(client)
        await asyncio.sleep(0.2)
        client.send(ApiKey.METADATA, 1, METADATA)
        assert await client.ended()
        assert "expired" in reasons(broker)[0]
        assert "alice" in reasons(broker)[0]


async def test_a_session_is_renewed_also_after_it_has_expired() -> None:
    async with running_with(lasting(150), "t") as broker, connected(broker) as client:
        for _ in range(2):
            assert not (await handshake(client, "PLAIN"))["error_code"]
            assert (await authenticate(client, ALICE))["session_lifetime_ms"] == 150
            assert await served(client)
            await asyncio.sleep(0.2)
        assert reasons(broker) == []


async def test_a_second_renewal_within_a_second_is_no_renewal() -> None:
    async with running_with(lasting(60_000), "t") as broker, connected(broker) as client:
        for _ in range(2):
            await handshake(client, "PLAIN")
            await authenticate(client, ALICE)
        answer = await handshake(client, "PLAIN")
        assert answer["error_code"] == ErrorCode.ILLEGAL_SASL_STATE
        assert await served(client)
        assert principals(broker) == {Principal("User", "alice")}


async def test_requests_wait_for_the_end_of_a_renewal() -> None:
    async with running_with(lasting(60_000), "t") as broker, connected(broker) as client:
        await handshake(client, "PLAIN")
        await authenticate(client, ALICE)
        await handshake(client, "PLAIN")
        client.send(ApiKey.METADATA, 1, METADATA)
        assert await client.ended()
        assert len(reasons(broker)) == 1


async def test_a_renewal_changes_neither_principal_nor_mechanism() -> None:
    async with running_with(lasting(60_000), "t") as broker:
        add_user(broker, SHA_256, "alice", "secret")
        async with connected(broker) as client:
            await handshake(client, "PLAIN")
            await authenticate(client, ALICE)
            await handshake(client, "PLAIN")
            answer = await authenticate(client, b"\0broker\0of-brokers")
            assert answer["error_code"] == FAILED
            assert "principal" in answer["error_message"]
            assert await client.ended()
        async with connected(broker) as client:
            await handshake(client, "PLAIN")
            await authenticate(client, ALICE)
            login = make_client(SHA_256, jaas(username="alice", password="secret"), "nonce")
            answer = await log_in(client, SHA_256, login)
            assert answer["error_code"] == FAILED
            assert await client.ended()
        assert Principal("User", "broker") not in principals(broker)


async def test_a_failed_renewal_ends_the_connection() -> None:
    async with running_with(lasting(60_000), "t") as broker, connected(broker) as client:
        await handshake(client, "PLAIN")
        await authenticate(client, ALICE)
        await handshake(client, "PLAIN")
        assert (await authenticate(client, WRONG))["error_code"] == FAILED
        assert await client.ended()
        assert len(reasons(broker)) == 1


async def test_after_authentication_a_token_alone_is_out_of_place() -> None:
    async with running_with(KEYS, "t") as broker, connected(broker) as client:
        await handshake(client, "PLAIN")
        await authenticate(client, ALICE)
        assert (await authenticate(client, ALICE))["error_code"] == ErrorCode.ILLEGAL_SASL_STATE
        assert await served(client)
        assert principals(broker) == {Principal("User", "alice")}


# --- arbitrary input ------------------------------------------------------------------------------


FRAMES = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.tuples(
            st.sampled_from([17, 18, 36, 3, 0]), st.integers(0, 3), st.binary(max_size=40)
        ).map(lambda one: one[0].to_bytes(2, "big") + one[1].to_bytes(2, "big") + one[2]),
        st.sampled_from(
            [
                codec.encode_request(17, v, 1, "x", {"mechanism": m})[4:]
                for v in (0, 1)
                for m in ("PLAIN", SHA_256, "GSSAPI")
            ]
        ),
        st.binary(max_size=40).map(
            lambda token: codec.encode_request(36, 2, 1, "x", {"auth_bytes": token})[4:]
        ),
    ),
    max_size=5,
)


async def test_arbitrary_frames_are_never_served() -> None:
    """Whatever is sent, nothing but ApiVersions is dispatched, and nobody becomes a principal."""
    async with running_with(KEYS, "t") as broker:

        @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
        @given(FRAMES)
        def play(frames: list[bytes]) -> None:
            serve = broker.serve_on("PLAINTEXT")
            client = ClientConnection("PLAINTEXT", "SASL_PLAINTEXT", sasl=SaslState(1000))
            for frame in frames:
                try:
                    serve(frame, RequestContext(client, len(frame)))
                except (codec.MalformedError, HangUpError):
                    break
                if client.refusal is not None:
                    break
            assert client.principal.name == "ANONYMOUS"

        play()
        assert all(context.connection.principal.name == "ANONYMOUS" for context in broker.contexts)
        shown = json.dumps(broker.logged.entries, default=str)
        assert "alice-secret" not in shown

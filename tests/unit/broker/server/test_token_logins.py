"""Logins with delegation tokens: whom they act for, and when their connections end."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker.authentication import _verifiers
from broker.protocol.versions import ApiKey
from raftctl.errors import ErrorCode
from raftctl.metadata.records import DelegationTokenRecord, RemoveDelegationTokenRecord
from raftctl.security import Principal
from raftctl.security.delegation_tokens import TokenSecret
from raftctl.security.sasl import make_client
from tests.unit.broker.server.fakes import FakeBroker, connected, publish, running_with
from tests.unit.broker.server.sasl import KEYS, add_user, log_in
from tests.unit.raftctl.security.sasl.exchanges import jaas

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.broker.server.fakes import Client

pytestmark = pytest.mark.req("S3")
SECRET = TokenSecret("of the cluster")
WITH_TOKENS = {**KEYS, "delegation.token.secret.key": "of the cluster"}
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
NOW_MS = FakeBroker.wall_ms
METADATA: dict[str, Any] = {"topics": []}


def add_token(
    broker: FakeBroker, token_id: str = "an-id", owner: str = "alice", lasts_ms: int = 60_000
) -> str:
    """Have a token in the image of the broker; return the password of its bearer."""
    ends_ms = NOW_MS + lasts_ms
    people = (f"User:{owner}", "User:maker", ("User:renewer",))
    publish(broker.metadata, [DelegationTokenRecord(token_id, *people, 1, ends_ms, ends_ms)])
    return base64.b64encode(SECRET.hmac(token_id)).decode()


async def enter(
    client: Client, password: str, token_id: str = "an-id", mechanism: str = SHA_256, **more: str
) -> dict[str, Any]:
    """The last answer of a login with a token."""
    login = jaas(**{"username": token_id, "password": password, "tokenauth": "true", **more})
    return await log_in(client, mechanism, make_client(mechanism, login, "nonce"))


async def served(client: Client) -> bool:
    answer = await client.ask(ApiKey.METADATA, 1, METADATA)
    return bool(answer["brokers"])


@asynccontextmanager
async def a_broker(**keys: str) -> AsyncIterator[FakeBroker]:
    async with running_with({**WITH_TOKENS, **keys}, "t") as broker:
        yield broker


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
async def test_a_client_with_a_token_acts_for_its_owner(mechanism: str) -> None:
    async with a_broker() as broker, connected(broker) as client:
        password = add_token(broker, owner="alice", lasts_ms=60_000)
        answer = await enter(client, password, mechanism=mechanism)
        assert answer["error_code"] == 0
        assert answer["session_lifetime_ms"] == 60_000, "no session outlives its token"
        assert await served(client)
        connection = broker.contexts[-1].connection
        assert connection.principal == Principal("User", "alice")
        assert connection.token_id == "an-id"


async def test_a_client_with_a_token_may_not_have_another() -> None:
    async with a_broker() as broker, connected(broker) as client:
        await enter(client, add_token(broker))
        answer = await client.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})
        assert answer["error_code"] == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_a_token_and_a_user_are_not_the_same_though_they_have_one_name() -> None:
    async with a_broker() as broker:
        password = add_token(broker)
        add_user(broker, SHA_256, "alice", "of-alice")
        add_user(broker, SHA_256, "an-id", "of-the-user")
        for name, given, flag, works in (
            ("an-id", password, "false", False),
            ("an-id", "of-the-user", "true", False),
            ("an-id", "of-the-user", "false", True),
            ("alice", "of-alice", "true", False),
            ("alice", password, "true", False),
            ("an-id", password, "true", True),
        ):
            async with connected(broker) as client:
                answer = await enter(client, given, name, tokenauth=flag)
                assert (answer["error_code"] == 0) is works, (name, flag)


@pytest.mark.parametrize("case", ["wrong", "unknown", "removed", "expired", "no key"])
async def test_a_login_that_fails_has_one_answer_and_one_line(case: str) -> None:
    keys = {"delegation.token.secret.key": ""} if case == "no key" else {}
    async with a_broker(**keys) as broker:
        password = add_token(broker, lasts_ms=0 if case == "expired" else 1)
        token_id = "another" if case == "unknown" else "an-id"
        if case == "removed":
            publish(broker.metadata, [RemoveDelegationTokenRecord("an-id")])
        async with connected(broker) as client:
            given = "wrong" if case == "wrong" else password
            answer = await enter(client, given, token_id)
            assert answer["error_code"] == FAILED
            text = "SCRAM-SHA-256 failed: the credentials are not valid"
            assert answer["error_message"] == text, "nobody learns what is wrong"
            assert await client.ended()
        (line,) = broker.events("connection_closed")
        what = "token has expired" if case == "expired" else "no such user"
        assert what in line["reason"]
        shown = json.dumps(broker.logged.entries, default=repr)
        assert password not in shown
        assert "of the cluster" not in shown


async def test_the_session_ends_with_the_token() -> None:
    async with a_broker() as broker, connected(broker) as client:
        await enter(client, add_token(broker, lasts_ms=1))
        await asyncio.sleep(0.01)
        client.send(ApiKey.METADATA, 1, METADATA)
        assert await client.ended()
        (line,) = broker.events("connection_closed")
        assert line["reason"] == "the session of User:alice has expired"


async def test_a_token_that_is_removed_ends_its_connections_and_no_others() -> None:
    """Apache Kafka serves them until they expire; a token is removed because it was stolen."""
    async with a_broker() as broker, connected(broker) as stolen, connected(broker) as other:
        await enter(stolen, add_token(broker))
        await enter(other, add_token(broker, "other"), "other")
        assert await served(stolen)
        publish(broker.metadata, [RemoveDelegationTokenRecord("an-id")])
        stolen.send(ApiKey.METADATA, 1, METADATA)
        assert await stolen.ended()
        assert await served(other)
        (line,) = broker.events("connection_closed")
        assert line["reason"] == "the delegation token of User:alice is removed"


async def test_a_session_is_renewed_with_another_token_of_the_same_owner() -> None:
    async with a_broker() as broker, connected(broker) as client:
        await enter(client, add_token(broker))
        password = add_token(broker, "newer")
        publish(broker.metadata, [RemoveDelegationTokenRecord("an-id")])
        assert (await enter(client, password, "newer"))["error_code"] == 0
        assert await served(client)
        assert broker.contexts[-1].connection.token_id == "newer"


async def test_a_session_is_not_renewed_with_a_token_that_is_removed() -> None:
    async with a_broker() as broker, connected(broker) as client:
        password = add_token(broker)
        await enter(client, password)
        publish(broker.metadata, [RemoveDelegationTokenRecord("an-id")])
        assert (await enter(client, password))["error_code"] == FAILED
        assert await client.ended()
        assert len(broker.events("connection_closed")) == 1


async def test_a_password_after_a_token_frees_the_session_of_it() -> None:
    async with a_broker() as broker, connected(broker) as client:
        add_user(broker, SHA_256, "alice", "of-alice")
        await enter(client, add_token(broker))
        answer = await enter(client, "of-alice", "alice", tokenauth="false")
        assert (answer["error_code"], answer["session_lifetime_ms"]) == (0, 0)
        publish(broker.metadata, [RemoveDelegationTokenRecord("an-id")])
        assert await served(client)
        assert broker.contexts[-1].connection.token_id is None


async def test_the_keys_of_a_token_are_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To derive them takes milliseconds, in which the broker does nothing else."""
    derived: list[tuple[str, str]] = []
    true = TokenSecret.scram_keys

    def counted(self: TokenSecret, mechanism: str, token_id: str) -> Any:
        derived.append((mechanism, token_id))
        return true(self, mechanism, token_id)

    monkeypatch.setattr(TokenSecret, "scram_keys", counted)
    monkeypatch.setattr(_verifiers, "TOKEN_KEYS_MAX", 2)
    async with a_broker() as broker:
        password = add_token(broker)
        for mechanism in (SHA_256, SHA_256, SHA_512, SHA_256):
            async with connected(broker) as client:
                assert (await enter(client, password, mechanism=mechanism))["error_code"] == 0
        async with connected(broker) as client:
            assert (await enter(client, password, "unknown"))["error_code"] == FAILED
    assert derived == [(SHA_256, "an-id"), (SHA_512, "an-id")]


async def test_brokers_offer_the_same_salt_for_a_token() -> None:
    """A salt that changed would show who asks twice that there is a token of this id."""
    salts = {SECRET.scram_keys(SHA_256, "an-id")[0] for _ in range(2)}
    other = SECRET.scram_keys(SHA_256, "another-id")[0]
    assert len(salts) == 1
    assert other not in salts
    assert len(other) == 16

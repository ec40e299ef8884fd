"""A broker's connections to others: they log in, renew their sessions, and fail with a reason."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from joserfc import jwk, jws

from broker.protocol.versions import ApiKey
from broker.replication.fetcher import Connector
from raftctl.config import make_config
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import Endpoint
from raftctl.runtime.real import RealRuntime
from raftctl.security import Principal
from tests.unit.broker.server import fakes
from tests.unit.broker.server.fakes import running_with
from tests.unit.broker.server.sasl import KEYS, OAUTH_KEYS, add_user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from tests.unit.broker.server.fakes import FakeBroker

pytestmark = pytest.mark.req("S3", "S6")

TIMEOUT_MS = 5000
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BY_SCRAM = {
    **KEYS,
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
        f"{_SCRAM} required username=peer password=of-peers;"
    ),
}


@asynccontextmanager
async def connector(keys: Mapping[str, str]) -> AsyncIterator[Connector]:
    """The connector of another broker with these keys."""
    runtime = RealRuntime(io.StringIO())
    try:
        yield Connector(make_config({**fakes.KEYS, **keys}), runtime)
    finally:
        runtime.close()


def endpoint(broker: FakeBroker) -> Endpoint:
    """Where the broker listens."""
    return Endpoint("PLAINTEXT", "127.0.0.1", broker.port)


async def ask(connection: Any) -> bool:
    """Whether an ordinary request is answered."""
    answer = await connection.call(ApiKey.METADATA, 1, {"topics": []}, TIMEOUT_MS)
    return bool(answer["brokers"])


@pytest.mark.parametrize(("keys", "user"), [(KEYS, "broker"), (BY_SCRAM, "peer")])
async def test_a_broker_logs_in_to_another(keys: dict[str, str], user: str) -> None:
    async with running_with(keys, "t") as broker, connector(keys) as other:
        add_user(broker, "SCRAM-SHA-512", "peer", "of-peers")
        connection = await other.connect(endpoint(broker), "fetcher", TIMEOUT_MS)
        assert await ask(connection)
        assert broker.contexts[-1].connection.principal == Principal("User", user)
        connection.close()


async def test_a_broker_without_a_credential_fails_with_the_reason() -> None:
    async with running_with(BY_SCRAM, "t") as broker, connector(BY_SCRAM) as other:
        with pytest.raises(KafkaError) as refused:
            await other.connect(endpoint(broker), "fetcher", TIMEOUT_MS)
        assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "of-peers" not in str(refused.value)
        assert not broker.contexts


async def test_a_mechanism_that_the_other_side_lacks_is_named() -> None:
    lacking = {**KEYS, "sasl.enabled.mechanisms": "PLAIN"}
    async with running_with(lacking, "t") as broker, connector(BY_SCRAM) as other:
        with pytest.raises(KafkaError, match="SCRAM-SHA-512 is not enabled") as refused:
            await other.connect(endpoint(broker), "fetcher", TIMEOUT_MS)
        assert refused.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM


async def test_a_listener_without_sasl_is_not_logged_in_to() -> None:
    async with running_with({}, "t") as broker, connector(KEYS) as other:
        with pytest.raises(KafkaError) as refused:
            await other.connect(endpoint(broker), "fetcher", TIMEOUT_MS)
        assert refused.value.code is ErrorCode.ILLEGAL_SASL_STATE


async def test_a_session_is_renewed_before_it_expires() -> None:
    lasting = {**KEYS, "listener.name.plaintext.plain.connections.max.reauth.ms": "1500"}
    async with running_with(lasting, "t") as broker, connector(lasting) as other:
        connection = await other.connect(endpoint(broker), "fetcher", TIMEOUT_MS)
        expiries = set()
        for _ in range(7):
            assert await ask(connection)
            expiries.add(broker.contexts[-1].connection.session_expires_at)
            await asyncio.sleep(0.3)
        assert len(expiries) == 2
        assert broker.events("connection_closed") == []
        connection.close()


async def test_a_broker_logs_in_with_a_token_of_a_file(tmp_path: Path) -> None:
    key = jwk.ECKey.generate_key("P-256", {"kid": "one"})
    (tmp_path / "keys").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    keys = {
        **OAUTH_KEYS,
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys").as_uri(),
        "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
    }
    async with running_with(keys, "t") as broker, connector(keys) as other:
        with pytest.raises(KafkaError, match="token cannot be read"):
            await other.connect(endpoint(broker), "fetcher", TIMEOUT_MS)
        now = broker.wall_ms // 1000
        for expiry, works in ((now + 60, True), (now - 60, False)):
            claims = json.dumps({"sub": "broker", "iat": now, "exp": expiry})
            token = jws.serialize_compact({"alg": "ES256", "kid": "one"}, claims, key)
            (tmp_path / "token").write_text(token)
            if works:
                connection = await other.connect(endpoint(broker), "fetcher", TIMEOUT_MS)
                assert await ask(connection)
                connection.close()
            else:
                with pytest.raises(KafkaError) as refused:
                    await other.connect(endpoint(broker), "fetcher", TIMEOUT_MS)
                assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED

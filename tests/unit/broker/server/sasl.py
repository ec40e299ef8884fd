"""A broker whose clients authenticate: its configuration, its users, and a client's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from raftctl.metadata.records import UserScramCredentialRecord
from raftctl.security.sasl.scram import HASHES, SCRAM_IDS, salted_password, scram_keys
from tests.unit.broker.server.fakes import publish

if TYPE_CHECKING:
    from raftctl.security.sasl import ClientMechanism
    from tests.kit.issuer import Issuer
    from tests.unit.broker.server.fakes import Client, FakeBroker

_MODULES = "org.apache.kafka.common.security"
_OWN = "listener.name.plaintext"
KEYS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{_OWN}.plain.sasl.jaas.config": (
        f"{_MODULES}.plain.PlainLoginModule required username=broker password=of-brokers "
        'user_broker="of-brokers" user_alice="alice-secret";'
    ),
    "connection.failed.authentication.delay.ms": "0",
}
"""Of a listener that lets alice and the brokers in by PLAIN, and those with a credential."""
OAUTH_KEYS = {
    **KEYS,
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    f"{_OWN}.oauthbearer.sasl.jaas.config": (
        f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
    ),
}


def with_tokens(issuer: Issuer) -> dict[str, str]:
    """Return the keys of a broker that takes an issuer's tokens."""
    return {**OAUTH_KEYS, "sasl.oauthbearer.jwks.endpoint.url": issuer.keys_url}


def by_token(client: str, secret: str, issuer: Issuer) -> dict[str, str]:
    """Return the keys of a client that gets its tokens of an issuer."""
    options = f'clientId="{client}" clientSecret="{secret}"'
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
        "sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required {options};",
    }


def scram_record(mechanism: str, user: str, password: str) -> UserScramCredentialRecord:
    """The record of a user's password."""
    digest = HASHES[mechanism]
    keys = scram_keys(digest, salted_password(digest, password, b"salt", 4096))
    number = SCRAM_IDS[mechanism]
    return UserScramCredentialRecord(user, number, b"salt", *keys, 4096)


def add_user(broker: FakeBroker, mechanism: str, user: str, password: str) -> None:
    """Give a user a password."""
    publish(broker.metadata, [scram_record(mechanism, user, password)])


async def handshake(client: Client, mechanism: str, version: int = 1) -> dict[str, Any]:
    """The answer to a SaslHandshake."""
    return await client.ask(ApiKey.SASL_HANDSHAKE, version, {"mechanism": mechanism})


async def authenticate(client: Client, token: bytes, version: int = 2) -> dict[str, Any]:
    """The answer to a SaslAuthenticate."""
    return await client.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": token})


async def log_in(client: Client, name: str, mechanism: ClientMechanism) -> dict[str, Any]:
    """The last answer of a whole exchange; that of the handshake if it is refused."""
    answer = await handshake(client, name)
    challenge = b""
    while not answer["error_code"]:
        response = mechanism.respond(challenge)
        if response is None:
            break
        answer = await authenticate(client, response)
        challenge = bytes(answer["auth_bytes"])
    return answer

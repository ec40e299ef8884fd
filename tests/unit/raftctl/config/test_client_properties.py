"""The `.properties` of a client: what they ask for, and what is refused."""

from __future__ import annotations

import pytest

from raftctl.config import parse_client_properties
from raftctl.config.security import ClientSecurity
from raftctl.errors import ConfigError

pytestmark = pytest.mark.req("S7")

PACKAGE = "org.apache.kafka.common.security"
PLAIN = f"{PACKAGE}.plain.PlainLoginModule"
SCRAM = f"{PACKAGE}.scram.ScramLoginModule"
PASSWORD = "all-of-it"
PROTOCOL = "security.protocol=SASL_PLAINTEXT\n"
MECHANISM = f"{PROTOCOL}sasl.mechanism=PLAIN\n"
OAUTH = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule"
HANDLER = f"{PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url=https://login.example.org/token\n"
TOKENS = (
    f"{PROTOCOL}sasl.mechanism=OAUTHBEARER\n"
    f'sasl.jaas.config={OAUTH} required clientId="admin" clientSecret="{PASSWORD}";\n'
)
JAAS = f'sasl.jaas.config={PLAIN} required username="admin" password="{PASSWORD}";\n'


def test_an_empty_file_asks_for_a_plain_connection() -> None:
    assert parse_client_properties("") == ClientSecurity()


def test_login() -> None:
    found = parse_client_properties(MECHANISM + JAAS)
    assert found.protocol == "SASL_PLAINTEXT"
    assert found.tls is None
    assert found.login is not None
    assert (found.login.mechanism, found.login.user) == ("PLAIN", "admin")
    assert found.login.password.get_secret_value() == PASSWORD
    assert PASSWORD not in repr(found)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_login_by_scram(mechanism: str) -> None:
    text = f"{PROTOCOL}sasl.mechanism={mechanism.lower()}\n{JAAS.replace(PLAIN, SCRAM)}"
    found = parse_client_properties(text)
    assert found.login is not None
    assert found.login.mechanism == mechanism


@pytest.mark.parametrize("scope", [None, "kafka"])
def test_login_by_token(scope: str | None) -> None:
    text = TOKENS + ENDPOINT + f"sasl.login.callback.handler.class={HANDLER}\n"
    if scope is not None:
        text = text.replace("clientId", f"scope={scope} clientId")
    login = parse_client_properties(text).login
    assert login is not None
    assert (login.mechanism, login.user, login.scope) == ("OAUTHBEARER", "admin", scope)
    assert login.password.get_secret_value() == PASSWORD
    assert login.token_endpoint_url == "https://login.example.org/token"
    assert PASSWORD not in repr(login)


def test_tls() -> None:
    stores = "ssl.truststore.location=/trusted.jks\nssl.truststore.password=of-the-store\n"
    found = parse_client_properties(f"security.protocol=ssl\n{stores}")
    assert found.protocol == "SSL"
    assert found.login is None
    assert found.tls is not None
    assert found.tls.truststore.location == "/trusted.jks"
    assert found.tls.truststore.type == "JKS"
    assert found.tls.endpoint_identification_algorithm == "https"
    assert "of-the-store" not in repr(found)


def test_name_of_the_server_is_not_checked_if_the_algorithm_is_empty() -> None:
    key = "ssl.endpoint.identification.algorithm="
    found = parse_client_properties(f"security.protocol=SSL\n{key}\n")
    assert found.tls is not None
    assert not found.tls.endpoint_identification_algorithm


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("acks=all", "acks: it has no effect here: leave it out", id="unknown"),
        ("security.protocol=SSL\nssl.protocol=TLSv1.2", "ssl.protocol: it has no effect"),
        ("security.protocol=TLS", "security.protocol"),
        pytest.param(
            "ssl.truststore.location=/a",
            "ssl.truststore.location: security.protocol=PLAINTEXT",
            id="plain",
        ),
        (JAAS, "sasl.jaas.config: security.protocol=PLAINTEXT does not use it"),
        (f"security.protocol=SSL\n{JAAS}", "sasl.jaas.config: security.protocol=SSL"),
        (
            f"{MECHANISM}{JAAS}ssl.key.password={PASSWORD}",
            "ssl.key.password: security.protocol=SASL_PLAINTEXT",
        ),
        ("security.protocol=SSL\nssl.keystore.type=PEM", "set ssl.keystore.location too"),
        ("security.protocol=SSL\nssl.key.password=x", "set ssl.keystore.location too"),
        (
            f"security.protocol=SSL\nssl.truststore.password={PASSWORD}",
            "set ssl.truststore.location too",
        ),
        (
            "security.protocol=SSL\nssl.endpoint.identification.algorithm=ldaps",
            "write https, or nothing",
        ),
        (PROTOCOL + JAAS, "sasl.mechanism: commands log in by PLAIN, SCRAM-SHA-256"),
        (f"{PROTOCOL}sasl.mechanism=GSSAPI\n{JAAS}", "sasl.mechanism=GSSAPI: commands log in by"),
        (MECHANISM, "sasl.jaas.config: it is not set: write"),
        (f"{MECHANISM}sasl.jaas.config={PASSWORD}", "sasl.jaas.config: malformed"),
        (MECHANISM + JAAS.replace(PLAIN, SCRAM), "it has no login module of PLAIN"),
        pytest.param(
            MECHANISM + JAAS.replace(" password", ' token="true" password'),
            "the option token has no effect",
            id="option",
        ),
        (MECHANISM + JAAS.replace('username="admin"', ""), "the option username is not set"),
        (MECHANISM + JAAS.replace("admin", ""), "the option username is not set"),
        (TOKENS, "token.endpoint.url: commands get tokens there"),
        (TOKENS + ENDPOINT.replace("https", "file"), "token.endpoint.url: commands get tokens"),
        (MECHANISM + JAAS + ENDPOINT, "token.endpoint.url: PLAIN has no tokens"),
        (
            f"{MECHANISM}{JAAS}sasl.login.callback.handler.class={HANDLER}",
            "handler.class: PLAIN has no tokens",
        ),
        (
            f"{TOKENS}{ENDPOINT}sasl.login.callback.handler.class=org.example.Own",
            "classes of Java are not loaded",
        ),
        (TOKENS.replace("clientSecret", "password") + ENDPOINT, "the option password has no"),
        (TOKENS.replace('clientId="admin"', "") + ENDPOINT, "the option clientId is not set"),
    ],
)
def test_refused(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_client_properties(text)
    assert error in str(caught.value)
    assert PASSWORD not in str(caught.value)

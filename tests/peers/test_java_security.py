"""Apache Kafka's Java clients and tools on protected listeners, all in one virtual machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.peers.jvm import ACLS, CONFIGS, JavaClient
from tests.peers.protected_node import (
    ALICE,
    JKS,
    MALLORY,
    MECHANISMS,
    PASSWORD,
    PEM,
    PKCS12,
    SASL,
    SASL_TLS,
)
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.peers.protected_node import Entrance, Place

USERS = {
    "PLAIN": ALICE,
    "SCRAM-SHA-256": "scram-256",
    "SCRAM-SHA-512": "scram-512",
    "OAUTHBEARER": "bearer",
}
"""Who logs in by each mechanism."""
CERTIFIED = "CN=client,O=Test"
DONE = {
    "create": "done",
    "acks": "done",
    "idempotent": "done",
    "transaction": "done",
    # The mark of the transaction has an offset, too.
    "classic": 4,
    "consumer": 4,
}
START_S = 120

pytestmark = [
    pytest.mark.req("N1", "S2", "S3", "S4"),
    pytest.mark.timeout(INSTALL_TIMEOUT_S + START_S),
    pytest.mark.xdist_group("java_security"),
]


@pytest.fixture(scope="module")
def found(java_place: Place) -> dict[str, dict[str, Any]]:
    """What all clients have seen, run at once."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        password = f"{mechanism}=[iterations=4096,password={PASSWORD}]"
        user = ("--entity-type", "users", "--entity-name", USERS[mechanism])
        java_place.tool(CONFIGS, "--alter", "--add-config", password, *user)
    who = [f"User:{name}" for name in (*USERS.values(), CERTIFIED)]
    for kind in ("--topic", "--group", "--transactional-id"):
        rights = [word for one in who for word in ("--allow-principal", one)]
        like = ("--resource-pattern-type", "prefixed")
        java_place.tool(ACLS, "--add", *rights, kind, "java-", *like)
    return java_place.jvm.clients(*clients(java_place.entrance))


def clients(entrance: Entrance) -> Iterator[JavaClient]:
    """Each way to come in, and each way to be refused."""
    for one in (JKS, PEM):
        yield JavaClient(one, entrance.properties(one, tls=entrance.tls(one)), f"java-{one}")
    for kind in ("JKS", "PKCS12", "PEM"):
        name = f"mTLS-{kind}"
        own = entrance.properties(PKCS12, tls=entrance.tls(kind, "client"))
        yield JavaClient(name, own, f"java-{name}")
    for listener in (SASL, SASL_TLS):
        for mechanism, user in USERS.items():
            name = f"{listener}-{mechanism}"
            yield JavaClient(name, entrance.properties(listener, mechanism, user), f"java-{name}")
    yield from refused(entrance)
    again = entrance.properties(SASL, "SCRAM-SHA-256", USERS["SCRAM-SHA-256"])
    yield JavaClient("again", again, "java-again", ("create", "again"))


def refused(entrance: Entrance) -> Iterator[JavaClient]:
    """Clients that are not let in, or may do nothing."""
    for mechanism, user in USERS.items():
        if mechanism != "OAUTHBEARER":
            wrong = entrance.properties(SASL_TLS, mechanism, user, "wrong")
            yield JavaClient(f"wrong-{mechanism}", wrong, "java-wrong", ("describe", "acks"))
    nobody = entrance.properties(SASL, "SCRAM-SHA-512", "nobody")
    yield JavaClient("wrong-user", nobody, "java-wrong", ("describe",))
    strangers = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(entrance.folder / "strangers.pem"),
    }
    strange = entrance.properties(SASL_TLS, "PLAIN", tls=strangers)
    yield JavaClient("wrong-authority", strange, "java-wrong", ("describe", "acks"))
    yield JavaClient("no-certificate", entrance.properties(PKCS12), "java-wrong", ("describe",))
    denied = entrance.properties(SASL_TLS, "PLAIN", MALLORY)
    yield JavaClient("denied", denied, "java-PEM", ("create", "acks", "transaction", "classic"))


@pytest.mark.parametrize("name", [JKS, PEM, "mTLS-JKS", "mTLS-PKCS12", "mTLS-PEM"])
def test_java_clients_over_tls(found: Mapping[str, Any], name: str) -> None:
    assert found[name] == DONE


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", [SASL, SASL_TLS])
def test_java_clients_log_in(found: Mapping[str, Any], listener: str, mechanism: str) -> None:
    assert found[f"{listener}-{mechanism}"] == DONE


def outcomes(found: Mapping[str, Any], name: str) -> dict[str, str]:
    """By action the class of its error."""
    return {one: kind for one, kind in found[name].items() if " " not in one}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password(found: Mapping[str, Any], mechanism: str) -> None:
    kind = "SaslAuthenticationException"
    assert outcomes(found, f"wrong-{mechanism}") == {"describe": kind, "acks": kind}


def test_an_unknown_user_is_told_what_one_with_a_wrong_password_is(
    found: Mapping[str, Any],
) -> None:
    key = "describe error"
    assert outcomes(found, "wrong-user") == {"describe": "SaslAuthenticationException"}
    assert found["wrong-user"][key] == found["wrong-SCRAM-SHA-512"][key]


def test_a_broker_of_another_authority(found: Mapping[str, Any]) -> None:
    kind = "SslAuthenticationException"
    assert outcomes(found, "wrong-authority") == {"describe": kind, "acks": kind}


def test_a_client_without_a_certificate(found: Mapping[str, Any]) -> None:
    assert outcomes(found, "no-certificate") == {"describe": "SslAuthenticationException"}


def test_whom_no_rule_allows(found: Mapping[str, Any]) -> None:
    assert outcomes(found, "denied") == {
        "create": "TopicAuthorizationException",
        "acks": "TopicAuthorizationException",
        "transaction": "TransactionalIdAuthorizationException",
        "classic": "TopicAuthorizationException",
    }


def test_a_client_logs_in_again_before_its_session_ends(found: Mapping[str, Any]) -> None:
    assert found["again"]["create"] == "done"
    assert found["again"]["again"] >= 2

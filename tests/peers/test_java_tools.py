"""Apache Kafka's tools with `--command-config`: each has an effect that a client sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.clusters import wait_until
from tests.kit.certificates import Authority
from tests.peers.jvm import ACLS, CONFIGS, GROUPS, TOPICS, JavaClient
from tests.peers.protected_node import (
    ADMIN,
    JKS,
    MALLORY,
    MECHANISMS,
    PASSWORD,
    SASL,
    SASL_TLS,
)
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from tests.peers.protected_node import Place

START_S = 120
ME = f"User:{MALLORY}"
SCRAM = [mechanism for mechanism in MECHANISMS if mechanism.startswith("SCRAM")]
DENIED = "TopicAuthorizationException"

pytestmark = [
    pytest.mark.req("A3", "S4", "S7"),
    pytest.mark.timeout(INSTALL_TIMEOUT_S + START_S),
    pytest.mark.xdist_group("java_security"),
]


def act(place: Place, topic: str, action: str, user: str = MALLORY) -> object:
    """What comes of a client's action on a topic."""
    properties = place.entrance.properties(SASL, "PLAIN", user)
    return place.jvm.clients(JavaClient("one", properties, topic, (action,)))["one"][action]


def expect(place: Place, topic: str, action: str, outcome: object) -> None:
    """Wait until this comes of it: brokers take up rules and users a moment later."""
    found: list[object] = []

    def is_so() -> bool:
        found.append(act(place, topic, action))
        return found[-1] == outcome

    wait_until(is_so, lambda: f"{action} on {topic}: {outcome}, not {found[-1]}")


def topic(place: Place, name: str) -> str:
    """Create a topic with one partition."""
    where = ("--create", "--topic", name, "--partitions", "1", "--replication-factor", "1")
    assert f"Created topic {name}." in place.tool(TOPICS, *where)
    return name


def test_topics_and_groups_over_tls(java_place: Place) -> None:
    name = topic(java_place, "tools-topics")
    assert "PartitionCount: 1" in java_place.tool(TOPICS, "--describe", "--topic", name)
    assert name in java_place.tool(TOPICS, "--list").splitlines()
    assert name not in java_place.tool(TOPICS, "--list", as_user=MALLORY).splitlines()
    for _ in range(3):
        assert act(java_place, name, "acks", ADMIN) == "done"
    assert act(java_place, name, "classic", ADMIN) == 3
    group = f"{name}-group-classic"
    assert group in java_place.tool(GROUPS, "--list").splitlines()
    (row,) = (
        line.split()
        for line in java_place.tool(GROUPS, "--describe", "--group", group).splitlines()
        if line.startswith(group)
    )
    assert row[1:6] == [name, "0", "3", "3", "0"]
    reset = ("--reset-offsets", "--group", group, "--topic", name, "--to-earliest", "--execute")
    java_place.tool(GROUPS, *reset)
    # It reads all of them again.
    assert act(java_place, name, "classic", ADMIN) == 3
    refused = java_place.tool(GROUPS, "--describe", "--group", group, as_user=MALLORY)
    assert "GroupAuthorizationException" in refused
    java_place.tool(TOPICS, "--delete", "--topic", name)
    wait_until(lambda: name not in java_place.tool(TOPICS, "--list").splitlines(), "it is gone")


def test_rules_that_are_added_and_removed(java_place: Place) -> None:
    name = topic(java_place, "tools-rules")
    assert act(java_place, name, "acks") == DENIED
    literal = ("--allow-principal", ME, "--operation", "Write", "--topic", name)
    java_place.tool(ACLS, "--add", *literal)
    expect(java_place, name, "acks", "done")
    listed = java_place.tool(ACLS, "--list", "--topic", name)
    assert "patternType=LITERAL" in listed
    assert f"principal={ME}, host=*, operation=WRITE, permissionType=ALLOW" in listed
    java_place.tool(ACLS, "--remove", *literal, "--force")
    expect(java_place, name, "acks", DENIED)
    kind = ("--resource-pattern-type", "prefixed")
    prefixed = ("--allow-principal", ME, "--operation", "Write", "--topic", "tools-ru", *kind)
    java_place.tool(ACLS, "--add", *prefixed)
    expect(java_place, name, "acks", "done")
    assert "patternType=PREFIXED" in java_place.tool(
        ACLS, "--list", "--topic", name, "--resource-pattern-type", "match"
    )
    here = ("--deny-host", "127.0.0.1")
    deny = ("--deny-principal", ME, "--operation", "Write", "--topic", name, *here)
    java_place.tool(ACLS, "--add", *deny)
    expect(java_place, name, "acks", DENIED)
    java_place.tool(ACLS, "--remove", *deny, "--force")
    expect(java_place, name, "acks", "done")
    java_place.tool(ACLS, "--remove", *prefixed, "--force")
    elsewhere = ("--allow-principal", ME, "--operation", "Write", "--topic", name)
    java_place.tool(ACLS, "--add", *elsewhere, "--allow-host", "10.1.2.3")
    expect(java_place, name, "acks", DENIED)
    assert "host=10.1.2.3" in java_place.tool(ACLS, "--list", "--principal", ME)
    refused = java_place.tool(ACLS, "--add", *elsewhere, as_user=MALLORY, status=1)
    assert "ClusterAuthorizationException" in refused


def test_rules_of_producers_and_consumers(java_place: Place) -> None:
    name = topic(java_place, "tools-producer")
    user = ("--add", "--allow-principal", ME)
    own = ("--transactional-id", f"{name}-group")
    java_place.tool(ACLS, *user, "--producer", "--topic", name, *own, "--idempotent")
    expect(java_place, name, "transaction", "done")
    assert act(java_place, name, "idempotent") == "done"
    assert "IDEMPOTENT_WRITE" in java_place.tool(ACLS, "--list", "--cluster")
    assert act(java_place, name, "classic") == "GroupAuthorizationException"
    group = ("--group", f"{name}-group-", "--resource-pattern-type", "prefixed")
    java_place.tool(ACLS, *user, "--consumer", "--topic", name, *group)
    assert act(java_place, name, "acks") == "done"
    expect(java_place, name, "consumer", 4)


def describe_users(place: Place, user: str) -> str:
    """The credentials and quotas of a user."""
    who = ("--entity-type", "users", "--entity-name", user)
    return place.tool(CONFIGS, "--describe", *who)


@pytest.mark.req("S3")
@pytest.mark.parametrize("mechanism", SCRAM)
def test_users_of_scram_log_in_until_they_are_deleted(java_place: Place, mechanism: str) -> None:
    user = f"tools-{mechanism.lower()}"
    who = ("--alter", "--entity-type", "users", "--entity-name", user)
    properties = java_place.entrance.properties(SASL_TLS, mechanism, user)
    client = JavaClient("one", properties, "none", ("describe",))

    def outcome() -> object:
        return java_place.jvm.clients(client)["one"]["describe"]

    assert outcome() == "SaslAuthenticationException"
    java_place.tool(CONFIGS, *who, "--add-config", f"{mechanism}=[password={PASSWORD}]")
    wait_until(lambda: outcome() == 1, "the user logs in")
    described = describe_users(java_place, user)
    assert f"{mechanism}=iterations=4096" in described
    assert PASSWORD not in described
    java_place.tool(CONFIGS, *who, "--delete-config", mechanism)
    wait_until(lambda: outcome() == "SaslAuthenticationException", "the user is gone")


@pytest.mark.req("S5")
def test_quotas_of_users_and_clients(java_place: Place) -> None:
    name = topic(java_place, "tools-quota")

    def flood() -> float:
        return float(str(act(java_place, name, "flood", ADMIN)))

    assert flood() == 0
    user = ("--entity-type", "users", "--entity-name", ADMIN)
    for entity in (user, ("--entity-type", "clients", "--entity-default")):
        java_place.tool(CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=500000")
        wait_until(lambda: flood() > 0, "the quota throttles")
        assert "producer_byte_rate=500000.0" in java_place.tool(CONFIGS, "--describe", *entity)
        java_place.tool(CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate")
        wait_until(lambda: flood() == 0, "no quota is left")
    address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    java_place.tool(CONFIGS, "--alter", *address, "--add-config", "connection_creation_rate=1")
    assert "connection_creation_rate=1.0" in java_place.tool(CONFIGS, "--describe", *address)
    java_place.tool(CONFIGS, "--alter", *address, "--delete-config", "connection_creation_rate")


@pytest.mark.req("S2", "C9")
def test_a_listener_gets_another_store(java_place: Place) -> None:
    entrance, prefix = java_place.entrance, f"listener.name.{JKS.lower()}.ssl.keystore."
    newer = entrance.folder / "newer.p12"
    authority = Authority("Newer")
    authority.issue("node").pkcs12(newer, PASSWORD)
    trusted = entrance.folder / "newer-trusted.pem"
    trusted.write_text(authority.pem)
    stores = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
    properties = entrance.properties(JKS, tls=stores)
    client = JavaClient("one", properties, "none", ("describe",))

    def outcome() -> object:
        return java_place.jvm.clients(client)["one"]["describe"]

    assert outcome() == "SslAuthenticationException"
    node = ("--alter", "--entity-type", "brokers", "--entity-name", "1")
    changes = f"{prefix}location={newer},{prefix}type=PKCS12,{prefix}password={PASSWORD}"
    java_place.tool(CONFIGS, *node, "--add-config", changes)
    wait_until(lambda: outcome() == 1, "the newer certificate is shown")
    described = java_place.tool(CONFIGS, "--describe", *node[1:])
    assert f"{prefix}location={newer} sensitive=false" in described
    assert f"{prefix}password=null sensitive=true" in described
    back = f"{prefix}location,{prefix}type,{prefix}password"
    java_place.tool(CONFIGS, *node, "--delete-config", back)
    wait_until(lambda: outcome() == "SslAuthenticationException", "the older one is shown")


@pytest.mark.req("S2", "C9")
@pytest.mark.parametrize(
    ("entity", "config", "complaint"),
    [
        ("1", f"listener.name.{JKS.lower()}.ssl.keystore.location=/nowhere", "/nowhere"),
        ("1", "ssl.keystore.location=/nowhere", "only per-listener using the listener prefix"),
        ("", f"listener.name.{JKS.lower()}.ssl.keystore.type=PEM", "broker id must be specified"),
        ("1", f"listener.name.{JKS.lower()}.ssl.client.auth=required", "for existing listener JKS"),
        ("1", "sasl.enabled.mechanisms=PLAIN", "sasl.enabled.mechanisms"),
        ("1", "listeners=INSIDE://:1", "Raft-based metadata quorum"),
    ],
)
def test_what_does_not_change_while_a_broker_runs(
    java_place: Place, entity: str, config: str, complaint: str
) -> None:
    of_one = ("--entity-name", entity) if entity else ("--entity-default",)
    where = ("--alter", "--entity-type", "brokers", *of_one)
    told = java_place.tool(CONFIGS, *where, "--add-config", config, status=1)
    assert complaint in told
    assert "InvalidRequestException" in told


@pytest.mark.req("S5", "C9")
def test_limits_of_all_brokers(java_place: Place) -> None:
    every = ("--entity-type", "brokers", "--entity-default")
    limits = "max.connections=5000,listener.name.jks.max.connections=1000"
    java_place.tool(CONFIGS, "--alter", *every, "--add-config", limits)
    described = java_place.tool(CONFIGS, "--describe", *every)
    assert "max.connections=5000" in described
    assert "listener.name.jks.max.connections=1000" in described
    names = limits.replace("=5000", "").replace("=1000", "")
    java_place.tool(CONFIGS, "--alter", *every, "--delete-config", names)

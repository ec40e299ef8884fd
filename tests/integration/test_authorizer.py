"""Rules of access on a cluster of real processes: denied, allowed, revoked (row S4).

Everybody is ANONYMOUS there, also the brokers, so that what no rule is about must be allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.integration.clusters import running_cluster, wait_until
from tests.integration.commands import raftctl
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from pathlib import Path

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ANONYMOUS = "User:ANONYMOUS"
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
TIMEOUT_S = 30


def produced(bootstrap: str, topic: str) -> KafkaError | None:
    """Why a record is refused; None if it is acknowledged."""
    found: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": False})
    producer.produce(topic, b"value", on_delivery=lambda error, _: found.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    (error,) = found
    assert error is None or isinstance(error, KafkaError)
    return error


def is_denied(bootstrap: str, topic: str) -> bool:
    """Whether a record for the topic is refused for want of the right to write it."""
    error = produced(bootstrap, topic)
    assert error is None or error.code() == DENIED
    return error is not None


def create(bootstrap: str, topic: str, replicas: int) -> None:
    """One partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topic(admin, topic, 1, replicas, {}, TIMEOUT_S)


@pytest.mark.req("S4", "P3")
def test_rules_take_effect_and_are_revoked(tmp_path: Path) -> None:
    with running_cluster(tmp_path, 1, 2, AUTHORIZED) as cluster:
        bootstrap = cluster.layout.bootstrap
        for topic in ("open", "closed", "granted"):
            create(bootstrap, topic, 2)
        assert not is_denied(bootstrap, "closed")

        def acls(command: str, option: str, principal: str, topic: str) -> None:
            rule = (option, principal, "--operation", "Write", "--topic", topic)
            done = raftctl("acls", command, *rule, "--bootstrap-server", bootstrap)
            assert done.status == 0, done.stderr

        acls("add", "--deny-principal", ANONYMOUS, "closed")
        wait_until(lambda: is_denied(bootstrap, "closed"), "a rule that denies is in force")
        # A rule for somebody else ends what is allowed where there is none.
        acls("add", "--allow-principal", "User:bob", "granted")
        wait_until(lambda: is_denied(bootstrap, "granted"), "a rule for bob is in force")
        assert not is_denied(bootstrap, "open")
        acls("add", "--allow-principal", ANONYMOUS, "granted")
        wait_until(lambda: not is_denied(bootstrap, "granted"), "a right is granted")
        acls("remove", "--allow-principal", ANONYMOUS, "granted")
        wait_until(lambda: is_denied(bootstrap, "granted"), "a right is revoked")
        assert "User:bob" in raftctl("acls", "list", "--bootstrap-server", bootstrap).stdout
        # Who may change rules the controller decides.
        alter = ("--deny-principal", ANONYMOUS, "--operation", "Alter", "--cluster")
        change = ("acls", "add", *alter, "--bootstrap-server", bootstrap)
        assert raftctl(*change).status == 0
        wait_until(
            lambda: "CLUSTER_AUTHORIZATION_FAILED" in raftctl(*change).stderr,
            "nobody may change rules any more",
        )


@pytest.mark.req("S4")
def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    with running_cluster(tmp_path, 1, 1) as cluster:
        bootstrap = cluster.layout.bootstrap
        rule = ("--allow-principal", "User:bob", "--operation", "Read", "--topic", "t")
        refused = raftctl("acls", "add", *rule, "--bootstrap-server", bootstrap)
        assert refused.status == 1
        assert "SECURITY_DISABLED" in refused.stderr
        create(bootstrap, "t", 1)
        assert produced(bootstrap, "t") is None

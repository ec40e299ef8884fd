"""A cluster on which everybody logs in and rules hold: real processes, unmodified clients.

Brokers log in to each other as a super user. Whoever may not log in gets nowhere, and who does may
do what a rule allows (rows S3, S4, S6, S7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from jepsen.cli.main import run as jepsen
from raftctl.cli.main import FAILED, run
from tests.integration.clusters import running_cluster, wait_healthy, wait_until
from tests.kit.certificates import Authority
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 60
TOPIC = "orders"
WORDS = {"broker": "between-us", "admin": "all-of-it", "alice": "wonderland", "mallory": "x"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = " ".join(f'user_{name}="{word}"' for name, word in WORDS.items())
OWN = f'username="broker" password="{WORDS["broker"]}"'
SECURED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{MODULE} required {OWN} {USERS};",
    "authorizer.class.name": "standard",
    "super.users": "User:broker;User:admin",
}


def encrypted(directory: Path) -> dict[str, str]:
    """The same over TLS, with certificates in a directory."""
    authority = Authority()
    return {
        **SECURED,
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue().store(directory / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.store(directory / "ca.pem"),
    }


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where clients connect, and whom they trust; None: without TLS."""

    bootstrap: str
    authority: str | None = None


def settings(entrance: Entrance, user: str, word: str = "") -> dict[str, Any]:
    """How a client of librdkafka logs in."""
    tls = {} if entrance.authority is None else {"ssl.ca.location": entrance.authority}
    return {
        **tls,
        "bootstrap.servers": entrance.bootstrap,
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": word or WORDS[user],
    }


def properties(directory: Path, entrance: Entrance, user: str) -> str:
    """The path of a file with which Apache Kafka's tools log in."""
    tls = {"ssl.truststore.type": "PEM", "ssl.truststore.location": entrance.authority}
    own = f'username="{user}" password="{WORDS[user]}"'
    keys = {
        **({} if entrance.authority is None else tls),
        "security.protocol": settings(entrance, user)["security.protocol"],
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f"{MODULE} required {own};",
    }
    path = directory / f"{user}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return str(path)


def refusal(entrance: Entrance, user: str, word: str = "") -> int | None:
    """The code with which a record is refused; None if it is acknowledged."""
    found: list[KafkaError | None] = []
    failures: list[KafkaError] = []
    producer = Producer(
        {
            **settings(entrance, user, word),
            "enable.idempotence": False,
            "message.timeout.ms": 5_000,
            "error_cb": failures.append,
        }
    )
    producer.produce(TOPIC, b"value", on_delivery=lambda error, _: found.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    (error,) = found
    if error is not None and any(one.code() == KafkaError._AUTHENTICATION for one in failures):
        return int(KafkaError._AUTHENTICATION)
    return None if error is None else error.code()


@pytest.mark.req("N2", "S2", "S3", "S4", "S6", "S7")
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_who_logs_in_may_do_what_a_rule_allows(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "certificates").mkdir()
    is_encrypted = protocol == "SASL_SSL"
    keys = encrypted(tmp_path / "certificates") if is_encrypted else SECURED
    with running_cluster(tmp_path / "cluster", 1, 2, keys) as cluster:
        authority = keys.get("ssl.truststore.location")
        entrance = Entrance(cluster.layout.bootstrap, authority)
        admin = AdminClient(settings(entrance, "admin"))
        create_topic(admin, TOPIC, 1, 2, {"min.insync.replicas": "2"}, TIMEOUT_S)
        # Followers log in: else no record would be acknowledged.
        wait_healthy(cluster)
        assert refusal(entrance, "admin") is None
        assert refusal(entrance, "alice", "not hers") == KafkaError._AUTHENTICATION
        denied = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._MSG_TIMED_OUT)
        assert refusal(entrance, "alice") in denied
        rule = ("--topic", TOPIC, "--allow-principal", "User:alice", "--operation", "Write")
        where = ("--bootstrap-server", entrance.bootstrap)
        alice = ("--command-config", properties(tmp_path, entrance, "alice"))
        assert run(["acls", "add", *rule, *where, *alice]) == FAILED
        assert refusal(entrance, "alice") in denied
        operator = ("--command-config", properties(tmp_path, entrance, "admin"))
        assert run(["acls", "add", *rule, *where, *operator]) == 0
        wait_until(lambda: refusal(entrance, "alice") is None, "alice may write")
        assert refusal(entrance, "mallory") in denied
        external = ("--env", "external", "--bootstrap-servers", entrance.bootstrap)
        small = ("--time-limit", "4", "--replication", "2", "--seed", "1")
        store = ("--store", str(tmp_path / "store"))
        for library in ("librdkafka", "aiokafka"):
            client = ("--client", library)
            words = ["test", "queue", *external, *small, *client, *operator, *store]
            assert jepsen(words) == 0, library
        log = "".join(cluster.log_path(node).read_text() for node in cluster.layout.brokers)
        assert [name for name, word in WORDS.items() if len(word) > 1 and word in log] == []

"""Our commands and our harness on a secured cluster of Apache Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from jepsen.cli.main import run as jepsen
from raftctl.cli.main import FAILED, run
from raftctl.config import write_properties
from raftctl.localcluster.cluster import ClusterSpec
from raftctl.localcluster.layout import BROKER_LISTENER
from tests.bench.kafka.clusters import QUICK_JAVA, kafka_cluster, kafka_jars
from tests.integration.clusters import wait_until
from tests.kit.certificates import Authority
from tests.peers.conftest import SPEC
from tests.peers.tools import CACHE, INSTALL_TIMEOUT_S, KAFKA_VERSION, installing, need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Command = Callable[..., Any]

START_S = 90
PASSWORDS = {"broker": "between-us", "admin": "all-of-it", "alice": "wonderland"}
MODULES = "org.apache.kafka.common.security"
PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-512"
MODULE = {PLAIN: f"{MODULES}.plain.PlainLoginModule", SCRAM: f"{MODULES}.scram.ScramLoginModule"}

pytestmark = [
    pytest.mark.req("S7"),
    pytest.mark.timeout(INSTALL_TIMEOUT_S + 2 * START_S),
    pytest.mark.xdist_group("secured_apache_kafka"),
]


def jaas(mechanism: str, user: str, others: str = "") -> str:
    """The login module of a user."""
    own = f'username="{user}" password="{PASSWORDS[user]}"'
    return f"{MODULE[mechanism]} required {own}{others};"


def secured(folder: Path, authority: Authority) -> dict[str, str]:
    """The keys of nodes with SASL_SSL and rules."""
    users = "".join(f' user_{name}="{PASSWORDS[name]}"' for name in ("broker", "admin"))
    node = folder / "node.pem"
    return {
        "listener.security.protocol.map": f"{BROKER_LISTENER}:SASL_SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": BROKER_LISTENER,
        "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        f"listener.name.{BROKER_LISTENER.lower()}.plain.sasl.jaas.config": jaas(
            PLAIN, "broker", users
        ),
        f"listener.name.{BROKER_LISTENER.lower()}.scram-sha-512.sasl.jaas.config": (
            f"{MODULE[SCRAM]} required;"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue().store(node),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.store(folder / "ca.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The broker is nobody in particular at the controller's listener.
        "super.users": "User:broker;User:admin;User:ANONYMOUS",
    }


@pytest.fixture(scope="module")
def entrances(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The options with which a command of each user finds the cluster and logs in."""
    need("java", "mvn")
    with installing():
        jars = kafka_jars(KAFKA_VERSION, CACHE)
    folder = tmp_path_factory.mktemp("secured-kafka")
    keys = secured(folder, Authority())
    spec = ClusterSpec(SPEC.controllers, SPEC.brokers, overrides={**(SPEC.overrides or {}), **keys})
    cluster = kafka_cluster(folder / "nodes", jars, spec, QUICK_JAVA)
    common = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": keys["ssl.truststore.location"],
    }
    options = {}
    for user, mechanism in (("admin", PLAIN), ("alice", SCRAM)):
        file = folder / f"{user}.properties"
        login = {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas(mechanism, user)}
        file.write_text(write_properties({**common, **login}))
        options[user] = ["--command-config", str(file)]
    admin = AdminClient(
        {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": keys["ssl.truststore.location"],
            "sasl.mechanism": PLAIN,
            "sasl.username": "admin",
            "sasl.password": PASSWORDS["admin"],
            "log_level": 0,
        }
    )
    try:
        cluster.start()
        wait_until(lambda: is_usable(admin), "Apache Kafka serves", START_S)
        yield {
            user: ["--bootstrap-servers", cluster.bootstrap, *how] for user, how in options.items()
        }
    finally:
        cluster.stop()


def is_usable(admin: AdminClient) -> bool:
    """Whether the broker lets an administrator in."""
    try:
        return len(admin.list_topics(timeout=1).brokers) == 1
    except KafkaException:
        return False


@pytest.fixture
def raftctl(entrances: dict[str, list[str]], capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a user's command; what it printed, or if another status is expected, its complaint."""

    def run_command(user: str, *arguments: str, status: int = 0) -> Any:
        capsys.readouterr()
        ended = run([*arguments, *entrances[user], "--output", "json"])
        printed = capsys.readouterr()
        assert ended == status, printed
        return json.loads(printed.out) if status == 0 else printed.err

    return run_command


def test_commands_log_in_and_administer(raftctl: Command, tmp_path: Path) -> None:
    assert "SASL_AUTHENTICATION_FAILED" in raftctl("alice", "topics", "list", status=FAILED)
    password = tmp_path / "password"
    password.write_text(PASSWORDS["alice"])
    raftctl(
        "admin", "users", "set", "alice", "--mechanism", SCRAM, "--password-file", str(password)
    )
    raftctl("admin", "topics", "create", "orders", "--replication-factor", "1")

    def listed() -> list[str]:
        return [one["topic"] for one in raftctl("alice", "topics", "list")]

    # She logs in, and sees what she has a right to.
    assert listed() == []
    assert "TOPIC_AUTHORIZATION_FAILED" in raftctl(
        "alice", "topics", "describe", "orders", status=FAILED
    )
    rule = ("--topic", "orders", "--allow-principal", "User:alice", "--operation", "Read")
    assert "AUTHORIZATION_FAILED" in raftctl("alice", "acls", "add", *rule, status=FAILED)
    raftctl("admin", "acls", "add", *rule)
    wait_until(lambda: listed() == ["orders"], "the rule is in force")
    (found,) = raftctl("admin", "acls", "list", "--topic", "orders")
    assert (found["principal"], found["operation"]) == ("User:alice", "Read")
    raftctl("admin", "acls", "remove", *rule)
    wait_until(lambda: listed() == [], "the rule is gone")


@pytest.mark.req("J5")
@pytest.mark.parametrize("library", ["librdkafka", "aiokafka"])
def test_the_harness_tests_it(
    entrances: dict[str, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    library: str,
) -> None:
    where = ["--env", "external", *entrances["admin"], "--client", library]
    shape = ["--time-limit", "3", "--rate", "20", "--replication", "1"]
    status = jepsen(["test", "queue", *where, *shape, "--store", str(tmp_path), "--output", "json"])
    printed = capsys.readouterr()
    assert status == 0, printed
    assert json.loads(printed.out)["valid"] is True

"""Secrets of a secured node are read nowhere: not in its log, its answers, its errors, its process.

The node logs at level debug. It is asked for all that it describes, by those who may and by those
who may not, and it is given what it must refuse (rows S2, S3, S8).
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from joserfc import jwk, jwt

from raftctl.config import make_config
from raftctl.localcluster.processes import start_program
from tests.integration.clusters import running_cluster
from tests.integration.commands import raftctl
from tests.kit.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.processes import ProcessRef

pytestmark = pytest.mark.req("S2", "S3", "S8")
TIMEOUT_S = 30
WORDS = {
    "of brokers": "qW7-zbXv9-0xA4",
    "of alice": "eR8-kwNq3-1yB5",
    "of bob": "tY9-ujHs6-2zC6",
    "that is wrong": "uI0-gePt2-3wD7",
    "of the store": "oP1-vkYc8-4vE8",
    "that is set": "aS2-dmLr5-5uF9",
}
MODULES = "org.apache.kafka.common.security"
WINDOW = 7
"""So many characters of a password in a row are as bad as all of it."""
LOUD = """
import sys
from raftctl.runtime import real
whole = real.make_log
real.make_log = lambda stream, level, **context: whole(stream, "debug", **context)
from raftctl.cli._node_process import run_start
run_start(sys.argv[1], [])
"""


def loud(properties: Path, log: Path) -> ProcessRef:
    """Start a node that logs at level debug."""
    return start_program([sys.executable, "-c", LOUD, str(properties)], log)


class Secured:
    """The keys of a node, its clients' settings, and all that is secret of them."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        node = authority.issue("node")
        store = node.pkcs12(folder / "node.p12", WORDS["of the store"])
        (folder / "node.p12").chmod(0o600)
        self.trusted = authority.store(folder / "ca.pem")
        issuer = jwk.ECKey.generate_key("P-256", {"kid": "one"})
        stranger = jwk.ECKey.generate_key("P-256", {"kid": "one"})
        (folder / "keys.json").write_text(json.dumps({"keys": [issuer.as_dict(private=False)]}))
        claims = {"sub": "carol", "iat": 1, "exp": 9_999_999_999}
        self.tokens = [
            jwt.encode({"alg": "ES256", "kid": "one"}, claims, key, algorithms=["ES256"])
            for key in (issuer, stranger)
        ]
        own = "listener.name.plaintext"
        self.keys = {
            "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
            f"{own}.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required username="broker" '
                f'password="{WORDS["of brokers"]}" user_broker="{WORDS["of brokers"]}" '
                f'user_alice="{WORDS["of alice"]}";'
            ),
            f"{own}.oauthbearer.sasl.jaas.config": (
                f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
            ),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": store,
            "ssl.keystore.password": WORDS["of the store"],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
            "authorizer.class.name": "standard",
            "super.users": "User:broker;User:alice",
        }
        key_lines = [line for line in node.key_pem().splitlines() if "-----" not in line]
        signatures = [token.rpartition(".")[2] for token in self.tokens]
        self.windows = {word[at : at + WINDOW] for word in WORDS.values() for at in _starts(word)}
        self.long = [*key_lines, *signatures]

    def leaks(self, text: str) -> list[str]:
        """The parts of secrets that a text has."""
        return [part for part in (*self.windows, *self.long) if part in text]

    def client(self, cluster: LocalCluster, user: str, word: str, mechanism: str) -> dict[str, Any]:
        """How a client of librdkafka logs in."""
        return {
            "bootstrap.servers": cluster.layout.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.trusted,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": word,
        }


def _starts(word: str) -> range:
    return range(len(word) - WINDOW + 1)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Secured, LocalCluster]]:
    folder = tmp_path / "stores"
    folder.mkdir()
    made = Secured(folder)
    with running_cluster(tmp_path / "cluster", 1, 1, made.keys, launch=loud) as cluster:
        yield made, cluster


def attempt(settings: dict[str, Any], token: str = "") -> str:
    """What a client says of its own login; the node's words are in it."""
    said: list[str] = []
    if token:
        settings = {key: value for key, value in settings.items() if "sasl.user" not in key}
        del settings["sasl.password"]
        settings["oauth_cb"] = lambda _: (token, 9_999_999_999.0, "carol", {})
    producer = Producer({**settings, "error_cb": lambda error: said.append(str(error))})
    with contextlib.suppress(KafkaException):
        said.append(str(producer.list_topics(timeout=5).brokers))
    return "\n".join(said)


def described(admin: AdminClient, node: int) -> str:
    """All configs of the node, and what comes of changes that are refused or taken."""
    said = []
    own = "listener.name.plaintext"
    for name, value in (
        (f"{own}.ssl.keystore.password", WORDS["that is set"]),
        (f"{own}.ssl.key.password", WORDS["that is set"]),
        (f"{own}.plain.sasl.jaas.config", f'x required password="{WORDS["that is set"]}"'),
        ("ssl.keystore.password", WORDS["that is set"]),
        ("log.retention.ms", WORDS["that is set"]),
    ):
        change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[change])
        for future in admin.incremental_alter_configs([resource]).values():
            error = future.exception(TIMEOUT_S)
            if name != "log.retention.ms":
                said.append(f"{name}: {error}")
    for future in admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]).values():
        entries = future.result(TIMEOUT_S)
        said += [f"{entry.name}={entry.value}" for entry in entries.values()]
    return "\n".join(said)


def test_secrets_are_read_nowhere(secured: tuple[Secured, LocalCluster]) -> None:
    made, cluster = secured
    (broker,) = cluster.layout.brokers
    alice = made.client(cluster, "alice", WORDS["of alice"], "PLAIN")
    admin = AdminClient(alice)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("bob", info, WORDS["of bob"].encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(TIMEOUT_S)
    texts = {"configs": described(admin, broker.node_id)}
    assert "listener.name.plaintext.plain.sasl.jaas.config=None" in texts["configs"]
    assert "ssl.keystore.location=" in texts["configs"], "what is no secret is described"
    for user, word, mechanism in (
        ("alice", WORDS["of alice"], "PLAIN"),
        ("alice", WORDS["that is wrong"], "PLAIN"),
        ("nobody", WORDS["that is wrong"], "PLAIN"),
        ("bob", WORDS["of bob"], "SCRAM-SHA-256"),
        ("bob", WORDS["that is wrong"], "SCRAM-SHA-256"),
    ):
        settings = made.client(cluster, user, word, mechanism)
        texts[f"{user} by {mechanism} with {word in WORDS.values()}"] = attempt(settings)
    for number, token in enumerate(made.tokens):
        settings = made.client(cluster, "", "", "OAUTHBEARER")
        texts[f"token {number}"] = attempt(settings, token)
    for node in cluster.layout.nodes:
        running = cluster.process(node)
        assert running is not None
        process = psutil.Process(running.pid)
        texts[f"process {node.node_id}"] = f"{process.cmdline()} {process.environ()}"
        texts[f"log {node.node_id}"] = cluster.log_path(node).read_text()
    log = texts[f"log {broker.node_id}"]
    assert '"level": "debug"' in log, "all that is logged has been looked at"
    assert "PLAIN failed: wrong password, or no such user" in log
    assert "SCRAM-SHA-256 failed: wrong password, or no such user" in log
    assert "OAUTHBEARER failed" in log
    assert {name: made.leaks(text) for name, text in texts.items() if made.leaks(text)} == {}


def test_neither_errors_nor_reprs_have_a_secret(tmp_path: Path) -> None:
    made = Secured(tmp_path)
    whole = {
        "process.roles": "broker",
        "node.id": "1",
        "log.dirs": str(tmp_path / "data"),
        "controller.quorum.voters": "0@127.0.0.1:1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **made.keys,
    }
    config = make_config(whole)
    security = config.listener_security("PLAINTEXT")
    assert made.leaks(f"{config!r} {config} {security!r} {security.sasl!r}") == []
    bad = {
        "another password": {"ssl.keystore.password": WORDS["that is wrong"]},
        "no entry": {"listener.name.plaintext.plain.sasl.jaas.config": WORDS["that is wrong"]},
        "half an entry": {
            "listener.name.plaintext.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required password="{WORDS["of brokers"]}'
            )
        },
        "misspelt": {"ssl.keystore.pasword": WORDS["that is wrong"]},
    }
    for number, (name, change) in enumerate(bad.items()):
        path = tmp_path / f"{number}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**whole, **change}.items()))
        result = raftctl("start", "--config", str(path), timeout_s=TIMEOUT_S)
        assert result.status == 2, name
        assert made.leaks(result.stdout + result.stderr) == [], name

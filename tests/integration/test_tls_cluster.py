"""A cluster whose every connection is of TLS, with the certificates that the how-to makes."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from raftctl.cli.main import FAILED, run
from tests.howto_pages import ROOT, blocks
from tests.integration.clusters import running_cluster
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from pathlib import Path

    from raftctl.localcluster.cluster import LocalCluster

PAGE = ROOT / "docs" / "how-to" / "secure-a-cluster.md"
TIMEOUT_S = 90
VALUES = [f"value {number}".encode() for number in range(20)]
CONFIG = """
listener.security.protocol.map=PLAINTEXT:SSL,CONTROLLER:SSL,HTTP:SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/node.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
ssl.client.auth=required
authorizer.class.name=standard
super.users=User:CN=node,O=Example
allow.everyone.if.no.acl.found=true
"""


def make_certificates(folder: Path) -> None:
    """Run the page's commands."""
    (commands,) = [
        one.lines for one in blocks(PAGE) if any("openssl" in line for line in one.lines)
    ]
    subprocess.run(
        ["bash", "-ec", "\n".join(commands)], cwd=folder, check=True, capture_output=True
    )


def client(cluster: LocalCluster, folder: Path, name: str) -> dict[str, str | int | float | bool]:
    """The settings that the page gives for librdkafka."""
    return {
        "bootstrap.servers": cluster.layout.bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": f"{folder}/ca.pem",
        "ssl.certificate.location": f"{folder}/{name}.crt",
        "ssl.key.location": f"{folder}/{name}.key",
    }


def serves(admin: AdminClient, brokers: int) -> bool:
    """Whether all brokers are known."""
    try:
        return len(admin.list_topics(timeout=5).brokers) == brokers
    except KafkaException:
        return False


@pytest.mark.req("S2", "S6", "S7")
@pytest.mark.timeout(300)
def test_every_connection_of_a_cluster_is_of_tls(tmp_path: Path) -> None:
    folder = tmp_path / "stores"
    folder.mkdir()
    make_certificates(folder)
    with running_cluster(tmp_path / "cluster", 1, 2) as cluster:
        for node in cluster.layout.nodes:
            cluster.kill(node)
            path = cluster.directory / node.name / "node.properties"
            path.write_text(path.read_text() + CONFIG.format(folder=folder))
        for node in cluster.layout.nodes:
            cluster.start(node)
        settings = client(cluster, folder, "alice")
        admin = AdminClient(settings)
        deadline = time.monotonic() + TIMEOUT_S
        while not serves(admin, 2):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        create_topic(admin, "t", 1, 2, {"min.insync.replicas": "2"}, TIMEOUT_S)
        producer = Producer({**settings, "acks": "all"})
        for value in VALUES:
            producer.produce("t", value)
        assert producer.flush(TIMEOUT_S) == 0
        reading = {"group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, **reading})
        consumer.subscribe(["t"])
        found: list[bytes | None] = []
        while len(found) < len(VALUES) and time.monotonic() < deadline + TIMEOUT_S:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value())
        consumer.close()
        assert found == VALUES
        keys = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{folder}/ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": f"{folder}/node.pem",
        }
        file = folder / "client.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        (controller,) = cluster.layout.controllers
        where = ("--controllers", controller.address, "--command-config", str(file))
        assert run(["kv", "put", "k", "1", *where]) == 0
        assert run(["quorum", "describe", *where]) == 0
        file.write_text("".join(f"{key}={keys[key]}\n" for key in list(keys)[:3]))
        assert run(["quorum", "describe", *where]) == FAILED

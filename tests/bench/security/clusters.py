"""Clusters to compare: without protection, and with a listener of TLS and one of SASL_SSL.

Both systems get the same keys. Of a secured cluster brokers talk to each other over TLS too, so a
record that is produced is encrypted on every way it goes. A cluster has three brokers and one
controller, without TLS: records do not pass it, and more would take from what is measured.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from raftctl.config import parse_properties, write_properties
from raftctl.localcluster.cluster import ClusterSpec
from raftctl.localcluster.layout import BROKER_LISTENER, HOST
from raftctl.localcluster.ports import free_ports
from tests.bench.kafka.clusters import Cluster, Entrance, Maker, makers
from tests.kit.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAINTEXT, SSL, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL")
MECHANISM = "SCRAM-SHA-512"
USER = "alice"
ITERATIONS = 4096
_LOGIN_LISTENER = "LOGIN"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN_S = 30.0
"""Within which a user must have been created."""
SPEC = ClusterSpec(
    controllers=1,
    brokers=3,
    overrides={
        "broker.heartbeat.interval.ms": "2000",
        "broker.session.timeout.ms": "18000",
        "replica.lag.time.max.ms": "30000",
    },
)
"""Nobody fails here, so timeouts may be long: four clusters share a machine."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the secured clusters of one run are made with."""

    authority: Path
    """The certificate that clients trust."""
    identity: Path
    """The key of all nodes, with its certificate."""
    password: str

    @classmethod
    def make(cls, directory: Path) -> Secrets:
        """Make them, with files in an existing directory. Keys are of the curve P-256."""
        authority = Authority()
        return cls(
            Path(authority.store(directory / "ca.pem")),
            Path(authority.issue().store(directory / "node.pem")),
            secrets.token_hex(16),
        )

    def of_node(self) -> dict[str, str]:
        """The keys of a node's properties."""
        return {
            "listener.security.protocol.map": f"{BROKER_LISTENER}:SSL,{_LOGIN_LISTENER}:SASL_SSL,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": BROKER_LISTENER,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.identity),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }

    def of_login(self) -> dict[str, str]:
        """The keys of the listener where clients log in."""
        prefix = f"listener.name.{_LOGIN_LISTENER.lower()}"
        return {
            f"{prefix}.sasl.enabled.mechanisms": MECHANISM,
            f"{prefix}.{MECHANISM.lower()}.sasl.jaas.config": f"{_MODULE} required;",
        }

    def entrance(self, protocol: str, directory: Path) -> Entrance:
        """How clients get in by a protocol of TLS; the file for commands is in the directory."""
        client = {"security.protocol": protocol, "ssl.ca.location": str(self.authority)}
        command = {
            "security.protocol": protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }
        if protocol == SASL_SSL:
            own = f'username="{USER}" password="{self.password}"'
            client |= {
                "sasl.mechanism": MECHANISM,
                "sasl.username": USER,
                "sasl.password": self.password,
            }
            command |= {
                "sasl.mechanism": MECHANISM,
                "sasl.jaas.config": f"{_MODULE} required {own};",
            }
        path = directory / f"{protocol}.properties"
        path.write_text(write_properties(command))
        return Entrance(client, path)


def all_makers(jars: Path | None, made: Secrets) -> list[Maker]:
    """Of each system a cluster without protection and one with it."""
    spec = replace(SPEC, overrides={**(SPEC.overrides or {}), **made.of_node()})
    plain = [replace(one, name=f"{one.name}-plain") for one in makers(jars, SPEC)]
    secured = [
        Maker(f"{one.name}-secured", partial(_secured, one, made)) for one in makers(jars, spec)
    ]
    return plain + secured


def _secured(maker: Maker, made: Secrets, directory: Path) -> Cluster:
    """One with a second listener on each broker."""
    cluster = maker.make(directory)
    files = sorted(directory.glob("broker-*/node.properties"))
    ports = free_ports(len(files))
    for path, port in zip(files, ports, strict=True):
        values = parse_properties(path.read_text())
        values["listeners"] += f",{_LOGIN_LISTENER}://{HOST}:{port}"
        path.write_text(write_properties(values | made.of_login()))
    return cluster.entered(cluster.name, cluster.bootstrap, made.entrance(SSL, directory))


def entrances(cluster: Cluster, made: Secrets) -> Iterator[Cluster]:
    """The ways into a running cluster, each with a name of its own; the user exists then."""
    if not cluster.entrance.client:
        yield cluster.entered(f"{cluster.name}_{PLAINTEXT}", cluster.bootstrap, cluster.entrance)
        return
    yield cluster.entered(f"{cluster.name}_{SSL}", cluster.bootstrap, cluster.entrance)
    _create_user(cluster, made)
    entrance = made.entrance(SASL_SSL, cluster.directory)
    login = cluster.entered(f"{cluster.name}_{SASL_SSL}", _login_addresses(cluster), entrance)
    login.wait_usable()
    yield login


def _login_addresses(cluster: Cluster) -> str:
    files = sorted(cluster.directory.glob("broker-*/node.properties"))
    listeners = [parse_properties(path.read_text())["listeners"] for path in files]
    return ",".join(one.partition(f"{_LOGIN_LISTENER}://")[2] for one in listeners)


def _create_user(cluster: Cluster, made: Secrets) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    change = UserScramCredentialUpsertion(USER, info, made.password.encode())
    admin = cluster.admin()
    try:
        admin.alter_user_scram_credentials([change])[USER].result(LOGIN_S)
    except KafkaException as error:
        raise RuntimeError(f"{cluster.name}: {USER} cannot be made: {error}") from error

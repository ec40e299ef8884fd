"""One cluster with a listener of each protocol, users of each mechanism, rules, and an issuer."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from raftctl.config.security import LOGIN_MODULES
from raftctl.localcluster.cluster import LocalCluster
from raftctl.localcluster.layout import BROKER_LISTENER
from raftctl.localcluster.ports import free_ports
from tests.integration.clusters import add_keys, running_cluster, wait_until
from tests.kit.certificates import Authority
from tests.kit.issuer import AUDIENCE, NAME, Issuer, issuing
from tests.kit.topics import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


TIMEOUT_S = 60
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORDS = {
    "broker": "between-us",
    "admin": "all-of-it",
    "alice": "wonderland",
    "bob": "builder",
    "carol": "christmas",
}
"""Of PLAIN."""
USERS = ("alice", "bob", "carol")
"""Have the same passwords by SCRAM, and as secrets of clients of the issuer; carol's changes."""
STORE_PASSWORD = "store-password"
REAUTH_MS = 2000
ALICE_BY_NAME = "User:CN=alice,O=Test"
"""Where no rule maps the subject of her certificate."""
PRINCIPALS = (*(f"User:{name}" for name in USERS), ALICE_BY_NAME)
OWN_PREFIX = "alice-"
"""Of the topics, groups and transactional ids that they may use."""
DENIED_TOPIC = "secrets"
"""Which is there, and of which no rule is theirs."""

SASL_PLAINTEXT = BROKER_LISTENER
"""Where the brokers log in to each other, too."""
SASL_SSL = "ENCRYPTED"
SHORT = "SHORT"
"""As SASL_SSL, with sessions of `REAUTH_MS`."""
MUTUAL = "MUTUAL"
"""SSL with client certificates; `CN=alice,O=Test` is `User:alice`."""
REQUESTED = "REQUESTED"
"""SSL where a certificate is requested only, and its subject is the principal as it is."""
PROTOCOLS = {
    SASL_PLAINTEXT: "SASL_PLAINTEXT",
    SASL_SSL: "SASL_SSL",
    SHORT: "SASL_SSL",
    MUTUAL: "SSL",
    REQUESTED: "SSL",
}


@dataclass(frozen=True, slots=True)
class Entrance:
    """One listener: where clients connect, and how."""

    name: str
    protocol: str
    bootstrap: str

    @property
    def is_encrypted(self) -> bool:
        """Whether it speaks TLS."""
        return self.protocol.endswith("SSL")


@dataclass(frozen=True, slots=True)
class Files:
    """Certificates. PKCS12 files, and the key in `client_pkcs12`, have `STORE_PASSWORD`."""

    authority: str
    """PEM of who has signed all certificates but one."""
    authority_pkcs12: str
    other: str
    """PEM of an authority that has signed nothing here."""
    other_pkcs12: str
    client_certificate: str
    """PEM of `CN=alice,O=Test`."""
    client_key: str
    client_pkcs12: str
    node: str
    """Key and chain of the brokers, which read it again when it changes."""


@dataclass(frozen=True, slots=True)
class SecuredCluster:
    """A running cluster, and what its clients need."""

    cluster: LocalCluster
    entrances: Mapping[str, Entrance]
    """By the listeners' names, the constants above."""
    files: Files
    issuer: Issuer
    authority: Authority

    def admin(self) -> AdminClient:
        """Return a client of a super user."""
        return AdminClient(librdkafka_plain(self.entrances[SASL_SSL], self.files, "admin"))

    def properties(
        self, entrance: Entrance, mechanism: str | None = None, user: str = "alice"
    ) -> dict[str, str]:
        """Return the keys with which a client of Java, or one of our commands, gets in."""
        keys = {"security.protocol": entrance.protocol}
        if entrance.is_encrypted:
            keys |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.files.authority}
        if entrance.protocol == "SSL":
            keys |= {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": self.files.client_pkcs12,
                "ssl.keystore.password": STORE_PASSWORD,
            }
        if mechanism is None:
            return keys
        keys["sasl.mechanism"] = mechanism
        password = PASSWORDS[user]
        if mechanism == "OAUTHBEARER":
            keys["sasl.oauthbearer.token.endpoint.url"] = self.issuer.token_url
            options = f'clientId="{user}" clientSecret="{password}"'
        else:
            options = f'username="{user}" password="{password}"'
        return {**keys, "sasl.jaas.config": f"{LOGIN_MODULES[mechanism]} required {options};"}


def librdkafka_plain(entrance: Entrance, files: Files, user: str) -> dict[str, Any]:
    """Return how a client of librdkafka logs in by PLAIN."""
    tls = {"ssl.ca.location": files.authority} if entrance.is_encrypted else {}
    return {
        **tls,
        "bootstrap.servers": entrance.bootstrap,
        "security.protocol": entrance.protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
    }


@contextlib.contextmanager
def secured_cluster(directory: Path) -> Iterator[SecuredCluster]:
    """Run one controller and two brokers, with users and rules in force; gone afterwards."""
    folder = directory / "certificates"
    folder.mkdir(parents=True)
    authority = Authority()
    files = _certificates(folder, authority)
    with issuing({name: PASSWORDS[name] for name in USERS}) as issuer:

        def prepare(made: LocalCluster) -> None:
            for node in made.layout.brokers:
                ports = [node.port, *free_ports(len(PROTOCOLS) - 1)]
                bound = zip(PROTOCOLS, ports, strict=True)
                text = ",".join(f"{name}://{node.host}:{port}" for name, port in bound)
                add_keys(made, node, {**_other_keys(files), "listeners": text})

        keys = _keys(issuer)
        with running_cluster(directory / "cluster", 1, 2, keys, prepare=prepare) as cluster:
            made = SecuredCluster(cluster, _entrances(cluster), files, issuer, authority)
            _admit(made)
            yield made


def _certificates(folder: Path, authority: Authority) -> Files:
    alice, other = authority.issue("alice"), Authority("Other CA")
    key, certificate = folder / "alice.key", folder / "alice.crt"
    key.write_text(alice.key_pem())
    certificate.write_text(alice.pem)
    node = folder / "node.pem"
    made = Files(
        authority=authority.store(folder / "ca.pem"),
        authority_pkcs12=authority.pkcs12(folder / "ca.p12", STORE_PASSWORD),
        other=other.store(folder / "other.pem"),
        other_pkcs12=other.pkcs12(folder / "other.p12", STORE_PASSWORD),
        client_certificate=str(certificate),
        client_key=str(key),
        client_pkcs12=alice.pkcs12(folder / "alice.p12", STORE_PASSWORD),
        node=authority.issue().store(node),
    )
    for secret in (key, node):
        secret.chmod(0o600)
    return made


def _keys(issuer: Issuer) -> dict[str, str]:
    """Return what is known when the cluster is made: of its one listener then."""
    return {
        "listener.security.protocol.map": _map(SASL_PLAINTEXT),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.keys_url,
        "sasl.oauthbearer.expected.issuer": NAME,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        **_modules(SASL_PLAINTEXT),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:admin",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "4",
        # A busy machine shall change nothing.
        "broker.session.timeout.ms": "20000",
    }


def _other_keys(files: Files) -> dict[str, str]:
    """Return those of the brokers' other listeners."""
    rule = "RULE:^CN=(.*?),O=Test$/$1/,DEFAULT"
    return {
        "listener.security.protocol.map": _map(*PROTOCOLS),
        "inter.broker.listener.name": SASL_PLAINTEXT,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files.node,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.authority,
        **_own(MUTUAL, {"ssl.client.auth": "required", "ssl.principal.mapping.rules": rule}),
        **_own(REQUESTED, {"ssl.client.auth": "requested"}),
        **_modules(SASL_SSL),
        **_modules(SHORT),
        **_own(SHORT, {"connections.max.reauth.ms": str(REAUTH_MS)}),
    }


def _map(*names: str) -> str:
    protocols = [f"{name}:{PROTOCOLS[name]}" for name in names]
    return ",".join([*protocols, "CONTROLLER:PLAINTEXT"])


def _modules(listener: str) -> dict[str, str]:
    own = f'username="broker" password="{PASSWORDS["broker"]}"'
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    plain = f"{LOGIN_MODULES['PLAIN']} required {own} {users};"
    oauth = f"{LOGIN_MODULES['OAUTHBEARER']} required;"
    modules = {"plain.sasl.jaas.config": plain, "oauthbearer.sasl.jaas.config": oauth}
    return _own(listener, modules)


def _own(listener: str, keys: Mapping[str, str]) -> dict[str, str]:
    return {f"listener.name.{listener.lower()}.{key}": value for key, value in keys.items()}


def _entrances(cluster: LocalCluster) -> dict[str, Entrance]:
    addresses: dict[str, list[str]] = {name: [] for name in PROTOCOLS}
    for node in cluster.layout.brokers:
        lines = (cluster.directory / node.name / "node.properties").read_text().splitlines()
        (*_, text) = (line for line in lines if line.startswith("listeners="))
        for one in text.partition("=")[2].split(","):
            name, _, address = one.partition("://")
            addresses[name].append(address)
    return {
        name: Entrance(name, PROTOCOLS[name], ",".join(some)) for name, some in addresses.items()
    }


def _admit(made: SecuredCluster) -> None:
    """Give users passwords and rights, and wait until every broker knows of both."""
    admin = made.admin()
    _result(admin.alter_user_scram_credentials(_passwords()))
    _result(admin.create_acls(_rules()))
    create_topic(admin, DENIED_TOPIC, 1, 2, {}, TIMEOUT_S)
    encrypted = made.entrances[SASL_SSL]
    for address in encrypted.bootstrap.split(","):
        settings = {
            **librdkafka_plain(encrypted, made.files, "alice"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "bootstrap.servers": address,
        }
        wait_until(partial(_is_admitted, settings), f"alice may use {address}")


def _passwords() -> list[UserScramCredentialAlteration]:
    return [
        UserScramCredentialUpsertion(
            name, ScramCredentialInfo(mechanism, 4096), PASSWORDS[name].encode()
        )
        for name in USERS
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]


def _rules() -> list[AclBinding]:
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    return [
        AclBinding(
            kind,
            OWN_PREFIX,
            ResourcePatternType.PREFIXED,
            principal,
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for principal in PRINCIPALS
        for kind in kinds
    ]


def _result(futures: Mapping[Any, Any]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)


def _is_admitted(settings: Mapping[str, Any]) -> bool:
    admin = AdminClient({**settings, "log_level": 0})
    resource = f"{OWN_PREFIX}probe"
    try:
        found = admin.list_topics(resource, timeout=5).topics[resource]
    except KafkaException:
        return False
    return found.error is None or found.error.name() != "TOPIC_AUTHORIZATION_FAILED"

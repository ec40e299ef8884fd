"""A node with a listener for each way to be protected, and how clients come in.

The node trusts one authority. Users log in by each mechanism, and rules decide what they may do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from joserfc import jwk, jws

from raftctl.config.security import LOGIN_MODULES
from tests.kit.certificates import Authority
from tests.peers.differential.playing import System
from tests.peers.differential.systems import Settings

if TYPE_CHECKING:
    from tests.peers.jvm import Jvm

INSIDE, JKS, PKCS12, PEM, SASL, SASL_TLS = "INSIDE", "JKS", "PKCS12", "PEM", "SASL", "SASLTLS"
"""Listeners: of brokers; of TLS, by the type of their stores; of SASL, without and with TLS."""
LISTENERS = {
    INSIDE: "PLAINTEXT",
    JKS: "SSL",
    PKCS12: "SSL",
    PEM: "SSL",
    SASL: "SASL_PLAINTEXT",
    SASL_TLS: "SASL_SSL",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ADMIN, ALICE, MALLORY = "admin", "alice", "mallory"
"""A super user; one whom rules allow; one whom none does. All log in by PLAIN."""
PASSWORD = "a-password"
"""Of every store and of every user."""
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
REAUTH_MS = 1_000
_TOKEN_S = 3_600
_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearer{}CallbackHandler"


@dataclass(frozen=True, slots=True)
class Entrance:
    """The node's addresses, and the files with which its clients come in."""

    systems: Mapping[str, System] = field(repr=False)
    folder: Path

    def address(self, listener: str) -> str:
        """What clients take as their bootstrap servers."""
        system = self.systems[listener]
        return f"{system.host}:{system.port}"

    def tls(self, kind: str, name: str | None = None) -> dict[str, str]:
        """Whom a client trusts, in stores of a type, and its own certificate by its name."""
        own, trusted = _FILES[kind]
        secret = {} if kind == "PEM" else {"ssl.truststore.password": PASSWORD}
        keys = {"ssl.truststore.type": kind, "ssl.truststore.location": str(self.folder / trusted)}
        keys |= secret
        if name is not None:
            path = self.folder / f"{name}-{own}"
            keys |= {"ssl.keystore.type": kind, "ssl.keystore.location": str(path)}
            if kind != "PEM":
                keys |= {"ssl.keystore.password": PASSWORD, "ssl.key.password": PASSWORD}
        return keys

    def properties(
        self,
        listener: str,
        mechanism: str = "",
        user: str = ALICE,
        password: str = PASSWORD,
        tls: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """How a client comes in by a listener; `tls`: other stores than PKCS12 without a key."""
        found = {
            "bootstrap.servers": self.address(listener),
            "security.protocol": LISTENERS[listener],
            "request.timeout.ms": "15000",
            "default.api.timeout.ms": "20000",
            "max.block.ms": "20000",
        }
        if LISTENERS[listener].endswith("SSL"):
            found |= self.tls("PKCS12") if tls is None else tls
        if mechanism:
            found |= {"sasl.mechanism": mechanism, **login(self.folder, mechanism, user, password)}
        return found

    def command_config(self, properties: Mapping[str, str], name: str) -> str:
        """The path of a file for `--command-config`."""
        path = self.folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return str(path)


_FILES = {
    "JKS": ("keys.jks", "trusted.jks"),
    "PKCS12": ("keys.p12", "trusted.p12"),
    "PEM": ("keys.pem", "trusted.pem"),
}


def login(folder: Path, mechanism: str, user: str, password: str) -> dict[str, str]:
    """The keys with which a client logs in."""
    module = LOGIN_MODULES[mechanism]
    if mechanism == "OAUTHBEARER":
        return {
            "sasl.jaas.config": f"{module} required;",
            "sasl.login.callback.handler.class": _HANDLER.format("Login"),
            "sasl.oauthbearer.token.endpoint.url": (folder / "token.jwt").as_uri(),
        }
    options = f'username="{user}" password="{password}"'
    return {"sasl.jaas.config": f"{module} required {options};"}


def write_files(jvm: Jvm, folder: Path) -> None:
    """Write the stores of the node and of a client, the keys of an issuer, and a token."""
    authority = Authority()
    (folder / "trusted.pem").write_text(authority.pem)
    for name in ("client", "node"):
        issued = authority.issue(name)
        issued.store(folder / f"{name}-keys.pem")
        issued.pkcs12(folder / f"{name}-keys.p12", PASSWORD)
        jvm.write_stores(folder / f"{name}-keys.p12", PASSWORD, folder)
        (folder / "keys.jks").rename(folder / f"{name}-keys.jks")
    strangers = folder / "strangers.pem"
    strangers.write_text(Authority("Strangers").pem)
    key = jwk.RSAKey.generate_key(2048, {"kid": "one"})
    (folder / "issuer.json").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    now = int(time.time())
    claims = {"sub": "bearer", "iat": now, "exp": now + _TOKEN_S}
    header = {"alg": "RS256", "kid": "one"}
    (folder / "token.jwt").write_text(jws.serialize_compact(header, json.dumps(claims), key))


def settings(folder: Path) -> Settings:
    """What the node is started with, Apache Kafka's or ours."""
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in (ADMIN, ALICE, MALLORY))
    both = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"listener.name.{PKCS12.lower()}.ssl.client.auth": "required",
        f"listener.name.{SASL.lower()}.connections.max.reauth.ms": str(REAUTH_MS),
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "issuer.json").as_uri(),
        "quota.window.num": "3",
        "delegation.token.secret.key": "of-all-nodes",
    }
    for listener in (SASL, SASL_TLS):
        prefix = f"listener.name.{listener.lower()}."
        both |= {
            f"{prefix}plain.sasl.jaas.config": f"{LOGIN_MODULES['PLAIN']} required {users};",
            f"{prefix}oauthbearer.sasl.jaas.config": f"{LOGIN_MODULES['OAUTHBEARER']} required;",
            f"{prefix}oauthbearer.sasl.server.callback.handler.class": _HANDLER.format("Validator"),
        }
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            key = f"{prefix}{mechanism}.sasl.jaas.config"
            both[key] = f"{LOGIN_MODULES[mechanism.upper()]} required;"
    for listener, kind in ((JKS, "JKS"), (PKCS12, "PKCS12"), (PEM, "PEM"), (SASL_TLS, "PKCS12")):
        for key, value in Entrance({}, folder).tls(kind, "node").items():
            both[f"listener.name.{listener.lower()}.{key}"] = value
    return Settings(LISTENERS, both)


class Place(NamedTuple):
    """The virtual machine, and the node that it reaches."""

    jvm: Jvm
    entrance: Entrance

    def tool(self, name: str, *words: str, as_user: str = ADMIN, status: int = 0) -> str:
        """What a tool prints that logs in over TLS."""
        properties = self.entrance.properties(SASL_TLS, "PLAIN", as_user)
        where = properties.pop("bootstrap.servers")
        file = self.entrance.command_config(properties, as_user)
        ended = self.jvm.tool(name, "--bootstrap-server", where, "--command-config", file, *words)
        assert ended.status == status, ended
        return ended.out if status == 0 else ended.out + ended.error

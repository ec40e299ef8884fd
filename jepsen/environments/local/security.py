"""Security of a local cluster: certificates, the first user, and what configures the nodes.

    clients ── SASL_SSL, SCRAM-SHA-512 ──▶ brokers ── mTLS ──▶ brokers and controllers

Every node has a certificate of its own. Two authorities are trusted by everybody, so that
certificates of either may take the place of others (`renew`). The principal of each node is
`User:node`, a super user, as `User:operator` is, by password or by certificate. Any other user may
do what rules allow.

Keys are in a directory of their own that goes with the cluster, and passwords in memory alone: the
folder of a run is kept, shown and passed on.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import tempfile
import time
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from jepsen.environments import Security
from jepsen.environments.access import ITERATIONS, MECHANISM, OPERATOR, ClusterAccess, Passwords
from jepsen.environments.local.certificates import Authority
from raftctl.cli.offline.scram_users import parse_scram_user
from raftctl.config.security import StoreSettings, TlsSettings
from raftctl.localcluster.cluster import NodeTlsKeys
from raftctl.localcluster.layout import BROKER_LISTENER, HTTP_LISTENER
from raftctl.localcluster.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftctl.localcluster.layout import ClusterLayout, LocalNode
    from raftctl.metadata.records import UserScramCredentialRecord

REPLICATION = "REPLICATION"
"""The listener by which brokers replicate."""
NODES, AUTHORITIES = "node", 2
_PASSWORD_BYTES = 24
_OWNER_ONLY = 0o600
_CONNECT_S, _POLL_S, SERVED_MAX_S = 1.0, 0.2, 10.0
"""Nodes look at the files of their stores every 3 s."""


class LocalSecurity(NodeTlsKeys):
    """All that is secret of one cluster; `remove` takes it away."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="jepsen-keys-"))
        self._authorities = [Authority(f"authority {1 + n}") for n in range(AUTHORITIES)]
        self._trusted = self._directory / "authorities.pem"
        self._trusted.write_text("".join(one.pem for one in self._authorities))
        self._write(OPERATOR, self._authorities[0].issue(OPERATOR, "", ()).store)
        self._passwords = Passwords(partial(token_urlsafe, _PASSWORD_BYTES))
        self._passwords.take(OPERATOR, self._passwords.drawn())
        self._ports: dict[str, tuple[str, list[int]]] = {}
        """By node: the address and the ports of its listeners."""

    def remove(self) -> None:
        """Delete the keys."""
        shutil.rmtree(self._directory, ignore_errors=True)

    # --- the configuration of nodes ---------------------------------------------------------------

    @property
    def overrides(self) -> dict[str, str]:
        """Return the keys of all nodes."""
        protocols = {
            BROKER_LISTENER: Security.SASL_SSL,
            REPLICATION: "SSL",
            "CONTROLLER": "SSL",
            HTTP_LISTENER: "SSL",
        }
        return {
            "listener.security.protocol.map": ",".join(":".join(one) for one in protocols.items()),
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted),
            "ssl.principal.mapping.rules": f"RULE:^CN=.*,OU={NODES}$/{NODES}/,RULE:^CN=(.*)$/$1/",
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": "standard",
            "super.users": f"User:{NODES};User:{OPERATOR}",
        }

    def keys(self, node: LocalNode, layout: ClusterLayout) -> Mapping[str, str]:
        """See `NodeTlsKeys`; the node's first certificate is made."""
        del layout
        ports = list(node.ports)
        own = {"ssl.keystore.location": str(self._store(node.name))}
        if node.role == "broker":
            ports += free_ports(1)
            own |= {
                "listeners": f"{BROKER_LISTENER}://{node.address},{REPLICATION}://{node.host}:{ports[-1]}",
                "inter.broker.listener.name": REPLICATION,
                "sasl.enabled.mechanisms": MECHANISM,
                f"listener.name.{REPLICATION.lower()}.ssl.client.auth": "required",
            }
        if node.http_port is not None:
            own[f"listener.name.{HTTP_LISTENER.lower()}.ssl.client.auth"] = "required"
        self._ports[node.name] = (node.host, ports)
        self._issue(node.name, 1)
        return own

    @property
    def first_users(self) -> list[UserScramCredentialRecord]:
        """Return the users that the cluster begins with: the operator."""
        password = self._passwords.newest(OPERATOR)
        fields = f"name={OPERATOR},password={password},iterations={ITERATIONS}"
        return [parse_scram_user(f"{MECHANISM}=[{fields}]")]

    # --- certificates -----------------------------------------------------------------------------

    def renew(self, node: str, authority: int) -> bool:
        """Give a node a new certificate, by the first or the second authority, in its file.

        Return whether all listeners of the node serve it in time, without a restart. It blocks.
        """
        der = self._issue(node, authority)
        host, ports = self._ports[node]
        deadline_s = time.monotonic() + SERVED_MAX_S
        while any(self._served(host, port) != der for port in ports):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)
        return True

    def _issue(self, node: str, authority: int) -> bytes:
        host, _ = self._ports[node]
        issued = self._authorities[authority - 1].issue(node, NODES, [host])
        self._write(node, issued.store)
        return issued.der

    def _served(self, host: str, port: int) -> bytes | None:
        """The certificate that a listener shows, if it is a trusted one; None without an answer."""
        try:
            with (
                socket.create_connection((host, port), timeout=_CONNECT_S) as plain,
                self.context.wrap_socket(plain, server_hostname=host) as connection,
            ):
                return connection.getpeercert(binary_form=True)
        except OSError:
            return None

    def _write(self, name: str, store: str) -> None:
        """Replace a store as a whole: a node that starts now must not read half of one."""
        path = self._store(name)
        new = path.with_suffix(".new")
        new.touch(_OWNER_ONLY)
        new.write_text(store)
        new.replace(path)

    def _store(self, name: str) -> Path:
        return self._directory / f"{name}.pem"

    # --- clients ----------------------------------------------------------------------------------

    @property
    def context(self) -> ssl.SSLContext:
        """Return that of a client with the operator's certificate."""
        made = ssl.create_default_context(cafile=str(self._trusted))
        made.load_cert_chain(self._store(OPERATOR))
        return made

    @property
    def settings(self) -> TlsSettings:
        """Return the same for clients of raftctl."""
        return TlsSettings(
            keystore=StoreSettings("PEM", location=str(self._store(OPERATOR))),
            truststore=StoreSettings("PEM", location=str(self._trusted)),
        )

    def access(self, bootstrap_servers: str) -> ClusterAccess:
        """Return the users and rules of the cluster at those addresses."""
        return ClusterAccess(
            bootstrap_servers, Security.SASL_SSL, self._passwords, str(self._trusted)
        )

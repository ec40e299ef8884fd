"""Certificates, users and configuration of a secured local cluster, and where its secrets are."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jepsen.environments import Security
from jepsen.environments.access import OPERATOR
from jepsen.environments.local import security
from jepsen.environments.local._network import RelayNetwork
from jepsen.environments.local.security import LocalSecurity
from raftctl.config import make_config
from raftctl.localcluster.layout import HOST, LocalNode, make_layout, node_values
from raftctl.localcluster.ports import free_ports
from raftctl.security.tls._mapping import PrincipalMapper
from raftctl.security.tls._names import subject_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.req("S2", "S7")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSecurity]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    security = LocalSecurity()
    yield security
    security.remove()


def configured(made: LocalSecurity, role: str) -> tuple[LocalNode, dict[str, str]]:
    """A node of a new cluster, and what configures it."""
    first, second, third = free_ports(3)
    layout = make_layout("a-cluster", [first], [second], made.overrides, http_ports=[third])
    node = next(one for one in layout.nodes if one.role == role)
    return node, {**node_values(layout, node, "/data"), **made.keys(node, layout)}


@contextmanager
def serving(port: int, store: str, trusted: str, *, reloads: bool) -> Iterator[None]:
    """A listener with a node's store, that looks at the file for each connection or never again."""
    listening = socket.create_server(("127.0.0.1", port))

    def context() -> ssl.SSLContext:
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_cert_chain(store)
        found.load_verify_locations(trusted)
        found.verify_mode = ssl.CERT_REQUIRED
        return found

    first = context()

    def serve() -> None:
        while True:
            try:
                accepted, _ = listening.accept()
                with (context() if reloads else first).wrap_socket(
                    accepted, server_side=True
                ) as one:
                    one.recv(1)
            except ssl.SSLError:
                continue
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        # A blocked accept goes on when somebody connects, or the socket is shut down.
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


@pytest.mark.parametrize("role", ["controller", "broker"])
def test_the_configuration_is_one_that_nodes_take_and_has_no_secret(
    made: LocalSecurity, role: str
) -> None:
    node, values = configured(made, role)
    warnings: list[str] = []
    config = make_config(values, warnings.append)
    assert config.node_id == node.node_id
    assert warnings == []
    assert "password" not in str(values).lower()
    store = Path(values["ssl.keystore.location"])
    assert "PRIVATE KEY" in store.read_text()
    assert store.stat().st_mode & 0o077 == 0
    assert store.parent.stat().st_mode & 0o077 == 0
    made.remove()
    assert not store.parent.exists()


def test_nodes_are_one_principal_and_the_operator_another(made: LocalSecurity) -> None:
    mapper = PrincipalMapper(made.overrides["ssl.principal.mapping.rules"])
    node, values = configured(made, "broker")
    issued = ssl.PEM_cert_to_DER_cert(certificate_of(Path(values["ssl.keystore.location"])))
    assert mapper.name(subject_of(issued)) == security.NODES
    own = Path(values["ssl.keystore.location"]).with_name(f"{OPERATOR}.pem")
    operator = ssl.PEM_cert_to_DER_cert(certificate_of(own))
    assert mapper.name(subject_of(operator)) == OPERATOR
    assert node.role == "broker"
    allowed = made.overrides["super.users"].split(";")
    assert allowed == [f"User:{security.NODES}", f"User:{OPERATOR}"]


def certificate_of(store: Path) -> str:
    """The first certificate of a key store."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return begin + store.read_text().partition(begin)[2].partition(end)[0] + end


@pytest.mark.parametrize("authority", [1, 2])
def test_a_renewal_is_seen_from_outside(made: LocalSecurity, authority: int) -> None:
    node, values = configured(made, "controller")
    store, trusted = values["ssl.keystore.location"], values["ssl.truststore.location"]
    before = Path(store).read_text()
    with serving(node.port, store, trusted, reloads=True):
        assert made.renew(node.name, authority)
    assert Path(store).read_text() != before


def test_a_node_that_keeps_its_certificate_has_no_fault(
    made: LocalSecurity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "SERVED_MAX_S", 0.3)
    node, values = configured(made, "controller")
    assert not made.renew(node.name, 1), "nobody listens"
    store, trusted = values["ssl.keystore.location"], values["ssl.truststore.location"]
    with serving(node.port, store, trusted, reloads=False):
        assert not made.renew(node.name, 2)


def test_each_listener_of_a_node_has_a_relay(made: LocalSecurity, tmp_path: Path) -> None:
    node, values = configured(made, "broker")
    file = tmp_path / node.name / "node.properties"
    file.parent.mkdir()
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    RelayNetwork().prepare([node], tmp_path)
    lines = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert lines["advertised.listeners"] == values["listeners"]
    names = [one.partition("://")[0] for one in lines["listeners"].split(",")]
    assert names == ["PLAINTEXT", "REPLICATION"]
    assert HOST in lines["listeners"]
    hidden = {int(one.rpartition(":")[2]) for one in lines["listeners"].split(",")}
    known = {int(one.rpartition(":")[2]) for one in values["listeners"].split(",")}
    assert len(hidden | known) == 4


def test_a_user_logs_in_with_the_newest_password(made: LocalSecurity) -> None:
    access = made.access("127.0.0.1:1")
    entrance = access.entrance(OPERATOR)
    login = entrance.login
    assert login is not None
    assert entrance.generation == 0
    assert "sasl" not in repr(entrance)
    with entrance.librdkafka() as settings:
        password = settings["sasl.password"]
    assert settings["security.protocol"] == Security.SASL_SSL
    assert password not in repr(entrance) + repr(access) + repr(vars(login))
    made._passwords.take(OPERATOR, "another")
    assert entrance.generation == 1
    assert entrance.aiokafka()["sasl_plain_password"] == "another"

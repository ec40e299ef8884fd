"""Certificates, authorities and passwords are replaced while clients go on."""

from __future__ import annotations

import ssl
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Producer
from cryptography import x509

from raftctl.config import write_properties
from tests.integration.clusters import wait_until
from tests.integration.commands import raftctl
from tests.kit.certificates import Authority, pem
from tests.peers.secured import librdkafka
from tests.peers.secured.cases import PAUSE_S, STAY, STAY_S, WRITE, Case, Outcome, case
from tests.peers.secured.cluster import MUTUAL, OWN_PREFIX, REAUTH_MS, SASL_SSL, SHORT
from tests.peers.secured.playing import LIBRARIES, PROGRAM_S, playing
from tests.peers.tools import INSTALL_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers.secured.cluster import Entrance, SecuredCluster

TIMEOUT_S = 30
MECHANISM = "SCRAM-SHA-512"
NEW_PASSWORD = "new year"

pytestmark = [
    pytest.mark.timeout(2 * INSTALL_TIMEOUT_S + PROGRAM_S),
    pytest.mark.xdist_group("secured"),
]


def shown(entrance: Entrance) -> set[int]:
    """The serial numbers of the certificates that the brokers show."""
    addresses = [one.rpartition(":") for one in entrance.bootstrap.split(",")]
    texts = [ssl.get_server_certificate((host, int(port))) for host, _, port in addresses]
    return {x509.load_pem_x509_certificate(text.encode()).serial_number for text in texts}


@contextmanager
def text_of(path: str, text: str) -> Iterator[None]:
    """A file has another text within the block."""
    file = Path(path)
    before = file.read_text()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(before)


def replaced(secured: SecuredCluster, path: Path) -> int:
    """Write a new certificate of the brokers, and return its serial number."""
    issued = secured.authority.issue()
    issued.store(path)
    return issued.certificate.serial_number


def administrator(secured: SecuredCluster, folder: Path) -> list[str]:
    """The options with which our commands log in as a super user."""
    config, entrance = folder / "admin.properties", secured.entrances[SASL_SSL]
    config.write_text(write_properties(secured.properties(entrance, "PLAIN", "admin")))
    return ["--bootstrap-server", entrance.bootstrap, "--command-config", str(config)]


def topic(library: str) -> str:
    """A topic of this module's own."""
    return f"{OWN_PREFIX}changes-{library}"


def written(one: Case) -> Outcome:
    """What a client of librdkafka that connects now comes to."""
    return librdkafka.play(one)


@pytest.mark.req("S2")
def test_clients_of_all_libraries_go_on_while_certificates_are_replaced(
    secured: SecuredCluster, tmp_path: Path
) -> None:
    """The file of the brokers, and then its name, by a dynamic config of a listener."""
    entrance = secured.entrances[SHORT]
    (old,) = shown(entrance)
    # Those that do not renew a session connect again and again, also in the middle.
    staying = playing(
        {
            library: [replace(case(secured, library, STAY, SHORT, MECHANISM), topic=topic(library))]
            for library in LIBRARIES
        }
    )
    new = replaced(secured, Path(secured.files.node))
    wait_until(lambda: shown(entrance) == {new}, "all brokers show the new certificate", TIMEOUT_S)
    newest = replaced(secured, tmp_path / "newest.pem")
    key = f"listener.name.{SHORT.lower()}.ssl.keystore.location"
    for broker in secured.cluster.layout.brokers:
        one = ("--entity-type", "brokers", "--entity-name", str(broker.node_id))
        change = ("--set", f"{key}={tmp_path / 'newest.pem'}")
        altered = raftctl("configs", "alter", *one, *change, *administrator(secured, tmp_path))
        assert altered.status == 0, altered
    wait_until(lambda: shown(entrance) == {newest}, "all show the newest", TIMEOUT_S)
    assert len({old, new, newest}) == 3
    outcomes = {library: list(future.result().values()) for library, future in staying.items()}
    assert {library: one.error for library, (one,) in outcomes.items()} == dict.fromkeys(
        LIBRARIES, ""
    )
    assert all(one.written > STAY_S * 1000 / REAUTH_MS for (one,) in outcomes.values())


@pytest.mark.req("S2")
def test_an_authority_is_trusted_and_no_longer_trusted_without_a_restart(
    secured: SecuredCluster, tmp_path: Path
) -> None:
    other = Authority("Next CA")
    alice = other.issue("alice")
    certificate, key = tmp_path / "alice.crt", tmp_path / "alice.key"
    certificate.write_text(alice.pem)
    key.write_text(alice.key_pem())
    known = case(secured, "confluent-kafka", WRITE, MUTUAL)
    one = replace(known, certificate=str(certificate), key=str(key))
    assert "unknown ca" in written(one).error
    both = secured.authority.pem + pem(other.certificate)
    # Whom clients trust stays as it is.
    trusted = Path(secured.files.authority)
    clients = tmp_path / "ca.pem"
    clients.write_text(trusted.read_text())
    one, known = (replace(each, trusted=str(clients)) for each in (one, known))
    with text_of(secured.files.authority, both):
        wait_until(lambda: written(one).error == "", "the new authority's client gets in")
        assert written(known).error == ""
    wait_until(lambda: "unknown ca" in written(one).error, "it does not get in any more")
    assert written(known).error == ""


class Writer:
    """A producer of carol's that goes on over a change."""

    def __init__(self, secured: SecuredCluster, listener: str) -> None:
        self.errors: list[KafkaError] = []
        carol = case(secured, "confluent-kafka", WRITE, listener, MECHANISM, "carol")
        given = librdkafka.settings(carol) | {"error_cb": self.errors.append}
        self.producer = Producer(given)

    def write_for(self, seconds: float) -> list[str]:
        """Write on, and return the names of all errors."""
        found: list[KafkaError | None] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.is_refused:
            self.producer.produce(
                topic("carol"), b"value", on_delivery=lambda error, _: found.append(error)
            )
            self.producer.poll(PAUSE_S)
        if not self.is_refused:
            assert self.producer.flush(TIMEOUT_S) == 0
        return [one.name() for one in (*self.errors, *found) if one is not None]

    @property
    def is_refused(self) -> bool:
        """Whether its password is wrong."""
        return any(one.code() == KafkaError._AUTHENTICATION for one in self.errors)


@pytest.mark.req("S3", "S7")
def test_a_client_goes_on_while_its_password_is_changed(
    secured: SecuredCluster, tmp_path: Path
) -> None:
    changing, forgetting = Writer(secured, SHORT), Writer(secured, SHORT)
    unlimited = Writer(secured, SASL_SSL)
    for writer in (changing, forgetting, unlimited):
        assert writer.write_for(1) == []
    password = tmp_path / "password"
    password.write_text(NEW_PASSWORD)
    how = ["--mechanism", MECHANISM, "--password-file", str(password)]
    changed = raftctl("users", "set", "carol", *how, *administrator(secured, tmp_path))
    changing.producer.set_sasl_credentials("carol", NEW_PASSWORD)
    assert changed.status == 0, changed
    # Its session outlives the password; those that end do not.
    assert changing.write_for(3) == []
    assert unlimited.write_for(1) == []
    assert "_AUTHENTICATION" in forgetting.write_for(TIMEOUT_S)
    forgetting.producer.purge()
    old = case(secured, "confluent-kafka", WRITE, SASL_SSL, MECHANISM, "carol")
    assert old.login is not None
    new = replace(old, login=replace(old.login, password=NEW_PASSWORD))
    assert written(old).error.startswith("_AUTHENTICATION")
    assert written(new).error == ""

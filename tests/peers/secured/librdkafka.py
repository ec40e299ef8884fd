"""confluent-kafka, and so librdkafka, as a client of a secured cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.kit.topics import create_topic
from tests.peers.secured.cases import COUNT, LAST, PAUSE_S, STAY, STAY_S, USE, Case, Outcome
from tests.peers.secured.logins import expiry, token

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 40
POLL_S = 0.1
_FINAL = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Of its background threads: it would try again for ever."""


def play(case: Case) -> Outcome:
    """Do what a case says."""
    began = time.monotonic()
    try:
        return {USE: _use, STAY: _stay}.get(case.action, _write)(case)
    except KafkaException as error:
        return _failed(error.args[0], time.monotonic() - began)


def _failed(error: KafkaError, seconds: float) -> Outcome:
    return Outcome(error=f"{error.name()}: {error.str()}", seconds=seconds)


def settings(case: Case) -> dict[str, Any]:
    """Return how it gets in."""
    found: dict[str, Any] = {
        "bootstrap.servers": case.bootstrap,
        "security.protocol": case.protocol,
        "log_level": 0,
    }
    stores = {
        "ssl.ca.location": case.trusted,
        "ssl.certificate.location": case.certificate,
        "ssl.key.location": case.key,
    }
    found |= {key: path for key, path in stores.items() if path}
    login = case.login
    if login is None:
        return found
    found["sasl.mechanism"] = login.mechanism
    if login.mechanism != "OAUTHBEARER":
        return found | {"sasl.username": login.user, "sasl.password": login.password}
    if not login.token:
        # Its own way to a token endpoint.
        return found | {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": login.user,
            "sasl.oauthbearer.client.secret": login.password,
            "sasl.oauthbearer.token.endpoint.url": login.token_url,
        }
    return found | {"oauth_cb": lambda _: (token(login), expiry())}


def _use(case: Case) -> Outcome:
    create_topic(AdminClient(settings(case)), case.topic, 1, 2, {}, TIMEOUT_S)
    producer = Producer(settings(case) | {"acks": "all"})
    for number in range(COUNT):
        producer.produce(case.topic, str(number))
    assert producer.flush(TIMEOUT_S) == 0
    values = _read(case, COUNT)
    producer.produce(case.topic, LAST)
    assert producer.flush(TIMEOUT_S) == 0
    return Outcome(created=True, values=values, again=_read(case, 1), written=COUNT + 1)


def _read(case: Case, count: int) -> list[str]:
    of_group = {
        "group.id": case.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings(case) | of_group)
    consumer.subscribe([case.topic])
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            messages = consumer.consume(count - len(values), timeout=POLL_S)
            values += [(one.value() or b"").decode() for one in messages if one.error() is None]
        if values:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


class _Writer:
    """A producer, and what its background threads complain of."""

    def __init__(self, case: Case, more: Mapping[str, Any]) -> None:
        self.errors: list[KafkaError] = []
        self.delivered: list[KafkaError | None] = []
        self._topic = case.topic
        given = settings(case) | {"error_cb": self.errors.append} | dict(more)
        self.producer = Producer(given)

    def write(self) -> None:
        """Send a record, and wait until it is acknowledged or nothing can come of it."""
        count = len(self.delivered)
        self.producer.produce(
            self._topic, b"value", on_delivery=lambda error, _: self.delivered.append(error)
        )
        deadline = time.monotonic() + TIMEOUT_S
        while len(self.delivered) == count and not self.final() and time.monotonic() < deadline:
            self.producer.poll(POLL_S)

    def final(self) -> KafkaError | None:
        """Return the first error that no further attempt will cure."""
        return next((one for one in self.errors if _is_final(one)), None)


def _is_final(error: KafkaError) -> bool:
    if error.code() in _FINAL:
        # A connection that ends during a login is named so, too, and the login is tried again. On a
        # busy machine a session ends before it was renewed.
        return "Broker transport failure" not in error.str()
    # With TLS 1.3 a server refuses a certificate when the handshake is over for the client.
    return "SSL alert number" in error.str()


def _write(case: Case) -> Outcome:
    began = time.monotonic()
    writer = _Writer(case, {"enable.idempotence": False, "message.timeout.ms": TIMEOUT_S * 1000})
    writer.write()
    error = writer.final() or next(iter(writer.delivered), None)
    writer.producer.purge()
    writer.producer.flush(1)
    return Outcome() if error is None else _failed(error, time.monotonic() - began)


def _stay(case: Case) -> Outcome:
    began = time.monotonic()
    create_topic(AdminClient(settings(case)), case.topic, 1, 2, {}, TIMEOUT_S)
    writer = _Writer(case, {})
    until = time.monotonic() + STAY_S
    while time.monotonic() < until and writer.final() is None:
        writer.write()
        time.sleep(PAUSE_S)
    error = writer.final() or next((one for one in writer.delivered if one is not None), None)
    if error is not None:
        return _failed(error, time.monotonic() - began)
    return Outcome(created=True, written=len(writer.delivered))

"""kafka-python as a client of a secured cluster."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.peers.secured.cases import COUNT, LAST, PAUSE_S, STAY, STAY_S, USE, Case, Outcome
from tests.peers.secured.complaints import complaints
from tests.peers.secured.logins import login_settings, token

if TYPE_CHECKING:
    from tests.peers.secured.cases import Login

TIMEOUT_S = 40
BOOTSTRAP_MS = (1000, 2000, 4000, 8000)
"""How long it tries: on a busy machine a short time may end without any answer."""
REASON = re.compile("SaslAuthenticationFailedError|socket disconnected|SSL: ")


@AbstractTokenProvider.register
class _Tokens:
    def __init__(self, login: Login) -> None:
        self._login = login

    def token(self) -> str:
        return token(self._login)

    def extensions(self) -> dict[str, str]:
        return {}


def play(case: Case) -> Outcome:
    """Do what a case says."""
    began = time.monotonic()
    try:
        return {USE: _use, STAY: _stay}.get(case.action, _write)(case)
    except (KafkaError, OSError) as error:
        text = f"{type(error).__name__}: {error}"
        return Outcome(error=text, seconds=time.monotonic() - began)


def settings(case: Case) -> dict[str, Any]:
    """Return how it gets in."""
    found: dict[str, Any] = {
        "bootstrap_servers": case.bootstrap,
        "security_protocol": case.protocol,
        "ssl_cafile": case.trusted or None,
        "ssl_certfile": case.certificate or None,
        "ssl_keyfile": case.key or None,
    }
    return found | login_settings(case.login, _Tokens)


def _create(case: Case) -> None:
    admin = KafkaAdminClient(**settings(case))
    try:
        admin.create_topics([NewTopic(case.topic, 1, 2)])
    finally:
        admin.close()


def _use(case: Case) -> Outcome:
    _create(case)
    producer = KafkaProducer(**settings(case), acks="all")
    try:
        sent = [producer.send(case.topic, str(number).encode()) for number in range(COUNT)]
        for future in sent:
            future.get(TIMEOUT_S)
        values = _read(case, COUNT)
        producer.send(case.topic, LAST.encode()).get(TIMEOUT_S)
    finally:
        producer.close(timeout=1)
    return Outcome(created=True, values=values, again=_read(case, 1), written=COUNT + 1)


def _read(case: Case, count: int) -> list[str]:
    of_group = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(case.topic, **settings(case), group_id=case.group, **of_group)
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            polled = consumer.poll(timeout_ms=5000, max_records=count - len(values))
            for messages in polled.values():
                values += [one.value.decode() for one in messages]
        if values:
            consumer.commit()
    finally:
        consumer.close()
    return values


def _write(case: Case) -> Outcome:
    """Write a record. While it knows no broker it tries on, and says why in its log alone."""
    with complaints("kafka") as lines:
        began = time.monotonic()
        for bootstrap_ms in BOOTSTRAP_MS:
            try:
                return _write_one(case, bootstrap_ms)
            except KafkaError as error:
                text = "; ".join([f"{type(error).__name__}: {error}", *lines])
                if not isinstance(error, KafkaTimeoutError) or REASON.search(text):
                    break
    return Outcome(error=text, seconds=time.monotonic() - began)


def _write_one(case: Case, bootstrap_ms: int) -> Outcome:
    producer = KafkaProducer(**settings(case), bootstrap_timeout_ms=bootstrap_ms)
    try:
        producer.send(case.topic, b"value").get(TIMEOUT_S)
    finally:
        producer.close(timeout=1)
    return Outcome(written=1)


def _stay(case: Case) -> Outcome:
    _create(case)
    producer = KafkaProducer(**settings(case))
    written = 0
    until = time.monotonic() + STAY_S
    try:
        while time.monotonic() < until:
            producer.send(case.topic, b"value").get(TIMEOUT_S)
            written += 1
            time.sleep(PAUSE_S)
    finally:
        producer.close(timeout=1)
    return Outcome(created=True, written=written)

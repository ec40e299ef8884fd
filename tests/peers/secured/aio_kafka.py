"""aiokafka as a client of a secured cluster."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.peers.secured.cases import COUNT, LAST, PAUSE_S, STAY, STAY_S, USE, Case, Outcome
from tests.peers.secured.complaints import complaints
from tests.peers.secured.logins import login_settings, token

if TYPE_CHECKING:
    from tests.peers.secured.cases import Login

TIMEOUT_S = 40


@AbstractTokenProvider.register
class _Tokens:
    def __init__(self, login: Login) -> None:
        self._login = login

    async def token(self) -> str:
        return await asyncio.to_thread(token, self._login)

    def extensions(self) -> dict[str, str]:
        return {}


def play(case: Case) -> Outcome:
    """Do what a case says."""
    began = time.monotonic()
    action = {USE: _use, STAY: _stay}.get(case.action, _write)
    try:
        return asyncio.run(action(case))
    except (KafkaError, OSError) as error:
        text = f"{type(error).__name__}: {error}"
        return Outcome(error=text, seconds=time.monotonic() - began)


def settings(case: Case) -> dict[str, Any]:
    """Return how it gets in."""
    found: dict[str, Any] = {
        "bootstrap_servers": case.bootstrap,
        "security_protocol": case.protocol,
    }
    if case.trusted:
        context = ssl.create_default_context(cafile=case.trusted)
        if case.certificate:
            context.load_cert_chain(case.certificate, case.key)
        found["ssl_context"] = context
    return found | login_settings(case.login, _Tokens)


async def _create(case: Case) -> None:
    admin = AIOKafkaAdminClient(**settings(case))
    await admin.start()
    try:
        await admin.create_topics([NewTopic(case.topic, 1, 2)])
    finally:
        await admin.close()


async def _use(case: Case) -> Outcome:
    await _create(case)
    producer = AIOKafkaProducer(**settings(case), acks="all")
    await producer.start()
    try:
        sent = [await producer.send(case.topic, str(number).encode()) for number in range(COUNT)]
        await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S)
        values = await _read(case, COUNT)
        await producer.send_and_wait(case.topic, LAST.encode())
    finally:
        await producer.stop()
    again = await _read(case, 1)
    return Outcome(created=True, values=values, again=again, written=COUNT + 1)


async def _read(case: Case, count: int) -> list[str]:
    of_group = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = AIOKafkaConsumer(case.topic, **settings(case), group_id=case.group, **of_group)
    await consumer.start()
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            polled = await consumer.getmany(timeout_ms=1000, max_records=count - len(values))
            for messages in polled.values():
                values += [one.value.decode() for one in messages]
        if values:
            await consumer.commit()
    finally:
        await consumer.stop()
    return values


async def _write(case: Case) -> Outcome:
    """Write a record. While it knows no broker, the reason of a failure is in its log alone."""
    with complaints("aiokafka") as lines:
        began = time.monotonic()
        try:
            return await _write_one(case)
        except KafkaError as error:
            text = "; ".join([f"{type(error).__name__}: {error}", *lines])
            return Outcome(error=text, seconds=time.monotonic() - began)


async def _write_one(case: Case) -> Outcome:
    producer = AIOKafkaProducer(**settings(case))
    try:
        await producer.start()
        await producer.send_and_wait(case.topic, b"value")
    finally:
        await producer.stop()
    return Outcome(written=1)


async def _stay(case: Case) -> Outcome:
    await _create(case)
    producer = AIOKafkaProducer(**settings(case))
    written = 0
    until = time.monotonic() + STAY_S
    await producer.start()
    try:
        while time.monotonic() < until:
            await producer.send_and_wait(case.topic, b"value")
            written += 1
            await asyncio.sleep(PAUSE_S)
    finally:
        await producer.stop()
    return Outcome(created=True, written=written)

"""Sessions on a cluster whose rules and passwords change: what they claim, and how they log in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import ClusterAuthorizationFailedError, TopicAuthorizationFailedError
from confluent_kafka import KafkaError, KafkaException

from jepsen.environments import Entrance, Security
from jepsen.environments.access import Passwords, UserLogin
from jepsen.workloads import WorkloadOptions
from jepsen.workloads.sessions import SessionError, rules_of
from jepsen.workloads.sessions import _aio as aio
from jepsen.workloads.sessions import _librdkafka as librdkafka
from jepsen.workloads.sessions._aio import AioSession
from jepsen.workloads.sessions._base import SessionOptions
from jepsen.workloads.sessions._librdkafka import LibrdkafkaSession

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("J3", "S7")


class AioClient:
    """Stands for a producer or a consumer of aiokafka."""

    def __init__(self, send: Callable[[], Any] | None = None, **settings: Any) -> None:
        self.client = self._client = self
        self._sender = self
        self._answer = send
        self._sasl_plain_password = settings.get("sasl_plain_password")
        self.sender_task: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stopped = False

    async def start(self) -> None:
        """Connect to nobody."""

    async def stop(self) -> None:
        self.stopped = True

    async def send(self, topic: str, value: bytes, partition: int) -> Any:
        del topic, value, partition
        assert self._answer is not None
        return self._answer()


def logged_in(passwords: Passwords) -> SessionOptions:
    login = UserLogin(Security.SASL_PLAINTEXT, "client", passwords)
    return SessionOptions(Entrance("127.0.0.1:1", login), "jepsen")


@pytest.fixture
def passwords() -> Passwords:
    made = Passwords(lambda: "unused")
    made.take("client", "first")
    return made


def refused_at_once() -> Any:
    raise TopicAuthorizationFailedError


def refused_by_an_answer() -> Any:
    future = asyncio.get_running_loop().create_future()
    future.set_exception(TopicAuthorizationFailedError())
    return future


@pytest.mark.parametrize(
    ("send", "certain"), [(refused_at_once, True), (refused_by_an_answer, False)]
)
async def test_a_refusal_is_certain_only_before_anything_was_sent(
    passwords: Passwords,
    monkeypatch: pytest.MonkeyPatch,
    send: Callable[[], Any],
    certain: bool,
) -> None:
    monkeypatch.setattr(aio, "AIOKafkaProducer", lambda **_: AioClient(send))
    session = AioSession(logged_in(passwords))
    with pytest.raises(SessionError) as refused:
        await session.send("0", b"1")
    assert refused.value.certain is certain


async def test_a_producer_that_sends_no_more_is_replaced(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[AioClient] = []

    def producer(**settings: Any) -> AioClient:
        made.append(AioClient(refused_by_an_answer, **settings))
        return made[-1]

    monkeypatch.setattr(aio, "AIOKafkaProducer", producer)
    session = AioSession(logged_in(passwords))
    for _ in range(2):
        with pytest.raises(SessionError):
            await session.send("0", b"1")
    assert len(made) == 1
    made[0].sender_task.set_exception(ClusterAuthorizationFailedError())
    with pytest.raises(SessionError):
        await session.send("0", b"1")
    assert [one.stopped for one in made] == [True, False]


async def test_aiokafka_logs_in_with_the_newest_password(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[AioClient] = []

    def client(**settings: Any) -> AioClient:
        made.append(AioClient(**settings))
        return made[-1]

    monkeypatch.setattr(aio, "AIOKafkaConsumer", client)
    monkeypatch.setattr(aio, "AIOKafkaProducer", client)
    session = AioSession(logged_in(passwords))
    await session._started_consumer()
    await session._started_producer()
    passwords.take("client", "second")
    await session._started_consumer()
    await session._started_producer()
    assert [one._sasl_plain_password for one in made] == ["second"] * 2
    assert not any(one.stopped for one in made)


class RdkafkaClient:
    """Stands for a producer or a consumer of librdkafka."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.credentials = (settings["sasl.username"], settings["sasl.password"])
        self.failure: Exception | None = None

    def set_sasl_credentials(self, user: str, password: str) -> None:
        self.credentials = (user, password)

    def produce(self, *_: Any, **__: Any) -> None:
        if self.failure is not None:
            raise self.failure

    def flush(self, timeout_s: float) -> None:
        del timeout_s


def test_librdkafka_logs_in_with_the_newest_password(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(librdkafka, "Producer", RdkafkaClient)
    monkeypatch.setattr(librdkafka, "Consumer", RdkafkaClient)
    session = LibrdkafkaSession(logged_in(passwords))
    first: list[Any] = [session._made_producer(), session._made_consumer()]
    passwords.take("client", "second")
    assert [session._made_producer(), session._made_consumer()] == first
    assert [one.credentials for one in first] == [("client", "second")] * 2


@pytest.mark.parametrize(("code", "same"), [("_FATAL", False), ("_UNKNOWN_TOPIC", True)])
async def test_a_producer_of_librdkafka_is_given_up_after_a_fatal_error(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch, code: str, same: bool
) -> None:
    monkeypatch.setattr(librdkafka, "Producer", RdkafkaClient)
    session = LibrdkafkaSession(logged_in(passwords))
    first: Any = session._made_producer()
    first.failure = KafkaException(KafkaError(getattr(KafkaError, code)))
    with pytest.raises(SessionError) as failed:
        await session.send("0", b"1")
    assert failed.value.certain
    assert (session._made_producer() is first) is same


def test_clients_are_allowed_what_they_do_and_nothing_else() -> None:
    options = WorkloadOptions(topic="jepsen-7")
    plain = rules_of(options)
    assert {(rule.resource, rule.name, rule.operation) for rule in plain} == {
        ("topic", "jepsen-7", "read"),
        ("topic", "jepsen-7", "write"),
        ("group", "jepsen-7", "read"),
    }
    assert not any(rule.prefixed for rule in plain)
    assert {rule.name for rule in rules_of(options, group="jepsen-7-readers")} == {
        "jepsen-7",
        "jepsen-7-readers",
    }
    (more,) = set(rules_of(options, has_transactions=True)) - set(plain)
    assert more == ("transactional_id", "jepsen-7-", "write", True)

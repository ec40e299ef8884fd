"""Who may ask and push, when, and what clients are subscribed to (row O4, KIP-714)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from broker.telemetry._instances import (
    ClientFacts,
    Instance,
    Instances,
    Push,
    subscription_id,
)
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.client_metrics import read_subscription

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("O4")

FACTS = ClientFacts("app-1", "librdkafka", "2.11.0", "10.0.0.7", 4711)
ID = UUID(int=5 << 64 | 9)
MINUTE = 60_000
CASE = {"metrics": "org.apache.kafka.producer.", "interval.ms": "1000"}


class Known:
    """Instances with a clock that stands until it is moved."""

    def __init__(self, instances_max: int = 100) -> None:
        self.now_ms = 1_000_000
        self.forgotten: list[UUID] = []
        ids = iter(UUID(int=number) for number in range(1_000))
        self.all = Instances(lambda: next(ids), self.forgotten.append, 100, instances_max)

    def subscribe(self, name: str, **configs: str) -> None:
        keys = {key.replace("_", "."): value for key, value in configs.items()}
        self.all.subscribe({name: read_subscription(keys)})

    def ask(self, instance_id: UUID | None = ID, facts: ClientFacts = FACTS) -> Instance:
        return self.all.ask(instance_id, facts, self.now_ms)

    def asked(self, instance_id: UUID | None = ID) -> ErrorCode:
        return outcome_of(lambda: self.ask(instance_id))

    def pushed(self, push: Push) -> ErrorCode:
        return outcome_of(lambda: self.all.push(push, FACTS, self.now_ms))


def outcome_of(call: Callable[[], object]) -> ErrorCode:
    try:
        call()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.fixture
def known() -> Known:
    known = Known()
    known.subscribe("s", metrics="org.apache.kafka.producer.", interval_ms="1000")
    return known


def push_of(instance: Instance, **changes: Any) -> Push:
    return replace(Push(instance.id, instance.subscription_id, False, 0, b""), **changes)


def test_a_client_without_an_id_gets_one_that_nobody_has(known: Known) -> None:
    first, second = known.ask(None), known.ask(UUID(int=0))
    assert (first.id, second.id) == (UUID(int=2), UUID(int=3))


def test_what_is_subscribed_follows_from_all_subscriptions_that_match(known: Known) -> None:
    known.subscribe("names", metrics="a.,b.", match="client_software_name=librd.*")
    known.subscribe("none", metrics="z.", interval_ms="100", match="client_id=app")
    known.subscribe("quicker", interval_ms="500", match="client_id=app-.*,client_source_port=4711")
    found = known.ask()
    assert found.metrics == ("a.", "b.", "org.apache.kafka.producer.")
    assert found.interval_ms == 500
    known.subscribe("everything", metrics="*,c.")
    assert known.ask().metrics == ("*",)


def test_without_subscriptions_nothing_is_pushed_and_the_next_question_is_late() -> None:
    found = Known().ask()
    assert (found.metrics, found.interval_ms) == ((), 300_000)


def test_a_subscription_ends_with_its_configs(known: Known) -> None:
    assert known.ask().metrics
    known.all.subscribe({"s": None})
    assert known.ask().metrics == ()


def test_the_id_of_a_subscription_is_apache_kafkas() -> None:
    # As Java computes them: CRC32C of "[a.b]1000" and "[]300000", XORed with the hash of the UUID.
    assert subscription_id(("a.b",), 1000, UUID(int=0)) == java_crc("[a.b]1000")
    assert subscription_id((), 300_000, UUID(int=0)) == java_crc("[]300000")
    assert subscription_id((), 300_000, ID) == java_crc("[]300000") ^ 5 ^ 9
    other = UUID(int=1 << 127)
    assert subscription_id((), 300_000, other) == java_crc("[]300000") ^ -(1 << 31)


def java_crc(text: str) -> int:
    """CRC32C bit by bit, as a signed number of 32 bits."""
    found = 0xFFFF_FFFF
    for byte in text.encode():
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F6_3B78 if found & 1 else 0)
    found ^= 0xFFFF_FFFF
    return found - (1 << 32) if found >> 31 else found


def test_a_client_asks_once_in_an_interval(known: Known) -> None:
    assert known.asked() is ErrorCode.NONE
    known.now_ms += 999
    assert known.asked() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    known.now_ms += 1
    assert known.asked() is ErrorCode.NONE


def test_the_first_push_may_come_early_and_others_keep_the_interval(known: Known) -> None:
    push = push_of(known.ask())
    known.now_ms += 1
    assert known.pushed(push) is ErrorCode.NONE
    known.now_ms += 999
    assert known.pushed(push) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    known.now_ms += 1
    assert known.pushed(push) is ErrorCode.NONE


def test_a_last_push_may_come_at_any_time_and_is_the_last(known: Known) -> None:
    push = push_of(known.ask())
    known.now_ms += 1
    assert known.pushed(push) is ErrorCode.NONE
    last = replace(push, terminating=True)
    assert known.pushed(last) is ErrorCode.NONE
    known.now_ms += 1_000
    assert known.pushed(last) is ErrorCode.INVALID_REQUEST
    assert known.pushed(push) is ErrorCode.INVALID_REQUEST


def test_an_unknown_subscription_makes_the_client_ask_at_once(known: Known) -> None:
    push = push_of(known.ask())
    known.subscribe("s", metrics="other.", interval_ms="1000")
    known.now_ms += 1
    assert known.pushed(push) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert known.asked() is ErrorCode.NONE
    assert known.asked() is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_codec_that_is_not_known_makes_the_client_ask_at_once(known: Known) -> None:
    push = push_of(known.ask(), codec=5)
    assert known.pushed(push) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert known.asked() is ErrorCode.NONE


def test_a_push_is_refused_by_its_size_and_its_id(known: Known) -> None:
    instance = known.ask()
    assert known.pushed(push_of(instance, metrics=bytes(101))) is ErrorCode.TELEMETRY_TOO_LARGE
    for nobody in (None, UUID(int=0), UUID(int=1)):
        push = push_of(instance, instance_id=nobody)
        assert known.pushed(push) is ErrorCode.INVALID_REQUEST


def test_a_push_at_a_broker_that_was_not_asked_is_taken_if_its_subscription_is_the_same(
    known: Known,
) -> None:
    instance = Known.ask(known)
    elsewhere = Known()
    elsewhere.subscribe("s", metrics="org.apache.kafka.producer.", interval_ms="1000")
    assert elsewhere.pushed(push_of(instance)) is ErrorCode.NONE


def test_silent_instances_are_forgotten(known: Known) -> None:
    known.ask()
    known.now_ms += MINUTE - 1
    known.all.expire(known.now_ms)
    assert (len(known.all), known.forgotten) == (1, [])
    known.now_ms += 1
    known.all.expire(known.now_ms)
    assert (len(known.all), known.forgotten) == (0, [ID])


def test_an_instance_with_a_long_interval_may_be_silent_for_three() -> None:
    known = Known()
    known.ask()
    known.now_ms += 900_000 - 1
    known.all.expire(known.now_ms)
    assert ID in known.all
    known.now_ms += 1
    known.all.expire(known.now_ms)
    assert ID not in known.all


def test_instances_are_bounded_and_the_least_recently_seen_goes() -> None:
    known = Known(instances_max=3)
    ids = [UUID(int=number) for number in range(10, 13)]
    for one in ids:
        known.ask(one)
    known.pushed(push_of(known.all.ask(ids[0], FACTS, known.now_ms + 10**9)))
    for number in range(20, 22):
        known.ask(UUID(int=number))
    assert known.forgotten == ids[1:]
    known.all.invariants()

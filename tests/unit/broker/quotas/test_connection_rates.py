"""Rates of new connections (KIP-612)."""

from __future__ import annotations

import pytest

from broker.quotas import ConnectionRates
from raftctl.integers import INT_MAX
from raftctl.metadata.image import MetadataDelta, MetadataImage
from raftctl.metadata.records import ClientQuotaRecord

OUTSIDE, BROKERS = "OUTSIDE", "BROKERS"


def rates(broker: int = INT_MAX, outside: int = INT_MAX, brokers: int = INT_MAX) -> ConnectionRates:
    return ConnectionRates(broker, {OUTSIDE: outside, BROKERS: brokers}, BROKERS)


def addresses(*bounds: tuple[str | None, float]) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for offset, (name, bound) in enumerate(bounds, start=1):
        delta.replay(ClientQuotaRecord((("ip", name),), "connection_creation_rate", bound), offset)
    return delta.apply(len(bounds), 1, 0)


@pytest.mark.req("S5")
def test_connections_wait_above_the_rate_of_their_listener_or_the_broker() -> None:
    listener, broker = rates(outside=2), rates(broker=2)
    for each in (listener, broker):
        waits = [each.accept(OUTSIDE, 0) for _ in range(23)]
        assert waits[:20] == [0] * 20
        assert waits[20:] == [500, 1_000, 1_000]


@pytest.mark.req("S5")
def test_clients_do_not_use_up_the_rate_of_brokers() -> None:
    each = rates(broker=1)
    assert [each.accept(OUTSIDE, 0) for _ in range(12)][-1] == 1_000
    assert each.accept(BROKERS, 0) == 0
    # Nor do brokers use up that of clients.
    other = rates(broker=1)
    assert [other.accept(BROKERS, 0) for _ in range(50)][-1] == 0
    assert other.accept(OUTSIDE, 0) == 0


@pytest.mark.req("S5")
def test_an_address_above_its_rate_is_closed_and_not_counted() -> None:
    each = rates(outside=10)
    each.publish(addresses(("10.0.0.1", 1), (None, 3)))
    for _ in range(10):
        assert each.accept(OUTSIDE, 0) == 0
        assert each.accept_from("10.0.0.1", OUTSIDE, 0) == 0
    for _ in range(500):
        assert each.accept(OUTSIDE, 0) == 0
        assert each.accept_from("10.0.0.1", OUTSIDE, 0) == 1_000
    others = [each.accept_from("10.0.0.2", OUTSIDE, 0) for _ in range(31)]
    assert others == [0] * 30 + [333]


def test_an_address_has_one_form_and_without_a_bound_no_rate() -> None:
    each = rates()
    assert [each.accept_from("10.0.0.1", OUTSIDE, 0) for _ in range(99)] == [0] * 99
    each.publish(addresses(("0:0:0:0:0:0:0:1", 1)))
    assert [each.accept_from("::1", OUTSIDE, 0) for _ in range(11)][-1] == 1_000

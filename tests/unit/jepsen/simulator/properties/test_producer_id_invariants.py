"""Each property of producer ids complains about what it forbids, under its own name."""

from __future__ import annotations

import pytest

from jepsen.simulator.properties import ImageView, Properties, Violation
from jepsen.simulator.properties._invariants import QuorumHistory
from jepsen.simulator.properties._producer_id_invariants import BrokerLife, ProducerIdsView
from tests.simulation.chaos_clients import Ledger

pytestmark = pytest.mark.req("J1", "C10")

FIRST = range(1000)
SECOND = range(1000, 2000)


def properties(granted: int = 2000) -> Properties:
    found = Properties(QuorumHistory((), lambda _: {}, lambda _: (0, -1)))
    found.image_published(ImageView(1, 5, object(), 100, list, {}, next_producer_id=granted))
    return found


def have(given: Properties, *blocks: range, broker: int = 1, life: int = 1) -> None:
    given.producer_ids_changed(ProducerIdsView(BrokerLife(broker, life), blocks))


def test_blocks_that_are_used_up_one_after_the_other_are_left_alone() -> None:
    given = properties()
    have(given, FIRST)
    have(given, FIRST[1:])
    have(given, SECOND, broker=2)
    have(given, FIRST[900:])
    have(given)


@pytest.mark.parametrize("block", [FIRST, range(999, 1999), range(500, 1000)])
def test_a_block_that_another_broker_or_life_had(block: range) -> None:
    for broker, life in ((2, 1), (1, 2)):
        given = properties()
        have(given, FIRST)
        with pytest.raises(Violation, match="no_producer_id_is_given_twice"):
            have(given, block, broker=broker, life=life)


def test_blocks_of_one_broker_that_overlap() -> None:
    given = properties()
    with pytest.raises(Violation, match="no_producer_id_is_given_twice"):
        have(given, FIRST, range(999, 1999))


def test_an_id_that_comes_back_to_its_block() -> None:
    given = properties()
    have(given, FIRST)
    have(given, FIRST[2:])
    with pytest.raises(Violation, match="again"):
        have(given, FIRST[1:])


def test_a_block_that_is_not_committed() -> None:
    given = properties(granted=999)
    with pytest.raises(Violation, match="producer_ids_are_granted_by_the_log"):
        have(given, FIRST)


def test_an_id_that_two_producers_were_given() -> None:
    ledger = Ledger(producers={7: {b"w0.1"}, 8: {b"w0.2", b"w1.1"}})
    assert ledger.judge({}) == ["producer id 8 was given to [b'w0.2', b'w1.1']"]

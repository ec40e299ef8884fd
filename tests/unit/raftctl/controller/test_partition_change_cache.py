"""What is decided once for all partitions that are alike is what the rule says of each."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.controller.partitions import _partition_reconciler as settling
from raftctl.controller.partitions._availability import Availability
from raftctl.controller.partitions._partition_change import ElectionRules, elect
from raftctl.controller.partitions._partition_reconciler import PartitionChangeCache
from raftctl.metadata.image import PartitionImage
from raftctl.metadata.records import NO_LEADER, PartitionChangeRecord

pytestmark = pytest.mark.req("C5", "C13")
TOPIC = UUID(int=1)
GOOD, BAD = UUID(int=7), UUID(int=8)
DIRECTORIES = st.sampled_from([(), (GOOD, BAD, GOOD), (GOOD, GOOD, BAD)])


@st.composite
def partitions(draw: st.DrawFn) -> PartitionImage:
    """A sound partition: its leader is in the ISR, and no eligible leader is."""
    known = draw(st.lists(st.sampled_from((1, 2, 3)), unique=True, min_size=1).map(tuple))
    in_sync = draw(st.integers(0, len(known)))
    isr, elr = known[:in_sync], known[in_sync:]
    leader = draw(st.sampled_from((*isr, NO_LEADER)))
    recovering = len(isr) == 1 and draw(st.booleans())
    epochs = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    placed = PartitionImage((3, 1, 2), isr, leader, *epochs, elr=elr, leader_recovering=recovering)
    return placed._replace(directories=draw(DIRECTORIES))


PARTITIONS = partitions()
RULES = st.builds(ElectionRules, st.booleans(), st.integers(0, 2))


@given(st.lists(st.tuples(PARTITIONS, RULES), max_size=12), st.frozensets(st.sampled_from((1, 2))))
def test_what_is_known_is_what_would_be_decided(
    asked: list[tuple[PartitionImage, ElectionRules]], active: frozenset[int]
) -> None:
    available = Availability(active, dict.fromkeys((1, 2, 3), (GOOD,)))
    cache = PartitionChangeCache(available, frozenset(), rules=False)
    for partition, rules in asked:
        online = available.replicas_of(partition)
        unclean, min_isr = rules
        record = elect(TOPIC, 4, partition, online, unclean=unclean, min_isr=min_isr)
        for one in (partition, partition._replace(leader_epoch=9, partition_epoch=9)):
            change = cache.change_of(one, rules)
            made = None if change is None else PartitionChangeRecord(TOPIC, 4, *change)
            assert made == record


def test_it_holds_as_long_as_all_is_as_it_was() -> None:
    available = Availability(frozenset((1, 2)), {1: (GOOD,), 2: ()})
    cache = PartitionChangeCache(available, frozenset((3,)), rules=False)
    assert cache.is_for(
        available._replace(directories={1: (GOOD,), 2: ()}), frozenset((3,)), rules=False
    )
    assert not cache.is_for(
        available._replace(directories={1: (), 2: ()}), frozenset((3,)), rules=False
    )
    assert not cache.is_for(available.after({2: False}), frozenset((3,)), rules=False)
    assert not cache.is_for(available, frozenset(), rules=False)
    assert not cache.is_for(available, frozenset((3,)), rules=True)


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "KNOWN_MAX", 3)
    cache = PartitionChangeCache(Availability(frozenset((1,)), {}), frozenset(), rules=False)
    for broker_id in range(2, 12):
        partition = PartitionImage((1, broker_id), (1, broker_id), broker_id, 0, 0)
        change = cache.change_of(partition, ElectionRules())
        assert change is not None
        assert change[:2] == ((1,), 1)
        assert len(cache._known) <= 3

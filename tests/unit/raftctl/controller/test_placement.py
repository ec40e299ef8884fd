"""Placement: even over brokers and racks, whatever their number."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.placement import UsableBroker, place_replicas

pytestmark = pytest.mark.req("C4")


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(number, rack, number not in fenced) for number, rack in enumerate(racks)]


def spread(counts: Counter[int], among: int) -> int:
    """The most minus the least that one broker has."""
    each = [counts[broker_id] for broker_id in range(among)]
    return max(each) - min(each)


@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 60), st.integers())
def test_leaders_and_replicas_are_spread_evenly(
    count: int, factor: int, partitions: int, seed: int
) -> None:
    factor = min(factor, count)
    placed = place_replicas(brokers(*[None] * count), partitions, factor, random.Random(seed))
    assert len(placed) == partitions
    assert all(len(set(replicas)) == factor == len(replicas) for replicas in placed)
    assert spread(Counter(replicas[0] for replicas in placed), count) <= 1
    # A round gives each broker one replica of each rank, so only the last round is uneven.
    assert spread(Counter(one for replicas in placed for one in replicas), count) <= factor
    if partitions % count == 0:
        assert spread(Counter(one for replicas in placed for one in replicas), count) == 0


@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 5), st.integers())
def test_a_partition_has_as_many_racks_as_it_can(
    racks: int, size: int, factor: int, seed: int
) -> None:
    names = [f"r{number}" for number in range(racks)] * size
    factor = min(factor, len(names))
    placed = place_replicas(brokers(*names), 3 * len(names), factor, random.Random(seed))
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({names[one] for one in replicas}) == min(factor, racks)
    assert spread(Counter(replicas[0] for replicas in placed), len(names)) == 0


@given(
    st.lists(st.tuples(st.sampled_from((None, "", "a", "b")), st.booleans()), min_size=1),
    st.integers(1, 6),
    st.integers(),
)
def test_any_brokers(given_brokers: list[tuple[str | None, bool]], factor: int, seed: int) -> None:
    usable = [UsableBroker(i, rack, active) for i, (rack, active) in enumerate(given_brokers)]
    active = {broker.broker_id for broker in usable if broker.active}
    if factor > len(usable) or not active:
        with pytest.raises(KafkaError) as caught:
            place_replicas(usable, 1, factor, random.Random(seed))
        assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
        return
    for replicas in place_replicas(usable, 7, factor, random.Random(seed)):
        assert len(set(replicas)) == factor == len(replicas)
        count = min(factor, len(active))
        assert active.issuperset(replicas[:count]), "active brokers come first"
        assert active.isdisjoint(replicas[count:])


def test_followers_of_one_leader_are_spread() -> None:
    placed = place_replicas(brokers(*[None] * 5), 20, 2, random.Random(3))
    followers = Counter(replicas[1] for replicas in placed if replicas[0] == 0)
    assert followers == {1: 1, 2: 1, 3: 1, 4: 1}


def test_the_start_is_random_but_repeatable() -> None:
    many = brokers(*[None] * 10)
    firsts = [place_replicas(many, 1, 1, random.Random(seed))[0] for seed in range(50)]
    assert len(set(firsts)) > 5
    assert place_replicas(many, 9, 3, random.Random(1)) == place_replicas(
        many, 9, 3, random.Random(1)
    )


def test_too_few_brokers() -> None:
    with pytest.raises(KafkaError, match=r"only 2 broker\(s\) are registered"):
        place_replicas(brokers(None, None), 1, 3, random.Random(1))

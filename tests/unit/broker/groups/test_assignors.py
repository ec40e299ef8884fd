"""The assignors of a broker: what they promise, whatever members read (row G4)."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer._assignors import ASSIGNORS, Assignment, Subscription, _Balance

pytestmark = pytest.mark.req("G4")
TOPICS = [UUID(int=number) for number in range(1, 5)]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7))
READS = st.lists(st.frozensets(st.sampled_from(TOPICS)), max_size=5)


def members(reads: list[frozenset[UUID]]) -> list[Subscription]:
    return [Subscription(f"m{number}", None, topics) for number, topics in enumerate(reads)]


def everything(reads: list[frozenset[UUID]], counts: dict[UUID, int]) -> set[tuple[UUID, int]]:
    read = {topic for topics in reads for topic in topics}
    return {(topic, n) for topic, count in counts.items() if topic in read for n in range(count)}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(reads=READS, counts=COUNTS, before=READS)
def test_everything_that_is_read_is_given_once_and_to_who_reads_it(
    name: str, reads: list[frozenset[UUID]], counts: dict[UUID, int], before: list[frozenset[UUID]]
) -> None:
    assign = ASSIGNORS[name]
    current = assign(members(before), counts, {})
    found = assign(members(reads), counts, current)
    assert sorted(found) == [one.member_id for one in members(reads)]
    given_out = sorted(slot for slots in found.values() for slot in slots)
    assert given_out == sorted(everything(reads, counts))
    for one in members(reads):
        assert {topic for topic, _ in found[one.member_id]} <= one.topics


@given(reads=READS, counts=COUNTS, before=READS)
def test_uniform_is_even_as_far_as_subscriptions_allow(
    reads: list[frozenset[UUID]], counts: dict[UUID, int], before: list[frozenset[UUID]]
) -> None:
    assign = ASSIGNORS["uniform"]
    found = assign(members(reads), counts, assign(members(before), counts, {}))
    for one in members(reads):
        for other in members(reads):
            more = found[one.member_id]
            if len(more) - len(found[other.member_id]) >= 2:
                assert not {topic for topic, _ in more} & other.topics


def evened_out_plainly(
    reads: list[frozenset[UUID]], counts: dict[UUID, int], current: Assignment
) -> Assignment:
    """As the assignor does it, but who has least is looked for among all readers each time."""

    class Plain(_Balance):
        def _least(self, heap: list[tuple[int, str]]) -> tuple[int, str]:
            return min((len(self._given[one]), one) for _, one in heap)

    return Plain(members(reads), counts, current).assignment()


@given(
    reads=st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=2, max_size=12),
    counts=st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 30), min_size=2),
    before=READS,
)
def test_uniform_finds_who_has_least_as_if_all_were_looked_at(
    reads: list[frozenset[UUID]], counts: dict[UUID, int], before: list[frozenset[UUID]]
) -> None:
    # Whoever was alone has everything now, so that much is to move.
    current = ASSIGNORS["uniform"](members(before), counts, {})
    found = _Balance(members(reads), counts, current).assignment()
    assert found == evened_out_plainly(reads, counts, current)


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions were taken from somebody who is still there."""
    return sum(len(slots - after[one]) for one, slots in before.items() if one in after)


@given(count=st.integers(1, 40), sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_uniform_moves_no_more_than_it_must(count: int, sizes: tuple[int, int]) -> None:
    topic, assign = TOPICS[0], ASSIGNORS["uniform"]
    before = assign(members([frozenset({topic})] * sizes[0]), {topic: count}, {})
    after = assign(members([frozenset({topic})] * sizes[1]), {topic: count}, before)
    kept = min(sizes)
    quota, more = divmod(count, sizes[1])
    bound = sum(
        max(0, len(before[f"m{number}"]) - quota - (number < more)) for number in range(kept)
    )
    assert moved(before, after) <= bound


def test_range_gives_runs_and_the_first_ones_get_more() -> None:
    topic, other = TOPICS[:2]
    both = frozenset({topic, other})
    readers = [
        Subscription("a", None, both),
        Subscription("z", "i1", both),
        Subscription("b", None, frozenset({topic})),
    ]
    found = ASSIGNORS["range"](readers, {topic: 10, other: 3}, {})
    assert found["z"] == {(topic, n) for n in range(4)} | {(other, 0), (other, 1)}
    assert found["a"] == {(topic, n) for n in range(4, 7)} | {(other, 2)}
    assert found["b"] == {(topic, n) for n in range(7, 10)}

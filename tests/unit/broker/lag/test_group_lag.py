"""Lag of groups: of the newest round, the greatest first, nothing twice, and bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from broker.lag import GroupLag, _group_lag
from broker.metrics import OTHERS
from broker.types import TopicPartition
from raftctl.runtime import Slices

if TYPE_CHECKING:
    from collections.abc import Collection

pytestmark = pytest.mark.req("O1")
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PREFIX = "kafka_consumergroup_"


class Groups:
    """The groups of one partition, as a test has them."""

    def __init__(self, offsets: dict[str, dict[TopicPartition, int]]) -> None:
        self.offsets = offsets

    def group_ids(self) -> list[str]:
        return list(self.offsets)

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        return self.offsets.get(group_id, {})

    def member_count(self, group_id: str) -> int:
        return len(group_id)


class World:
    """A coordinator and the leaders of partitions."""

    def __init__(self, *groups: dict[str, dict[TopicPartition, int]]) -> None:
        self.groups = [Groups(one) for one in groups]
        self.ends = {A0: 100, A1: 50, B0: 10}
        self.gone: set[str] = set()
        self.asked: list[Collection[TopicPartition]] = []
        self.lag = GroupLag(
            lambda: self.groups,
            lambda group_id: group_id not in self.gone,
            lambda partition: partition.topic != "deleted",
            self.find,
            10.0,
            self.fail,
        )

    def fail(self, error: BaseException) -> None:
        raise error

    async def find(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        self.asked.append(partitions)
        return {one: self.ends[one] for one in partitions if one in self.ends}

    async def scraped(self, room: int = 1_000) -> dict[str, dict[tuple[str, ...], Any]]:
        await self.lag.prepare(Slices())
        return {
            family.metric.name.removeprefix(PREFIX): {
                sample.labels: sample.value for sample in family.samples
            }
            for family in self.lag.collect(room)
        }


async def test_lag_is_from_what_was_committed_to_the_end() -> None:
    world = World({"g": {A0: 70, A1: 50, B0: 4}})
    assert (await world.scraped())["lag"] == {}, "no round has been"
    await world.lag.refresh()
    found = await world.scraped()
    assert found["current_offset"] == {
        ("g", "a", "0"): 70,
        ("g", "a", "1"): 50,
        ("g", "b", "0"): 4,
    }
    assert found["lag"] == {("g", "a", "0"): 30, ("g", "a", "1"): 0, ("g", "b", "0"): 6}
    assert found["lag_sum"] == {("g", "a"): 30, ("g", "b"): 6}
    assert found["current_offset_sum"] == {("g", "a"): 120, ("g", "b"): 4}
    assert found["members"] == {("g",): 1}
    world.groups[0].offsets["g"][A0] = 90
    world.ends[A1] = 51
    assert (await world.scraped()) == found, "a scrape looks at nothing"
    await world.lag.refresh()
    found = await world.scraped()
    assert found["lag"] == {("g", "a", "0"): 10, ("g", "a", "1"): 1, ("g", "b", "0"): 6}


async def test_an_end_that_is_older_than_the_offset_is_no_lag() -> None:
    world = World({"g": {A0: 101}})
    await world.lag.refresh()
    assert (await world.scraped())["lag"] == {("g", "a", "0"): 0}


async def test_an_end_that_nobody_tells_is_no_lag_and_deleted_topics_are_left_out() -> None:
    world = World({"g": {A0: 1, B0: 2, TopicPartition("deleted", 0): 3}})
    del world.ends[A0]
    await world.lag.refresh()
    found = await world.scraped()
    assert found["current_offset"] == {("g", "a", "0"): 1, ("g", "b", "0"): 2}
    assert found["lag"] == {("g", "b", "0"): 8}


async def test_each_end_is_asked_for_once_a_round() -> None:
    world = World({"g": {A0: 1}, "h": {A0: 2}}, {"i": {A0: 3, A1: 4}})
    await world.lag.refresh()
    assert [set(one) for one in world.asked] == [{A0, A1}]


async def test_a_group_that_has_moved_is_shown_no_more() -> None:
    world = World({"g": {A0: 1}, "h": {A0: 2}})
    await world.lag.refresh()
    world.gone.add("g")
    found = await world.scraped()
    assert found["lag"] == {("h", "a", "0"): 98}
    assert found["raftctl_consumergroups"] == {(): 1}


async def test_groups_of_the_least_lag_are_summed_where_room_is_short() -> None:
    world = World({f"g{number}": {A0: number, A1: 50} for number in range(10)})
    await world.lag.refresh()
    whole = await world.scraped()
    each = 1 + 2 * 2 + 2 * 1
    found = await world.scraped(room=3 + 5 + 2 * each)
    shown = {labels[0] for labels in found["members"]}
    assert shown == {"g0", "g1", OTHERS}
    assert found["raftctl_consumergroups_without_series"] == {(): 8}
    for name in ("lag", "current_offset", "lag_sum", "current_offset_sum", "members"):
        assert sum(found[name].values()) == sum(whole[name].values()), name
    assert found["lag"][OTHERS, "", ""] == sum(100 - number for number in range(2, 10))


@pytest.mark.parametrize("room", [0, 3, 8, 15, 40, 71])
async def test_the_series_fit_into_the_room(room: int) -> None:
    world = World({f"g{number}": {A0: number, A1: 50} for number in range(10)})
    await world.lag.refresh()
    found = await world.scraped(room)
    assert sum(map(len, found.values())) <= max(room, 8)


async def test_a_round_looks_at_no_more_offsets_than_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_group_lag, "OFFSETS_MAX", 6)
    world = World({f"g{number}": {A0: number, A1: number} for number in range(5)})
    await world.lag.refresh()
    found = await world.scraped()
    assert {labels[0] for labels in found["lag"]} == {"g0", "g1"}
    assert found["raftctl_consumergroups_not_looked_at"] == {(): 3}

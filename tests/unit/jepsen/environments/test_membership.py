"""Brokers that leave and join: what a cluster is asked, in which order, and what if it fails."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.errors import KafkaError

from jepsen.environments import Entrance
from jepsen.environments import admin as admin
from jepsen.environments import admin as membership
from jepsen.environments.admin import BrokerMembership

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from jepsen.environments.admin import Partition

pytestmark = pytest.mark.req("J2")
TOPIC, OFFSETS = ("jepsen", 0), ("__consumer_offsets", 7)


class Cluster:
    """An environment, and what it answers to administrators."""

    bootstrap_servers = ""
    entrance = operator = Entrance("")

    def __init__(self, brokers: int = 3) -> None:
        self.serving = list(range(1, brokers + 1))
        self.replicas: dict[Partition, list[int]] = {TOPIC: [1, 2, 3], OFFSETS: [3, 1, 2]}
        self.story: list[str] = []
        self.is_settled = True
        self.moves = True
        self.stubborn: dict[Partition, int] = {}
        """Partitions that are refused so often."""
        self.unheard = 0
        """How many requests have no answer."""

    def broker_name(self, broker_id: int) -> str:
        return f"broker-{broker_id}"

    async def is_in_sync(self) -> bool:
        return self.is_settled

    async def terminate(self, node: str) -> None:
        assert all(int(node[-1]) not in replicas for replicas in self.replicas.values())
        self.serving.remove(int(node[-1]))
        self.story.append(f"stop {node}")

    async def replace_disk(self, node: str) -> None:
        self.story.append(f"replace {node}")

    async def start_node(self, node: str) -> None:
        self.serving.append(int(node[-1]))
        self.story.append(f"start {node}")

    async def broker_ids(self, _admin: object) -> list[int]:
        return sorted(self.serving)

    async def all_replicas(self, _admin: object) -> dict[Partition, list[int]]:
        return dict(self.replicas)

    async def reassign(
        self, _admin: object, wanted: Mapping[Partition, Sequence[int]]
    ) -> dict[Partition, int]:
        refused = {}
        for key, ids in wanted.items():
            if self.stubborn.get(key, 0) > 0:
                self.stubborn[key] -= 1
                refused[key] = 39
            elif self.moves:
                self.replicas[key] = list(ids)
        return refused

    async def unregister(self, _admin: object, broker_id: int) -> None:
        self.unheard -= 1
        if self.unheard >= 0:
            raise KafkaError("no answer")
        self.story.append(f"unregister {broker_id}")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """One of three brokers, which answers at once."""
    made = Cluster()

    @contextlib.asynccontextmanager
    async def open_admin(_: Entrance) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(admin, "open_admin", open_admin)
    monkeypatch.setattr(admin, "POLL_S", 0)
    for name in ("broker_ids", "all_replicas", "reassign", "unregister"):

        def ask(*arguments: Any, name: str = name) -> Any:
            return getattr(made, name)(*arguments)

        monkeypatch.setattr(membership, name, ask)
    return made


def of(cluster: Any) -> BrokerMembership:
    return BrokerMembership(cluster, random.Random(1))


async def test_who_leaves_is_drained_first_and_comes_back_with_what_it_had(
    cluster: Cluster,
) -> None:
    member = of(cluster)
    assert (await member.remove(3), member.absent) == (["broker-3"], "broker-3")
    assert cluster.replicas == {TOPIC: [1, 2], OFFSETS: [1, 2]}
    assert cluster.story == ["stop broker-3", "unregister 3", "replace broker-3"]
    assert await member.remove(1) == []
    assert (await member.add(), member.absent) == (["broker-3"], None)
    assert cluster.replicas == {TOPIC: [1, 2, 3], OFFSETS: [3, 1, 2]}
    assert await member.add() == []


async def test_where_there_are_others_each_partition_keeps_its_number_of_replicas(
    cluster: Cluster,
) -> None:
    cluster.serving = [1, 2, 3, 4, 5]
    assert await of(cluster).remove(1) == ["broker-1"]
    assert all(len(set(ids)) == 3 and 1 not in ids for ids in cluster.replicas.values())


async def test_any_broker_leaves_if_none_is_named_unless_it_is_the_last(cluster: Cluster) -> None:
    (node,) = await of(cluster).remove(None)
    assert node in ("broker-1", "broker-2", "broker-3")
    cluster.serving = [2]
    assert await of(cluster).remove(None) == []


async def test_who_cannot_be_drained_stays_and_gets_back_what_has_moved(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "PATIENCE_S", 0.01)
    cluster.moves = False
    cluster.replicas[TOPIC] = [3, 2, 1]
    member = of(cluster)
    assert (await member.remove(2), cluster.story) == ([], [])
    cluster.moves, cluster.replicas[TOPIC] = True, [3, 1]
    assert await member.add() == []
    assert cluster.replicas[TOPIC] == [3, 2, 1]


async def test_nobody_leaves_while_something_is_not_in_sync(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "IN_SYNC_S", 0.01)
    cluster.is_settled = False
    assert (await of(cluster).remove(1), cluster.story) == ([], [])


async def test_what_is_not_answered_or_refused_is_asked_again(cluster: Cluster) -> None:
    cluster.unheard = 2
    cluster.stubborn = {OFFSETS: 3}
    member = of(cluster)
    assert await member.remove(2) == ["broker-2"]
    assert "unregister 2" in cluster.story
    cluster.stubborn = {OFFSETS: 3}
    del cluster.replicas[TOPIC]  # deleted meanwhile
    assert await member.add() == ["broker-2"]
    assert cluster.replicas == {OFFSETS: [3, 1, 2]}

"""The nemesis: which links a partition cuts, and that all is well after the last operation."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from jepsen.history import Op, OpType
from jepsen.nemesis import HEAL, PARTITIONS, Nemesis, cut_links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.env.base import KeyValues, Link

pytestmark = pytest.mark.req("J2")
FIVE = ["a", "b", "c", "d", "e"]


class Cluster:
    """An environment that only remembers."""

    faults = frozenset({"kill"})
    controllers: Sequence[str] = ("controller-1", "controller-2", "controller-3")
    brokers: Sequence[str] = ("broker-1", "broker-2", "broker-3")
    bootstrap_servers = ""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.paused: set[str] = set()
        self.links: set[Link] = set()
        self.restarts = 0

    def kv_client(self, timeout_s: float, rng: random.Random) -> KeyValues:
        raise AssertionError("no client is needed")

    async def leader(self) -> str | None:
        return "controller-2"

    async def leadership(self) -> tuple[str, int] | None:
        return "controller-2", 1

    async def kill(self, node: str) -> None:
        self.down.add(node)

    async def terminate(self, node: str) -> None:
        self.down.add(node)
        self.restarts += 1

    async def start_node(self, node: str) -> None:
        self.down.discard(node)

    async def pause(self, node: str) -> None:
        self.paused.add(node)

    async def resume(self, node: str) -> None:
        self.paused.discard(node)

    async def block(self, links: Sequence[Link]) -> None:
        self.links |= set(links)

    async def unblock(self) -> None:
        self.links.clear()


def op(f: str, value: object = None) -> Op:
    return Op(0, 0, "nemesis", OpType.INVOKE, f, value)


def reached(links: Sequence[Link], one: str) -> set[str]:
    return {other for other in FIVE if other != one and (one, other) not in links}


def test_a_majority_that_is_a_ring_leaves_everybody_a_different_majority() -> None:
    links = cut_links("ring", FIVE, None)
    seen = {frozenset(reached(links, one) | {one}) for one in FIVE}
    assert len(seen) == 5
    assert all(len(group) == 3 for group in seen)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("isolate", [0, 3, 3, 3, 3]),
        ("halves", [1, 1, 2, 2, 2]),
        ("bridge", [2, 2, 4, 2, 2]),
        ("one-way", [0, 4, 4, 4, 4]),
    ],
)
def test_a_partition_leaves_so_many_to_reach(kind: str, expected: list[int]) -> None:
    links = cut_links(kind, FIVE, None)
    assert [len(reached(links, one)) for one in FIVE] == expected


def test_the_leader_can_be_cut_off() -> None:
    links = cut_links("isolate-leader", FIVE, "c")
    assert reached(links, "c") == set()
    assert cut_links("isolate-leader", FIVE, None) == []


@pytest.mark.parametrize("seed", range(5))
async def test_all_is_well_after_the_last_operation(seed: int) -> None:
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(seed))
    for kind in ("one", "minority", "leader", "all"):
        await nemesis.invoke(op("kill", kind))
        await nemesis.invoke(op("pause", kind))
    await nemesis.invoke(op("partition", PARTITIONS[seed]))
    assert cluster.down
    assert cluster.links
    await nemesis.invoke(op(HEAL))
    assert (cluster.down, cluster.paused, cluster.links) == (set(), set(), set())


async def test_what_is_done_is_noted() -> None:
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(1))
    killed = await nemesis.invoke(op("kill", "leader"))
    assert killed.value == ["controller-2"]
    assert (await nemesis.invoke(op("start"))).value == ["controller-2"]
    assert (await nemesis.invoke(op("restart", "leader"))).value == ["controller-2"]
    assert (cluster.restarts, cluster.down) == (1, set())

"""The nemesis: which links a partition cuts, and that all is well after the last operation."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from jepsen.environments import Entrance, Quality
from jepsen.environments import admin as features
from jepsen.environments._base import RETRANSMIT_S
from jepsen.environments.local._network import crossing_s
from jepsen.generator.core import NEMESIS, Context, Processes, Todo
from jepsen.history import Op, OpType
from jepsen.nemesis import Nemesis
from jepsen.nemesis.faults import package
from jepsen.nemesis.plan import HEAL, PACKAGES, PARTITIONS, QUALITIES, cut_links
from jepsen.report._plots import SHADES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jepsen.environments import AccessControl, KeyValues, Link

pytestmark = pytest.mark.req("J2")
FIVE = ["a", "b", "c", "d", "e"]


class Cluster:
    """An environment that only remembers."""

    controllers: Sequence[str] = ("controller-1", "controller-2", "controller-3")
    brokers: Sequence[str] = ("broker-1", "broker-2", "broker-3")
    bootstrap_servers = ""
    entrance = operator = Entrance("")
    access: AccessControl | None = None

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.paused: set[str] = set()
        self.links: set[Link] = set()
        self.restarts = 0
        self.slow: dict[Link, Quality] = {}
        self.clocks: dict[str, int] = {}
        self.disks: dict[str, str] = {}
        self.polls_until_settled = 0
        self.voters = set(self.controllers)
        self.voters_can_change = True
        self.disks_can_break = True

    @property
    def features(self) -> dict[str, tuple[int, int]]:
        return {"metadata.version": (1, 5)}

    def kv_client(self, timeout_s: float, rng: random.Random) -> KeyValues:
        raise AssertionError("no client is needed")

    async def leader(self) -> str | None:
        return "controller-2"

    def broker_name(self, broker_id: int) -> str | None:
        return f"broker-{broker_id}"

    async def is_in_sync(self) -> bool:
        self.polls_until_settled -= 1
        return self.polls_until_settled < 0

    async def set_quality(self, qualities: Mapping[Link, Quality]) -> None:
        self.slow = dict(qualities)

    async def set_clocks(self, offsets_ms: Mapping[str, int]) -> None:
        self.clocks = dict(offsets_ms)

    async def remove_voter(self, node: str) -> bool:
        self.voters -= {node} if self.voters_can_change else set()
        return self.voters_can_change

    async def add_voter(self, node: str) -> bool:
        self.voters |= {node} if self.voters_can_change else set()
        return self.voters_can_change

    @property
    def disk_faults(self) -> dict[str, list[str]]:
        everybody = [*self.controllers, *self.brokers]
        return {"power_off": everybody, "disk_full": everybody, "truncate": list(self.brokers)}

    async def inject(self, kind: str, nodes: Sequence[str], amount: float | None) -> bool:
        self.disks |= dict.fromkeys(nodes, kind)
        return self.disks_can_break

    async def replace_disk(self, node: str) -> None:
        assert node in self.down
        self.disks[node] = "empty"

    async def relieve(self, kind: str, nodes: Sequence[str]) -> None:
        for node in nodes:
            assert self.disks.pop(node) == kind

    async def leadership(self) -> tuple[str, int] | None:
        return "controller-2", 1

    async def replicas(self) -> dict[str, Any]:
        return {}

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

    async def set_blocked(self, links: Sequence[Link]) -> None:
        self.links = set(links)


def op(f: str, value: object = None) -> Op:
    return Op(0, 0, "nemesis", OpType.INVOKE, f, value)


def reached(links: Sequence[Link], one: str) -> set[str]:
    return {other for other in FIVE if other != one and (one, other) not in links}


def test_a_majority_that_is_a_ring_leaves_everybody_a_different_majority() -> None:
    links = cut_links("ring", FIVE)
    seen = {frozenset(reached(links, one) | {one}) for one in FIVE}
    assert len(seen) == 5
    assert all(len(group) == 3 for group in seen)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("isolate", [0, 3, 3, 3, 3]),
        ("halves", [1, 1, 2, 2, 2]),
        ("bridge", [2, 2, 4, 2, 2]),
        ("one_way", [0, 4, 4, 4, 4]),
    ],
)
def test_a_partition_leaves_so_many_to_reach(kind: str, expected: list[int]) -> None:
    links = cut_links(kind, FIVE)
    assert [len(reached(links, one)) for one in FIVE] == expected


async def test_the_leader_can_be_cut_off() -> None:
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(1))
    await nemesis.invoke(op("partition", "isolate-leader"))
    assert len(cluster.links) == 2 * 5
    assert {link for link in cluster.links if "controller-2" not in link} == set()


@pytest.mark.parametrize("seed", range(5))
async def test_all_is_well_after_the_last_operation(seed: int) -> None:
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(seed))
    await nemesis.invoke(op("break-disk", "disk_full"))
    for kind in ("one", "minority", "leader", "all"):
        await nemesis.invoke(op("kill", kind))
        await nemesis.invoke(op("pause", kind))
    await nemesis.invoke(op("partition", PARTITIONS[seed]))
    await nemesis.invoke(op("slow", QUALITIES[seed % 3]))
    assert all((cluster.down, cluster.links, cluster.slow, cluster.disks))
    await nemesis.invoke(op(HEAL))
    assert (cluster.down, cluster.paused, cluster.links) == (set(), set(), set())
    assert (cluster.slow, cluster.disks) == ({}, {})


async def test_what_is_done_is_noted() -> None:
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(1))
    killed = await nemesis.invoke(op("kill", "leader"))
    assert killed.value == ["controller-2"]
    assert (await nemesis.invoke(op("start"))).value == ["controller-2"]
    assert (await nemesis.invoke(op("restart", "leader"))).value == ["controller-2"]
    assert (cluster.restarts, cluster.down) == (1, set())


class Parts:
    """Who plays which part, as a test decides."""

    def __init__(self, broker_id: int | None) -> None:
        self._broker_id = broker_id

    async def broker(self, role: str) -> int | None:
        return self._broker_id

    async def reassign(self, wanted: Sequence[Any] | None = None) -> list[Any] | None:
        return [0, [3, 1]]


@pytest.mark.parametrize("role", ["partition-leader", "coordinator"])
async def test_who_leads_a_partition_or_coordinates_can_be_meant(role: str) -> None:
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(1), Parts(2))
    assert (await nemesis.invoke(op("kill", role))).value == ["broker-2"]
    await nemesis.invoke(op("start"))
    await nemesis.invoke(op("partition", f"isolate-{role}"))
    assert {link for link in cluster.links if "broker-2" not in link} == set()
    assert len(cluster.links) == 2 * 5
    assert (await nemesis.invoke(op("reassign", "one"))).value == [0, [3, 1]]
    nobody = Nemesis(cluster, random.Random(1), Parts(None))
    assert (await nobody.invoke(op("kill", role))).value == []


async def test_a_rolling_restart_waits_for_each_to_be_in_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jepsen.nemesis._nemesis.SYNC_POLL_S", 0)
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(1))
    cluster.polls_until_settled = 5
    done = await nemesis.invoke(op("rolling", "brokers"))
    assert (done.value, cluster.down) == (["broker-1", "broker-2", "broker-3"], set())
    cluster.polls_until_settled = 1_000
    assert (await nemesis.invoke(op("rolling", "brokers"))).value == []


async def test_a_disk_is_broken_only_where_all_copies_are_in_sync() -> None:
    cluster = Cluster()
    cluster.polls_until_settled = 1
    nemesis = Nemesis(cluster, random.Random(1))
    assert (await nemesis.invoke(op("break-disk", "power_off"))).value == []
    for begin, end in (("kill", "start"), ("pause", "resume"), ("partition", "heal")):
        await nemesis.invoke(op(begin, "halves" if begin == "partition" else "one"))
        assert (await nemesis.invoke(op("break-disk", "power_off"))).value == []
        await nemesis.invoke(op(end))
    (node, kind) = (await nemesis.invoke(op("break-disk", "power_off"))).value
    assert cluster.disks == {node: kind}


async def test_a_majority_keeps_its_votes_and_at_the_end_all_vote() -> None:
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(1))
    assert (await nemesis.invoke(op("remove-voter", "leader"))).value == ["controller-2"]
    assert (await nemesis.invoke(op("remove-voter", "one"))).value == []
    assert cluster.voters == {"controller-1", "controller-3"}
    assert (await nemesis.invoke(op("add-voters"))).value == ["controller-2"]
    (removed,) = (await nemesis.invoke(op("remove-voter", "one"))).value
    assert removed not in cluster.voters
    cluster.voters_can_change = False
    assert (await nemesis.invoke(op("add-voters"))).value == []
    cluster.voters_can_change = True
    await nemesis.invoke(op(HEAL))
    assert cluster.voters == set(cluster.controllers)


async def test_a_vote_that_may_be_lost_yet_is_given_back() -> None:
    cluster = Cluster()
    cluster.voters_can_change = False
    nemesis = Nemesis(cluster, random.Random(1))
    assert (await nemesis.invoke(op("remove-voter", "one"))).value == []
    cluster.voters_can_change = True
    cluster.voters.clear()
    await nemesis.invoke(op(HEAL))
    assert len(cluster.voters) == 1


@pytest.mark.req("J2")
async def test_a_disk_is_broken_only_where_the_environment_can() -> None:
    cluster = Cluster()
    for seed in range(20):
        nemesis = Nemesis(cluster, random.Random(seed))
        (node, _) = (await nemesis.invoke(op("break-disk", "truncate"))).value
        assert node in cluster.brokers


async def test_a_clock_is_off_until_it_is_reset() -> None:
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(1))
    done = await nemesis.invoke(op("skew", "one"))
    assert [list(one) for one in cluster.clocks.items()] == done.value
    await nemesis.invoke(op(HEAL))
    assert cluster.clocks == {}


async def test_a_link_gets_worse_in_the_way_that_is_asked_for() -> None:
    cluster = Cluster()
    nemesis = Nemesis(cluster, random.Random(1))
    for at, kind in enumerate(QUALITIES):
        await nemesis.invoke(op("slow", kind))
        (quality,) = set(cluster.slow.values())
        changed = [one != best for one, best in zip(quality, Quality(), strict=True)]
        assert changed == [at == other for other in range(3)]


class Members:
    """Brokers that leave and join, as a test decides."""

    def __init__(self) -> None:
        self.absent: str | None = None
        self.asked: list[int | None] = []

    async def remove(self, broker_id: int | None) -> list[str]:
        self.asked.append(broker_id)
        self.absent = f"broker-{broker_id or 1}"
        return [self.absent]

    async def add(self) -> list[str]:
        back, self.absent = self.absent, None
        return [back] if back else []


async def test_a_broker_leaves_and_is_left_alone_until_it_joins() -> None:
    cluster, members = Cluster(), Members()
    nemesis = Nemesis(cluster, random.Random(1), Parts(3), members)
    assert (await nemesis.invoke(op("remove-broker", "coordinator"))).value == ["broker-3"]
    for _ in range(10):
        for f in ("kill", "start", "pause", "resume", "restart"):
            done = await nemesis.invoke(op(f, "all" if f in ("kill", "pause") else "one"))
            assert "broker-3" not in done.value
    assert (await nemesis.invoke(op("add-broker"))).value == ["broker-3"]
    await nemesis.invoke(op("remove-broker", "one"))
    assert (members.asked, members.absent) == ([3, None], "broker-1")
    await nemesis.invoke(op(HEAL))
    assert members.absent is None


async def test_levels_of_features_are_the_highest_after_the_last_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[dict[str, int], bool]] = []

    async def at_once(_bootstrap: str, ask: Any, _patience_s: float) -> bool:
        return bool(await ask(None))

    async def update(_admin: object, levels: dict[str, int], *, lower: bool) -> bool:
        asked.append((levels, lower))
        return len(asked) != 2

    monkeypatch.setattr(features, "asked", at_once)
    monkeypatch.setattr(features, "update_features", update)
    cluster = Cluster()
    rng = random.Random(1)
    nemesis = Nemesis(cluster, rng, features=features.FeatureLevels(cluster, rng))
    (name, level) = (await nemesis.invoke(op("lower-feature", "metadata.version"))).value
    assert (name, level) == ("metadata.version", level)
    assert level in range(1, 5)
    assert (await nemesis.invoke(op("lower-feature", "metadata.version"))).value == []
    await nemesis.invoke(op(HEAL))
    assert (asked[0], asked[-1]) == (({name: level}, True), ({name: 5}, False))


async def test_no_broker_leaves_while_others_are_down_or_where_nobody_plays_its_part() -> None:
    cluster, members = Cluster(), Members()
    nemesis = Nemesis(cluster, random.Random(1), Parts(None), members)
    await nemesis.invoke(op("kill", "one"))
    assert (await nemesis.invoke(op("remove-broker", "one"))).value == []
    await nemesis.invoke(op("start"))
    assert (await nemesis.invoke(op("remove-broker", "coordinator"))).value == []
    assert members.asked == []


@pytest.mark.parametrize("seed", range(3))
def test_several_faults_come_in_rounds_with_rest_after_each(seed: int) -> None:
    done = _what_is_done(seed)
    begins = {"kill", "pause", "slow"}
    kinds: list[set[str]] = [set()]
    for _, f in done:
        kinds[-1] |= {f} & begins
        if f == HEAL:
            kinds.append(set())
    assert {len(one) for one in kinds[:-1]} >= {1, 2}
    healed = [(at, done[n + 1][0]) for n, (at, f) in enumerate(done[:-1]) if f == HEAL]
    assert len(healed) > 5
    assert all(after - at >= 1.0 for at, after in healed)


def _what_is_done(seed: int) -> list[tuple[float, str]]:
    """(second, operation) of two minutes."""
    rng = random.Random(seed)
    generator = package(("kill", "pause", "slow"), 1.0, roles=True)
    done: list[tuple[float, str]] = []
    for moment_ms in range(0, 120_000, 50):
        context = Context(moment_ms * 1_000_000, (NEMESIS,), Processes({NEMESIS: NEMESIS}), rng)
        found = generator.next_op(context)
        assert found is not None
        todo, generator = found
        if isinstance(todo, Todo):
            done.append((moment_ms / 1000, todo.f))
    return done


def test_every_fault_has_a_colour_of_its_own() -> None:
    assert len(set(SHADES.values())) == len(PACKAGES)


def test_what_a_slow_link_carries_takes_its_time() -> None:
    rng = random.Random(1)
    assert crossing_s(Quality(), 1_000, rng) == 0
    assert crossing_s(Quality(delay_ms=50, bytes_per_s=1_000), 1_000, rng) == 1.05
    late = [crossing_s(Quality(loss=0.5), 1, rng) for _ in range(200)]
    assert 60 < late.count(0) < 140
    assert max(late) >= 2 * RETRANSMIT_S

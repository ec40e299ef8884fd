"""Quorums whose voters change while clients read and write: planned stories, not chaos."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import CONTROLLER_PORT, SimCluster
from jepsen.simulator.liveness import every_node_follows
from raftctl.controller_channel import CLIENT_ID
from raftctl.rpc import RpcClient
from tests.kit.kv_client import KvClient
from tests.kit.kv_load import Recorder, use_keys
from tests.simulation.cluster_scenarios import OFTEN_SNAPSHOTS, until
from tests.simulation.voter_changes import VoterOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.simulator.world import SimRuntime, World
    from raftctl.quorum import RaftDriver
    from raftctl.raft.messages import Voter

CLIENTS = 3
FIRST = ("controller-101", "controller-102", "controller-103")
LATER = ("controller-104", "controller-105", "controller-106")


class _Story:
    """A dynamic quorum with a broker, its clients of keys, and its operators."""

    def __init__(self, world: World, *, dynamic: bool = True) -> None:
        self.world = world
        self.cluster = SimCluster(
            world,
            brokers=1,
            overrides=OFTEN_SNAPSHOTS,
            dynamic=dynamic,
            spares=len(LATER) if dynamic else 0,
        )
        self.recorder = Recorder()
        self.stopping = asyncio.Event()
        self._operators = count()

    async def begin(self) -> None:
        """Starts everything; returns when the broker is active and keys are used."""
        self.cluster.start_all()
        await until(lambda: self.has_broker(1))
        processes = count()
        self._clients = [
            self.world.start(f"client-{number}", partial(self._use_keys, processes)).done
            for number in range(CLIENTS)
        ]
        await self.goes_on()

    async def end(self, gone: Sequence[str] = ()) -> None:
        """Clients stop, what they saw is judged, and the properties of a cluster at rest hold.

        `gone`: controllers that were removed and never come back.
        """
        await self.goes_on()
        self.stopping.set()
        await asyncio.gather(*self._clients)
        self.recorder.assert_linearizable()
        await until(lambda: self.has_broker(1))
        await until(self._has_caught_up)
        await every_node_follows(self.cluster, gone)
        self.cluster.properties.come_to_rest()

    async def change(self, *changes: tuple[str, str]) -> None:
        """Returns when an operator has carried them out, one after the other."""
        operator = VoterOperator(self.cluster, self.voters)
        name = f"operator-{next(self._operators)}"
        await self.world.start(name, partial(operator.carry_out, changes)).done

    async def goes_on(self) -> None:
        """Returns when more operations have succeeded."""
        start = len(self.recorder.history)
        await until(lambda: len(self.recorder.succeeded(start)) > 10)

    def leader(self) -> RaftDriver | None:
        """The driver that leads the newest epoch."""
        drivers = []
        for name in self.cluster.controller_names:
            node = self.cluster.nodes.get(name)
            if self.cluster.is_up(name) and node is not None and node.driver is not None:
                drivers.append(node.driver)
        leaders = [driver for driver in drivers if driver.is_leader]
        return max(leaders, key=lambda driver: driver.epoch, default=None)

    def voters(self) -> tuple[Voter, ...] | None:
        """The voters as the leader has them."""
        leader = self.leader()
        return None if leader is None else leader.core.voters.voters

    def votes(self, names: Sequence[str]) -> bool:
        """Whether these and no others vote, and that is committed."""
        leader = self.leader()
        if leader is None:
            return False
        committed = leader.core.voters_at(leader.high_watermark)
        return [f"controller-{node_id}" for node_id in committed.ids] == list(names)

    def has_broker(self, broker_id: int) -> bool:
        """Whether the broker is active, as the active controller sees it."""
        for name in self.cluster.controller_names:
            node = self.cluster.nodes.get(name)
            if self.cluster.is_up(name) and node and node.loader and node.driver:
                broker = node.loader.image.brokers.get(broker_id)
                if node.driver.is_leader and broker is not None and broker.active:
                    return True
        return False

    def _has_caught_up(self) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        status = leader.status()
        return all(one.log_end_offset >= status.high_watermark - 1 for one in status.voters)

    async def _use_keys(self, processes: count[int], runtime: SimRuntime) -> None:
        clients = [
            RpcClient(
                runtime,
                name,
                CONTROLLER_PORT,
                cluster_id=self.cluster.cluster_id,
                node_id=CLIENT_ID,
            )
            for name in self.cluster.controller_names
        ]
        client = KvClient(clients, runtime)
        await use_keys(client, self.recorder, processes, self.stopping, runtime.random)
        for each in clients:
            await each.close()


async def three_become_five_and_the_first_leave(world: World) -> None:
    """The voters of the beginning are gone in the end; brokers old and new find the others."""
    story = _Story(world)
    await story.begin()
    await story.change(*(("add", name) for name in LATER[:2]))
    await until(lambda: story.votes((*FIRST, *LATER[:2])))
    await story.goes_on()
    for name in FIRST:
        await story.change(("remove", name))
        world.kill(name)
        await story.goes_on()
    await story.change(("add", LATER[2]))
    world.kill("broker-1")
    await _restart(story, LATER)
    story.cluster.start("broker-1")
    await until(lambda: story.votes(LATER))
    await story.end(gone=FIRST)


async def _restart(story: _Story, names: Sequence[str]) -> None:
    """All of them lose power at once: what they know then is on their disks."""
    for name in names:
        story.cluster.power_off(name)
    for name in names:
        story.cluster.start(name)
    await until(lambda: story.leader() is not None)


async def wiped_voter_counts_for_nothing(world: World) -> None:
    """A follower is away and the other has lost its disk: whatever that fetches, it is no voter.

    Later it leaves as the voter that it was, and joins as the one that it is.
    """
    story = _Story(world)
    await story.begin()
    leader = story.leader()
    assert leader is not None, "the broker was active just now"
    leading = f"controller-{leader.leader_id}"
    wiped, away = world.random.sample([name for name in FIRST if name != leading], 2)
    for name in (leading, wiped):
        world.partition(away, name)
    world.kill(wiped)
    story.cluster.wipe(wiped)
    story.cluster.start(wiped)
    await asyncio.sleep(world.random.uniform(0.5, 4))
    world.heal()
    await story.goes_on()
    await story.change(("remove", wiped), ("add", wiped))
    await story.end()


async def changes_compete(world: World) -> None:
    """Operators who do not know of each other; leaders die, and everything restarts."""
    story = _Story(world)
    await story.begin()
    adding = [asyncio.ensure_future(story.change(("add", name))) for name in LATER]
    await asyncio.sleep(world.random.uniform(0.1, 2))
    leader = story.leader()
    if leader is not None:
        name = f"controller-{leader.leader_id}"
        world.kill(name)
        await asyncio.sleep(world.random.uniform(0.1, 3))
        story.cluster.start(name)
    await asyncio.gather(*adding)
    removing = [asyncio.ensure_future(story.change(("remove", name))) for name in FIRST]
    await asyncio.gather(*removing)
    await until(lambda: story.votes(LATER))
    await _restart(story, [*FIRST, *LATER])
    await story.goes_on()
    for name in LATER:
        await story.change(("replace", name))
    await until(lambda: story.votes(LATER))
    await story.end()


async def removed_voter_is_the_fastest(world: World) -> None:
    """One that votes no more has everything at once, while the last follower stands still."""
    story = _Story(world)
    await story.begin()
    leader = story.leader()
    assert leader is not None, "the broker was active just now"
    leading = f"controller-{leader.leader_id}"
    removed, slow = (name for name in FIRST if name != leading)
    await story.change(("remove", removed))
    for _ in range(3):
        world.pause(slow)
        await asyncio.sleep(world.random.uniform(0.2, 0.6))
        world.resume(slow)
        await story.goes_on()
    await story.end()


async def static_voters_become_dynamic(world: World) -> None:
    """Configured voters are named by the log from the first change on; a disk may then be lost."""
    story = _Story(world, dynamic=False)
    await story.begin()
    name = world.random.choice(FIRST)
    await story.change(("remove", name))
    await story.goes_on()
    await story.change(("add", name))
    await until(lambda: story.votes(FIRST))
    await _restart(story, FIRST)
    await until(lambda: story.votes(FIRST))
    leader = story.leader()
    assert leader is not None
    assert leader.core.voters.dynamic
    await story.change(("replace", world.random.choice(FIRST)))
    await story.end()

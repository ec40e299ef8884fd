"""A quorum of configured voters becomes dynamic, in an order that the seed draws, under faults.

Drawn are: 1, 3 or 5 voters; whether voters are added first, removed first or all replaced; which
nodes know the voters by a list and which by servers to ask, also after a restart; who is killed,
loses power, stands still or is cut off while a change is under way, and who never comes back.

Judged, besides the properties that hold after every step of every node:

progress   while a majority of the voters is up and connected, it has a leader that commits, within
           `ELECTIONS` election timeouts, whoever else is away
following  when all is healed, every voter, every broker and every other controller that is up
           follows that leader and has what is committed
keys       what clients read and wrote is linearizable
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import CONTROLLER_PORT, SimCluster, node_id
from jepsen.simulator.world import stream
from raftctl.controller_channel import CLIENT_ID
from raftctl.rpc import RpcClient
from tests.kit.kv_client import KvClient
from tests.kit.kv_load import Recorder, use_keys
from tests.simulation.cluster_scenarios import OFTEN_SNAPSHOTS
from tests.simulation.voter_changes import VoterOperator

if TYPE_CHECKING:
    from collections.abc import Callable

    from jepsen.simulator.world import SimRuntime, World
    from raftctl.quorum import RaftDriver
    from raftctl.raft.messages import Voter

ELECTIONS = 20
"""Within so many election timeouts a connected majority elects and commits."""
FOLLOWS_S = 20.0
CHANGED_S = 60.0
CLIENTS = 2
SIZES = (1, 3, 3, 3, 5)
SPARES = 3
ORDERS = ("add first", "remove first", "replace all", "any")
FAULTS = ("none", "kill", "power", "pause", "cut off", "kill the leader", "restart with servers")
SHORT_LOG_SHARE = 0.5
FAULT_SHARE = 0.7
VOTERS_MIN = {"add": 1, "remove": 2, "replace": 3}
"""A disk that is replaced is lost: a majority of the others must have what is committed."""


async def changes(world: World) -> None:
    """One run."""
    await _Transition(world).run()


class MixedCluster(SimCluster):
    """Configured voters; nodes that are `asking` know servers instead of a list of voters."""

    asking: set[str]

    def _values(self, name: str) -> dict[str, str]:
        values = super()._values(name)
        first = self.controller_names[: self.controllers]
        del values["controller.quorum.voters"]
        if name in self.asking:
            servers = ",".join(f"{one}:{CONTROLLER_PORT}" for one in self.controller_names)
            return {**values, "controller.quorum.bootstrap.servers": servers}
        voters = ",".join(f"{node_id(one)}@{one}:{CONTROLLER_PORT}" for one in first)
        return {**values, "controller.quorum.voters": voters}


class _Transition:
    """The phases of one run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = chance = stream(world.seed, "transition")
        short = OFTEN_SNAPSHOTS if chance.random() < SHORT_LOG_SHARE else {}
        self.cluster = cluster = MixedCluster(
            world,
            controllers=chance.choice(SIZES),
            brokers=3,
            overrides=short,
            dynamic=False,
            spares=SPARES,
        )
        first, spares = self._controllers()
        brokers = cluster.broker_names
        cluster.asking = {*spares, *(one for one in brokers if chance.random() < 0.5)}
        self.voting = list(first)
        """The voters, as far as the operator has changed them."""
        self.away: set[str] = set()
        """Nodes that are down, stand still or are cut off."""
        self.gone: set[str] = set()
        """Of them, controllers that vote no more and never come back."""
        self.late = brokers[-1]
        """A broker that is started when everything has changed."""
        self.recorder = Recorder()
        self.stopping = asyncio.Event()

    def _controllers(self) -> tuple[list[str], list[str]]:
        names, size = self.cluster.controller_names, self.cluster.controllers
        return names[:size], names[size:]

    async def run(self) -> None:
        """All phases, in order."""
        clients = await self._begin()
        for number, (what, name) in enumerate(self._plan()):
            await self._step(number, what, name)
        self._heal()
        await self._progress("after all faults")
        self.cluster.start(self.late)
        await self._until(self._all_follow, FOLLOWS_S, self._who_does_not)
        self.stopping.set()
        await asyncio.gather(*clients)
        self.recorder.assert_linearizable()
        await self._until(self._all_follow, FOLLOWS_S, self._who_does_not)
        self.cluster.properties.come_to_rest()

    # --- phases ---------------------------------------------------------------------------------

    async def _begin(self) -> list[asyncio.Future[object]]:
        for name in [*self.cluster.controller_names, *self.cluster.broker_names]:
            if name != self.late:
                self.cluster.start(name)
        await self._until(self._all_follow, FOLLOWS_S, self._who_does_not)
        processes = count()
        return [
            self.world.start(f"client-{number}", partial(self._use_keys, processes)).done
            for number in range(CLIENTS)
        ]

    def _plan(self) -> list[tuple[str, str]]:
        """Changes, one after the other; at least one of the first voters stays or stays up."""
        chance = self.chance
        first, spares = self._controllers()
        leaving = chance.sample(first, min(len(first), SPARES))
        order = chance.choice(ORDERS if len(first) > 1 else ("add first", "replace all"))
        adding = [("add", name) for name in spares[: chance.randint(1, SPARES)]]
        removing = [("remove", name) for name in leaving[: chance.randint(1, len(leaving))]]
        match order:
            case "add first":
                plan = [*adding, *removing]
            case "remove first":
                plan = [*removing[: len(first) - 1], *adding]
            case "replace all":
                both = zip(spares, leaving, strict=False)
                plan = [step for new, old in both for step in (("add", new), ("remove", old))]
            case _:
                plan = [*adding, *removing]
                chance.shuffle(plan)
        changed = {name for what, name in plan if what == "remove"}
        kept = [name for name in first if name not in changed]
        return [*plan, ("replace", chance.choice(kept))] if kept else plan

    async def _step(self, number: int, what: str, name: str) -> None:
        """One change, with whatever goes wrong before, during and after it."""
        chance = self.chance
        fault = chance.choice(FAULTS) if chance.random() < FAULT_SHARE else "none"
        early, heals_first = chance.random() < 0.5, chance.random() < 0.5
        if len(self.voting) < VOTERS_MIN[what]:
            return
        if what == "replace" and not self._finds_others(name):
            self.cluster.asking.add(name)
        if early:
            self._strike(fault, spared=name if what == "replace" else None)
        operator = VoterOperator(self.cluster, self._leaders_voters)
        work = partial(operator.carry_out, [(what, name)])
        done = self.world.start(f"operator-{number}", work).done
        await asyncio.sleep(chance.uniform(0.0, 1.5))
        if not early and not done.done():
            self._strike(fault, spared=name if what == "replace" else None)
        if heals_first:
            await self._wait_a_while(done)
            self._heal()
        elif not await self._wait_a_while(done):
            self._heal()  # some changes need who is away
        await self._until(done.done, CHANGED_S, lambda: f"{what} {name}; {self._views()}")
        self._note(what, name)
        self.world.trace.add("-", "changed", f"{what} {name} fault={fault}")
        await self._progress(f"{what} {name}, with {fault}")
        if chance.random() < 0.5:
            self._heal()
            await self._progress(f"{what} {name}, healed")

    def _finds_others(self, name: str) -> bool:
        """Whether an empty disk could join with the list of voters in the node's configuration.

        If all others on it are gone, an operator has to give it servers (change-voters.md).
        """
        first, _ = self._controllers()
        return bool(set(first) - self.gone - {name})

    async def _wait_a_while(self, done: asyncio.Future[object]) -> bool:
        await asyncio.wait([done], timeout=self.chance.uniform(1.0, 6.0))
        return done.done()

    def _note(self, what: str, name: str) -> None:
        if what == "add":
            self.voting.append(name)
        elif what == "remove":
            self.voting.remove(name)
            first, _ = self._controllers()
            others = [one for one in first if one != name and one not in self.gone]
            if others and name not in self.away and self.chance.random() < 0.5:
                self.world.kill(name)
                self.away.add(name)
                self.gone.add(name)

    def _strike(self, fault: str, spared: str | None) -> None:
        """One node goes away, if that leaves a majority; or a node is configured anew."""
        chance, cluster = self.chance, self.cluster
        running = [one for one in self._running() if one != spared]
        brokers = [one for one in running if one in cluster.broker_names]
        leader = self.leader()
        name = chance.choice(running if chance.random() < 0.8 else brokers or running)
        if fault == "kill the leader" and leader is not None:
            name = f"controller-{leader.core.status(0).leader_id}"
        if fault == "none" or name in self.away or name == spared:
            return
        match fault:
            case "restart with servers":
                self._configure_anew(name)
                return
            case "power":
                cluster.power_off(name)
            case "pause":
                self.world.pause(name)
            case "cut off":
                for other in [*cluster.controller_names, *cluster.broker_names]:
                    if other != name:
                        self.world.partition(name, other)
            case _:
                self.world.kill(name)
        self.away.add(name)

    def _configure_anew(self, name: str) -> None:
        """A node gets servers in place of the list; a voter only if its log names the voters.

        What it knew of voters at the start of its log was in the list.
        """
        node = self.cluster.nodes[name]
        voters = node.driver.core.voters if node.driver is not None else None
        if name in self.cluster.broker_names or (voters is not None and voters.dynamic):
            self.world.kill(name)
            self.cluster.properties.quorum.knew_voters.pop(node_id(name), None)
            self.cluster.asking.add(name)
            self.cluster.start(name)

    def _heal(self) -> None:
        self.world.heal()
        for name in sorted(self.away - self.gone):
            if self.world.node(name).process is None:
                self.cluster.start(name)
            else:
                self.world.resume(name)
        self.away = set(self.gone)

    # --- judging --------------------------------------------------------------------------------

    async def _progress(self, when: str) -> None:
        """A majority that is up and connected commits something new, and says so in time."""
        there = [name for name in self.voting if name not in self.away]
        if 2 * len(there) <= len(self.voting):
            return
        seen = max((d.high_watermark for d in self._drivers()), default=0)
        timeout_s = ELECTIONS * self.cluster.election_timeout_s

        def commits() -> bool:
            leader = self.leader()
            return leader is not None and leader.high_watermark > seen

        await self._until(commits, timeout_s, lambda: f"{when}: {there} of {self.voting} commit")

    def _all_follow(self) -> bool:
        return not self._astray()

    def _who_does_not(self) -> str:
        return f"these follow the leader: {self._astray()}"

    def _astray(self) -> list[str]:
        """Who is up and does not follow the leader that all others have."""
        leader = self.leader()
        if leader is None:
            return ["there is no leader"]
        committed = leader.core.voters_at(leader.high_watermark)
        wrong = []
        if {f"controller-{number}" for number in committed.ids} != set(self.voting):
            wrong.append(f"voters {committed.ids}")
        for name in self._running():
            node = self.cluster.nodes.get(name)
            driver = None if node is None else node.driver
            lag = 1 << 60 if driver is None else leader.high_watermark - driver.high_watermark
            if driver is None or (driver.epoch, driver.leader_id) != (
                leader.epoch,
                leader.leader_id,
            ):
                wrong.append(name)
            elif lag > 20:
                wrong.append(f"{name} lags")
        return wrong

    def _views(self) -> str:
        """What each node takes for the quorum, for whoever reads of a failure."""
        views = [
            f"{one.core.role} of {one.leader_id} in {one.epoch} among {one.core.voters.ids}"
            for one in self._drivers()
        ]
        return f"{self._running()}: {'; '.join(views)}"

    def _running(self) -> list[str]:
        names = [*self.cluster.controller_names, *self.cluster.broker_names]
        return [one for one in names if self.cluster.is_up(one) and one not in self.away]

    def _drivers(self) -> list[RaftDriver]:
        nodes = [self.cluster.nodes.get(name) for name in self._running()]
        return [node.driver for node in nodes if node is not None and node.driver is not None]

    def leader(self) -> RaftDriver | None:
        """The driver that leads the newest epoch, of nodes that are there."""
        leaders = [driver for driver in self._drivers() if driver.is_leader]
        return max(leaders, key=lambda driver: driver.epoch, default=None)

    def _leaders_voters(self) -> tuple[Voter, ...] | None:
        leader = self.leader()
        return None if leader is None else leader.core.voters.voters

    async def _until(
        self, condition: Callable[[], bool], timeout_s: float, what: Callable[[], str]
    ) -> None:
        deadline_s = self.world.loop.time() + timeout_s
        while not condition():
            assert self.world.loop.time() < deadline_s, f"not within {timeout_s} s: {what()}"
            await asyncio.sleep(0.02)

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

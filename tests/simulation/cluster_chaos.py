"""Chaos: a whole cluster under load while everything goes wrong that may, judged by everything.

One, three or five controllers and three brokers, of which some may be both; unmodified clients
write, read and create topics. Faults come in bursts with time to recover in between, then stop.
From then on the cluster must be live: a leader within ten election timeouts, every replica up to
date, every operation answered. At the end all that was acknowledged must be there, once and in
order. The properties of `jepsen.simulator.properties._invariants` are checked after every step of
every node. What each seed draws beside its faults is in `jepsen.simulator.swarm`; who may work
beside those clients in `beside`.

Acknowledged records lie in the page cache of every in-sync replica. Brokers therefore lose power
only while all replicas are in sync, one at a time, and nothing else happens until all are in sync
again, not to controllers either, who fence the brokers that they do not hear and so may leave the
one without power as the last in sync: that loses records by design. Nor does anything else happen
while a bit of a broker is wrong, which would cut its log there if it were killed. In half of the
runs brokers have a second log directory on a disk of its own, which may fail at any time. A wiped
controller may vote a second time in an epoch, and no longer has what it promised to keep: it must
join as a new voter, hence none is wiped.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jepsen.nemesis.plan import Fault
from jepsen.simulator.cluster import DATA, FIRST_CONTROLLER_ID, SimCluster, node_id
from jepsen.simulator.faults import (
    PlannedNemesis,
    plan_directory_faults,
    plan_faults,
    plan_filling_disks,
    plan_power_cuts,
)
from jepsen.simulator.faults._plan import (
    BURST_MS,
    EVERYTHING,
    LINK_KINDS,
    ON_DISKS,
    POWER_CUT_OPERATIONS_MAX,
    PROCESS_KINDS,
    SLOW_DISK_TIMES_MAX,
    WAIT_KINDS,
)
from jepsen.simulator.liveness import Progress, every_node_follows
from jepsen.simulator.swarm import BESIDE, BROKERS, draw
from jepsen.simulator.world import stream
from raftctl.metadata.features import ELR_FEATURE
from tests.simulation.beside import make_beside
from tests.simulation.chaos_clients import (
    TOPIC,
    Ledger,
    Writer,
    create_topic,
    follow,
    raise_feature,
    read_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jepsen.simulator.faults import DiskFaults
    from jepsen.simulator.swarm import Swarm
    from jepsen.simulator.world import SimRuntime, World
    from raftctl.metadata.image import PartitionImage
    from raftctl.node import Node

DURATION_MS_MAX = 16_000
PARTITIONS_MAX = 4
OPERATIONS_MAX = 80
TOPICS_CREATED_MAX = 4
ELECTION_TIMEOUTS_TO_LEADER = 10
RECOVERY_S = 60
LONG_CONTROLLERS = 5
LONG_FAULTS = 4
LONG_MS = 9_000
LONG_KINDS = ("isolate", "halves", "halves", "pair", "one_way", "pause", "kill", "slow_disk")
SNAPSHOTS_SHARE = 0.5
SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "600",
    "metadata.log.segment.bytes": "400",
    "metadata.max.retention.bytes": "1500",
    "metadata.max.retention.ms": "2000",
}
"""In this share of the seeds the metadata log is short, so that replicas need snapshots."""
DIRECTORIES_SHARE = 0.5
SECOND = "/second"
"""In this share of the seeds brokers have this log directory, too."""
OFTEN_FLUSHED = {
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.segment.bytes": "2000",
}
"""So that a disk that fails is soon noticed, at every kind of call."""
HARMLESS = ("delay", "slow_disk", "clock_skew", "clock_rate")
"""Faults that no record can be lost by, together with a loss of power."""
PATIENCE_S = (30.0, 1.5)
"""How long each writer waits for acknowledgements before it begins a new life."""
ANSWERED_S = 60


async def chaos(world: World) -> None:
    """One run; the seed decides about the cluster, faults, partitions, operations, all timing."""
    swarm = draw(world.seed)
    world.trace.add("-", "swarm", str(swarm))
    await Chaos(world, swarm=swarm).run()


async def chaos_with_eligible_leaders(world: World) -> None:
    """The same where replicas that left the in-sync set may still lead (KIP-966)."""
    swarm = draw(world.seed)
    world.trace.add("-", "swarm", f"{swarm}, eligible leader replicas")
    await EligibleChaos(world, swarm=swarm).run()


async def chaos_of_combined_nodes(world: World) -> None:
    """Where one node at least is a broker and a controller, whatever the seed draws."""
    swarm = draw(world.seed)
    combined = swarm.combined or 1 + world.seed % min(swarm.voters, BROKERS)
    swarm = replace(swarm, combined=combined)
    world.trace.add("-", "swarm", str(swarm))
    await Chaos(world, swarm=swarm).run()


async def chaos_beside(world: World) -> None:
    """With everybody who may work beside the clients of records."""
    swarm = replace(draw(world.seed), beside=BESIDE)
    world.trace.add("-", "swarm", str(swarm))
    await Chaos(world, swarm=swarm).run()


async def brokers_lose_power(world: World) -> None:
    """Each broker in turn loses power and what it had not synced, and is back in an instant."""
    nodes = ("broker-1", "broker-2", "broker-3")
    await Chaos(world, _in_turn("power_off", nodes, 5_000, 100)).run()


async def controllers_lose_power(world: World) -> None:
    """All controllers lose power at once, again and again."""
    nodes = ("controller-101", "controller-102", "controller-103")
    plan = [Fault("power_off", at_ms, 300, nodes) for at_ms in range(300, 9_000, 1_700)]
    await Chaos(world, tuple(plan)).run()


async def controllers_lose_power_within_calls(world: World) -> None:
    """Each controller in turn loses power in the middle of a flush, a snapshot or its recovery."""
    nodes = ("controller-101", "controller-102", "controller-103")
    where = stream(world.seed, "cuts")
    plan = _in_turn("power_cut", nodes * 5, 700, 500)
    cuts = tuple(replace(one, amount=where.randrange(POWER_CUT_OPERATIONS_MAX)) for one in plan)
    await Chaos(world, cuts, overrides=SNAPSHOTS).run()


async def controllers_are_cut_off_for_long(world: World) -> None:
    """Of five controllers few at a time are away, for many election timeouts; the others go on."""
    await LongChaos(world).run()


async def controllers_restart_amid_elections(world: World) -> None:
    """One controller after the other loses power, sooner than an epoch is known everywhere."""
    nodes = ("controller-101", "controller-102", "controller-103")
    await Chaos(world, _in_turn("power_off", nodes * 8, 400, 100)).run()


async def controllers_disks_fail(world: World) -> None:
    """An fsync of each controller fails, and right afterwards its power."""
    nodes = ("controller-101", "controller-102", "controller-103")
    errors = _in_turn("sync_error", nodes, 4_000, 1_000)
    cuts = tuple(Fault("power_off", 1_600 + 4_000 * i, 300, (n,)) for i, n in enumerate(nodes))
    await Chaos(world, tuple(sorted((*errors, *cuts), key=lambda fault: fault.at_ms))).run()


async def brokers_disks_fail(world: World) -> None:
    """An fsync of each broker fails, and when it has caught up again its power."""
    nodes = ("broker-1", "broker-2", "broker-3")
    errors = _in_turn("sync_error", nodes, 8_000, 1_000)
    cuts = tuple(replace(one, kind="power_off", at_ms=one.at_ms + 5_000) for one in errors)
    plan = tuple(sorted((*errors, *cuts), key=lambda fault: fault.at_ms))
    await Chaos(world, plan, directories=(DATA,), overrides=OFTEN_FLUSHED).run()


async def bits_flip(world: World) -> None:
    """A bit flips on one disk after the other, each restored before the next."""
    nodes = ("controller-101", "broker-1", "controller-102", "broker-2", "controller-103")
    where = stream(world.seed, "bits")
    faults = _in_turn("bit_flip", nodes * 2, 1_500, 1_200)
    await Chaos(world, tuple(replace(one, amount=where.random()) for one in faults)).run()


async def directories_fail(world: World) -> None:
    """A log directory of one broker after the other dies, fills up or refuses to sync."""
    nodes = ("broker-1", "broker-2", "broker-3")
    kinds = ("directory_dies", "directory_full", "directory_sync_error")
    faults = [
        Fault(kind, 500 + number * 2_000, 1_500, (name,))
        for number, (kind, name) in enumerate((kind, name) for kind in kinds for name in nodes)
    ]
    await Chaos(world, tuple(faults), directories=(SECOND, DATA)).run()


async def disks_fill_up(world: World) -> None:
    """Each disk in turn is full in the midst of a write; the node ends, or one directory does."""
    where = stream(world.seed, "room")
    cluster = SimCluster(world)
    nodes = (*cluster.controller_names, *cluster.broker_names)
    faults = [Fault("disk_fills", 500 + 2_000 * i, 1_500, (n,)) for i, n in enumerate(nodes)]
    faults += [
        Fault("directory_fills", 12_500 + 2_000 * i, 1_500, (n,))
        for i, n in enumerate(cluster.broker_names * 2)
    ]
    plan = tuple(replace(one, amount=where.randrange(1, 100)) for one in faults)
    await Chaos(world, plan, directories=(SECOND, DATA)).run()


async def rolling_restart(world: World) -> None:
    """Every node is asked to end and started again, one after the other."""
    cluster = SimCluster(world)
    nodes = (*cluster.broker_names, *cluster.controller_names)
    await Chaos(world, _in_turn("stop", nodes, 3_000, 2_900)).run()


async def one_hour(world: World) -> None:
    """An hour of a cluster's life with the default timeouts, and a little load all the time.

    Every minute brings a burst of faults.
    """
    source = stream(world.seed, "hour")
    cluster = SimCluster(world)
    groups = [cluster.controller_names, cluster.broker_names]
    plan = [
        replace(fault, at_ms=fault.at_ms + minute * 60_000)
        for minute in range(60)
        for fault in plan_faults(source, groups, BURST_MS)
    ]
    await DefaultsChaos(world, tuple(plan)).run()


def _created(number: int) -> str:
    return f"created-{number}"


def _in_turn(kind: str, nodes: tuple[str, ...], every_ms: int, for_ms: int) -> tuple[Fault, ...]:
    return tuple(
        Fault(kind, 500 + number * every_ms, for_ms, (name,)) for number, name in enumerate(nodes)
    )


class Chaos:
    """The phases of one run, with a plan of faults that is given or follows from the seed."""

    beside: tuple[str, ...] = ()
    """Who works beside the clients of records where no swarm says it."""

    def __init__(
        self,
        world: World,
        plan: tuple[Fault, ...] | None = None,
        directories: tuple[str, ...] | None = None,
        overrides: Mapping[str, str] | None = None,
        swarm: Swarm | None = None,
    ) -> None:
        self.world = world
        self.swarm = swarm
        draws = EVERYTHING if swarm is None else swarm.draws
        source = stream(world.seed, "plan")
        failing = stream(world.seed, "directories")
        if directories is None:
            several = failing.random() < DIRECTORIES_SHARE
            directories = (DATA, SECOND) if several else (DATA,)
        self.directories = directories
        shortens = stream(world.seed, "snapshots").random() < SNAPSHOTS_SHARE
        overrides = (SNAPSHOTS if shortens else {}) | dict(overrides or {})
        if SECOND in directories:
            overrides |= OFTEN_FLUSHED
        self.cluster = cluster = self.make_cluster(world, overrides)
        self.progress = Progress(cluster)
        self._ledger = Ledger()
        self._found: dict[tuple[int, int], bytes] = {}
        """All records that are there in the end."""
        self._partitions = source.randint(1, PARTITIONS_MAX)
        self._operations = world.cuts.keep_operations(source.randint(10, OPERATIONS_MAX))
        self._topics = source.randint(0, TOPICS_CREATED_MAX)
        self._duration_ms = source.randint(2_000, DURATION_MS_MAX)
        groups = [cluster.controller_names, cluster.broker_names]
        if plan is None:
            cuts = plan_power_cuts(
                stream(world.seed, "cuts"), cluster.names, self._duration_ms, draws
            )
            plan = (*plan_faults(source, groups, self._duration_ms, draws), *cuts)
            brokers = cluster.broker_names if SECOND in cluster.log_directories else []
            filling = stream(world.seed, "filling")
            plan += plan_filling_disks(filling, cluster.names, brokers, self._duration_ms, draws)
            if brokers:
                more = plan_directory_faults(failing, brokers, self._duration_ms, draws)
                plan = (*plan, *more)
            plan = tuple(sorted(plan, key=lambda fault: fault.at_ms))
        else:
            self._duration_ms = max(fault.at_ms + fault.for_ms for fault in plan)
        self.faults = world.cuts.keep_faults(plan)
        self._writers = [
            Writer(f"w{i}", cluster.bootstrap, self._ledger, self._partitions, patience_s)
            for i, patience_s in enumerate(PATIENCE_S)
        ]
        names = self.beside if swarm is None else swarm.beside
        self._beside = [make_beside(one, cluster, self._duration_ms) for one in names]
        self._lost_power: tuple[int, int] | None = None
        """The broker that lost power last, by id and epoch, until all are in sync without it."""
        self._nemesis = PlannedNemesis(
            world,
            cluster.names,
            start=cluster.start,
            power_off=cluster.power_off,
            guard=self._guard,
            disks=self.disk_faults(),
            states=cluster.states,
        )

    def make_cluster(self, world: World, overrides: Mapping[str, str]) -> SimCluster:
        """The cluster to break."""
        if self.swarm is None:
            return SimCluster(world, overrides=overrides, log_directories=self.directories)
        return SimCluster(
            world,
            controllers=self.swarm.voters,
            overrides=overrides,
            timeouts=self.swarm.timeouts,
            dynamic=self.swarm.dynamic,
            asked_by_brokers=self.swarm.asked_by_brokers,
            combined=self.swarm.combined,
            log_directories=self.directories,
        )

    def disk_faults(self) -> DiskFaults | None:
        """What may be done to disks; None for nothing."""
        return self.cluster.disk_faults()

    def begin_changes(self) -> list[asyncio.Future[Any]]:
        """What an operator does meanwhile; it has to come to an end when faults do."""
        return []

    async def run(self) -> None:
        """All phases, in order; however they end, there is a history of it."""
        try:
            await self._phases()
        finally:
            self._ledger.hand_over(self.world, self._found, self._nemesis.history)

    async def _phases(self) -> None:
        await self.begin()
        watching = asyncio.create_task(self.progress.watch())
        for phase in (self.go_wrong, self.recover, self.judge):
            if watching.done():
                break
            await phase()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    # --- phases ---------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Starts the cluster and creates the topic."""
        self.cluster.start_all()
        await every_node_follows(self.cluster)
        await self._until(self._all_brokers_active, 30, "all brokers are active")
        bootstrap, count = self.cluster.bootstrap, self._partitions
        admin = self.world.start(
            "admin", lambda runtime: create_topic(bootstrap, TOPIC, count, patience=10)
        )
        assert await admin.done, "the topic could not be created"

    async def go_wrong(self) -> None:
        """Clients work while the plan is carried out; returns when all of them are done."""
        cluster, world = self.cluster, self.world
        pace_s = self._duration_ms / 1000 / max(self._operations, 1)
        writing = [
            world.start(f"writer-{i}", partial(writer.write, self._operations, pace_s)).done
            for i, writer in enumerate(self._writers)
        ]
        world.start("reader", partial(follow, cluster.bootstrap, self._ledger, self._partitions))
        creating = world.start("admin", self._create_topics).done
        changing = self.begin_changes()
        for one in self._beside:
            changing += one.begin()
        await self._nemesis.run(self.faults)
        await self._nemesis.heal()
        await self._until(self._has_leader, self._leader_timeout_s, "there is a leader")
        await self._answered(changing)
        await every_node_follows(self.cluster)
        await self._answered([*writing, creating])

    async def recover(self) -> None:
        """Nothing goes wrong any more: the cluster must become whole."""
        await self._until(self._all_brokers_active, RECOVERY_S, "all brokers are active")
        last = [
            self.world.start(f"writer-{i}", writer.write_until_acknowledged).done
            for i, writer in enumerate(self._writers)
        ]
        await self._answered(last)
        for one in self._beside:
            await one.recover()
        await self._until(self._is_whole, RECOVERY_S, "all replicas are up to date")

    async def judge(self) -> None:
        """Reads everything and compares it with what clients were promised."""
        reading = partial(read_all, self.cluster.bootstrap, self._partitions)
        final = self.world.start("final-reader", reading).done
        await self._answered([final])
        self._found = final.result()
        await self._until(lambda: self._ledger.seen == self._found, RECOVERY_S, "all is read")
        wrong = self._ledger.judge(self._found)
        image = self.active().loader.image
        wrong += [
            f"topic {name} is gone"
            for name in sorted(self._ledger.topics)
            if image.topics.by_name(name) is None
        ]
        there = sorted(image.topics.ids)
        wrong += [f"nobody asked for topic {name}" for name in there if not self.is_asked_for(name)]
        assert not wrong, "\n".join(wrong)
        self.cluster.properties.come_to_rest()
        for one in self._beside:
            self.world.trace.add("-", "beside", one.judge())
        counts = f"records={len(final.result())} acknowledged={len(self._ledger.acknowledged)}"
        checks = f"failures={self._ledger.failures} checks={self.cluster.properties.checks}"
        waits = f"waits={self.progress.waits_s:.2f} fenced={self.progress.leases.refused}"
        self.world.trace.add("-", "judged", f"{counts} {checks} {waits}")

    def is_asked_for(self, name: str) -> bool:
        """Whether some client may have created the topic."""
        ours = name == TOPIC or name in map(_created, range(self._topics))
        return ours or any(one.is_asked_for(name) for one in self._beside)

    async def _create_topics(self, runtime: SimRuntime) -> None:
        for number in range(self._topics):
            await asyncio.sleep(runtime.random.uniform(0, self._duration_ms / 1000 / self._topics))
            name = _created(number)
            if await create_topic(self.cluster.bootstrap, name, 1):
                self._ledger.topics.add(name)

    # --- waiting --------------------------------------------------------------------------------

    async def _until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if condition():
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not within {timeout_s} s: {what}") from None

    async def _answered(self, operations: list[asyncio.Future[Any]]) -> None:
        try:
            async with asyncio.timeout(ANSWERED_S):
                await asyncio.gather(*operations)
        except TimeoutError:
            raise AssertionError(f"not answered within {ANSWERED_S} s") from None

    @property
    def _leader_timeout_s(self) -> float:
        return ELECTION_TIMEOUTS_TO_LEADER * self.cluster.election_timeout_s

    # --- looking --------------------------------------------------------------------------------

    def _nodes(self, names: list[str]) -> Iterator[Any]:
        """The running nodes of these names whose parts are all made."""
        for name in names:
            node = self.cluster.nodes.get(name)
            if self.cluster.is_up(name) and node is not None and node.loader is not None:
                yield node

    def active(self) -> Any:
        nodes = self._nodes(self.cluster.controller_names)
        leaders = [node for node in nodes if node.driver.is_leader]
        return max(leaders, key=lambda node: node.driver.epoch, default=None)

    def _has_leader(self) -> bool:
        return self.active() is not None

    def _all_brokers_active(self) -> bool:
        active: Node | None = self.active()
        if active is None or active.loader is None:
            return False
        brokers = active.loader.image.brokers.values()
        return sum(broker.active for broker in brokers) == self.cluster.brokers

    def _all_brokers_registered(self) -> bool:
        """In their present lives: the controller may not have missed them in the last ones yet."""
        nodes = list(self._nodes(self.cluster.broker_names))
        # Nobody hosts anything before.
        registered = all(
            node.broker is not None and node.broker.replicas.partitions for node in nodes
        )
        return registered and len(nodes) == self.cluster.brokers

    def _partition_images(self, node: Any) -> Iterator[PartitionImage]:
        for topic in node.loader.image.topics.in_order():
            yield from (topic.partitions[number] for number in range(len(topic.partitions)))

    def _all_in_sync(self) -> bool:
        active = self.active()
        return active is not None and all(
            len(one.isr) == len(one.replicas) for one in self._partition_images(active)
        )

    def _is_whole(self) -> bool:
        """Every voter and observer has what is committed, and every replica its leader's log."""
        active = self.active()
        if active is None or not self._all_in_sync():
            return False
        names = self.cluster.names
        nodes = list(self._nodes(names))
        high_watermark = active.driver.high_watermark
        told = all(node.driver.high_watermark >= high_watermark - 1 for node in nodes)
        replicas: dict[object, set[tuple[int, int]]] = {}
        for node in nodes:
            if node.broker is not None:
                for partition, replica in node.broker.replicas.partitions.items():
                    state = (replica.log.log_end_offset, replica.state.high_watermark)
                    replicas.setdefault(partition, set()).add(state)
        return len(nodes) == len(names) and told and all(len(s) == 1 for s in replicas.values())

    def _guard(self, fault: Fault) -> bool:
        """See the module: brokers lose power only when that loses nothing by design."""
        brokers = self.cluster.broker_names
        if fault.kind == "wipe" and fault.touches(self.cluster.controller_names):
            return False
        if fault.kind in HARMLESS:
            return True
        if not self._has_recovered() or self._is_rotten(brokers):
            return False
        self._lost_power = None
        risky = ("power_off", "power_cut", "wipe", "bit_rot")
        if fault.kind not in risky or not fault.touches(brokers):
            return True
        troubled = any(
            one.kind in (*LINK_KINDS, *PROCESS_KINDS, *WAIT_KINDS, *ON_DISKS)
            for one in self._nemesis.active.values()
        )
        safe = (
            len(fault.nodes) == 1
            and not troubled
            and self._all_in_sync()
            and self._all_brokers_active()
            and self._all_brokers_registered()
        )
        active = self.active()
        if safe and active is not None:
            broker_id = node_id(fault.nodes[0])
            self._lost_power = broker_id, active.loader.image.brokers[broker_id].broker_epoch
        return safe

    def _is_rotten(self, names: list[str]) -> bool:
        """Whether one of these would cut what is damaged off its logs if it had to recover."""
        faults = self._nemesis.active.values()
        return any(one.kind == "bit_rot" and one.touches(names) for one in faults)

    def _has_recovered(self) -> bool:
        """Whether what lost power is back and in sync: not by what is left of its last life."""
        if self._lost_power is None:
            return True
        active = self.active()
        if active is None or not (self._all_in_sync() and self._all_brokers_active()):
            return False
        broker_id, broker_epoch = self._lost_power
        return bool(active.loader.image.brokers[broker_id].broker_epoch > broker_epoch)


class EligibleChaos(Chaos):
    """With eligible leader replicas: the level of their feature is raised first."""

    async def begin(self) -> None:
        """Starts the cluster, creates the topic and raises the level."""
        await super().begin()
        raising = partial(raise_feature, self.cluster.broker_names[0], ELR_FEATURE, 1)
        await self.world.start("features", raising).done


class LongChaos(Chaos):
    """Five controllers, and faults that leave a majority and last longer than it may take it.

    Not all of those that are away are silent: links may be cut one way, or between two alone.
    """

    def __init__(self, world: World) -> None:
        source = stream(world.seed, "long")
        names = [f"controller-{FIRST_CONTROLLER_ID + i}" for i in range(LONG_CONTROLLERS)]
        plan: list[Fault] = []
        for number in range(LONG_FAULTS):
            kind = source.choice(LONG_KINDS)
            some = source.sample(names, 2)
            begin_ms = 500 + number * (LONG_MS + 1_000)
            if kind in ("pair", "one_way"):
                plan.append(Fault(kind, begin_ms, LONG_MS, tuple(some)))
            elif kind == "halves":
                others = source.sample(["broker-1", "broker-2", "broker-3"], source.randint(0, 3))
                three = [name for name in names if name not in some]
                side = source.choice((some, three))
                plan.append(Fault(kind, begin_ms, LONG_MS, tuple(sorted([*side, *others]))))
            else:
                times = SLOW_DISK_TIMES_MAX if kind == "slow_disk" else 0.0
                plan += [Fault(kind, begin_ms, LONG_MS, (name,), times) for name in some]
        super().__init__(world, tuple(plan))

    def make_cluster(self, world: World, overrides: Mapping[str, str]) -> SimCluster:
        """Five controllers."""
        return SimCluster(world, controllers=LONG_CONTROLLERS, overrides=overrides)


class DefaultsChaos(Chaos):
    """With what is in force where nothing is configured."""

    def make_cluster(self, world: World, overrides: Mapping[str, str]) -> SimCluster:
        """A cluster without any setting but its addresses."""
        del overrides
        return SimCluster(world, timeouts={})

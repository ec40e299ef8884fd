"""Brokers that were fenced and may not know it must not pass for leaders.

They are cut off together with a controller that is deposed and does not know it yet, or they are
held up while answers of before are on their way.
"""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.protocol.versions import ApiKey
from jepsen.simulator.cluster import BROKER_PORT, node_id
from jepsen.simulator.liveness import Leases
from raftctl.errors import ErrorCode
from tests.simulation.chaos_clients import TOPIC
from tests.simulation.kv_scenarios import LATE_MS
from tests.simulation.rig import Rig
from tests.unit.broker.server.fakes import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.simulator.world import SimRuntime, World

FETCH_VERSION = 11
BEYOND = 1_000_000
"""An offset that no leader has."""
ASK_S = 0.1
LOOK_S = 0.005
SLOW_TO_RESIGN = {
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.election.timeout.ms": "300",
    "broker.session.timeout.ms": "4000",
    "metadata.max.idle.interval.ms": "0",
}
"""The controller that is cut off believes for longer that it leads than it takes to elect another,
and writes nothing meanwhile: what it cannot commit would hold up its answers."""
HEARD = ("not at all", "one way", "of before")
"""What the controller in the minority still hears of the others."""
HOLD_UPS = 4
HOLD_UP_KINDS = ("paused", "cut off", "paused and cut off")
LATE_ANSWERS_MS = 700.0
"""Heartbeats give up after half of the session, 750 ms; a tenth of it is the margin of leases."""


class Watch:
    """What the broker in the minority says of itself, beside what the others have decided."""

    def __init__(self, rig: Rig, controller: str, broker: str) -> None:
        self.rig = rig
        self.controller = controller
        self.broker = broker
        self.fenced_while_sure: list[str] = []
        self.out_of_range = 0
        """Answers that an offset is out of range while another leader may have it."""
        self.sent_away = 0

    def is_fenced(self) -> bool:
        """Whether the majority's controller has fenced the broker, committed or not."""
        node = self.rig.active()
        if node is None or node.config.node_id == node_id(self.controller):
            return False
        broker = node.loader.image.brokers.get(node_id(self.broker))
        return broker is not None and broker.fenced

    def is_sure(self) -> bool:
        """Whether the broker believes that nobody has fenced it."""
        broker: Any = self.rig.cluster.nodes[self.broker].broker
        sure: bool = broker._context.has_session()
        return sure

    async def look(self) -> None:
        """All the time until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if self.is_fenced() and self.is_sure():
                self.fenced_while_sure.append(f"{loop.time():.3f}")
            await asyncio.sleep(LOOK_S)

    async def consume(self, runtime: SimRuntime) -> None:
        """Asks the broker for what it cannot have, as a consumer that has read from another."""
        asked = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": TOPIC,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "fetch_offset": BEYOND,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        client = Client(*await asyncio.open_connection(self.broker, BROKER_PORT))
        while True:
            fenced = self.is_fenced()
            answer = await client.ask(ApiKey.FETCH, FETCH_VERSION, asked)
            error = answer["responses"][0]["partitions"][0]["error_code"]
            self.out_of_range += fenced and error == ErrorCode.OFFSET_OUT_OF_RANGE
            self.sent_away += fenced and error == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await asyncio.sleep(ASK_S)


async def a_deposed_controller_keeps_no_session(world: World) -> None:
    """The active controller and the partition's leader are cut off together from all others."""
    rig = Rig(world, SLOW_TO_RESIGN)
    await rig.begin()
    await rig.until(rig.whole, "all replicas are in sync")
    controller = f"controller-{rig.active().config.node_id}"
    leader = f"broker-{rig.partition().leader}"
    watch = Watch(rig, controller, leader)
    world.start("consumer", watch.consume)
    looking = asyncio.ensure_future(watch.look())
    # Heartbeats come every two seconds: the cut falls anywhere between two of them.
    await asyncio.sleep(world.random.uniform(0, 2))
    heard = world.random.choice(HEARD)
    world.trace.add(controller, "cut off with", f"{leader}, hears {heard}")
    cut_off(rig, heard, controller, leader)
    await rig.until(watch.is_fenced, "the others have fenced the broker")
    await rig.until(lambda: watch.sent_away > 0, "the broker knows that it may be deposed")
    assert not watch.fenced_while_sure, f"{leader} was fenced and sure of its session"
    assert not watch.out_of_range, f"{leader} was fenced and told that offsets are out of range"
    looking.cancel()
    world.kill("consumer")
    world.network.restore_links()
    await rig.end()


async def a_broker_that_is_held_up_keeps_no_session(world: World) -> None:
    """Answers to a broker are late; then it stands still, is cut off, or both, and is fenced."""
    await _held_up(world, HOLD_UP_KINDS)


async def a_broker_that_is_suspended_keeps_no_session(world: World) -> None:
    """The same, but its machine is suspended: its monotonic clock stands still."""
    await _held_up(world, ("suspended", "suspended and cut off"))


async def a_broker_that_stalls_keeps_no_session(world: World) -> None:
    """The same, but its event loop is held up; answers of before are read first when it goes on."""
    await _held_up(world, ("stalled", "stalled and cut off"))


async def _held_up(world: World, kinds: Sequence[str]) -> None:
    rig = Rig(world)
    await rig.begin()
    await rig.until(rig.whole, "all replicas are in sync")
    leases = Leases(rig.cluster)

    def has_refused(times: int) -> bool:
        leases.look()
        return leases.refused >= times

    async def go_by(seconds: float) -> None:
        end_s = world.loop.time() + seconds
        while world.loop.time() < end_s:
            leases.look()
            await asyncio.sleep(LOOK_S)

    for _ in range(HOLD_UPS):
        await rig.until(rig.all_active, "all brokers are active")
        name = world.random.choice(rig.cluster.broker_names)
        held_up = world.random.choice(kinds)
        world.trace.add(name, "held up", held_up)
        for controller in rig.cluster.controller_names:
            rig.delay(controller, name, world.random.uniform(0.3, 1.0) * LATE_ANSWERS_MS)
        await go_by(world.random.uniform(1, 3) * LATE_ANSWERS_MS / 1_000)
        if "cut off" in held_up:
            rig.isolate(name)
        _hold_up(world, name, held_up)
        fenced = partial(has_refused, leases.refused + 1)
        await rig.until(fenced, f"{name} is fenced, and not sure of its session")
        await go_by(world.random.uniform(0, 1))
        for let_go in (world.resume, world.unstall, world.wake):
            let_go(name)
        await go_by(world.random.uniform(0, 1))
        world.heal()
        world.network.restore_links()
    await rig.end()


def _hold_up(world: World, name: str, how: str) -> None:
    if how.startswith("paused"):
        world.pause(name)
    elif how.startswith("suspended"):
        world.suspend(name)
    elif how.startswith("stalled"):
        world.stall(name, math.inf)


def cut_off(rig: Rig, heard: str, controller: str, leader: str) -> None:
    """Both from all others; the two reach each other, and clients reach everybody."""
    for name in (controller, leader):
        for other in (*rig.cluster.controller_names, *rig.cluster.broker_names):
            if other in (controller, leader):
                continue
            rig.world.block(name, other)
            if heard == "not at all" or name == leader:
                rig.world.block(other, name)
            elif heard == "of before":
                rig.delay(other, name, LATE_MS)

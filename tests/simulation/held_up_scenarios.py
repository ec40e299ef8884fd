"""Clusters whose members are held up or misled: by their machine, loop, clocks, network or disks.

Each is chaos with a plan of its own: all properties are checked, and all that was acknowledged must
be there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jepsen.nemesis.plan import Fault
from jepsen.simulator.disk import HANGING
from jepsen.simulator.world import stream
from tests.simulation.cluster_chaos import OFTEN_FLUSHED, SNAPSHOTS, Chaos

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.simulator.world import World

CONTROLLERS = ("controller-101", "controller-102", "controller-103")
BROKERS = ("broker-1", "broker-2", "broker-3")
EVERY_MS = 1_500
FOR_MS = 2_500
"""Longer than the time between two: they overlap."""
STALLS_MS = (20.0, 150.0, 700.0, 3_000.0)
CONTROLLER_RATES = (0.8, 1.1)
BROKER_RATES = (0.99, 1.25)
"""A session's holder may be slower than a controller by a tenth: `CLOCK_MARGIN`."""
PAIRS = 12


async def machines_are_suspended(world: World) -> None:
    """One machine after the other: those of controllers, then of brokers."""
    nodes = (*CONTROLLERS, *BROKERS)
    await Chaos(world, tuple(_in_turn(world, "suspend", nodes))).run()


async def event_loops_stall(world: World) -> None:
    """Each node's loop is held up, for a moment again and again or for long."""
    source = stream(world.seed, "stalls")
    plan = [
        replace(fault, amount=source.choice(STALLS_MS))
        for fault in _in_turn(world, "stall", (*CONTROLLERS, *BROKERS))
    ]
    await Chaos(world, tuple(plan), overrides=SNAPSHOTS).run()


async def clocks_go_at_other_rates(world: World) -> None:
    """Each node's clocks are as wrong as can be, all the time."""
    source = stream(world.seed, "rates")
    rates = dict.fromkeys(CONTROLLERS, CONTROLLER_RATES) | dict.fromkeys(BROKERS, BROKER_RATES)
    plan = [
        Fault("clock_rate", 100, 12_000, (name,), source.uniform(*between))
        for name, between in rates.items()
    ]
    kills = _in_turn(world, "kill", (*CONTROLLERS, *BROKERS))
    await Chaos(world, tuple(sorted((*plan, *kills), key=lambda fault: fault.at_ms))).run()


async def connections_break(world: World) -> None:
    """Between two nodes after the other connections are reset amid frames, or half open."""
    source = stream(world.seed, "pairs")
    plan = []
    for number in range(PAIRS):
        members = source.choice((CONTROLLERS, BROKERS, (*CONTROLLERS, *BROKERS)))
        pair = tuple(source.sample(members, 2))
        kind = source.choice(("reset", "half_open"))
        size = source.choice((30, 300, 3_000)) if kind == "reset" else 0
        plan.append(Fault(kind, 500 + number * EVERY_MS // 2, FOR_MS, pair, size))
    await Chaos(world, tuple(plan)).run()


async def disks_hang(world: World) -> None:
    """Each node's disk hangs for longer than an election takes; the nodes after it are slow."""
    source = stream(world.seed, "disks")
    plan = [
        replace(fault, kind=source.choice((*HANGING, "slow_io")), amount=200.0)
        for fault in _in_turn(world, "slow_io", (*CONTROLLERS, *BROKERS))
    ]
    await Chaos(world, tuple(plan), overrides=SNAPSHOTS).run()


async def bits_rot(world: World) -> None:
    """A bit flips under all nodes but a broker that has lost its disk and needs what they have."""
    source = stream(world.seed, "rot")
    plan = []
    for number, name in enumerate(source.sample(BROKERS, len(BROKERS))):
        begin_ms = 3_000 + number * 9_000
        plan.append(Fault("wipe", begin_ms, 1_000, (name,)))
        plan += [
            Fault("bit_rot", begin_ms + 500, 3_500, (other,), source.random())
            for other in (*CONTROLLERS, *BROKERS)
            if other != name
        ]
    await RottenChaos(world, tuple(plan), overrides=SNAPSHOTS | OFTEN_FLUSHED).run()


class RottenChaos(Chaos):
    """Nobody else is killed, so no broker recovers and cuts what is damaged."""

    def _guard(self, fault: Fault) -> bool:
        return fault.kind == "bit_rot" or super()._guard(fault)


def _in_turn(world: World, kind: str, nodes: tuple[str, ...]) -> Iterator[Fault]:
    """One after the other, in an order that the seed draws."""
    order = stream(world.seed, "order").sample(nodes, len(nodes))
    for number, name in enumerate(order):
        yield Fault(kind, 500 + number * EVERY_MS, FOR_MS, (name,))

"""Quorum cores under faults of which each seed draws kinds, sizes and shape (swarm testing).

    python -m tests.simulation.core_swarm --first 0 --seeds 1000

A seed has three parts: faults; then some majority that is connected and runs, while the others do
what is worst for it (`a_majority_gets_on`); then no faults (`converge`). Sizes go beyond what the
timeouts allow for: some messages take 2.5 s, which outlast epochs and lives of nodes; pauses of 1 s
with all that came meanwhile; disks that take nothing for 3 s. Each kind is on in half of the seeds.
Groce et al., "Swarm Testing", ISSTA 2012: a run with few kinds of faults reaches states that one
with all kinds, each of which ends what others begin, does not.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.simulator.coverage import Transition, as_line, transitions_summary
from raftctl.errors import InvariantViolation
from raftctl.raft.messages import (
    AddVoterRequest,
    ChangeVotersRequest,
    NodeId,
    RemoveVoterRequest,
    UpdateVoterRequest,
    Voter,
)
from tests.simulation.quorum_machine import EVEN_RATE
from tests.simulation.quorum_world import (
    CALM,
    CONFIG,
    Faults,
    QuorumWorld,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from raftctl.raft._config import RaftConfig
    from raftctl.raft.voters import VoterSet
    from tests.simulation.quorum_machine import Machine

KINDS = (
    "crash",
    "blackout",
    "pause",
    "hang",
    "cut",
    "split",
    "lag",
    "behead",
    "resign",
    "transfer",
    "snapshot",
    "expire",
    "wipe",
    "add",
    "remove",
    "update",
    "eager",
)
"""What a seed may draw; each is put right again by something of its own, or by itself."""
SHAPES = ((1, 0), (1, 2), (2, 1), (3, 0), (3, 1), (3, 2), (4, 1), (5, 0), (5, 2))
ELECTION_TIMEOUTS_MS = (100, 200, 200, 400)
CHAOS_MS = 12_000
STRAGGLING_MS_MAX = 2_500
PAUSE_MS_MAX = 1_000
DOWN_MS_MAX = 1_500
HANG_MS_MAX = 3_000
BUSY_LEAST = 8
"""Of `Swarm.busy`, the least load."""
RATES = (900, 1_100)
LATE_TICK_MS = 12
"""A timer may be 10 ms late, and a clock 1.1 times as fast."""
FORGET_MS = 4_500
"""After a disk is lost its last messages are under way, or wait, and then count as just heard."""
AWAY = ("down", "paused", "cut off", "deaf", "mute", "late")
"""What those do, in `a_majority_gets_on`, that are not in it."""
KNOWN = Path(__file__).with_name("core_transitions.txt")
"""Each role, event and role after it that any run has seen."""


@dataclass
class Swarm:
    """One seed: its world, and what may happen to it."""

    world: QuorumWorld
    kinds: tuple[str, ...]
    fault_rate: float
    busy: int
    """How many times longer the pauses between proposals are."""
    burst: int
    """How many proposals or reads come at once at times."""
    changed_ms: int = -FORGET_MS
    wiped_ms: int = -FORGET_MS
    eager: bool = False
    """Whether every leader is asked for a change of voters all the time, from its first moment."""
    struck: Counter[str] = field(default_factory=Counter)

    @property
    def chance(self) -> random.Random:
        """The seed's."""
        return self.world.random


def draw_config(chance: random.Random) -> RaftConfig:
    """Timeouts whose ratios differ, too."""
    election_ms = chance.choice(ELECTION_TIMEOUTS_MS)
    return replace(
        CONFIG,
        election_timeout_ms=election_ms,
        fetch_timeout_ms=election_ms * chance.choice((1, 2, 3)),
        election_backoff_max_ms=election_ms,
        request_timeout_ms=chance.choice((150, 300, 600)),
        fetch_max_wait_ms=chance.choice((20, 100)),
        commit_delay_ms=chance.choice((0, 5)),
        fetch_max_bytes=chance.choice((200, 400, 4_000)),
        snapshot_max_bytes=chance.choice((100, 150, 10_000)),
    )


def draw(seed: int) -> Swarm:
    """The world of this seed, and the kinds of faults that are on in it."""
    chance = random.Random(f"shape of {seed}")
    dynamic = chance.random() < 0.6
    voters, observers = chance.choice(SHAPES)
    rates = RATES if chance.random() < 0.5 else (EVEN_RATE, EVEN_RATE)
    world = QuorumWorld(
        seed, voters, observers, dynamic=dynamic, rates=rates, config=draw_config(chance)
    )
    # The configuration of a static voter names no directory: with a new disk it votes again.
    # Half of the kinds, or few: what one needs again and again is seldom where there are many.
    share = chance.choice((0.5, 0.5, 0.12))
    kinds = [k for k in KINDS if chance.random() < share and (dynamic or k != "wipe")]
    world.faults = Faults(
        loss=chance.choice((0.0, 0.0, 0.02, 0.15)),
        repetition=chance.choice((0.0, 0.0, 0.05, 0.3)),
        delay_ms=chance.choice((3, 20, 20, 60, 250)),
        straggling=chance.choice((0.0, 0.0, 0.02, 0.1)),
        straggling_ms=STRAGGLING_MS_MAX,
        write_ms=chance.choice((0, 3, 3, 40)),
        sluggish=chance.choice((0.0, 0.0, 0.02, 0.1)),
        sluggish_ms=chance.choice((300, 1_500)),
        torn=chance.choice((0.0, 0.3)),
    )
    return Swarm(
        world,
        tuple(kinds) or (chance.choice(("crash", "lag", "behead")),),
        chance.choice((0.05, 0.15, 0.4)),
        chance.choice((2, 4, BUSY_LEAST)),
        chance.choice((1, 1, 5, 20)),
    )


def run(swarm: Swarm) -> None:
    """Everything of one seed; raises on the first violation."""
    chaos(swarm)
    a_majority_gets_on(swarm)
    converge(swarm)


def chaos(swarm: Swarm) -> None:
    """Lets faults of the kinds that are on come one after the other."""
    world = swarm.world
    while world.now_ms < CHAOS_MS:
        step(swarm)
        if swarm.chance.random() < swarm.fault_rate:
            inject(swarm, swarm.chance.choice(swarm.kinds))


def step(swarm: Swarm) -> None:
    """Some time passes, under load, and each node is judged by what it does meanwhile."""
    world, chance = swarm.world, swarm.chance
    world.run_until(world.now_ms + chance.randint(5, 40) * swarm.busy)
    judge(world)
    if swarm.eager:
        change_voters(swarm, chance.choice(("add", "remove")))
    load(swarm)
    world.read(chance.choice(list(world.machines)))


def load(swarm: Swarm) -> None:
    """Proposals, of which many are more than one answer to a Fetch holds, and reads."""
    world, chance = swarm.world, swarm.chance
    for _ in range(chance.choice((1, swarm.burst))):
        world.propose()
    for machine in world.leaders():
        for _ in range(chance.choice((0, 0, 1, swarm.burst))):
            world.read(machine.node_id)


def judge(world: QuorumWorld) -> None:
    """Nobody leads on whom no majority hears, or takes others for voters than its log says."""
    for machine in world.machines.values():
        core = machine.core
        if core is None:
            continue
        control = [batch for batch in machine.history if batch.control]
        committed = [batch for batch in control if batch.end_offset <= core.high_watermark]
        in_log, by_commits = (world.voters_in(machine, one) for one in (control, committed))
        world.checker.knows_voters(core, in_log, by_commits)
        if not machine.paused:
            within_ms = world.config.check_quorum_ms + LATE_TICK_MS
            world.checker.leads_with_majority(machine, machine.own_ms(world.now_ms), within_ms)


def inject(swarm: Swarm, kind: str) -> None:
    """Lets one thing go wrong, and be right again after a while."""
    world, chance = swarm.world, swarm.chance
    node_id = chance.choice(list(world.machines))
    swarm.struck[kind] += 1
    match kind:
        case "crash":
            world.crash(node_id)
            world.after(chance.randint(1, DOWN_MS_MAX), partial(world.start, node_id))
        case "blackout":
            for one in world.machines:
                world.crash(one)
                world.after(chance.randint(1, 500), partial(world.start, one))
        case "hang":
            world.hang(node_id, chance.randint(1, HANG_MS_MAX))
        case "pause":
            world.pause(node_id)
            world.after(chance.randint(1, PAUSE_MS_MAX), partial(world.resume, node_id))
        case "resign":
            world.resign(node_id)
        case "transfer":
            world.transfer(node_id, chance.choice(list(world.machines)))
        case "snapshot" | "expire":
            behind = chance.choice((0, 0, 1, 2, 5))
            for one in {node_id, *(m.node_id for m in world.leaders())}:
                world.take_snapshot(one, expire=kind == "expire", without=behind)
        case "eager":
            swarm.eager = not swarm.eager
        case "add" | "remove" | "update":
            change_voters(swarm, kind)
        case _:
            LONGER[kind](swarm, node_id)


def cut(swarm: Swarm, node_id: NodeId) -> None:
    """Cuts links of a node, in one direction or both, for a while."""
    world, chance = swarm.world, swarm.chance
    others = chance.sample(list(world.machines), chance.randint(1, len(world.machines)))
    links = {(node_id, other) for other in others}
    if chance.random() < 0.5:
        links = {(b, a) for a, b in links}
    elif chance.random() < 0.5:
        links |= {(b, a) for a, b in links}
    world.cut |= links
    world.after(chance.randint(1, 3_000), partial(world.cut.difference_update, links))


def split(swarm: Swarm, node_id: NodeId) -> None:
    """Parts this node and others from the rest, for longer than check-quorum at times."""
    world, chance = swarm.world, swarm.chance
    ids = list(world.machines)
    one = {node_id, *chance.sample(ids, chance.randint(0, len(ids) - 1))}
    links = {(a, b) for a in one for b in ids if b not in one}
    if chance.random() < 0.7:
        links |= {(b, a) for a, b in links}
    world.cut |= links
    world.after(chance.randint(200, 4_000), partial(world.cut.difference_update, links))


def lag(swarm: Swarm, node_id: NodeId) -> None:
    """What others send to a node comes late for a while, and perhaps nothing of it to them.

    Often to one that has just been elected, and by about as much as it takes to elect another.
    """
    world, chance = swarm.world, swarm.chance
    late_ms = chance.randint(100, STRAGGLING_MS_MAX)
    if chance.random() < 0.7:
        for machine in world.leaders():
            world.resign(machine.node_id)
        await_leader(swarm)
        node_id = next((machine.node_id for machine in world.leaders()), node_id)
        late_ms = world.config.fetch_timeout_ms * chance.randint(80, 160) // 100
    for _ in range(chance.randint(0, 3)):
        # What is under way at the cut lets the others send one more Fetch, which is late.
        load(swarm)
        world.run_until(world.now_ms + chance.randint(0, 3 * min(world.faults.delay_ms, 60)))
    others = [other for other in world.machines if other != node_id]
    slow = {(other, node_id): late_ms for other in others}
    world.late_ms = {**world.late_ms, **slow}
    mute = {(node_id, other) for other in others} if chance.random() < 0.7 else set()
    world.cut |= mute

    def end() -> None:
        world.late_ms = {link: ms for link, ms in world.late_ms.items() if link not in slow}
        world.cut -= mute

    world.after(chance.randint(200, 4_000), end)
    # Whether it answers questions after another has committed shows only if it is asked just then.
    rate, end_ms = chance.choice((0.05, 0.2, 1.0)), world.now_ms + 2 * late_ms
    while world.now_ms < end_ms:
        world.run_until(world.now_ms + chance.randint(5, 30))
        world.propose()
        for _ in range(chance.choice((1, swarm.burst)) if chance.random() < rate else 0):
            world.read(node_id)


def behead(swarm: Swarm, node_id: NodeId) -> None:
    """Whoever leads gets proposals and crashes when some have them: logs part ways (figure 8)."""
    world, chance = swarm.world, swarm.chance
    for _ in range(chance.choice((1, 3, 8))):
        await_leader(swarm)
        world.run_until(world.now_ms + chance.choice((0, 0, 50, 200)))
        for _ in range(chance.choice((1, 20, 40))):
            # More than an answer to a Fetch holds: a follower gets older epochs first.
            world.propose()
        world.run_until(world.now_ms + chance.randint(0, 60))
        for machine in world.leaders():
            world.crash(machine.node_id)
            world.after(chance.randint(1, DOWN_MS_MAX), partial(world.start, machine.node_id))
    world.read(node_id)


def await_leader(swarm: Swarm) -> None:
    """Until somebody leads, if it is not too long."""
    world = swarm.world
    world.run_until(world.now_ms + 2 * world.config.fetch_timeout_ms, lambda: bool(world.leaders()))


# --- disks and voters -----------------------------------------------------------------------------


def voter_sets(world: QuorumWorld) -> list[VoterSet]:
    """Every set that counts for somebody, or may again after a crash or a truncation."""
    found = [world.voters_of(world.checker.committed)]
    for machine in world.machines.values():
        if machine.core is not None:
            found += [machine.core.voters, machine.core.voters_at(machine.core.high_watermark)]
        for log in (machine.disk_base + machine.disk, *machine.snapshots.values()):
            found.append(world.voters_in(machine, log))
    return [voters for voters in found if len(voters)]


def decide(world: QuorumWorld, members: set[NodeId]) -> bool:
    """Whether these, with the disks that they have, are a majority whichever set counts."""
    keys = [world.machines[node_id].local for node_id in members]
    return all(
        sum(key in voters for key in keys) >= voters.majority for voters in voter_sets(world)
    )


def wipe(swarm: Swarm, node_id: NodeId) -> None:
    """A node loses its disk, if the others can do without it."""
    world = swarm.world
    others = set(world.machines) - {node_id}
    if world.now_ms - swarm.changed_ms < FORGET_MS or not decide(world, others):
        return
    swarm.wiped_ms = world.now_ms
    world.wipe(node_id)
    world.after(swarm.chance.randint(1, 500), partial(world.start, node_id))


LONGER = {"cut": cut, "split": split, "lag": lag, "behead": behead, "wipe": wipe}


def change_voters(swarm: Swarm, kind: str) -> None:
    """Asks whoever leads to change the voters; not while it may count a disk that is lost."""
    world, chance = swarm.world, swarm.chance
    if world.now_ms - swarm.wiped_ms < FORGET_MS:
        return
    swarm.changed_ms = world.now_ms
    replica = world.machines[chance.choice(list(world.machines))].local
    for machine in world.leaders():
        if machine.core is None or machine.paused:
            continue
        lost = [
            voter.replica
            for voter in machine.core.voters.voters
            if voter.replica in world.machines[voter.replica.node_id].retired
        ]
        request: ChangeVotersRequest = RemoveVoterRequest(replica)
        if lost and kind == "remove":
            request = RemoveVoterRequest(lost[0])
        elif lost and kind == "add":
            continue  # Its node has a voter's id, and that voter is lost.
        elif kind != "remove":
            change = AddVoterRequest if kind == "add" else UpdateVoterRequest
            request = change(Voter(replica, "elsewhere", chance.randint(1, 9)))
        world.change_voters(machine.node_id, request)


# --- what must come of it -------------------------------------------------------------------------


def a_majority_gets_on(swarm: Swarm) -> None:
    """Progress during faults: a majority that runs and is connected commits, and is left in peace.

    The others are as useless as can be, yet none of them can make the majority elect once more.
    """
    world, chance = swarm.world, swarm.chance
    for machine in world.machines.values():
        if machine.core is not None and machine.core.is_changing_voters:
            # Else the record could follow later, and make another majority necessary.
            world.crash(machine.node_id)
            world.after(chance.randint(1, DOWN_MS_MAX), partial(world.start, machine.node_id))
    members = set(world.machines)
    for node_id in chance.sample(sorted(members), len(members)):
        if decide(world, members - {node_id}) and chance.random() < 0.8:
            members.remove(node_id)
    swarm.eager, swarm.busy, swarm.burst = False, BUSY_LEAST, 1
    world.cut.clear()
    world.late_ms = {}
    world.calm = frozenset(members)
    for node_id in members:
        world.resume(node_id)
        world.start(node_id)
    away = {n: chance.choice(AWAY) for n in world.machines if n not in members}
    # Some of them are yet to restart or resume. What is under way from before comes after that,
    # and those that stay have their time.
    for quiet_ms in (DOWN_MS_MAX, STRAGGLING_MS_MAX + PAUSE_MS_MAX):
        for node_id, what in away.items():
            send_away(world, node_id, what)
        until_ms = world.now_ms + quiet_ms
        while world.now_ms < until_ms:
            step(swarm)
    committed, deadline_ms = len(world.checker.committed), world.now_ms + patience_ms(world)
    while len(world.checker.committed) == committed:
        complaint = f"{sorted(members)} are a majority, connected, and commit nothing; {away}"
        assert world.now_ms < deadline_ms, complaint
        step(swarm)
    epoch, calm_ms = epoch_of(world, members), world.now_ms + patience_ms(world) // 3
    while world.now_ms < calm_ms:
        step(swarm)
    undisturbed = epoch_of(world, members) == epoch
    assert undisturbed, f"the majority {sorted(members)} was disturbed; {away}"


def patience_ms(world: QuorumWorld) -> int:
    """How long sound nodes may take to elect and commit: a few split votes."""
    return 10 * (world.config.election_timeout_ms + world.config.fetch_timeout_ms)


def epoch_of(world: QuorumWorld, members: Iterable[NodeId]) -> int:
    """The newest epoch that one of these has on its disk."""
    return max(world.machines[node_id].disk_state.epoch for node_id in members)


def send_away(world: QuorumWorld, node_id: NodeId, what: str) -> None:
    """Lets a node be as useless as it can be to a majority that does without it."""
    inward = {(other, node_id) for other in world.machines}
    outward = {(node_id, other) for other in world.machines}
    match what:
        case "down":
            world.crash(node_id)
        case "paused":
            world.pause(node_id)
        case "cut off":
            world.cut |= inward | outward
        case "deaf":
            world.cut |= inward
        case "mute":
            world.cut |= outward
        case "late":
            late_ms = world.config.fetch_timeout_ms + 50  # No Fetch is answered in time.
            world.late_ms = {**world.late_ms, **dict.fromkeys(inward | outward, late_ms)}


def converge(swarm: Swarm) -> None:
    """After the faults: one leader, whom every node follows, and then peace."""
    world = swarm.world
    world.faults, world.late_ms, world.calm = CALM, {}, frozenset()
    world.cut.clear()
    for node_id in world.machines:
        world.resume(node_id)
        world.start(node_id)
    deadline_ms = world.now_ms + STRAGGLING_MS_MAX + HANG_MS_MAX + 3 * patience_ms(world)
    assert world.run_until(deadline_ms, world.settled), f"no agreement: {views(world)}"
    committed = len(world.checker.committed)
    world.propose()
    deadline_ms = world.now_ms + patience_ms(world)
    assert world.run_until(deadline_ms, world.settled), f"no commit: {views(world)}"
    assert len(world.checker.committed) > committed, "no commit after the faults"
    world.run_until(world.now_ms + STRAGGLING_MS_MAX)
    epoch, events, from_ms = epoch_of(world, world.machines), world.events, world.now_ms
    world.run_until(world.now_ms + patience_ms(world) // 3)
    assert epoch_of(world, world.machines) == epoch, "needless election"
    # Each node but the leader fetches, and the leader answers: two events of each at a time.
    often_ms = min(world.config.fetch_wait_ms, world.config.fetch_max_wait_ms)
    busy = len(world.machines) * (world.now_ms - from_ms) * 5 // often_ms
    assert world.events - events <= busy, "idle, but not quiet"
    world.checker.owes_no_answer(world.now_ms, world.config.fetch_timeout_ms * 2)
    judge(world)


def views(world: QuorumWorld) -> str:
    """What each node believes, for a complaint."""

    def view(machine: Machine) -> str:
        core = machine.core
        if core is None:
            return "down"
        return f"{core.role} of {core.leader_id} in {core.epoch} to {core.high_watermark}"

    return "; ".join(f"{n}: {view(machine)}" for n, machine in world.machines.items())


def main() -> int:
    """0: every seed holds; 1: some do not, and are named."""
    parser = argparse.ArgumentParser(prog="tests.simulation.core_swarm")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--learn", action="store_true", help=f"adds to {KNOWN.name}")
    options = parser.parse_args()
    if options.seed is not None:
        options.first, options.seeds = options.seed, 1
    coverage: set[Transition] = set()
    struck: Counter[str] = Counter()
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        swarm = draw(seed)
        try:
            run(swarm)
        except (AssertionError, InvariantViolation) as error:
            failed += 1
            sys.stdout.write(f"seed {seed}: {error}\n")
        coverage.update(swarm.world.coverage)
        struck.update(swarm.struck)
    sys.stdout.write(f"faults: {', '.join(f'{k} {n}' for k, n in sorted(struck.items()))}\n")
    known = KNOWN.read_text().splitlines()
    sys.stdout.write(f"{transitions_summary(coverage, known)}\n")
    if options.learn:
        lines = sorted({*known, *map(as_line, coverage)})
        KNOWN.write_text("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{options.seeds} seeds: {failed} violations\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

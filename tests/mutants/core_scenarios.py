"""The runs that cores with a planted bug are put through, and what went wrong in one.

Each scenario takes a seed and returns; what it raises is turned into the name of a property. The
names are those of the lists in `tests.simulation.quorum_checker` (safety) and below (liveness).
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

from raftctl.errors import InvariantViolation
from tests.simulation.quorum_checker import Violation
from tests.simulation.quorum_world import CONFIG, Faults, QuorumWorld
from tests.simulation.test_raft_cores import SETTLE_MS, chaos, converge
from tests.unit.broker.groups.test_migration_model import MigrationMachine

if TYPE_CHECKING:
    from collections.abc import Callable

FIGURE_8_MS = 20_000
GROUP_ROUNDS = 12
LATE_MS = CONFIG.fetch_timeout_ms + CONFIG.election_timeout_ms // 2
"""Long enough for another leader, short enough for the old one to believe that it is heard."""

COMPLAINTS = {
    "epochs on disk never shrink": "one vote",
    "votes twice in": "one vote",
    "lead epoch": "election safety",
    "a vote leaves before its fsync": "durable word",
    "a vote goes to another": "durable word",
    "is on disk": "durable word",
    "before its own vote is on disk": "durable word",
    "one (offset, epoch) is one batch": "log matching",
    "a leader never truncates": "leader append-only",
    "committed, but not on a majority's disks": "durable commit",
    "never proposed": "validity",
    "not for the first time": "integrity",
    "a committed batch changed": "immutable commit",
    "a committed batch is removed": "immutable commit",
    "no truncation below the high watermark": "immutable commit",
    "a new leader has every batch that earlier epochs committed": "leader completeness",
    "commits go back": "monotone commit",
    "untold commit": "monotone commit",
    "committed beyond the log": "monotone commit",
    "is a batch boundary of the own log": "monotone commit",
    "a second answer": "one answer",
    "a read misses": "linearizable reads",
    "a snapshot holds": "snapshots",
    "no agreement": "agreement after faults",
    "no commit after": "commit after faults",
    "needless election": "no needless election",
    "but not quiet": "quiet when idle",
    "disturbed": "undisturbed leader",
    "still leads": "deaf leader resigns",
    "has two owners in epoch": "one owner in an epoch",
    "is read by two members": "one owner at a time",
    "all partitions are read": "all partitions are read",
}
"""What a complaint says, and the property it is about."""


def everything_goes_wrong(seed: int) -> None:
    """Faults of all kinds, then none: safe all the time, live in the end."""
    converge(chaos(seed))


def a_voter_was_cut_off(seed: int) -> None:
    """A voter that nobody heard for long comes back: the leader goes on undisturbed."""
    world = QuorumWorld(seed, voters=3)
    assert world.run_until(SETTLE_MS, world.settled), "no agreement before the faults"
    (leader,) = world.leaders()
    epoch = leader.disk_state.epoch
    lonely = next(node_id for node_id in world.machines if node_id != leader.node_id)
    others = [node_id for node_id in world.machines if node_id != lonely]
    world.cut |= {link for other in others for link in ((lonely, other), (other, lonely))}
    world.run_until(world.now_ms + 10 * CONFIG.fetch_timeout_ms)
    world.cut.clear()
    world.run_until(world.now_ms + 10 * CONFIG.fetch_timeout_ms)
    undisturbed = world.leaders() == [leader] and leader.disk_state.epoch == epoch
    assert undisturbed, "the leader was disturbed"


def a_leader_hears_nobody(seed: int) -> None:
    """Nothing reaches the leader any more: it resigns, although the others still hear it."""
    world = QuorumWorld(seed, voters=3)
    assert world.run_until(SETTLE_MS, world.settled), "no agreement before the faults"
    (deaf,) = world.leaders()
    world.cut |= {(other, deaf.node_id) for other in world.machines if other != deaf.node_id}
    world.run_until(world.now_ms + 8 * CONFIG.fetch_timeout_ms)
    assert deaf not in world.leaders(), "a leader that hears nobody still leads"


def leaders_die_early(seed: int) -> None:
    """Leaders crash soon after they have appended, so that their logs part ways (figure 8)."""
    world = QuorumWorld(seed, voters=5)
    chance = world.random
    world.faults = Faults(loss=0.1, delay_ms=30, write_ms=5)
    while world.now_ms < FIGURE_8_MS:
        world.run_until(world.now_ms + chance.choice((10, 30, 60, 200)))
        for _ in range(chance.choice((1, 20, 40))):
            # More than an answer to a Fetch can hold: a follower gets older epochs first.
            world.propose()
        for leader in world.leaders():
            if chance.random() < 0.6:
                world.run_until(world.now_ms + chance.randint(0, 80))
                world.crash(leader.node_id)
        down = [n for n, machine in world.machines.items() if machine.core is None]
        while len(down) > 2 or (down and chance.random() < 0.2):
            world.start(down.pop(chance.randrange(len(down))))


def a_deposed_leader_is_read(seed: int) -> None:
    """What the old leader hears was sent before its voters elected another: it proves nothing."""
    world = QuorumWorld(seed, voters=3)
    assert world.run_until(SETTLE_MS, world.settled), "no agreement before the faults"
    (old,) = world.leaders()
    others = [node_id for node_id in world.machines if node_id != old.node_id]
    # Data under way to the others at the cut makes them send one more Fetch, which is late.
    for _ in range(world.random.randint(1, 3)):
        world.propose()
        world.run_until(world.now_ms + world.random.randint(0, 3 * world.faults.delay_ms))
    world.cut |= {(old.node_id, other) for other in others}
    world.late_ms = {(other, old.node_id): LATE_MS for other in others}
    end_ms = world.now_ms + 4 * LATE_MS
    while world.now_ms < end_ms:
        world.run_until(world.now_ms + world.random.randint(5, 20))
        world.propose()
        world.read(old.node_id)


def a_group_changes_its_protocol(seed: int) -> None:
    """A member of KIP-848 comes and goes while classic ones do, often amidst a rebalance."""
    chance = random.Random(seed)
    machine = MigrationMachine()
    machine.begin(cooperative=chance.random() < 0.8)
    for _ in range(GROUP_ROUNDS):
        classic = chance.sample(range(3), chance.randint(1, 3))
        modern = chance.sample(range(3), chance.randint(0, 1))
        for index in range(3):
            if index not in classic:
                machine.classic_leaves(index)
            if index not in modern:
                machine.leave(index)
            machine.nobody_has_what_another_has()
        for _ in range(chance.randint(2, 20)):
            machine.step(chance.choice(classic))
            machine.nobody_has_what_another_has()
            for index in modern if chance.random() < 0.5 else ():
                machine.beat(index)
                machine.obey(index)
                machine.nobody_has_what_another_has()


SCENARIOS: dict[str, Callable[[int], None]] = {
    one.__name__: one
    for one in (
        everything_goes_wrong,
        leaders_die_early,
        a_voter_was_cut_off,
        a_leader_hears_nobody,
        a_deposed_leader_is_read,
        a_group_changes_its_protocol,
    )
}


def broken_property(scenario: str, seed: int) -> str | None:
    """The property that does not hold in this run; None if all do."""
    try:
        SCENARIOS[scenario](seed)
    except Violation as violation:
        return _name(str(violation))
    except InvariantViolation as violation:
        return f"invariant: {violation}"
    except AssertionError as error:
        return _name(str(error))
    return None


def _name(complaint: str) -> str:
    found = (name for part, name in COMPLAINTS.items() if part in complaint)
    return next(found, complaint)


def try_mutant(name: str, seeds: int) -> tuple[int, str, list[str]]:
    """(seeds used, the named property that caught it or "", other properties that failed).

    Raises RuntimeError if the product as it is fails one of the seeds.
    """
    from tests.mutants.core_catalog import CORE_MUTANTS

    mutant = next(one for one in CORE_MUTANTS if one.name == name)
    others: dict[str, None] = {}
    for seed in range(1, seeds + 1):
        unmutated = broken_property(mutant.scenario, seed)
        if unmutated is not None:
            raise RuntimeError(f"seed {seed}: broken without a mutant: {unmutated}")
        restore = mutant.plant()
        try:
            broken = broken_property(mutant.scenario, seed)
        finally:
            restore()
        if broken in mutant.properties:
            return seed, broken, list(others)
        if broken is not None:
            others[broken] = None
    return seeds, "", list(others)


if __name__ == "__main__":
    used, caught_by, others = try_mutant(sys.argv[1], int(sys.argv[2]))
    sys.stdout.write("\n".join([str(used), caught_by, *others]) + "\n")

"""The quorum cores against everything the network and the disks can do to them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from raftctl.errors import InvariantViolation
from raftctl.raft import ReplicaLog
from raftctl.raft import _core as core_module
from raftctl.raft._leader import Leader
from raftctl.raft._replica import Replica
from raftctl.raft.messages import (
    AddVoterRequest,
    ChangeVotersRequest,
    NodeId,
    RemoveVoterRequest,
    UpdateVoterRequest,
    Voter,
)
from tests.simulation.quorum_checker import Violation
from tests.simulation.quorum_world import CALM, CONFIG, Faults, QuorumWorld, replica_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.raft.batch import Batch
    from raftctl.raft.events import Effect
    from raftctl.raft.messages import OffsetAndEpoch

CHAOS_MS = 2_500
SETTLE_MS = 6_000
STABLE_MS = 1_500
SHAPES = ((1, 1), (3, 0), (3, 2), (3, 0), (5, 1))
CHUNKS = 7
SEEDS_PER_CHUNK = 25


CHANGES = ("add", "add", "remove", "remove", "update")
FAULTS = (
    "crash",
    "start",
    "start",
    "cut",
    "heal",
    "resign",
    "snapshot",
    "snapshot",
    "expire",
    "transfer",
    *CHANGES,
)


def chaos(seed: int, *, tracing: bool = False) -> QuorumWorld:
    """Lets a quorum run while everything goes wrong; the checker raises on the first violation."""
    voters, observers = SHAPES[seed % len(SHAPES)]
    world = QuorumWorld(seed, voters, observers)
    world.tracing = tracing
    chance = world.random
    world.faults = Faults(
        loss=chance.choice((0.0, 0.02, 0.15)),
        repetition=chance.choice((0.0, 0.05, 0.3)),
        delay_ms=chance.choice((3, 20, 60)),
        write_ms=chance.choice((0, 3, 40)),
    )
    fault_rate = chance.choice((0.05, 0.15, 0.4))
    while world.now_ms < CHAOS_MS:
        world.run_until(world.now_ms + chance.randint(5, 40))
        world.propose()
        world.read(chance.choice(list(world.machines)))
        if chance.random() < fault_rate:
            inject(world, chance.choice(FAULTS))
    return world


def inject(world: QuorumWorld, fault: str) -> None:
    """Lets one thing go wrong, or right again, at a random node."""
    chance, ids = world.random, list(world.machines)
    node_id = chance.choice(ids)
    match fault:
        case "crash":
            world.crash(node_id)
        case "start":
            world.start(node_id)
        case "cut":
            others = chance.sample(ids, chance.randint(1, len(ids)))
            world.cut |= {(node_id, other) for other in others}
            if chance.random() < 0.5:
                world.cut |= {(other, node_id) for other in others}
        case "heal":
            world.cut.clear()
        case "resign":
            world.resign(node_id)
        case "add" | "remove" | "update":
            change_voters(world, fault)
        case "transfer":
            world.transfer(node_id, chance.choice(ids))
        case "snapshot" | "expire":
            world.take_snapshot(node_id, expire=fault == "expire")


def change_voters(world: QuorumWorld, fault: str) -> None:
    """Asks whoever may lead to change the voters."""
    replica = replica_key(world.random.choice(list(world.machines)))
    request: ChangeVotersRequest = RemoveVoterRequest(replica)
    if fault != "remove":
        kind = AddVoterRequest if fault == "add" else UpdateVoterRequest
        request = kind(Voter(replica, "elsewhere", world.random.randint(1, 9)))
    for machine in world.leaders():
        world.change_voters(machine.node_id, request)


def heal(world: QuorumWorld) -> None:
    """Ends all faults."""
    world.faults = CALM
    world.cut.clear()
    for node_id in world.machines:
        world.start(node_id)


def converge(world: QuorumWorld) -> None:
    """After the faults: one leader, everything committed everywhere, and then peace."""
    heal(world)
    deadline_ms = world.now_ms + SETTLE_MS
    assert world.run_until(deadline_ms, world.settled), "no agreement after the faults ended"
    committed = len(world.checker.committed)
    world.propose()
    assert world.run_until(deadline_ms, world.settled), "no commit after the faults ended"
    assert len(world.checker.committed) > committed
    epoch, events = max(m.disk_state.epoch for m in world.machines.values()), world.events
    world.run_until(world.now_ms + STABLE_MS)
    assert max(m.disk_state.epoch for m in world.machines.values()) == epoch, "needless election"
    assert world.events - events < len(world.machines) * STABLE_MS // 10, "idle, but not quiet"


@pytest.mark.req("Q1", "Q2", "Q3", "Q11")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_safe_under_faults_and_live_after_them(chunk: int) -> None:
    for seed in range(chunk * SEEDS_PER_CHUNK, (chunk + 1) * SEEDS_PER_CHUNK):
        try:
            converge(chaos(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.req("Q4")
@pytest.mark.parametrize("seed", range(10))
def test_a_cut_off_voter_comes_back_without_disturbing_the_leader(seed: int) -> None:
    """Raft §9.6: with pre-vote a voter that nobody hears does not inflate its epoch."""
    world = QuorumWorld(seed, voters=3)
    assert world.run_until(SETTLE_MS, world.settled)
    (leader,) = world.leaders()
    assert leader.core is not None
    epoch = leader.core.epoch
    lonely = next(n for n in world.machines if n != leader.node_id)
    for other in world.machines:
        world.cut |= {(lonely, other), (other, lonely)}
    world.run_until(world.now_ms + 10 * CONFIG.fetch_timeout_ms)
    world.cut.clear()
    world.run_until(world.now_ms + 10 * CONFIG.fetch_timeout_ms)
    assert world.settled()
    assert world.leaders() == [leader]
    assert leader.core.epoch == epoch


@pytest.mark.req("Q4")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("inward", [True, False])
def test_one_way_partitions_neither_keep_a_deposed_leader_nor_elect_for_ever(
    seed: int, inward: bool
) -> None:
    world = QuorumWorld(seed, voters=3)
    assert world.run_until(SETTLE_MS, world.settled)
    (deaf,) = world.leaders()
    others = [node_id for node_id in world.machines if node_id != deaf.node_id]
    world.cut |= {(o, deaf.node_id) if inward else (deaf.node_id, o) for o in others}
    world.run_until(world.now_ms + 8 * CONFIG.fetch_timeout_ms)
    (leader,) = world.leaders()
    assert leader.node_id != deaf.node_id
    epoch = leader.disk_state.epoch
    world.run_until(world.now_ms + 20 * CONFIG.fetch_timeout_ms)
    assert leader.disk_state.epoch == epoch, "the cut-off node forces no elections"


@pytest.mark.req("Q1")
@pytest.mark.parametrize("seed", range(10))
def test_a_leader_that_resigns_is_replaced_without_waiting_for_timeouts(seed: int) -> None:
    world = QuorumWorld(seed, voters=3)
    assert world.run_until(SETTLE_MS, world.settled)
    (leader,) = world.leaders()
    world.resign(leader.node_id)
    begun_ms = world.now_ms
    assert world.run_until(begun_ms + CONFIG.election_timeout_ms, lambda: bool(world.leaders()))
    assert world.leaders() != [leader]
    assert world.now_ms - begun_ms < CONFIG.election_timeout_ms // 2


@pytest.mark.req("Q4")
@pytest.mark.parametrize("seed", range(10))
def test_leadership_goes_to_the_named_voter_without_waiting_for_timeouts(seed: int) -> None:
    world = QuorumWorld(seed, voters=5)
    assert world.run_until(SETTLE_MS, world.settled)
    (leader,) = world.leaders()
    target = next(n for n in reversed(world.machines) if n != leader.node_id)
    world.propose()
    world.transfer(leader.node_id, target)
    begun_ms = world.now_ms
    named = world.machines[target]
    assert world.run_until(begun_ms + CONFIG.election_timeout_ms, lambda: named in world.leaders())
    assert world.now_ms - begun_ms < CONFIG.election_timeout_ms // 2
    assert world.run_until(world.now_ms + SETTLE_MS, world.settled)
    assert world.leaders() == [named]


@pytest.mark.req("Q7")
@pytest.mark.parametrize("seed", range(6))
def test_three_voters_grow_to_five_and_shrink_to_the_new_ones_under_load(seed: int) -> None:
    world = QuorumWorld(seed, voters=3, observers=3)
    assert world.run_until(SETTLE_MS, world.settled)
    first, new = [NodeId(i) for i in (1, 2, 3)], [NodeId(i) for i in (4, 5, 6)]
    steps: list[tuple[ChangeVotersRequest, int]] = []
    steps += [(AddVoterRequest(Voter(replica_key(n), "h", 1)), n) for n in new[:2]]
    steps += [(RemoveVoterRequest(replica_key(n)), -n) for n in first[:1]]
    steps += [(AddVoterRequest(Voter(replica_key(new[2]), "h", 1)), new[2])]
    steps += [(RemoveVoterRequest(replica_key(n)), -n) for n in first[1:]]
    for request, change in steps:
        deadline_ms = world.now_ms + 3 * SETTLE_MS
        while not _voters_are(world, change):
            assert world.now_ms < deadline_ms, request
            for machine in world.leaders():
                world.change_voters(machine.node_id, request)
            world.propose()
            world.run_until(world.now_ms + 100)
    for node_id in first:
        world.crash(node_id)
    committed = len(world.checker.committed)
    world.run_until(world.now_ms + SETTLE_MS)
    world.propose()
    world.run_until(world.now_ms + 500)
    assert len(world.checker.committed) > committed
    assert {m.node_id for m in world.leaders()} <= set(new)


def _voters_are(world: QuorumWorld, change: int) -> bool:
    """Whether a leader has committed a set with, or for a negative number without, this voter."""
    for machine in world.leaders():
        assert machine.core is not None
        ids = machine.core.voters_at(machine.core.high_watermark).ids
        if (change in ids) if change > 0 else (-change not in ids):
            return True
    return False


@pytest.mark.req("Q7")
@pytest.mark.parametrize("seed", [1001, 1142])
def test_who_alone_has_the_record_of_its_removal_campaigns_all_the_same(seed: int) -> None:
    """The others need its vote for the old set, and their logs are too short to get it."""
    converge(chaos(seed))


@pytest.mark.req("Q7")
@pytest.mark.parametrize("seed", range(6))
def test_a_removed_voter_that_missed_its_removal_disturbs_nobody(seed: int) -> None:
    """KAFKA-17030: cut off while it was removed, it comes back believing that it votes."""
    world = QuorumWorld(seed, voters=4)
    assert world.run_until(SETTLE_MS, world.settled)
    (leader,) = world.leaders()
    removed = next(n for n in world.machines if n != leader.node_id)
    world.cut |= {(removed, n) for n in world.machines} | {(n, removed) for n in world.machines}
    world.change_voters(leader.node_id, RemoveVoterRequest(replica_key(removed)))
    assert world.run_until(world.now_ms + SETTLE_MS, lambda: _voters_are(world, -removed))
    world.run_until(world.now_ms + 10 * CONFIG.fetch_timeout_ms)
    assert leader.core is not None
    epoch = leader.core.epoch
    world.cut.clear()
    assert world.run_until(world.now_ms + SETTLE_MS, world.settled)
    assert world.leaders() == [leader]
    assert leader.core.epoch == epoch


@pytest.mark.req("Q9")
@pytest.mark.parametrize("voters", [1, 3, 5])
def test_a_read_is_confirmed_in_two_round_trips_by_a_quiet_leader(voters: int) -> None:
    world = QuorumWorld(1, voters)
    assert world.run_until(SETTLE_MS, world.settled)
    (leader,) = world.leaders()
    world.read(leader.node_id)
    limit_ms = world.now_ms + 4 * CALM.delay_ms + 20
    assert world.run_until(limit_ms, lambda: world.checker.reads_confirmed == 1)


# --- the checker itself: a broken core must not pass --------------------------------------------


def _count_unflushed(log: ReplicaLog, batch: Batch) -> None:
    _append(log, batch)
    log.durable_end_offset = log.end_offset


def _speak_at_once(replica: Replica, effect: Effect) -> None:
    replica._effects.append(effect)


def _elect_anyone(log_end: OffsetAndEpoch) -> tuple[int, int]:
    return (0, 0)


def _never_diverge(log: ReplicaLog, fetch_from: OffsetAndEpoch) -> None:
    return None


def _count_one_voter(leader: Leader) -> bool:
    replica = leader._replica
    return replica.advance_high_watermark(replica.log.durable_end_offset)


def _trust_late_fetches(leader: Leader) -> None:
    for request_id in leader._reads.seen(leader._reads.round if leader.established else 0):
        leader._replica.confirm_read(request_id)


_append = ReplicaLog.append

MUTANTS: list[tuple[object, str, Callable[..., object]]] = [
    (ReplicaLog, "append", _count_unflushed),
    (Replica, "_message", _speak_at_once),
    (core_module, "_rank", _elect_anyone),
    (ReplicaLog, "divergence", _never_diverge),
    (Leader, "_commit", _count_one_voter),
    (Leader, "_confirm_reads", _trust_late_fetches),
]


RARE: dict[Callable[..., object], tuple[int, ...]] = {_trust_late_fetches: (138, 151)}
"""Seeds that find what few do: here a Fetch has to be slower than an election and a commit."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant[2].__name__)
def test_the_checker_finds_a_broken_core(
    mutant: tuple[object, str, Callable[..., object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*mutant)
    for seed in RARE.get(mutant[2], range(60)):
        try:
            chaos(seed)
        except (Violation, InvariantViolation):
            return
    pytest.fail("no seed found it")


@pytest.mark.req("Q11")
def test_a_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    code = (
        "from tests.simulation.test_raft_cores import chaos\n"
        "print([chaos(seed, tracing=True).trace for seed in range(6)])"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(traces) == 1

"""Quorum cores under faults of which each seed has its own kinds, sizes and shape."""

from __future__ import annotations

import pytest

from jepsen.simulator.coverage import event_kind, transitions_summary
from raftctl.errors import ErrorCode
from raftctl.raft.events import RequestFailed, ResponseReceived, Tick
from raftctl.raft.messages import (
    Epoch,
    NodeId,
    RemoveVoterRequest,
    TransferLeadershipRequest,
    TransferLeadershipResponse,
)
from raftctl.raft.voters import VoterSet
from tests.simulation.core_swarm import KINDS, KNOWN, chaos, draw, judge, run
from tests.simulation.quorum_checker import Violation
from tests.simulation.quorum_world import QuorumWorld, replica_key

SEEDS = (*range(24), 40, 55)
"""The last ones find what few do (`tests.mutants.core_swarm_edits`)."""
FORMED_MS = 6_000


@pytest.mark.req("Q1", "Q2", "Q3", "Q4", "Q7", "Q9", "Q11")
@pytest.mark.parametrize("seed", SEEDS)
def test_safe_and_live_whatever_kinds_of_faults_a_seed_draws(seed: int) -> None:
    run(draw(seed))


def test_the_seeds_draw_every_kind_of_fault_and_every_shape() -> None:
    swarms = [draw(seed) for seed in SEEDS]
    assert {kind for swarm in swarms for kind in swarm.kinds} == set(KINDS)
    assert {1, 3, 5} <= {len(swarm.world.voters) for swarm in swarms}
    assert {swarm.world.voters.dynamic for swarm in swarms} == {True, False}
    assert any(swarm.world.faults.straggling for swarm in swarms)
    assert all(set(KINDS) - set(swarm.kinds) for swarm in swarms), "some kinds are off in each"


@pytest.mark.req("Q11")
def test_a_seed_gives_the_same_trace() -> None:
    traces = []
    for _ in range(2):
        swarm = draw(7)
        swarm.world.tracing = True
        chaos(swarm)
        traces.append((swarm.world.trace, swarm.world.events))
    assert traces[0] == traces[1]


def test_what_is_reached_is_counted_beside_all_that_is_known() -> None:
    known = ["follower Tick follower", "follower Tick prospective"]
    seen = {("follower", "Tick", "follower")}
    assert transitions_summary(seen, known) == "coverage: 1 of 2 role x event x role"
    seen.add(("leader", "Tick", "resigned"))
    assert transitions_summary(seen, known) == (
        "coverage: 2 of 3 role x event x role; not seen before: leader Tick resigned"
    )


def test_kinds_of_events_tell_messages_and_errors_apart() -> None:
    refused = TransferLeadershipResponse(ErrorCode.VOTER_NOT_FOUND, Epoch(1), NodeId(2))
    request = TransferLeadershipRequest(NodeId(1))
    assert event_kind(Tick()) == "Tick"
    assert event_kind(RequestFailed(NodeId(1), request)) == (
        "RequestFailed:TransferLeadershipRequest"
    )
    assert event_kind(ResponseReceived(NodeId(1), refused)) == (
        "TransferLeadershipResponse:VOTER_NOT_FOUND"
    )


def test_one_seed_reaches_much_of_what_is_known() -> None:
    known = KNOWN.read_text().splitlines()
    swarm = draw(7)
    chaos(swarm)
    assert len(known) > 200
    assert len(swarm.world.coverage) > len(known) // 8


# --- the checker itself --------------------------------------------------------------------------


def _formed() -> QuorumWorld:
    world = QuorumWorld(1, voters=3, dynamic=True)
    assert world.run_until(FORMED_MS, world.settled)
    return world


def test_who_leads_unheard_for_longer_than_check_quorum_is_found() -> None:
    world = _formed()
    (leader,) = world.leaders()
    own_ms, within_ms = leader.own_ms(world.now_ms), world.config.check_quorum_ms
    world.checker.leads_with_majority(leader, own_ms, within_ms)
    with pytest.raises(Violation, match="has heard no majority"):
        world.checker.leads_with_majority(leader, own_ms + 2 * within_ms, within_ms)


def test_voters_that_the_log_does_not_name_are_found() -> None:
    world = _formed()
    judge(world)
    (leader,) = world.leaders()
    assert leader.core is not None
    others = VoterSet([replica_key(NodeId(9))], dynamic=True)
    with pytest.raises(Violation, match="whom it takes for voters"):
        world.checker.knows_voters(leader.core, others, leader.core.voters)
    with pytest.raises(Violation, match="committed voters"):
        world.checker.knows_voters(leader.core, leader.core.voters, others)


def test_a_request_that_nobody_answers_is_found() -> None:
    world = _formed()
    (leader,) = world.leaders()
    world.checker.owes_no_answer(world.now_ms, 1_000)
    world.checker.asked(leader, 0, TransferLeadershipRequest(NodeId(1)), world.now_ms - 1_001)
    with pytest.raises(Violation, match="has not answered a TransferLeadershipRequest"):
        world.checker.owes_no_answer(world.now_ms, 1_000)


def test_a_change_that_is_called_done_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _formed()
    (leader,) = world.leaders()
    assert leader.core is not None
    removed = RemoveVoterRequest(leader.local)
    monkeypatch.setattr(
        "raftctl.raft._leader.Membership.begin",
        lambda self, request_id, request, now_ms, *, ready: ErrorCode.UNKNOWN_SERVER_ERROR,
    )
    world.change_voters(leader.node_id, removed)
    monkeypatch.setattr(
        "raftctl.raft._roles.Roles.change_voters",
        lambda roles, request_id, request, now_ms: roles.answer_change(request_id, ErrorCode.NONE),
    )
    with pytest.raises(Violation, match="called done, and is not committed"):
        world.change_voters(leader.node_id, removed)


def test_a_transfer_that_is_called_done_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _formed()
    (leader,) = world.leaders()
    target = next(node_id for node_id in world.machines if node_id != leader.node_id)
    monkeypatch.setattr(
        "raftctl.raft._roles.Roles.transfer",
        lambda roles, request_id, target, now_ms: roles.answer_transfer(request_id, ErrorCode.NONE),
    )
    with pytest.raises(Violation, match="a transfer is called done, and another leads"):
        world.transfer(leader.node_id, target)


def test_a_wiped_voter_has_another_directory_and_no_vote() -> None:
    world = _formed()
    (leader,) = world.leaders()
    wiped = next(node_id for node_id in world.machines if node_id != leader.node_id)
    before = world.machines[wiped].local
    world.wipe(wiped)
    world.start(wiped)
    assert world.run_until(world.now_ms + FORMED_MS, world.settled)
    machine = world.machines[wiped]
    assert machine.local != before
    assert machine.core is not None
    assert machine.local not in machine.core.voters
    assert before in machine.core.voters


def test_a_paused_node_handles_what_came_meanwhile_in_order() -> None:
    world = _formed()
    (leader,) = world.leaders()
    held = next(m for m in world.machines.values() if m is not leader)
    world.pause(held.node_id)
    world.propose()
    world.run_until(world.now_ms + 200)
    assert held.held
    assert held.core is not None
    assert leader.core is not None
    assert held.core.log.end_offset < leader.core.log.end_offset
    world.resume(held.node_id)
    assert world.run_until(world.now_ms + FORMED_MS, world.settled)


def test_a_disk_that_hangs_takes_nothing_until_it_is_over() -> None:
    world = _formed()
    (leader,) = world.leaders()
    assert leader.core is not None
    world.hang(leader.node_id, 300)
    world.propose()
    world.run_until(world.now_ms + 250)
    assert leader.core.log.durable_end_offset < leader.core.log.end_offset
    world.run_until(world.now_ms + 250)
    assert leader.core.log.durable

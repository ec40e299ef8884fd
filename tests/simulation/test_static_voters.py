"""Quorums of configured voters that become dynamic while some of their replicas are away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from raftctl.raft.messages import AddVoterRequest, NodeId, RemoveVoterRequest, Voter
from tests.simulation.quorum_world import CONFIG, QuorumWorld, replica_key

if TYPE_CHECKING:
    from raftctl.raft.messages import ChangeVotersRequest

ELECTIONS_MS = 20 * CONFIG.election_timeout_ms
SEEDS = range(8)


def change(world: QuorumWorld, request: ChangeVotersRequest, voters: tuple[int, ...]) -> None:
    """Asks whoever leads until these vote, and that is committed."""

    def done() -> bool:
        cores = [machine.core for machine in world.leaders()]
        return any(c and c.voters_at(c.high_watermark).ids == voters for c in cores)

    for _ in range(20):
        for machine in world.leaders():
            world.change_voters(machine.node_id, request)
        if world.run_until(world.now_ms + CONFIG.fetch_timeout_ms, done):
            return
    raise AssertionError(f"{voters} do not vote")


def add(world: QuorumWorld, node_id: int, voters: tuple[int, ...]) -> None:
    change(world, AddVoterRequest(Voter(replica_key(NodeId(node_id)), "host", 1)), voters)


def remove(world: QuorumWorld, node_id: int, voters: tuple[int, ...]) -> None:
    change(world, RemoveVoterRequest(replica_key(NodeId(node_id))), voters)


def known_to_all(world: QuorumWorld) -> None:
    """Returns when 1 or 2 leads, and all are heard by it: only then may the first change come."""
    assert world.run_until(ELECTIONS_MS, world.settled)

    def leads_elsewhere() -> bool:
        return world.settled() and world.leaders()[0].node_id in (1, 2)

    for target in (2, 1) * 10:
        if leads_elsewhere():
            return
        for machine in world.leaders():
            world.transfer(machine.node_id, NodeId(target))
        world.run_until(world.now_ms + CONFIG.fetch_timeout_ms, leads_elsewhere)
    raise AssertionError("leadership is not handed over")


def leads(world: QuorumWorld, node_id: int) -> bool:
    return [machine.node_id for machine in world.leaders()] == [node_id]


@pytest.mark.req("Q4", "Q7")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("away", [3, 5], ids=["a voter", "an observer"])
def test_who_missed_the_change_follows_a_leader_that_its_configuration_lacks(
    seed: int, away: int
) -> None:
    world = QuorumWorld(seed, voters=3, observers=2)
    known_to_all(world)
    world.crash(NodeId(away))
    add(world, 4, (1, 2, 3, 4))

    def handed_over() -> bool:
        for machine in world.leaders():
            world.transfer(machine.node_id, NodeId(4))
        return leads(world, 4)

    for _ in range(20):
        if world.run_until(world.now_ms + CONFIG.fetch_timeout_ms, handed_over):
            break
    assert leads(world, 4)
    world.start(NodeId(away))
    assert world.run_until(world.now_ms + ELECTIONS_MS, world.settled), "somebody does not follow"
    assert leads(world, 4), "nor was that a matter of another election"


@pytest.mark.req("Q1", "Q4", "Q7")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_voter_that_missed_the_change_elects_whom_its_configuration_lacks(seed: int) -> None:
    world = QuorumWorld(seed, voters=3, observers=1)
    known_to_all(world)
    world.crash(NodeId(3))
    add(world, 4, (1, 2, 3, 4))
    remove(world, 1, (2, 3, 4))
    world.crash(NodeId(1))
    world.crash(NodeId(2))
    world.start(NodeId(3))
    majority_leads = world.run_until(world.now_ms + ELECTIONS_MS, lambda: leads(world, 4))
    assert majority_leads, "two of three voters are up and connected"
    committed = len(world.checker.committed)
    world.propose()
    done = world.run_until(
        world.now_ms + ELECTIONS_MS, lambda: len(world.checker.committed) > committed
    )
    assert done, "they commit"
    world.start(NodeId(1))
    world.start(NodeId(2))
    assert world.run_until(world.now_ms + ELECTIONS_MS, world.settled)


@pytest.mark.req("Q1", "Q4", "Q7")
@pytest.mark.parametrize("seed", SEEDS)
def test_one_of_two_voters_is_replaced_while_everything_runs(seed: int) -> None:
    world = QuorumWorld(seed, voters=2, observers=1)
    assert world.run_until(ELECTIONS_MS, world.settled)
    add(world, 3, (1, 2, 3))
    away = world.random.choice((1, 2))
    left = 3 - away
    remove(world, away, (left, 3))
    for node_id in (1, 2, 3):
        world.crash(NodeId(node_id))
    for node_id in (1, 2, 3):
        world.start(NodeId(node_id))
    assert world.run_until(world.now_ms + ELECTIONS_MS, world.settled)


@pytest.mark.req("Q7")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_configured_voter_that_is_gone_for_good_leaves_first(seed: int) -> None:
    world = QuorumWorld(seed, voters=3, observers=1)
    world.crash(NodeId(3))
    remove(world, 3, (1, 2))
    add(world, 4, (1, 2, 4))
    del world.machines[NodeId(3)]
    assert world.run_until(world.now_ms + ELECTIONS_MS, world.settled)

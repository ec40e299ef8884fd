"""Voters come, go and lose their disks: in planned stories, and while everything goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.raft.messages import NodeId, ReplicaKey, Voter
from tests.simulation.voter_chaos import is_majority_whole

if TYPE_CHECKING:
    from jepsen.simulator.runner.fork_server import ForkServers

MODULE = "tests.simulation.voter_scenarios"
STORIES = (
    "three_become_five_and_the_first_leave",
    "wiped_voter_counts_for_nothing",
    "changes_compete",
    "removed_voter_is_the_fastest",
    "static_voters_become_dynamic",
)
CHAOS = "tests.simulation.voter_chaos:chaos"
TRANSITION = "tests.simulation.static_to_dynamic:changes"
FOUND = {13: "a formatted controller's first image had the time of the formatting"}


@pytest.mark.req("Q4", "Q6", "Q7", "Q9", "J1")
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("story", STORIES)
def test_nothing_acknowledged_is_lost_when_voters_change(
    simulator: ForkServers, story: str, seed: int
) -> None:
    result = simulator.run(f"{MODULE}:{story}", seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("Q1", "Q2", "Q3", "Q7", "Q11", "J1")
@pytest.mark.parametrize("seed", [1, 2, 3, *FOUND])
def test_every_property_holds_while_voters_change_and_disks_are_lost(
    simulator: ForkServers, seed: int
) -> None:
    result = simulator.run(CHAOS, seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("J1")
@pytest.mark.parametrize(
    ("damaged", "replaced", "whole"),
    [
        ([], [], True),
        ([1], [], True),
        ([], [1], True),
        ([1, 9], [], True),
        ([1, 2], [], False),
        ([1], [2], False),
        ([1], [1], True),
    ],
)
def test_no_disk_is_damaged_that_a_majority_of_whole_ones_needs(
    damaged: list[int], replaced: list[int], whole: bool
) -> None:
    voters = [Voter(ReplicaKey(NodeId(i), UUID(int=i)), "host", 1) for i in (1, 2, 3)]
    now = {i: UUID(int=i + 10 if i in replaced else i) for i in (1, 2, 3, 9)}
    assert is_majority_whole(voters, now, set(damaged)) is whole


@pytest.mark.req("Q1", "Q4", "Q7", "J1")
@pytest.mark.parametrize("seed", range(1, 13))
def test_configured_voters_become_dynamic_in_every_order(simulator: ForkServers, seed: int) -> None:
    result = simulator.run(TRANSITION, seed)
    assert result.ok, result.output[-10_000:]


@pytest.mark.req("Q4", "Q8", "J1")
@pytest.mark.parametrize("seed", range(1, 9))
def test_voters_that_were_believed_lost_do_not_disturb_a_rebuilt_quorum(
    simulator: ForkServers, seed: int
) -> None:
    result = simulator.run("tests.simulation.recovery_scenarios:old_voters_come_back", seed)
    assert result.ok, result.output[-10_000:]

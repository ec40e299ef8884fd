"""Who votes, and majorities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.errors import InvariantViolation
from raftctl.raft._config import RaftConfig
from raftctl.raft.voters import VoterSet
from tests.unit.raftctl.raft.harness import B, key


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(size: int, majority: int) -> None:
    voters = VoterSet(key(i) for i in range(size))
    assert (len(voters), voters.majority) == (size, majority)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7))
def test_reached_by_majority_is_the_greatest_such_value(values: list[int]) -> None:
    voters = VoterSet(key(i) for i in range(len(values)))
    reached = voters.reached_by_majority(values)
    assert sum(value >= reached for value in values) >= voters.majority
    assert sum(value > reached for value in values) < voters.majority


def test_order_and_others() -> None:
    voters = VoterSet([key(3), key(1), key(2)])
    assert voters.ids == (1, 2, 3)
    assert voters.others(B) == (1, 3)
    assert voters.key(B) == key(2)


def test_a_wiped_disk_is_another_replica() -> None:
    voters = VoterSet([key(1, directory=7), key(2)])
    assert key(1, directory=7) in voters
    assert key(1, directory=8) not in voters
    assert key(1) not in voters
    assert key(2, directory=8) in voters, "directory not known: any"
    assert key(3) not in voters


def test_no_voters_and_twins_are_bugs() -> None:
    with pytest.raises(InvariantViolation):
        VoterSet([])
    with pytest.raises(InvariantViolation):
        VoterSet([key(1, directory=1), key(1, directory=2)])
    with pytest.raises(InvariantViolation):
        VoterSet([key(1), key(2)]).reached_by_majority([1])


def test_backoff_doubles_up_to_its_bound() -> None:
    config = RaftConfig(retry_backoff_ms=20, election_backoff_max_ms=100)
    assert [config.backoff_ms(n) for n in (1, 2, 3, 4, 1000)] == [20, 40, 80, 100, 100]


def test_successors_campaign_one_after_the_other() -> None:
    config = RaftConfig(election_backoff_max_ms=1000)
    assert [config.succession_ms(n, 4) for n in range(4)] == [0, 125, 250, 500]


def test_timeouts_are_positive() -> None:
    with pytest.raises(InvariantViolation):
        RaftConfig(fetch_timeout_ms=0)

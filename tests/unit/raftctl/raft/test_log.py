"""The model of the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftctl.errors import InvariantViolation
from raftctl.raft import ReplicaLog
from raftctl.raft.messages import Epoch, Offset
from tests.unit.raftctl.raft.harness import batch_at, log_of, position

logs = st.lists(st.integers(1, 6), max_size=12).map(sorted)


def test_an_empty_log_ends_at_nothing() -> None:
    log = log_of()
    assert log.end == position(0, 0)
    assert log.durable
    assert log.end_offset_for_epoch(Epoch(3)) == position(0, 0)


def test_append_is_durable_only_when_flushed() -> None:
    log = log_of(1, 1)
    log.append(batch_at(2, 3, count=2))
    log.append(batch_at(4, 3))
    assert (log.end, log.durable_end_offset) == (position(5, 3), 2)
    log.flushed(Offset(4))
    log.flushed(Offset(3))
    assert (log.durable_end_offset, log.durable) == (4, False)
    log.flushed(Offset(5))
    assert log.durable
    assert log.epoch_starts == ((1, 0), (3, 2))


@pytest.mark.parametrize(("offset", "epoch"), [(1, 2), (3, 2), (2, 1)])
def test_gaps_and_older_epochs_are_bugs(offset: int, epoch: int) -> None:
    log = log_of(2, 2)
    with pytest.raises(InvariantViolation):
        log.append(batch_at(offset, epoch))


def test_flushing_what_is_not_there_is_a_bug() -> None:
    with pytest.raises(InvariantViolation):
        log_of(1).flushed(Offset(2))


def test_epochs_that_shrink_are_a_bug() -> None:
    with pytest.raises(InvariantViolation):
        ReplicaLog(Offset(0), Offset(3), [(Epoch(2), Offset(0)), (Epoch(1), Offset(2))])


def test_truncation_forgets_epochs() -> None:
    log = log_of(1, 1, 2, 4, 4)
    log.truncate(Offset(3))
    assert (log.end, log.epoch_starts) == (position(3, 2), ((1, 0), (2, 2)))
    log.truncate(Offset(2))
    assert log.end == position(2, 1)
    log.truncate(Offset(0))
    assert log.end == position(0, 0)


def test_no_truncation_while_a_flush_is_under_way_or_outside_the_log() -> None:
    log = log_of(1)
    with pytest.raises(InvariantViolation):
        log.truncate(Offset(2))
    log.append(batch_at(1, 1))
    with pytest.raises(InvariantViolation):
        log.truncate(Offset(1))


def test_end_offset_for_epoch_is_that_of_the_last_epoch_not_after_it() -> None:
    log = log_of(2, 2, 5, 5, 5)
    ends = [log.end_offset_for_epoch(Epoch(epoch)) for epoch in (1, 2, 4, 5, 9)]
    assert ends == [
        position(0, 0),
        position(2, 2),
        position(2, 2),
        position(5, 5),
        position(5, 5),
    ]


@given(logs)
def test_a_prefix_does_not_diverge(epochs: list[int]) -> None:
    log = log_of(*epochs)
    for length in range(len(epochs) + 1):
        prefix = log_of(*epochs[:length])
        assert log.divergence(prefix.end) is None


@pytest.mark.req("Q2")
@given(shared=logs, leader=logs, follower=logs)
def test_divergence_ends_after_as_many_answers_as_epochs(
    shared: list[int], leader: list[int], follower: list[int]
) -> None:
    """Two logs with a common start: epochs below 10 are shared, then even ones against odd ones."""
    ours = [*shared, *(10 + 2 * epoch for epoch in leader)]
    theirs = [*shared, *(11 + 2 * epoch for epoch in follower)]
    leader_log, follower_log = log_of(*ours), log_of(*theirs)
    answers = 0
    while (diverging := leader_log.divergence(follower_log.end)) is not None:
        cut = follower_log.truncation_point(diverging)
        assert len(shared) <= cut < follower_log.end_offset
        follower_log.truncate(cut)
        answers += 1
    assert follower_log.end_offset == len(shared)
    assert answers <= len(set(theirs))


@pytest.mark.req("Q2")
def test_a_log_is_not_cut_in_the_middle_of_a_batch_of_another_epoch() -> None:
    """The leader ends epoch 3 at offset 2, where this log has a batch of epoch 2."""
    leader = log_of(1, 3, 5, 5)
    follower = log_of(1)
    follower.append(batch_at(1, 2, count=3))
    follower.append(batch_at(4, 4))
    follower.flushed(follower.end_offset)
    diverging = leader.divergence(follower.end)
    assert diverging == position(2, 3)
    assert follower.truncation_point(diverging) == 4
    follower.truncate(Offset(4))
    diverging = leader.divergence(follower.end)
    assert diverging == position(1, 1)
    assert follower.truncation_point(diverging) == 1

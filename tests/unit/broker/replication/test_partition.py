"""The state of one partition: high watermark, in-sync replicas, leader epochs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.replication.partition import IsrProposal, PartitionState
from raftctl.errors import ErrorCode
from raftctl.metadata.image import PartitionImage

LAG = 30_000


class State(PartitionState):
    """Broker 1's replica; `blocked` brokers may not join an ISR."""

    def __init__(self, *, high_watermark: int = 0, min_insync: int = 1) -> None:
        self.blocked: set[int] = set()
        super().__init__(
            1,
            high_watermark=high_watermark,
            lag_time_max_ms=LAG,
            may_join=lambda broker, _epoch: broker not in self.blocked,
        )
        self.min_insync_replicas = min_insync


def image(
    *,
    leader: int = 1,
    epoch: int = 0,
    version: int = 0,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
) -> PartitionImage:
    return PartitionImage(replicas, isr, leader, epoch, version)


def leading(
    partition: PartitionImage | None = None, *, end: int = 0, min_insync: int = 1, high: int = 0
) -> State:
    state = State(high_watermark=high, min_insync=min_insync)
    assert state.become_leader(partition or image(), log_end_offset=end, now_ms=0)
    return state


def fetched(
    state: PartitionState, replica: int, offset: int, end: int, now_ms: int = 0
) -> ErrorCode:
    return state.follower_fetched(
        replica,
        fetch_offset=offset,
        log_start_offset=0,
        broker_epoch=replica,
        log_end_offset=end,
        now_ms=now_ms,
    )


# --- the high watermark -----------------------------------------------------------------------


@pytest.mark.req("R2")
def test_worked_example_two_replicas_one_record() -> None:
    leader = leading(image(replicas=(1, 2), isr=(1, 2)))
    follower = State()
    follower.broker_id = 2
    follower.become_follower(image(replicas=(1, 2), isr=(1, 2)))
    # Round 1: the follower has nothing yet and gets the record.
    fetched(leader, 2, 0, end=1)
    leader.advance_high_watermark(1, 0)
    follower.follow_high_watermark(leader.high_watermark, 1)
    assert (leader.high_watermark, follower.high_watermark) == (0, 0)
    # Round 2: its fetch says that it has the record; the answer says that it is committed.
    fetched(leader, 2, 1, end=1)
    leader.advance_high_watermark(1, 0)
    follower.follow_high_watermark(leader.high_watermark, 1)
    assert (leader.high_watermark, follower.high_watermark) == (1, 1)


@pytest.mark.req("R2")
def test_the_slowest_in_sync_replica_decides() -> None:
    state = leading()
    fetched(state, 2, 10, end=10)
    assert not state.advance_high_watermark(10, 0)
    fetched(state, 3, 7, end=10)
    assert state.advance_high_watermark(10, 0)
    assert state.high_watermark == 7


@pytest.mark.req("R2")
def test_below_min_insync_nothing_is_committed() -> None:
    state = leading(image(isr=(1,)), min_insync=2)
    assert not state.advance_high_watermark(10, 0)
    state.isr_committed(0, 1, (1, 2))
    fetched(state, 2, 10, end=10)
    assert state.advance_high_watermark(10, 0)
    single = leading(image(replicas=(1,), isr=(1,)), min_insync=2)
    assert single.advance_high_watermark(10, 0)


@pytest.mark.req("R2")
def test_a_replica_about_to_join_is_waited_for_unless_it_may_not() -> None:
    state = leading(image(isr=(1, 2)))
    fetched(state, 2, 10, end=10)
    fetched(state, 3, 4, end=4, now_ms=1)
    assert state.advance_high_watermark(10, 1)
    assert state.high_watermark == 4
    state.blocked.add(3)
    assert state.advance_high_watermark(10, 1)
    assert state.high_watermark == 10
    state.blocked.clear()
    fetched(state, 2, 20, end=20, now_ms=LAG + 2)
    assert state.advance_high_watermark(20, LAG + 2)


@pytest.mark.req("R2")
def test_a_joining_replica_counts_as_soon_as_it_is_proposed() -> None:
    state = leading(image(isr=(1, 2)))
    for replica in (2, 3):
        fetched(state, replica, 5, end=5)
    state.advance_high_watermark(5, 0)
    assert state.propose_expansion(3) is not None
    fetched(state, 2, 9, end=9)
    state.blocked.add(3)
    assert not state.advance_high_watermark(9, 0)


@pytest.mark.req("R2")
def test_a_leaving_replica_counts_until_it_has_left() -> None:
    state = leading(image(isr=(1, 2)))
    fetched(state, 2, 5, end=5)
    state.advance_high_watermark(5, 0)
    late = LAG + 1
    proposal = state.propose_shrinking(9, late)
    assert proposal is not None
    assert not state.advance_high_watermark(9, late)
    state.isr_committed(0, 1, (1,))
    assert state.advance_high_watermark(9, late)


@pytest.mark.req("R2")
def test_a_follower_takes_the_smaller_of_both_and_never_goes_back() -> None:
    state = State()
    state.become_follower(image(leader=2))
    assert state.follow_high_watermark(10, 6)
    assert state.high_watermark == 6
    assert not state.follow_high_watermark(3, 8)
    assert state.high_watermark == 6


@pytest.mark.req("R2")
@given(seed=st.integers(0, 2**32))
def test_within_a_leader_epoch_the_high_watermark_never_goes_back(seed: int) -> None:
    chance = random.Random(seed)
    state = leading(min_insync=2)
    end, now, version = 0, 0, 0
    has = {2: 0, 3: 0}
    before = 0
    for _ in range(60):
        now += chance.randrange(20_000)
        step = chance.randrange(5)
        replica = chance.choice([2, 3])
        if step == 0:
            end += chance.randrange(5)
        elif step in (1, 2):
            has[replica] = chance.randint(has[replica], end)
            fetched(state, replica, has[replica], end, now)
            state.propose_expansion(replica)
        elif step == 3:
            state.propose_shrinking(end, now)
        elif state.proposal is not None:
            version += 1
            state.isr_committed(0, version, tuple(b for b, _ in state.proposal.members))
        state.advance_high_watermark(end, now)
        assert state.high_watermark >= before
        before = state.high_watermark
        assert all(has[r] >= before for r in state.isr if r != 1)
        assert 1 in state.isr


@pytest.mark.req("R2")
def test_a_new_leader_does_not_know_the_committed_end_before_its_epochs_start_is() -> None:
    state = leading(image(epoch=4), end=10, high=7)
    assert not state.knows_committed_end
    for replica in (2, 3):
        fetched(state, replica, 10, end=12)
    state.advance_high_watermark(12, 0)
    assert state.knows_committed_end


# --- in-sync replicas -------------------------------------------------------------------------


@pytest.mark.req("R3")
def test_a_follower_that_lags_for_too_long_is_proposed_to_leave() -> None:
    state = leading()
    for replica in (2, 3):
        fetched(state, replica, 5, end=5)
    assert state.propose_shrinking(9, LAG) is None
    fetched(state, 2, 9, end=9, now_ms=LAG)
    proposal = state.propose_shrinking(9, LAG + 1)
    assert proposal == IsrProposal(0, 0, ((1, -1), (2, 2)), is_expansion=False)
    assert state.propose_shrinking(9, LAG + 1) is None


@pytest.mark.req("R3")
def test_an_idle_follower_with_everything_stays() -> None:
    state = leading(image(isr=(1, 2)))
    fetched(state, 2, 5, end=5)
    assert state.propose_shrinking(5, 10 * LAG) is None


@pytest.mark.req("R3")
def test_a_follower_always_a_little_behind_is_caught_up_as_of_its_fetch_before() -> None:
    state = leading(image(isr=(1, 2)))
    for round_number in range(10):
        now = round_number * 10_000
        fetched(state, 2, round_number * 5, end=round_number * 5 + 5, now_ms=now)
        assert state.propose_shrinking(round_number * 5 + 5, now) is None


@pytest.mark.req("R3")
def test_a_follower_joins_at_the_high_watermark_and_the_epochs_start() -> None:
    state = leading(image(isr=(1,), epoch=2), end=6, high=4)
    fetched(state, 2, 5, end=6)
    assert state.propose_expansion(2) is None
    fetched(state, 2, 6, end=6)
    state.blocked.add(2)
    assert state.propose_expansion(2) is None
    state.blocked.clear()
    assert state.propose_expansion(2) == IsrProposal(2, 0, ((1, -1), (2, 2)), is_expansion=True)
    assert state.propose_expansion(2) is None
    assert state.propose_expansion(9) is None


@pytest.mark.req("R3")
def test_answers_to_proposals() -> None:
    state = leading(image(isr=(1,)))
    fetched(state, 2, 0, end=0)
    proposal = state.propose_expansion(2)
    assert proposal is not None
    assert state.proposal_refused(proposal, ErrorCode.REQUEST_TIMED_OUT)
    assert not state.proposal_refused(proposal, ErrorCode.INVALID_UPDATE_VERSION)
    assert list(state.maximal_isr) == [1, 2]
    assert not state.proposal_refused(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert list(state.maximal_isr) == [1]
    assert state.propose_expansion(2) is not None
    state.isr_committed(7, 9, (1, 2))
    assert list(state.isr) == [1]
    state.isr_committed(0, 1, (1, 2))
    assert [*state.isr, *state.maximal_isr] == [1, 2, 1, 2]
    assert state.proposal is None
    # The image of the same change comes later and is no news.
    state.propose_shrinking(5, LAG + 1)
    open_proposal = state.proposal
    assert not state.become_leader(image(isr=(1, 2), version=1), log_end_offset=5, now_ms=0)
    assert state.proposal is open_proposal is not None


@pytest.mark.req("R3")
def test_a_restarted_follower_is_not_caught_up_and_its_former_self_is_refused() -> None:
    state = leading(image(isr=(1, 2)))
    arguments = {"log_start_offset": 0, "log_end_offset": 5, "now_ms": 0}
    assert not state.follower_fetched(2, fetch_offset=5, broker_epoch=10, **arguments)
    assert not state.follower_fetched(2, fetch_offset=3, broker_epoch=11, **arguments)
    assert state.followers[2].caught_up_ms < -LAG
    old = state.follower_fetched(2, fetch_offset=5, broker_epoch=10, **arguments)
    assert old is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert state.followers[2].log_end_offset == 3


def test_who_is_no_replica_or_claims_too_much_is_refused() -> None:
    state = leading()
    assert fetched(state, 9, 0, end=0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched(state, 2, 6, end=5) is ErrorCode.OFFSET_OUT_OF_RANGE


# --- roles ------------------------------------------------------------------------------------


@pytest.mark.req("R6")
def test_epochs_of_requests_are_checked() -> None:
    state = leading(image(epoch=5))
    assert state.check_leader(-1) is ErrorCode.NONE
    assert state.check_leader(5) is ErrorCode.NONE
    assert state.check_leader(4) is ErrorCode.FENCED_LEADER_EPOCH
    assert state.check_leader(6) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert state.become_follower(image(leader=2, epoch=6, version=1))
    assert state.check_leader(-1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert state.check_leader(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.req("R5")
def test_what_acks_all_gets() -> None:
    state = leading(image(isr=(1, 2)), min_insync=2)
    fetched(state, 2, 3, end=5)
    state.advance_high_watermark(5, 0)
    assert state.acknowledged(3) is ErrorCode.NONE
    assert state.acknowledged(4) is None
    state.isr_committed(0, 1, (1,))
    assert state.acknowledged(3) is ErrorCode.NONE
    assert state.acknowledged(4) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    state.become_follower(image(leader=2, epoch=1, version=2))
    assert state.acknowledged(3) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_epoch_of_the_same_leader_forgets_what_followers_had() -> None:
    state = leading()
    for replica in (2, 3):
        fetched(state, replica, 5, end=5)
    state.advance_high_watermark(5, 0)
    assert state.become_leader(image(epoch=1, version=1), log_end_offset=8, now_ms=0)
    assert (state.epoch_start_offset, state.high_watermark) == (8, 5)
    assert state.followers[2].log_end_offset == -1


def test_a_change_of_replicas_in_the_same_epoch_keeps_what_is_known() -> None:
    state = leading()
    fetched(state, 2, 5, end=5)
    change = image(replicas=(1, 2, 4), isr=(1, 2), version=1)
    assert not state.become_leader(change, log_end_offset=5, now_ms=0)
    assert state.followers[2].log_end_offset == 5
    assert (state.knows(3), state.knows(4)) == (False, True)


@pytest.mark.req("R6")
def test_a_change_of_replicas_in_the_same_epoch_does_not_move_the_epochs_start() -> None:
    state = leading(image(isr=(1, 2), epoch=1), end=5)
    for end in (8, 13):
        change = image(replicas=(1, 2, end), isr=(1, 2), epoch=1, version=end)
        assert not state.become_leader(change, log_end_offset=end, now_ms=0)
        assert state.epoch_start_offset == 5


@pytest.mark.req("R3")
@given(missing=st.integers(1, 5), end=st.integers(5, 20))
def test_who_misses_any_record_for_too_long_leaves(missing: int, end: int) -> None:
    state = leading(image(isr=(1, 2)))
    fetched(state, 2, end - missing, end=end, now_ms=LAG)
    fetched(state, 2, end - missing, end=end, now_ms=LAG + 1)
    proposal = state.propose_shrinking(end, 2 * LAG)
    assert proposal == IsrProposal(0, 0, ((1, -1),), is_expansion=False)


@pytest.mark.req("R2")
@given(high=st.integers(0, 9), cut=st.integers(0, 9))
def test_nothing_is_committed_beyond_where_the_log_was_cut(high: int, cut: int) -> None:
    state = State(high_watermark=high)
    state.become_follower(image(leader=2))
    state.truncated(cut)
    assert state.high_watermark == min(high, cut)


@pytest.mark.req("R3")
def test_an_isr_that_was_changed_since_is_not_taken_for_the_newest() -> None:
    state = leading(image(isr=(1, 2), version=3))
    state.isr_committed(0, 2, (1, 2, 3))
    assert (state.isr, state.partition_epoch) == ((1, 2), 3)


@pytest.mark.req("R3")
@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.REQUEST_TIMED_OUT])
def test_a_late_refusal_ends_no_later_proposal(error: ErrorCode) -> None:
    """What the controller makes of the later one is not known: who may join still counts."""
    state = leading(image(isr=(1,)))
    fetched(state, 2, 0, end=0)
    first = state.propose_expansion(2)
    assert first is not None
    state.isr_committed(0, 1, (1, 2))
    fetched(state, 3, 0, end=0)
    second = state.propose_expansion(3)
    assert second is not None
    assert not state.proposal_refused(first, error)
    assert state.proposal is second
    assert state.maximal_isr == (1, 2, 3)

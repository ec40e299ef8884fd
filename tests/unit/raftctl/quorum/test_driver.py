"""The driver performs in order, groups, rolls nothing forward and ends the node on any failure."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from raftctl.errors import ErrorCode, InvariantViolation, KafkaError
from raftctl.quorum import _accumulator as accumulator
from raftctl.quorum import _driver as driver_module
from raftctl.raft import events
from raftctl.raft.batch import Batch, encode_batch
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    Epoch,
    FetchRequest,
    FetchResponse,
    LeaderEndpoint,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    TransferLeadershipRequest,
)
from tests.unit.raftctl.quorum.parts import PATIENCE_S, Member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from raftctl.raft.messages import Request, Response

LEADER = NodeId(2)


@pytest.fixture
async def leader() -> AsyncIterator[Member]:
    """An established leader, alone in its quorum."""
    member = Member()
    await member.lead()
    yield member
    member.disk.error = None
    await member.stop()


def _records(member: Member, start: int) -> list[Batch]:
    return member.log.batches(Offset(start), 1 << 30) if start < member.log.end_offset else []


@pytest.mark.req("Q3")
async def test_records_commit_when_they_are_on_disk(leader: Member) -> None:
    last = leader.driver.append([b"a", b"b"])
    assert last == leader.log.end_offset + 1
    await leader.turn()
    await leader.turn()
    assert leader.log.end_offset == last + 1
    assert leader.driver.high_watermark == last - 1
    assert leader.driver.read(Offset(last - 1), 1 << 20) == []
    await leader.until(lambda: leader.driver.high_watermark == last + 1)
    assert leader.listener.heard[-1] == ("committed", last + 1, 0)
    assert [batch.payload for batch in leader.driver.read(Offset(last), 1 << 20)] == [b"ab"]


async def test_what_is_appended_in_one_turn_shares_a_batch_and_a_flush(leader: Member) -> None:
    end = leader.log.end_offset
    assert [leader.driver.append([b"x"]) for _ in range(3)] == [end, end + 1, end + 2]
    await leader.turn()
    leader.driver.append([b"y"])
    leader.driver.append([b"z"])
    await leader.turn()
    assert [(b.count, b.payload) for b in _records(leader, end)] == [(3, b"xxx"), (2, b"yz")]
    # The first flush is still under way: what came meanwhile waits for one more, together.
    assert len(leader.worker.calls) == 1
    await leader.worker.run_all()
    assert leader.driver.high_watermark == end + 3
    assert len(leader.worker.calls) == 1
    await leader.until(lambda: leader.driver.high_watermark == end + 5)


@pytest.mark.req("C1")
async def test_the_records_of_one_append_stay_together(
    leader: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accumulator, "SHARED_BATCH_BYTES_MAX", 10)
    end = leader.log.end_offset
    for payloads in ([b"12345", b"6789"], [b"abc"], [b"d"] * 30, [b"e"], [b"f"]):
        end = leader.driver.append(payloads)
    await leader.turn()
    batches = _records(leader, end - 34)
    assert [batch.payload for batch in batches] == [b"123456789", b"abc", b"d" * 30, b"ef"]
    assert batches[-1].end_offset == end + 1


async def test_more_than_a_batch_holds_is_refused(leader: Member) -> None:
    end = leader.log.end_offset
    with pytest.raises(KafkaError) as refused:
        leader.driver.append([b"x" * driver_module.APPEND_BYTES_MAX, b"y"])
    assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    await leader.turn()
    assert leader.log.end_offset == end


async def test_only_a_leader_appends() -> None:
    member = Member(voters=3)
    member.driver.start()
    with pytest.raises(KafkaError) as refused:
        member.driver.append([b"x"])
    assert refused.value.code == ErrorCode.NOT_CONTROLLER
    await member.stop()


@pytest.mark.req("C1")
async def test_what_is_not_proposed_yet_is_lost_with_the_leadership(leader: Member) -> None:
    """Also when the same node leads again: those records belong to the epoch that is over."""
    leader.driver.append([b"of epoch 1"])
    await leader.driver.resign()
    assert not leader.driver.is_leader
    assert leader.listener.heard[-1] == ("leader", 1, -1)
    await leader.until(lambda: leader.listener.heard[-1] == ("leader", 2, 1))
    leader.driver.append([b"of epoch 2"])
    await leader.until(lambda: leader.driver.high_watermark == leader.log.end_offset > 2)
    batches = _records(leader, 1)
    assert [(b.epoch, b.control) for b in batches] == [(2, True), (2, False)]
    assert batches[-1].payload == b"of epoch 2"


async def test_a_listener_may_append_while_effects_are_performed(leader: Member) -> None:
    offsets: list[int] = []

    class Echo:
        def on_committed(self, high_watermark: int) -> None:
            if len(offsets) < 3:
                offsets.append(leader.driver.append([b"echo"]))
                offsets.append(leader.driver.append([b"echo"]))

        def on_leader_changed(self, epoch: int, leader_id: int) -> None: ...

        def on_snapshot(self, image: object) -> None: ...

    leader.driver.add_listener(Echo())
    first = leader.driver.append([b"call"])
    await leader.until(lambda: leader.driver.high_watermark == first + 5)
    assert offsets == [first + 1, first + 2, first + 3, first + 4]


@pytest.mark.req("Q1")
async def test_a_vote_leaves_after_it_is_on_disk() -> None:
    member = Member(voters=3)
    member.driver.start()
    sent = [member.peers[2].calls, member.peers[3].calls]
    await member.until(lambda: sent[0] and sent[1])
    for calls in sent:  # pre-votes, which bind nobody
        calls[0][1].set_result(_granted(calls[0][0], pre_vote=True))
        calls.clear()
    await asyncio.sleep(0.005)
    assert member.driver.epoch == 1
    assert sent == [[], []]
    assert member.states.load() is None
    await member.worker.run_all()
    await member.turn()
    state = member.states.load()
    assert state is not None
    assert (state.epoch, state.voted) == (1, member.core._replica.local)
    assert [len(calls) for calls in sent] == [1, 1]
    await member.stop()


def _granted(request: Request, *, pre_vote: bool) -> Response:
    from raftctl.raft.messages import NO_NODE, ReplicaKey, VoteRequest, VoteResponse

    assert isinstance(request, VoteRequest)
    return VoteResponse(request.epoch, NO_NODE, True, pre_vote, ReplicaKey(NodeId(2), None))


def _at_once(call: Callable[[], object]) -> asyncio.Future[object]:
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    try:
        done.set_result(call())
    except OSError as error:
        done.set_exception(error)
    return done


@pytest.mark.req("Q3")
@pytest.mark.parametrize("fails", [False, True])
async def test_a_disk_that_is_done_at_once_is_heard_at_once(
    leader: Member, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """As a quick one is: see decision 0007."""
    monkeypatch.setattr(leader.worker, "submit", _at_once)
    leader.disk.error = OSError(errno.EIO, "the disk is broken") if fails else None
    before = leader.driver.high_watermark
    last = leader.driver.append([b"a"])
    leader.driver.propose()
    assert leader.driver.high_watermark == (before if fails else last + 1)
    assert leader.failures == ([leader.disk.error] if fails else [])


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.req("Q3", "Q12")
async def test_a_disk_that_fails_ends_the_node_before_anything_is_acknowledged(
    leader: Member,
) -> None:
    heard = list(leader.listener.heard)
    leader.driver.append([b"x"])
    await leader.turn()
    leader.disk.error = OSError(errno.EIO, "the disk is broken")
    await leader.worker.run_all()
    assert leader.failures == [leader.disk.error]
    leader.disk.error = None
    answer = leader.driver.receive(BeginQuorumEpochRequest(Epoch(9), NodeId(1)))
    with pytest.raises(KafkaError):
        leader.driver.append([b"y"])
    await asyncio.sleep(0.01)
    assert not answer.done()
    assert leader.listener.heard == heard
    assert leader.worker.calls == []


async def test_a_vote_that_cannot_be_written_ends_the_node() -> None:
    member = Member()
    member.disk.error = OSError(errno.ENOSPC, "the disk is full")
    member.driver.start()
    await member.until(lambda: member.failures)
    assert member.failures == [member.disk.error]
    assert not member.driver.is_leader
    await member.stop()


async def test_a_listener_that_fails_ends_the_node(leader: Member) -> None:
    bug = InvariantViolation("images are published in order")

    class Broken:
        def on_committed(self, high_watermark: int) -> None:
            raise bug

        def on_leader_changed(self, epoch: int, leader_id: int) -> None: ...

        def on_snapshot(self, image: object) -> None: ...

    leader.driver.add_listener(Broken())
    leader.driver.append([b"x"])
    await leader.until(lambda: leader.failures)
    assert leader.failures == [bug]


async def test_a_worker_that_takes_no_more_work_ends_the_node(
    leader: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.driver.append([b"x"])
    await leader.turn()
    leader.driver.append([b"y"])
    await leader.turn()

    def refuse(call: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    with monkeypatch.context() as patched:
        patched.setattr(leader.worker, "submit", refuse)
        await leader.worker.run_all()
        assert [type(error) for error in leader.failures] == [KafkaError]


async def test_a_call_that_fails_as_no_call_should_ends_the_node() -> None:
    member = Member(voters=3)
    member.driver.start()
    await member.until(lambda: member.peers[2].calls)
    bug = KeyError("no such codec")
    member.peers[2].calls[0][1].set_exception(bug)
    await member.until(lambda: member.failures)
    assert member.failures == [bug]
    await member.stop()


async def test_a_halted_driver_does_nothing_more(leader: Member) -> None:
    end = leader.log.end_offset
    leader.driver.append([b"poison"])
    leader.driver.halt()
    await asyncio.sleep(0.005)
    assert leader.log.end_offset == end


async def test_the_story_is_kept_without_the_records(leader: Member) -> None:
    for _ in range(300):
        leader.driver.append([b"secret"])
        await leader.turn()
    await leader.until(lambda: leader.driver.high_watermark == leader.log.end_offset)
    assert len(leader.driver.flight_recorder) == driver_module.RECORDED_EVENTS_MAX
    kinds = {type(entry) for entry in leader.driver.flight_recorder}
    assert {events.Proposed, events.AppendToLog, events.LogFlushed} <= kinds
    assert "secret" not in repr(leader.driver.flight_recorder)


# --- following --------------------------------------------------------------------------------


async def _follow(member: Member) -> None:
    """Makes the member follow node 2 in epoch 9, and brings it 30 records of epochs 1 to 3."""
    member.driver.start()
    begun = member.driver.receive(BeginQuorumEpochRequest(Epoch(9), LEADER))
    await member.until(begun.done)
    await member.until(lambda: member.peers[2].calls)
    batches = [Batch(Offset(10 * i), Epoch(i + 1), 10, 0, False, b"0123456789") for i in range(3)]
    _answer(member, batches=b"".join(map(encode_batch, batches)))
    await member.until(lambda: len(member.peers[2].calls) == 2)


def _answer(
    member: Member,
    *,
    batches: bytes = b"",
    diverging: OffsetAndEpoch | None = None,
    high_watermark: int = 0,
) -> None:
    request, answer = member.peers[2].calls[-1]
    assert isinstance(request, FetchRequest)
    answer.set_result(
        FetchResponse(
            error=ErrorCode.NONE,
            epoch=Epoch(9),
            leader_id=LEADER,
            fetch_offset=request.fetch_from.offset,
            high_watermark=Offset(high_watermark),
            diverging=diverging,
            snapshot_id=None,
            log_start_offset=Offset(0),
            batches=batches,
            fetch_id=request.fetch_id,
        )
    )


@pytest.mark.req("Q2")
async def test_a_truncation_between_a_flush_and_its_report_is_heeded() -> None:
    """The second cut comes in the very turn in which the flush of the first one reports."""
    member = Member(voters=3)
    await _follow(member)
    _answer(member, diverging=OffsetAndEpoch(Offset(20), Epoch(2)))
    async with asyncio.timeout(PATIENCE_S):
        while len(member.peers[2].calls) < 3:
            await member.turn()
    assert member.log.end_offset == 20
    [cut] = member.worker.calls
    member.worker.calls.clear()
    cut()
    _answer(member, diverging=OffsetAndEpoch(Offset(10), Epoch(1)))
    await member.until(lambda: len(member.peers[2].calls) == 4)
    assert member.failures == []
    assert member.log.end_offset == member.core.log.end_offset == 10
    request, _ = member.peers[2].calls[-1]
    assert isinstance(request, FetchRequest)
    assert request.fetch_from == OffsetAndEpoch(Offset(10), Epoch(1))
    await member.stop()


@pytest.mark.req("Q3")
async def test_a_follower_asks_for_more_only_when_what_it_has_is_on_disk() -> None:
    member = Member(voters=3)
    await _follow(member)
    batch = Batch(Offset(30), Epoch(9), 1, 0, False, b"x")
    _answer(member, batches=encode_batch(batch))
    await asyncio.sleep(0.005)
    assert member.log.end_offset == 31
    assert len(member.peers[2].calls) == 2
    await member.until(lambda: len(member.peers[2].calls) == 3)
    request, _ = member.peers[2].calls[-1]
    assert isinstance(request, FetchRequest)
    assert request.fetch_from == OffsetAndEpoch(Offset(31), Epoch(9))
    await member.stop()


@pytest.mark.req("Q3")
async def test_a_follower_says_what_it_has_before_it_applies_what_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = Member(voters=3)
    await _follow(member)
    monkeypatch.setattr(member.worker, "submit", _at_once)
    calls: list[int] = []

    def on_committed(high_watermark: int) -> None:
        calls.append(len(member.peers[2].calls))
        assert high_watermark == 30

    monkeypatch.setattr(member.listener, "on_committed", on_committed)
    batch = Batch(Offset(30), Epoch(9), 1, 0, False, b"x")
    _answer(member, batches=encode_batch(batch), high_watermark=30)
    await member.until(lambda: calls)
    assert calls == [3]
    await member.stop()


@pytest.mark.req("Q9")
async def test_a_read_barrier_tells_up_to_where_everything_is_applied(leader: Member) -> None:
    leader.driver.append([b"a"])
    await leader.until(lambda: leader.driver.high_watermark == leader.log.end_offset)
    assert await leader.driver.read_barrier() == leader.driver.high_watermark
    await leader.driver.resign()
    with pytest.raises(KafkaError) as refused:
        await leader.driver.read_barrier()
    assert refused.value.code == ErrorCode.NOT_CONTROLLER


@pytest.mark.req("Q4")
async def test_a_failed_transfer_proposes_what_it_kept_back() -> None:
    member = Member(voters=2)
    member.driver.start()
    calls = member.peers[2].calls
    for pre_vote in (True, False):
        await member.until(lambda: calls)
        request, answer = calls.pop()
        answer.set_result(_granted(request, pre_vote=pre_vote))
    await member.until(lambda: member.driver.is_leader)
    transfer = member.driver.receive(TransferLeadershipRequest(NodeId(2)))
    end = member.log.end_offset
    member.driver.append([b"kept back"])
    await member.turn()
    await member.turn()
    assert member.log.end_offset == end
    member.core._roles.tend(1 << 50)
    await member.until(lambda: member.log.end_offset == end + 1)
    assert not transfer.cancelled()
    await member.stop()


@pytest.mark.req("Q5", "Q7")
async def test_the_records_of_a_fetch_come_with_the_leaders_address(
    leader: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An observer that asks a bootstrap address, which is the leader's, gets no other answer.
    here = LeaderEndpoint("here", 9)
    monkeypatch.setattr(
        leader.driver._effects._peers,
        "with_leader_address",
        lambda answer: replace(answer, leader_endpoint=here),
    )
    observer = ReplicaKey(NodeId(9), None)
    start = OffsetAndEpoch(Offset(0), Epoch(0))
    request = FetchRequest(Epoch(leader.driver.epoch), observer, start, 1 << 20, 0)
    response = await leader.driver.receive(request)
    assert isinstance(response, FetchResponse)
    assert response.batches
    assert response.leader_endpoint == here

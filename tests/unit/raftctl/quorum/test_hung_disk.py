"""Disks that hang or stall under a driver: what it keeps in memory, and what it must not say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest

from raftctl.errors import ErrorCode, KafkaError
from raftctl.quorum import UNWRITTEN_BYTES_MAX, RaftDriver
from raftctl.raft.batch import Batch, encode_batch
from raftctl.raft.messages import (
    NO_NODE,
    BeginQuorumEpochRequest,
    Epoch,
    FetchRequest,
    FetchResponse,
    NodeId,
    Offset,
    OffsetAndEpoch,
    ReplicaKey,
    Request,
    UpdateVoterRequest,
    Voter,
    VoteRequest,
    VoteResponse,
)
from tests.unit.raftctl.quorum.parts import Member

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
RECORD = b"\x91\x3c" + b"x" * 200_000
PUTS = 600


def replica(node_id: int) -> ReplicaKey:
    return ReplicaKey(NodeId(node_id), None)


def fetch(member: Member, node_id: int, *, wait_ms: int = 0) -> None:
    """A follower has all that the leader has, and asks for more."""
    request = FetchRequest(
        member.core.epoch, replica(node_id), member.core.log.end, 1 << 20, wait_ms
    )
    member.driver.receive(request)


async def leading() -> Member:
    """An established leader of three; its disk works when `member.worker` is told to."""
    member = Member(voters=3)
    member.driver.start()
    async with asyncio.timeout(5):
        while not member.driver.is_leader:
            await member.worker.run_all()
            await asyncio.sleep(0.001)
            for node_id, peer in member.peers.items():
                calls, peer.calls = peer.calls, []
                for request, answer in calls:
                    if isinstance(request, VoteRequest) and not answer.done():
                        answer.set_result(
                            VoteResponse(
                                request.epoch, NO_NODE, True, request.pre_vote, replica(node_id)
                            )
                        )
    await member.worker.run_all()
    for node_id in (2, 3):
        fetch(member, node_id)
    assert member.driver.high_watermark == member.log.end_offset
    return member


@pytest.mark.req("Q3")
async def test_what_a_hung_disk_leaves_in_memory_is_bounded_while_others_commit() -> None:
    member = await leading()
    acknowledged = refused = 0
    for _ in range(PUTS):
        if member.driver.is_full:
            refused += 1
            continue
        last = member.driver.append([RECORD])
        await member.turn()
        for node_id in (2, 3):
            fetch(member, node_id)
        acknowledged += member.driver.high_watermark > last
    kept = member.log.unwritten_bytes
    assert UNWRITTEN_BYTES_MAX < kept <= UNWRITTEN_BYTES_MAX + 2 * len(RECORD)
    assert acknowledged * len(RECORD) <= kept
    assert refused == PUTS - acknowledged
    await member.until(lambda: not member.log.unwritten_bytes)
    assert not member.driver.is_full, "the disk works again"
    member.driver.append([RECORD])
    await member.stop()


@pytest.mark.req("Q3")
async def test_a_follower_asks_for_nothing_that_its_disk_could_not_take() -> None:
    member = Member(voters=3)
    member.driver.start()
    begin = BeginQuorumEpochRequest(Epoch(1), NodeId(2))
    following = member.driver.receive(begin)
    await member.until(following.done)
    await member.until(lambda: member.peers[2].calls)
    (request, answer) = member.peers[2].calls.pop()
    assert isinstance(request, FetchRequest)
    batch = Batch(Offset(0), Epoch(1), 1, 0, False, RECORD)
    answer.set_result(_records(request, batch))
    for _ in range(100):
        await member.turn()
    assert member.peers[2].calls == [], "its disk hangs: no Fetch goes out"
    assert member.log.unwritten_bytes == len(encode_batch(batch))
    await member.until(lambda: member.peers[2].calls)
    (again, _) = member.peers[2].calls[0]
    assert isinstance(again, FetchRequest)
    assert again.fetch_from == OffsetAndEpoch(Offset(1), Epoch(1))
    await member.stop()


def _records(request: FetchRequest, batch: Batch) -> FetchResponse:
    return FetchResponse(
        error=ErrorCode.NONE,
        epoch=request.epoch,
        leader_id=NodeId(2),
        fetch_offset=request.fetch_from.offset,
        high_watermark=Offset(0),
        diverging=None,
        snapshot_id=None,
        log_start_offset=Offset(0),
        batches=encode_batch(batch),
        fetch_id=request.fetch_id,
    )


class Stalling:
    """A worker that works at once, on the loop, as with a quick disk; it may take its time."""

    def __init__(self, stall: Callable[[], None]) -> None:
        self._stall = stall

    def pause(self) -> None:
        """Nobody waits."""

    def submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._stall()
        future.set_result(call())
        return future

    def close(self) -> None:
        pass


@pytest.mark.req("Q4", "Q9")
async def test_a_leader_whose_sync_stalled_the_loop_confirms_nothing_until_it_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile others have elected a leader: to them it was a process that stood still."""
    member = await leading()
    ahead_ms = [0]
    own_ms = RaftDriver._now_ms
    monkeypatch.setattr(RaftDriver, "_now_ms", lambda driver: own_ms(driver) + ahead_ms[0])
    stall_ms = 10 * member.core._replica.config.fetch_timeout_ms

    def stall() -> None:
        ahead_ms[0] += stall_ms

    member.driver._effects._worker = Stalling(stall)
    before = member.driver.high_watermark
    read = member.driver.read_barrier()
    last = member.driver.append([b"\x91\x3c"])
    await member.turn()
    assert ahead_ms[0] == stall_ms
    assert member.log.flushed_end_offset == last + 1, "the sync has ended at last"
    assert member.driver.high_watermark == before, "its own disk is no majority"
    assert not read.done(), "nobody has said that it still leads"
    member.driver._tick()
    assert not member.driver.is_leader, "no majority was heard for longer than check-quorum"
    with pytest.raises(KafkaError):
        await read
    with pytest.raises(KafkaError):
        member.driver.append([b"\x91\x3c"])
    member.driver._effects._worker = member.worker
    await member.stop()


@pytest.mark.req("Q1", "Q4")
@pytest.mark.parametrize(
    "request_of",
    [
        lambda epoch: VoteRequest(epoch, replica(2), OffsetAndEpoch(Offset(9), epoch), False),
        lambda epoch: FetchRequest(epoch, replica(2), OffsetAndEpoch(Offset(0), epoch), 1, 0),
        lambda epoch: BeginQuorumEpochRequest(Epoch(epoch + 1), NodeId(2)),
        lambda _: UpdateVoterRequest(Voter(replica(2), "elsewhere", 1)),
    ],
)
async def test_no_node_speaks_in_the_name_of_another(
    request_of: Callable[[Epoch], Request],
) -> None:
    member = await leading()
    request = request_of(member.core.epoch)
    answers: list[object] = []
    for forger in (3, 1):
        with pytest.raises(KafkaError, match="you are not node 2"):
            member.driver.answer(request, answers.append, forger)
    assert answers == []
    assert member.driver.is_leader
    assert "sent it in the name of 2" in member.runtime.logged.getvalue()
    member.driver.answer(request, answers.append, 2)
    for node_id in (2, 3):
        fetch(member, node_id)
    await member.until(lambda: answers or not member.log.dirty)
    await member.stop()

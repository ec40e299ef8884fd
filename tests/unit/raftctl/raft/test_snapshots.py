"""The core and snapshots: who is sent one, how it is fetched, and what it replaces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftctl.errors import ErrorCode, InvariantViolation
from raftctl.raft import ReplicaLog
from raftctl.raft.events import (
    DeleteLogPrefix,
    HighWatermarkAdvanced,
    PrefixExpired,
    ReplyFetchSnapshot,
    RequestFailed,
    ResetLog,
    SaveSnapshotChunk,
    SnapshotChunkSaved,
    SnapshotRefused,
    SnapshotSaved,
    SnapshotTaken,
)
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    Epoch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    NodeId,
    Offset,
    OffsetAndEpoch,
    Request,
)
from tests.unit.raftctl.raft.harness import (
    CONFIG,
    Node,
    batch_at,
    fetch_answer,
    fetch_request,
    key,
    log_of,
    only,
    position,
)

SNAPSHOT = position(50, 4)


def leader_with_snapshot() -> Node:
    """Leads epoch 2 with a log of epoch 1 that starts at 3."""
    node = Node(epoch=1, log=log_of(1, 1, 1, 1, 1))
    node.become_leader()
    node.flushed()
    node.ask(fetch_request(2, 6, 2, 2))
    assert node.core.high_watermark == 6
    node.do(SnapshotTaken(position(3, 1)))
    node.do(PrefixExpired(position(3, 1)))
    return node


def told_to_fetch_a_snapshot() -> tuple[Node, FetchSnapshotRequest]:
    """A follower in epoch 5 whose leader has no records before the snapshot."""
    node = Node(epoch=1, log=log_of(1, 1))
    fetch = node.become_follower(epoch=5)
    node.answer(2, replace(fetch_answer(fetch), snapshot_id=SNAPSHOT, log_start_offset=Offset(50)))
    return node, asked(node)


def asked(node: Node) -> FetchSnapshotRequest:
    (request,) = node.sent()
    assert isinstance(request, FetchSnapshotRequest)
    return request


def piece(request: Request, data: bytes, size: int = 10) -> FetchSnapshotResponse:
    assert isinstance(request, FetchSnapshotRequest)
    return FetchSnapshotResponse(
        ErrorCode.NONE, request.epoch, NodeId(2), request.position, size, data, request.fetch_id
    )


@pytest.mark.req("Q2", "Q6")
@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (2, 1), (4, 0)])
def test_a_log_that_ends_before_the_leaders_start_is_sent_the_snapshot(
    offset: int, epoch: int
) -> None:
    node = leader_with_snapshot()
    answer = node.ask(fetch_request(3, offset, epoch, 2))
    assert isinstance(answer, FetchResponse)
    assert answer.error is ErrorCode.NONE
    assert (answer.snapshot_id, answer.log_start_offset) == (position(3, 1), 3)
    assert answer.diverging is None


@pytest.mark.req("Q6")
def test_a_log_that_reaches_the_leaders_start_is_sent_records() -> None:
    node = leader_with_snapshot()
    answer = node.ask(fetch_request(3, 3, 1, 2))
    assert isinstance(answer, FetchResponse)
    assert answer.snapshot_id is None


@pytest.mark.req("Q6")
def test_the_leader_hands_out_pieces_and_hears_who_asks() -> None:
    node = leader_with_snapshot()
    node.now_ms += 2_000
    request = FetchSnapshotRequest(Epoch(2), key(3), position(3, 1), 7, 100, 9)
    node.ask(request)
    (reply,) = only(ReplyFetchSnapshot, node.effects)
    assert (reply.snapshot_id, reply.response.position, reply.max_bytes) == (position(3, 1), 7, 100)
    assert reply.response.fetch_id == 9
    deadline_ms = node.core.deadline_ms()
    assert deadline_ms is not None
    node.wait(2_000)
    assert node.core.is_leader, "a fetch of a snapshot counts for the check of the quorum"
    stale = node.ask(replace(request, epoch=Epoch(1)))
    assert isinstance(stale, FetchSnapshotResponse)
    assert stale.error is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.req("Q6")
def test_a_follower_fetches_piece_after_piece_each_when_the_last_is_written() -> None:
    node, request = told_to_fetch_a_snapshot()
    assert (request.snapshot_id, request.position) == (SNAPSHOT, 0)
    (chunk,) = only(SaveSnapshotChunk, node.answer(2, piece(request, b"abcd")))
    assert chunk == SaveSnapshotChunk(SNAPSHOT, 0, b"abcd", last=False)
    assert node.sent() == []
    assert node.core.deadline_ms() is None, "while the own disk is slow the leader is not missed"
    node.do(SnapshotChunkSaved())
    request = asked(node)
    assert request.position == 4
    (chunk,) = only(SaveSnapshotChunk, node.answer(2, piece(request, b"efghij")))
    assert chunk == SaveSnapshotChunk(SNAPSHOT, 4, b"efghij", last=True)
    effects = node.do(SnapshotSaved())
    assert effects[:2] == [ResetLog(SNAPSHOT), HighWatermarkAdvanced(Offset(50))]
    (fetch,) = node.sent()
    assert isinstance(fetch, FetchRequest)
    assert fetch.fetch_from == SNAPSHOT
    node.answer(2, fetch_answer(fetch, batch_at(50, 4), batch_at(51, 5)))
    assert node.core.log.end == position(52, 5)


@pytest.mark.req("Q6")
def test_a_piece_that_is_lost_is_asked_for_again_from_where_it_was() -> None:
    node, request = told_to_fetch_a_snapshot()
    node.answer(2, piece(request, b"abcd"))
    node.do(SnapshotChunkSaved())
    request = asked(node)
    node.do(RequestFailed(NodeId(2), request))
    assert node.sent() == []
    node.wait()
    (again,) = node.sent()
    assert isinstance(again, FetchSnapshotRequest)
    assert again.position == 4
    node.answer(2, piece(request, b"late"))
    assert only(SaveSnapshotChunk, node.effects) == []


@pytest.mark.req("Q6")
def test_the_next_leader_is_asked_for_the_rest_of_the_same_snapshot() -> None:
    node, request = told_to_fetch_a_snapshot()
    node.answer(2, piece(request, b"abcd"))
    node.ask(BeginQuorumEpochRequest(Epoch(6), NodeId(3)))
    node.persisted()
    assert node.sent() == [], "the piece is being written"
    node.do(SnapshotChunkSaved())
    (fetch,) = node.sent()
    node.answer(3, replace(fetch_answer(fetch, leader_id=3), snapshot_id=SNAPSHOT))
    request = asked(node)
    assert (request.epoch, request.snapshot_id, request.position) == (6, SNAPSHOT, 4)
    rest = replace(piece(request, b"efghij"), leader_id=NodeId(3))
    (chunk,) = only(SaveSnapshotChunk, node.answer(3, rest))
    assert chunk == SaveSnapshotChunk(SNAPSHOT, 4, b"efghij", last=True)
    node.do(SnapshotSaved())
    assert node.core.log.end == SNAPSHOT


@pytest.mark.req("Q6")
@pytest.mark.parametrize("offset", [50, 60])
def test_what_the_next_leader_cannot_go_on_with_is_fetched_from_its_beginning(offset: int) -> None:
    """Its file ends before that, or it has a newer snapshot."""
    node, request = told_to_fetch_a_snapshot()
    node.answer(2, piece(request, b"abcd"))
    node.do(SnapshotChunkSaved())
    node.ask(BeginQuorumEpochRequest(Epoch(6), NodeId(3)))
    node.persisted()
    for expected in (4, 0) if offset == 50 else (0,):
        (fetch,) = node.sent()
        told = replace(fetch_answer(fetch, leader_id=3), snapshot_id=position(offset, 4))
        node.answer(3, told)
        request = asked(node)
        assert (request.snapshot_id.offset, request.position) == (offset, expected)
        gone = replace(piece(request, b""), error=ErrorCode.POSITION_OUT_OF_RANGE)
        node.answer(3, replace(gone, leader_id=NodeId(3)))
        node.wait()


@pytest.mark.req("Q6", "Q12")
def test_a_refused_or_vanished_snapshot_sends_the_follower_back_to_fetch() -> None:
    node, request = told_to_fetch_a_snapshot()
    node.answer(2, piece(request, b"abcdefghij"))
    node.do(SnapshotRefused())
    assert node.core.log.end == position(2, 1)
    node.wait()
    (fetch,) = node.sent()
    assert isinstance(fetch, FetchRequest)
    node.answer(2, replace(fetch_answer(fetch), snapshot_id=SNAPSHOT))
    request = asked(node)
    assert request.position == 0, "nothing of what was damaged is kept"
    node.answer(2, replace(piece(request, b""), error=ErrorCode.SNAPSHOT_NOT_FOUND))
    node.wait()
    assert isinstance(node.sent()[0], FetchRequest)


@pytest.mark.req("Q6")
def test_pieces_that_do_not_fit_are_not_written() -> None:
    for wrong in ({"position": 3}, {"data": b""}, {"data": b"x" * 11}):
        node, request = told_to_fetch_a_snapshot()
        node.answer(2, replace(piece(request, b"abcd"), **wrong))
        assert only(SaveSnapshotChunk, node.effects) == []


@pytest.mark.req("Q6")
def test_a_snapshot_saved_after_the_leader_changed_still_counts() -> None:
    node, request = told_to_fetch_a_snapshot()
    node.answer(2, piece(request, b"abcdefghij"))
    node.ask(BeginQuorumEpochRequest(Epoch(6), NodeId(3)))
    node.persisted()
    assert node.sent() == [], "nothing is fetched while a snapshot is being written"
    effects = node.do(SnapshotSaved())
    assert only(ResetLog, effects) == [ResetLog(SNAPSHOT)]


@pytest.mark.req("Q6")
def test_a_fetched_snapshot_is_committed_where_the_log_goes_beyond_it() -> None:
    """Whatever the leader was thinking of: the log may start at the snapshot from now on."""
    node = Node(epoch=4, log=log_of(*[1] * 2, *[4] * 50))
    fetch = node.become_follower(epoch=5)
    node.answer(2, replace(fetch_answer(fetch), snapshot_id=SNAPSHOT, log_start_offset=Offset(50)))
    assert node.core.high_watermark == 0
    node.answer(2, piece(asked(node), b"abcdefghij"))
    effects = node.do(SnapshotSaved())
    assert only(ResetLog, effects) == []
    assert only(HighWatermarkAdvanced, effects) == [HighWatermarkAdvanced(Offset(50))]
    node.do(PrefixExpired(SNAPSHOT))
    assert (node.core.log.start, node.core.log.end) == (SNAPSHOT, position(52, 4))
    assert node.core.high_watermark == 50


def test_only_what_a_snapshot_holds_is_deleted_and_only_what_is_committed_is_in_one() -> None:
    node = leader_with_snapshot()
    assert node.effects == [DeleteLogPrefix(position(3, 1))]
    assert node.do(PrefixExpired(position(3, 1))) == []
    with pytest.raises(InvariantViolation):
        node.do(PrefixExpired(position(5, 1)))
    with pytest.raises(InvariantViolation):
        node.do(SnapshotTaken(position(7, 2)))


def test_a_replica_restarts_with_what_its_snapshot_holds_committed() -> None:
    log = ReplicaLog(Offset(3), Offset(5), [(Epoch(2), Offset(3))], Epoch(1))
    assert log.end_offset_for_epoch(Epoch(1)) == position(3, 1)
    assert log.divergence(position(3, 1)) is None
    assert log.contains(OffsetAndEpoch(Offset(3), Epoch(1)))
    assert not log.contains(position(6, 2))
    log.delete_prefix(position(5, 2))
    assert (log.end, log.epoch_starts) == (position(5, 2), ())
    log.append(batch_at(5, 2))
    assert log.epoch_starts == ((2, 5),)


@pytest.mark.req("Q4", "Q6")
@pytest.mark.parametrize("kind", ["diverging", "snapshot", "piece"])
def test_a_follower_that_is_far_behind_keeps_its_leader(kind: str) -> None:
    """It gets no records yet, but it hears its leader, which must not resign for its sake."""
    node = leader_with_snapshot()
    requests: dict[str, Request] = {
        "diverging": fetch_request(2, 9, 1, 2),
        "snapshot": fetch_request(2, 0, 0, 2),
        "piece": FetchSnapshotRequest(Epoch(2), key(2), position(3, 1), 0, 100),
    }
    until_ms = node.now_ms + 3 * CONFIG.check_quorum_ms
    while node.now_ms < until_ms:
        node.ask(requests[kind])
        node.wait(100)
    assert node.core.is_leader

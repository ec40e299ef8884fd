"""The client finds the active controller wherever it is, and gives up at its deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from raftctl.controller_channel import QuorumControllerClient
from raftctl.controller_channel._channel import ATTEMPT_TIMEOUT_MS
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests.admin import AdminResponse, ItemOutcome
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    TopicResult,
)
from raftctl.rpc import RpcNotConnected, RpcRefused, RpcUnreachable
from raftctl.rpc._client import RpcTimedOut
from tests.unit.raftctl.quorum.parts import TestRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST = AllocateProducerIdsRequest(1, 1)
ANSWER = object()


class Voter:
    """Answers, or raises what it has been given."""

    def __init__(self, number: int, asked: list[int], outcome: object) -> None:
        self.number = number
        self.asked = asked
        self.outcome = outcome
        self.timeouts_ms: list[int] = []
        self.on_call: Callable[[], None] = lambda: None

    async def call(self, request: object, timeout_ms: int) -> object:
        self.asked.append(self.number)
        self.timeouts_ms.append(timeout_ms)
        self.on_call()
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Quorum:
    """Three voters, of which the last one is the active controller."""

    def __init__(self, leader_id: int) -> None:
        self.asked: list[int] = []
        self.leader_id = leader_id
        outcomes = [
            RpcRefused(ErrorCode.NOT_CONTROLLER, ""),
            RpcUnreachable("connection refused"),
            ANSWER,
        ]
        self.voters = {i + 1: Voter(i + 1, self.asked, one) for i, one in enumerate(outcomes)}
        self.client = QuorumControllerClient(
            cast("Any", self.voters), lambda: self.leader_id, TestRuntime().as_runtime
        )


async def test_the_leader_that_is_known_is_asked_first() -> None:
    quorum = Quorum(leader_id=3)
    answer: object = await quorum.client.call(REQUEST, 60_000)
    assert answer is ANSWER
    assert quorum.asked == [3]
    assert quorum.voters[3].timeouts_ms == [ATTEMPT_TIMEOUT_MS]


async def test_without_a_known_leader_each_voter_is_asked_in_turn() -> None:
    quorum = Quorum(leader_id=-1)
    answer: object = await quorum.client.call(REQUEST, 5_000)
    assert answer is ANSWER
    assert quorum.asked == [1, 2, 3]


async def test_a_wrong_idea_of_the_leader_does_no_harm() -> None:
    quorum = Quorum(leader_id=2)
    answer: object = await quorum.client.call(REQUEST, 5_000)
    assert answer is ANSWER
    assert quorum.asked == [2, 1, 2, 2, 2, 3]


async def test_news_of_the_leader_are_heeded_between_attempts() -> None:
    quorum = Quorum(leader_id=-1)
    quorum.voters[1].on_call = lambda: setattr(quorum, "leader_id", 3)
    await quorum.client.call(REQUEST, 5_000)
    assert quorum.asked == [1, 1, 3]


async def test_another_node_at_the_address_of_a_controller_is_passed_over() -> None:
    quorum = Quorum(leader_id=-1)
    quorum.voters[1].outcome = RpcRefused(ErrorCode.UNKNOWN_CONTROLLER_ID, "this is node 9")
    await quorum.client.call(REQUEST, 5_000)
    assert quorum.asked == [1, 2, 3]


async def test_what_the_active_controller_refuses_is_not_asked_again() -> None:
    quorum = Quorum(leader_id=3)
    quorum.voters[3].outcome = RpcRefused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much")
    with pytest.raises(KafkaError) as refused:
        await quorum.client.call(REQUEST, 5_000)
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        "too much",
    )
    assert quorum.asked == [3]


async def test_it_gives_up_at_the_deadline() -> None:
    quorum = Quorum(leader_id=2)
    quorum.voters[3].outcome = RpcUnreachable("connection refused")
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(KafkaError) as timed_out:
        await quorum.client.call(REQUEST, 100)
    assert timed_out.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert 0.1 <= loop.time() - began < 1
    assert max(voter.timeouts_ms[0] for voter in quorum.voters.values() if voter.timeouts_ms) <= 100


def refusing(kind: type[Any]) -> Any:
    """An answer that does one thing and refuses another."""
    if kind is AdminResponse:
        exists = ItemOutcome(ErrorCode.INVALID_PARTITIONS, "it has 3")
        return AdminResponse(ErrorCode.NONE, "", (ItemOutcome(), exists), 7)
    there = TopicResult("t", ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")
    return kind(ErrorCode.NONE, (TopicResult("u", ErrorCode.NONE), there))


def errors_of(answer: Any) -> list[ErrorCode]:
    items = answer.outcomes if isinstance(answer, AdminResponse) else answer.topics
    return [one.error for one in items]


@pytest.mark.req("C3", "Q11")
@pytest.mark.parametrize("kind", [AdminResponse, CreateTopicsResponse, DeleteTopicsResponse])
@pytest.mark.parametrize(
    "lost",
    [
        RpcTimedOut("no answer"),
        RpcUnreachable("it ended"),
        RpcRefused(ErrorCode.REQUEST_TIMED_OUT, "leadership was lost"),
    ],
)
async def test_what_is_refused_after_an_attempt_without_an_answer_is_unknown(
    kind: type[Any], lost: Exception
) -> None:
    quorum = Quorum(leader_id=-1)
    quorum.voters[2].outcome = lost
    quorum.voters[3].outcome = refusing(kind)
    answer: Any = await quorum.client.call(REQUEST, 5_000)
    assert errors_of(answer) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    items = answer.outcomes if kind is AdminResponse else answer.topics
    assert items[1].message.startswith("an earlier attempt may have done it; the last was refused:")


@pytest.mark.req("C3", "Q11")
@pytest.mark.parametrize("kind", [AdminResponse, CreateTopicsResponse, DeleteTopicsResponse])
async def test_what_is_refused_is_told_where_no_earlier_attempt_was_heard(kind: type[Any]) -> None:
    quorum = Quorum(leader_id=-1)
    quorum.voters[2].outcome = RpcNotConnected("connection refused")
    quorum.voters[3].outcome = refused = refusing(kind)
    answer: object = await quorum.client.call(REQUEST, 5_000)
    assert answer is refused


@pytest.mark.req("C3", "Q11")
@pytest.mark.parametrize(
    "code", [ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
)
async def test_a_refusal_of_a_second_attempt_says_nothing_of_the_first(code: ErrorCode) -> None:
    """The rule that allowed the first may have been removed since."""
    quorum = Quorum(leader_id=-1)
    quorum.voters[3].outcome = RpcRefused(code, "too much")
    with pytest.raises(KafkaError) as unknown:
        await quorum.client.call(REQUEST, 5_000)
    assert unknown.value.code is ErrorCode.REQUEST_TIMED_OUT

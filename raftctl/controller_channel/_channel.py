"""Requests to the active controller: one loop, and for each kind of request a rule for retries.

Every attempt ends in one of three ways. It was certainly not done: no connection could be opened,
or the node refused because it is not the active controller. It is in doubt: no answer came, or the
leadership ended before the commit. Or the active controller has answered. Another attempt is always
allowed after the first; after the second only a rule can tell.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.requests.admin import AdminResponse, Outcome
from raftctl.metadata.requests.cluster import CreateTopicsResponse, DeleteTopicsResponse
from raftctl.metadata.requests.kv import (
    KvCasRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvGuardedWriteRequest,
    KvPutRequest,
)
from raftctl.rpc import RpcError, RpcNotConnected, RpcRefused

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.metadata.requests.cluster import TopicResult
    from raftctl.metadata.requests.kv import KvGetResponse, KvWriteResponse
    from raftctl.rpc import RpcClient
    from raftctl.runtime.api import Runtime

KvWriteRequest = KvPutRequest | KvCasRequest | KvDeleteRequest | KvGuardedWriteRequest

CLIENT_ID = 2**31 - 1
"""The node id in the hello of a program that is no node."""
ASK_ANOTHER = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_CONTROLLER_ID)
"""Refusals by a node that is not the active controller, or no controller at all."""
RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 200
ATTEMPT_TIMEOUT_MS = 2_000
"""The longest attempt of a request that may be repeated: after that another node is asked."""
UNKNOWN = "nobody knows whether it was done"


def is_certainly_not_done(error: RpcError) -> bool:
    """Return whether the failed attempt has changed nothing, and another node may be asked."""
    if isinstance(error, RpcRefused):
        return error.code in ASK_ANOTHER
    return isinstance(error, RpcNotConnected)


class RetryRule(Protocol):
    """Rules for the repetition of one request."""

    backoff_ms_max: int
    """Pauses double from `RETRY_BACKOFF_MS` up to this."""
    unanswered: ErrorCode
    """The error at the deadline."""

    def attempt_timeout_ms(self, left_ms: int) -> int:
        """Return how long the next attempt may take."""

    def check(self, error: RpcError) -> None:
        """Return if the request may be sent again; otherwise raise the caller's KafkaError."""


class Route(Protocol):
    """Return the controller to ask."""

    def controller(self, attempt: int) -> RpcClient:
        """Return the one to ask in this attempt, counted from 0."""

    def failed(self) -> None:
        """Record that the last one asked has not answered."""


async def call_until_answered(
    request: object, timeout_ms: int, rule: RetryRule, route: Route, rng: random.Random
) -> Any:
    """Ask one controller after another until one answers.

    Raises KafkaError by the deadline: what `rule` raises, or that none has answered. Pauses are
    jittered, so that the nodes of a cluster do not ask a new leader all at once.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    backoff_ms = RETRY_BACKOFF_MS
    attempt = 0
    while (left_ms := int((deadline - loop.time()) * 1000)) > 0:
        try:
            return await route.controller(attempt).call(request, rule.attempt_timeout_ms(left_ms))
        except RpcError as error:
            rule.check(error)
        route.failed()
        attempt += 1
        await asyncio.sleep(rng.uniform(0.5, 1) * backoff_ms / 1000)
        backoff_ms = min(backoff_ms * 2, rule.backoff_ms_max)
    raise KafkaError(rule.unanswered, "no active controller answered in time")


# --- requests of nodes ----------------------------------------------------------------------------


class RepeatInDoubt:
    """Requests of nodes are repeated in doubt: most have the same effect twice.

    A refusal after that is in doubt too: "it exists already" may mean that the first attempt
    created it.
    """

    backoff_ms_max = RETRY_BACKOFF_MS_MAX
    unanswered = ErrorCode.REQUEST_TIMED_OUT

    def __init__(self) -> None:
        self.in_doubt = False
        """Whether an earlier attempt may have been done."""

    def attempt_timeout_ms(self, left_ms: int) -> int:
        """See `RetryRule`."""
        return min(left_ms, ATTEMPT_TIMEOUT_MS)

    def check(self, error: RpcError) -> None:
        """See `RetryRule`."""
        if is_certainly_not_done(error):
            return
        if not isinstance(error, RpcRefused) or error.code is ErrorCode.REQUEST_TIMED_OUT:
            self.in_doubt = True
            return
        if self.in_doubt and error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            raise KafkaError(*_unknown(error.code, error.message)) from error
        raise KafkaError(error.code, error.message) from error


class LeaderFirst:
    """The leader if it is known, but every other time a voter in turn: what is known may be old."""

    def __init__(
        self,
        voters: Mapping[int, RpcClient],
        leader_id: Callable[[], int],
        in_turn: Callable[[], Sequence[int]],
    ) -> None:
        self._voters = voters
        self._leader_id = leader_id
        self._in_turn = in_turn

    def controller(self, attempt: int) -> RpcClient:
        """See `Route`."""
        leader_id = self._leader_id()
        turn = attempt
        if leader_id in self._voters:
            if attempt % 2 == 0:
                return self._voters[leader_id]
            turn = attempt // 2
        in_turn = self._in_turn()
        return self._voters[in_turn[turn % len(in_turn)]]

    def failed(self) -> None:
        """See `Route`. The next attempt looks for the leader again."""


class QuorumControllerClient:
    """Implements `raftctl.plugins.ControllerClient` over the voters' RPC connections."""

    def __init__(
        self,
        voters: Mapping[int, RpcClient],
        leader_id: Callable[[], int],
        runtime: Runtime,
        in_turn: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        """`in_turn` returns the voters to ask while the leader is not known; default: all."""
        self._route = LeaderFirst(voters, leader_id, in_turn or (lambda: sorted(voters)))
        self._random = runtime.random

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """See `raftctl.plugins.ControllerClient.call`."""
        rule = RepeatInDoubt()
        response: ControllerResponse = await call_until_answered(
            request, timeout_ms, rule, self._route, self._random
        )
        return _unless_done_before(response) if rule.in_doubt else response


def _unless_done_before(response: ControllerResponse) -> ControllerResponse:
    """Return the answer to a request that an earlier attempt may have done.

    Otherwise "it exists already" would reach the caller that has just created it.
    """
    match response:
        case AdminResponse(error, message, outcomes):
            results = tuple(Outcome(*_unknown(one.error, one.message)) for one in outcomes)
            error, message = _unknown(error, message)
            return replace(response, error=error, message=message, outcomes=results)
        case CreateTopicsResponse(error, topics) | DeleteTopicsResponse(error, topics):
            error, _ = _unknown(error, "")
            return replace(response, error=error, topics=tuple(map(_unless_changed, topics)))
    return response


def _unless_changed(result: TopicResult) -> TopicResult:
    error, message = _unknown(result.error, result.message)
    return replace(result, error=error, message=message)


def _unknown(error: ErrorCode, message: str) -> tuple[ErrorCode, str]:
    if error is ErrorCode.NONE:
        return error, message
    why = f"an earlier attempt may have done it; the last was refused: {message or error.text}"
    return ErrorCode.REQUEST_TIMED_OUT, why


# --- keys and values ------------------------------------------------------------------------------


class RepeatReads:
    """Reads change nothing, so they are repeated whatever became of the attempt before."""

    backoff_ms_max = RETRY_BACKOFF_MS
    unanswered = ErrorCode.NOT_CONTROLLER

    def attempt_timeout_ms(self, left_ms: int) -> int:
        """See `RetryRule`."""
        return min(left_ms, ATTEMPT_TIMEOUT_MS)

    def check(self, error: RpcError) -> None:
        """See `RetryRule`."""
        if isinstance(error, RpcRefused) and not is_certainly_not_done(error):
            raise KafkaError(error.code, error.message) from error


class RepeatIfNotDone:
    """Writes are repeated only if certainly not done.

    A put that is applied again after another client's put would undo that one.
    """

    backoff_ms_max = RETRY_BACKOFF_MS
    unanswered = ErrorCode.NOT_CONTROLLER

    def attempt_timeout_ms(self, left_ms: int) -> int:
        """See `RetryRule`. All the time there is: after a timeout nothing could be repeated."""
        return left_ms

    def check(self, error: RpcError) -> None:
        """See `RetryRule`."""
        if is_certainly_not_done(error):
            return
        if not isinstance(error, RpcRefused):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{error}; {UNKNOWN}") from error
        if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            why = f"the controller failed: {error.message}; {UNKNOWN}"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why) from error
        raise KafkaError(error.code, error.message) from error


class InTurn:
    """The controller that answered last; after a failure the next one."""

    def __init__(self, controllers: Sequence[RpcClient]) -> None:
        invariant(bool(controllers), "there is a controller to ask")
        self._controllers = controllers
        self._current = 0

    def controller(self, attempt: int) -> RpcClient:
        """See `Route`."""
        return self._controllers[self._current]

    def failed(self) -> None:
        """See `Route`."""
        self._current = (self._current + 1) % len(self._controllers)


class KvClient:
    """Keys and values for programs that are no node."""

    def __init__(self, controllers: Sequence[RpcClient], runtime: Runtime) -> None:
        self._route = InTurn(controllers)
        self._random = runtime.random

    async def read(self, request: KvGetRequest, timeout_ms: int) -> KvGetResponse:
        """Return the value, no older than any write answered before. Raises KafkaError."""
        response: KvGetResponse = await self._call(request, timeout_ms, RepeatReads())
        return response

    async def write(self, request: KvWriteRequest, timeout_ms: int) -> KvWriteResponse:
        """Return the outcome of the write, which may be that an expectation does not hold.

        Raises KafkaError. REQUEST_TIMED_OUT: it may have been done or not, or may be yet. Any
        other code: it was not done.
        """
        response: KvWriteResponse = await self._call(request, timeout_ms, RepeatIfNotDone())
        return response

    async def _call(self, request: object, timeout_ms: int, rule: RetryRule) -> Any:
        return await call_until_answered(request, timeout_ms, rule, self._route, self._random)

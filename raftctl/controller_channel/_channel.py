"""Requests to the active controller: one loop over the voters, and what it may repeat.

Every attempt ends in one of three ways. It was certainly not done: no connection could be opened,
or the node refused because it is not the active controller. It is in doubt: no answer came, or the
leadership ended before the commit. Or the active controller has answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests.admin import AdminResponse, ItemOutcome
from raftctl.metadata.requests.cluster import CreateTopicsResponse, DeleteTopicsResponse
from raftctl.rpc import RpcError, RpcNotConnected, RpcRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.metadata.requests.cluster import TopicResult
    from raftctl.rpc import RpcClient
    from raftctl.runtime.api import Runtime

CLIENT_ID = 2**31 - 1
"""The node id in the hello of a program that is no node."""
ASK_ANOTHER = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_CONTROLLER_ID)
"""Refusals by a node that is not the active controller, or no controller at all."""
REFUSED_UNDONE = (
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
"""Refusals that say nothing of an earlier attempt: a rule may have been removed after it."""
RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 200
"""Pauses double up to this."""
ATTEMPT_TIMEOUT_MS = 2_000
"""The longest attempt: after that another node is asked."""


def is_certainly_not_done(error: RpcError) -> bool:
    """Return whether the failed attempt has changed nothing, and another node may be asked."""
    if isinstance(error, RpcRefused):
        return error.code in ASK_ANOTHER
    return isinstance(error, RpcNotConnected)


class RepeatInDoubt:
    """Requests of nodes are repeated in doubt: most have the same effect twice.

    A refusal after that is in doubt too: "it exists already" may mean that the first attempt
    created it.
    """

    def __init__(self) -> None:
        self.in_doubt = False
        """Whether an earlier attempt may have been done."""

    def check(self, error: RpcError) -> None:
        """Return if the request may be sent again; otherwise raise the caller's KafkaError."""
        if is_certainly_not_done(error):
            return
        if not isinstance(error, RpcRefused) or error.code is ErrorCode.REQUEST_TIMED_OUT:
            self.in_doubt = True
            return
        if self.in_doubt and error.code in REFUSED_UNDONE:
            raise KafkaError(*_unknown(error.code, error.message)) from error
        raise KafkaError(error.code, error.message) from error


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
        self._voters = voters
        self._leader_id = leader_id
        self._in_turn = in_turn or (lambda: sorted(voters))
        self._random = runtime.random

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """See `raftctl.plugins.ControllerClient.call`: asks one voter after another.

        Pauses are jittered, so that the nodes of a cluster do not ask a new leader all at once.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        backoff_ms = RETRY_BACKOFF_MS
        rule = RepeatInDoubt()
        attempt = 0
        while (left_ms := int((deadline - loop.time()) * 1000)) > 0:
            try:
                response: ControllerResponse = await self._voter(attempt).call(
                    request, min(left_ms, ATTEMPT_TIMEOUT_MS)
                )
                return _unless_done_before(response) if rule.in_doubt else response
            except RpcError as error:
                rule.check(error)
            attempt += 1
            await asyncio.sleep(self._random.uniform(0.5, 1) * backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no active controller answered in time")

    def _voter(self, attempt: int) -> RpcClient:
        """The leader if it is known, but every other time a voter in turn: it may be an old one."""
        leader_id = self._leader_id()
        turn = attempt
        if leader_id in self._voters:
            if attempt % 2 == 0:
                return self._voters[leader_id]
            turn = attempt // 2
        in_turn = self._in_turn()
        return self._voters[in_turn[turn % len(in_turn)]]


def _unless_done_before(response: ControllerResponse) -> ControllerResponse:
    """Return the answer to a request that an earlier attempt may have done.

    Otherwise "it exists already" would reach the caller that has just created it.
    """
    match response:
        case AdminResponse(error, message, outcomes):
            results = tuple(ItemOutcome(*_unknown(one.error, one.message)) for one in outcomes)
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

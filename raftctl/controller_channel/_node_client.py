"""The way to the active controller: finds it, retries, gives up at the deadline.

A request is sent again when no answer came, or a controller lost its leadership before it could
tell what became of it, though it may have been done: most are the same twice.
What is refused then may have been refused because it was done before, so nobody knows.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests.admin import AdminResponse, Outcome
from raftctl.metadata.requests.cluster import CreateTopicsResponse, DeleteTopicsResponse
from raftctl.rpc import RpcError, RpcNotConnected, RpcRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from raftctl.metadata.requests.cluster import ControllerRequest, ControllerResponse, TopicResult
    from raftctl.rpc import RpcClient
    from raftctl.runtime.api import Runtime

ASK_ANOTHER = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_CONTROLLER_ID)
"""Refusals that come from a node which is not the active controller, or no controller at all."""
RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 200
ATTEMPT_TIMEOUT_MS = 2_000


class QuorumControllerClient:
    """Implements `raftctl.plugins.ControllerClient` over the voters' RPC connections."""

    def __init__(
        self,
        voters: Mapping[int, RpcClient],
        leader_id: Callable[[], int],
        runtime: Runtime,
        in_turn: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        """`in_turn` tells whom of them to ask while the leader is not known; default: all."""
        self._voters = voters
        self._leader_id = leader_id
        self._runtime = runtime
        self._in_turn = in_turn or (lambda: sorted(voters))

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """See `raftctl.plugins.ControllerClient.call`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        backoff_ms = RETRY_BACKOFF_MS
        attempt = 0
        in_doubt = False
        while (left_ms := int((deadline - loop.time()) * 1000)) > 0:
            voter = self._voters[self._next_voter(attempt)]
            try:
                response: ControllerResponse = await voter.call(
                    request, min(left_ms, ATTEMPT_TIMEOUT_MS)
                )
                return _unless_done_before(response) if in_doubt else response
            except RpcRefused as error:
                in_doubt = in_doubt or error.code is ErrorCode.REQUEST_TIMED_OUT
                if error.code in (*ASK_ANOTHER, ErrorCode.REQUEST_TIMED_OUT):
                    pass
                elif in_doubt and error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                    raise KafkaError(*_unknown(error.code, error.message)) from error
                else:
                    raise KafkaError(error.code, error.message) from error
            except RpcNotConnected:
                pass
            except RpcError:
                in_doubt = True
            attempt += 1
            await asyncio.sleep(self._runtime.random.uniform(0.5, 1) * backoff_ms / 1000)
            backoff_ms = min(backoff_ms * 2, RETRY_BACKOFF_MS_MAX)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no active controller answered in time")

    def _next_voter(self, attempt: int) -> int:
        """The leader as far as known, every other time a voter in turn, should that be wrong."""
        leader_id = self._leader_id()
        turn = attempt
        if leader_id in self._voters:
            if attempt % 2 == 0:
                return leader_id
            turn = attempt // 2
        in_turn = self._in_turn()
        return in_turn[turn % len(in_turn)]


def _unless_done_before(response: ControllerResponse) -> ControllerResponse:
    """The answer to a request that an earlier attempt may have done: what is refused is unknown.

    "It exists already" would else be told to whoever has just created it, as if nothing was done.
    """
    match response:
        case AdminResponse(error, message, outcomes):
            told = tuple(Outcome(*_unknown(one.error, one.message)) for one in outcomes)
            error, message = _unknown(error, message)
            return replace(response, error=error, message=message, outcomes=told)
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

"""The way to the active controller: finds it, retries, gives up at the deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.errors import ErrorCode, KafkaError
from raftctl.rpc.client import RpcError, RpcRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.rpc.client import RpcClient
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
        while (left_ms := int((deadline - loop.time()) * 1000)) > 0:
            voter = self._voters[self._next_voter(attempt)]
            try:
                response: ControllerResponse = await voter.call(
                    request, min(left_ms, ATTEMPT_TIMEOUT_MS)
                )
                return response
            except RpcRefused as error:
                if error.code not in ASK_ANOTHER:
                    raise KafkaError(error.code, error.message) from error
            except RpcError:
                pass
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

"""Keys and values over the RPC of the controllers, for simulations, which have no HTTP.

A put that is applied again after another client's put would undo that one, so only a request that
certainly was not done is sent again. Reads are repeated whatever became of the attempt before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from raftctl.controller_channel._channel import (
    ATTEMPT_TIMEOUT_MS,
    RETRY_BACKOFF_MS,
    is_certainly_not_done,
)
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.requests.kv import (
    KvCasRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvGuardedWriteRequest,
    KvPutRequest,
)
from raftctl.rpc import RpcError, RpcRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.requests.kv import KvGetResponse, KvWriteResponse
    from raftctl.rpc import RpcClient
    from raftctl.runtime.api import Runtime

KvWriteRequest = KvPutRequest | KvCasRequest | KvDeleteRequest | KvGuardedWriteRequest

UNKNOWN = "nobody knows whether it was done"


class KvClient:
    """A client that keeps to the controller that answered last; after a failure the next one."""

    def __init__(self, controllers: Sequence[RpcClient], runtime: Runtime) -> None:
        self._controllers = controllers
        self._current = 0
        self._random = runtime.random

    async def read(self, request: KvGetRequest, timeout_ms: int) -> KvGetResponse:
        """Return the value, no older than any write answered before. Raises KafkaError."""
        response: KvGetResponse = await self._call(request, timeout_ms, writes=False)
        return response

    async def write(self, request: KvWriteRequest, timeout_ms: int) -> KvWriteResponse:
        """Return the outcome of the write, which may be that an expectation does not hold.

        Raises KafkaError. REQUEST_TIMED_OUT: it may have been done or not, or may be yet. Any
        other code: it was not done.
        """
        response: KvWriteResponse = await self._call(request, timeout_ms, writes=True)
        return response

    async def _call(self, request: object, timeout_ms: int, *, writes: bool) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while (left_ms := int((deadline - loop.time()) * 1000)) > 0:
            attempt_ms = left_ms if writes else min(left_ms, ATTEMPT_TIMEOUT_MS)
            try:
                return await self._controllers[self._current].call(request, attempt_ms)
            except RpcError as error:
                if not is_certainly_not_done(error):
                    _check(error, writes=writes)
            self._current = (self._current + 1) % len(self._controllers)
            await asyncio.sleep(self._random.uniform(0.5, 1) * RETRY_BACKOFF_MS / 1000)
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "no active controller answered in time")


def _check(error: RpcError, *, writes: bool) -> None:
    """Return if a request that is in doubt may be sent again; otherwise raise KafkaError."""
    if not isinstance(error, RpcRefused):
        if writes:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{error}; {UNKNOWN}") from error
        return
    if writes and error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
        why = f"the controller failed: {error.message}; {UNKNOWN}"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why) from error
    raise KafkaError(error.code, error.message) from error

"""Keys and values from outside: finds the active controller and never does a write twice.

A put that is applied again after somebody else's undoes that one, so a write is repeated only when
it is certain that nothing was done: no connection could be opened, or the node refused because it
is not the active controller. After anything else the caller is told that nobody knows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.metadata.requests.cluster import (
    KvCasRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvPutRequest,
)
from raftctl.metadata.requests.kv import KvGuardedWriteRequest
from raftctl.rpc import RpcError, RpcNotConnected, RpcRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.requests.cluster import KvGetResponse, KvWriteResponse
    from raftctl.rpc import RpcClient
    from raftctl.runtime.api import Runtime

KvWriteRequest = KvPutRequest | KvCasRequest | KvDeleteRequest | KvGuardedWriteRequest

CLIENT_ID = 2**31 - 1
"""What a program that is no node says it is when it connects."""
ASK_ANOTHER = (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_CONTROLLER_ID)
RETRY_BACKOFF_MS = 20
READ_ATTEMPT_TIMEOUT_MS = 2_000
UNKNOWN = "nobody knows whether it was done"


class KvClient:
    """Asks the controllers in turn until one is active, and then that one."""

    def __init__(self, controllers: Sequence[RpcClient], runtime: Runtime) -> None:
        invariant(bool(controllers), "there is a controller to ask")
        self._controllers = controllers
        self._random = runtime.random
        self._current = 0

    async def read(self, request: KvGetRequest, timeout_ms: int) -> KvGetResponse:
        """The value, no older than any write answered before. Raises KafkaError."""
        response: KvGetResponse = await self._call(request, timeout_ms)
        return response

    async def write(self, request: KvWriteRequest, timeout_ms: int) -> KvWriteResponse:
        """What the write came to, which may be that an expectation does not hold.

        Raises KafkaError. REQUEST_TIMED_OUT: it may have been done or not, or may be yet. Any
        other code: it was not done.
        """
        response: KvWriteResponse = await self._call(request, timeout_ms)
        return response

    async def _call(self, request: KvGetRequest | KvWriteRequest, timeout_ms: int) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        while (left_ms := int((deadline - loop.time()) * 1000)) > 0:
            response = await self._attempt(request, left_ms)
            if response is not None:
                return response
            self._current = (self._current + 1) % len(self._controllers)
            await asyncio.sleep(self._random.uniform(0.5, 1) * RETRY_BACKOFF_MS / 1000)
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "no active controller answered in time")

    async def _attempt(self, request: KvGetRequest | KvWriteRequest, left_ms: int) -> Any:
        """One controller's answer; None if another may be asked."""
        reads = isinstance(request, KvGetRequest)
        timeout_ms = min(left_ms, READ_ATTEMPT_TIMEOUT_MS) if reads else left_ms
        try:
            return await self._controllers[self._current].call(request, timeout_ms)
        except RpcRefused as error:
            if error.code in ASK_ANOTHER:
                return None
            if error.code is ErrorCode.UNKNOWN_SERVER_ERROR and not reads:
                why = f"the controller failed: {error.message}; {UNKNOWN}"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why) from error
            raise KafkaError(error.code, error.message) from error
        except RpcNotConnected:
            return None
        except RpcError as error:
            if reads:
                return None
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{error}; {UNKNOWN}") from error

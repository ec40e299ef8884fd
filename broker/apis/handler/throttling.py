"""Quotas around a request: measured here, answered at once, then its connection is muted (KIP-219).

Dispatch calls `started` and `finished` around each handler. The handler of Fetch alone calls
`fetched` as well: only it knows the bytes, and a Fetch that must wait is answered without records.
While no client has a quota, dispatch calls nothing of this.

The bytes of a Produce count when its handler returns, not when its replicas have them. Else 32 more
could start behind it before the first is measured. The time is that which the event loop spends on
the request; what waits for replicas, for a disk or for a worker costs others nothing.

Exempt are what brokers ask of each other, as in Apache Kafka: fetches of followers and the markers
of transactions. Who asks as one needs CLUSTER_ACTION where there is an authorizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from broker.apis.handler._context import Encoded
from broker.protocol.codec import decode_response_body
from broker.protocol.versions import ApiKey
from broker.quotas import QuotaType

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from broker.apis.handler._context import Answer, ApiContext
    from broker.protocol.codec import Request
    from broker.request_context import RequestContext

Result = TypeVar("Result")

_EXEMPT = (ApiKey.WRITE_TXN_MARKERS,)
_PERCENT_OF_SECOND = 100.0


class Metered(Coroutine[Any, Any, Result]):
    """A coroutine whose steps count as time of the event loop of a request."""

    def __init__(self, work: Coroutine[Any, Any, Result], context: RequestContext) -> None:
        self._work = work
        self._context = context

    def __await__(self) -> Generator[Any, Any, Result]:
        return self._work.__await__()

    def send(self, value: Any) -> Any:
        """Take the next step."""
        return self._step(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        """Take the next step with an error."""
        return self._step(self._work.throw, *error)

    def close(self) -> None:
        """End the work."""
        self._work.close()

    def _step(self, step: Callable[..., Any], *args: Any) -> Any:
        return metered(self._context, lambda: step(*args))


def metered(context: RequestContext, call: Callable[[], Result]) -> Result:
    """Return what the call returns; count it as time of the event loop of a request."""
    time = asyncio.get_running_loop().time
    began = time()
    try:
        return call()
    finally:
        context.loop_seconds += time() - began


def started(context: ApiContext, request: Request[Any]) -> None:
    """Count what the handler has done when it returns, be its answer there or not."""
    now = asyncio.get_running_loop().time()
    request.context.loop_seconds += now - request.context.started_at
    if request.api_key == ApiKey.PRODUCE:
        spent = _record(context, request, QuotaType.PRODUCE, request.context.size, now)
        _mute(request, spent, now, QuotaType.PRODUCE)


def finished(context: ApiContext, request: Request[Any], answer: Answer) -> Answer:
    """Count the time of a request that has its answer; return the answer with its throttle time."""
    if request.api_key not in (ApiKey.FETCH, *_EXEMPT) and answer is not None:
        now = asyncio.get_running_loop().time()
        _mute(request, _record_time(context, request, now), now, QuotaType.REQUEST)
    if not request.context.throttle_ms or answer is None:
        # A Produce with acks=0 has no answer; its connection is muted all the same.
        return answer
    if isinstance(answer, Encoded):
        answer = decode_response_body(request.api_key, request.version, answer.body)
    return {**answer, "throttle_time_ms": request.context.throttle_ms}


def fetched(context: ApiContext, request: Request[Any], size: int) -> bool:
    """Count a Fetch of a consumer; return whether it must wait, and be answered without records.

    `size` is that of the answer with its records. They count for nothing if they are not sent.
    """
    now = asyncio.get_running_loop().time()
    # Not yet counted where the handler itself has the answer: `started` comes after it.
    request.context.loop_seconds = request.context.loop_seconds or now - request.context.started_at
    by_time = _record_time(context, request, now)
    by_bytes = _record(context, request, QuotaType.FETCH, size, now)
    _mute(request, by_time, now, QuotaType.REQUEST)
    _mute(request, by_bytes, now, QuotaType.FETCH)
    if by_time or by_bytes:
        _record(context, request, QuotaType.FETCH, -size, now)
        return True
    return False


def mute(request: Request[Any], throttle_ms: int) -> None:
    """Have the connection wait for at least so long before it may change topics again."""
    now = asyncio.get_running_loop().time()
    _mute(request, throttle_ms, now, QuotaType.CONTROLLER_MUTATION)


def _mute(request: Request[Any], throttle_ms: int, now: float, quota: QuotaType) -> None:
    if throttle_ms > 0:
        connection, muted_until = request.context.connection, now + throttle_ms / 1000
        request.context.throttle_ms = max(request.context.throttle_ms, throttle_ms)
        if muted_until > connection.muted_until:
            connection.muted_by = quota.value
        connection.muted_until = max(connection.muted_until, muted_until)


def _record_time(context: ApiContext, request: Request[Any], now: float) -> int:
    spent = request.context.loop_seconds * _PERCENT_OF_SECOND
    return _record(context, request, QuotaType.REQUEST, spent, now)


def _record(
    context: ApiContext, request: Request[Any], kind: QuotaType, value: float, now: float
) -> int:
    principal = request.context.connection.principal
    return context.quotas.record(kind, principal, request.client_id, value, int(now * 1000))

"""The way of a client's request to the active controller: whose it is, and what it is called.

The controller asks its authorizer for the client's principal, and its log has the id by which this
broker names the request. Source: KIP-590.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from broker.apis.handler import authorization
from raftctl.metadata.requests.origin import Origin
from raftctl.tracing import SpanKind

if TYPE_CHECKING:
    from broker.apis.handler._context import ApiContext
    from broker.protocol.codec import Request
    from raftctl.metadata.requests import ControllerResponse, ForwardedRequest


async def ask_controller(
    context: ApiContext, request: Request[Any], change: ForwardedRequest, timeout_ms: int
) -> ControllerResponse:
    """Return the active controller's answer to what a client's `request` asks of it.

    KafkaError(REQUEST_TIMED_OUT) if no controller answers in time.
    """
    loop, client = asyncio.get_running_loop(), request.context
    tracer, trace = context.tracer, client.trace
    span = None if tracer is None or trace is None else tracer.child(trace)
    origin = None
    if client.request_id or span is not None:
        origin = Origin(client.request_id, "" if span is None else span.traceparent)
    change = replace(change, requester=authorization.requester_of(request), origin=origin)
    name, began = type(change).__name__, loop.time()
    try:
        return await context.controller.call(change, timeout_ms)
    finally:
        ended = loop.time()
        waited_ms = (ended - began) * 1000
        client.waited_for = f"{waited_ms:.0f} ms for the active controller"
        context.log.debug("request_forwarded", request=name, waited_ms=round(waited_ms, 3))
        if tracer is not None and span is not None:
            tracer.record(f"ask {name}", span, trace, began, ended, {}, SpanKind.CLIENT)

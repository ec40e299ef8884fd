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
    origin = Origin(client.request_id) if client.request_id else None
    change = replace(change, requester=authorization.requester_of(request), origin=origin)
    began = loop.time()
    try:
        return await context.controller.call(change, timeout_ms)
    finally:
        waited_ms = (loop.time() - began) * 1000
        client.waited_for = f"{waited_ms:.0f} ms for the active controller"
        context.log.debug(
            "request_forwarded", request=type(change).__name__, waited_ms=round(waited_ms, 3)
        )

"""The id of each request over HTTP: taken from its client or given here, and echoed.

A proxy that numbers requests sends `X-Request-Id`. The id stands in the lines of the log that are
about the request, so it must be one that can stand there; any other is replaced. RPC has none: the
messages on its connection are requests of their own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from raftctl.rpc.codec import PATH
from raftctl.tracing import Named, SpanKind, follow, is_request_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from raftctl.tracing import RequestIds, Tracer

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEADER = "X-Request-Id"
TRACEPARENT = "traceparent"
"""W3C Trace Context."""
_ID = web.RequestKey("request_id", str)


def number_requests(
    application: web.Application, ids: RequestIds, tracer: Tracer | None = None
) -> None:
    """Have each request of the application followed under an id, refused ones too."""

    @web.middleware
    async def name(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == PATH:
            return await handler(request)
        given = request.headers.get(HEADER, "")
        request[_ID] = request_id = given if is_request_id(given) else ids.of_request()
        follow(Named(request_id))
        try:
            if tracer is None:
                return await handler(request)
            return await _traced(tracer, request, handler)
        finally:
            follow(None)

    async def echo(request: web.Request, response: web.StreamResponse) -> None:
        if _ID in request:
            response.headers[HEADER] = request[_ID]

    # Before those that refuse requests.
    application.middlewares.insert(0, name)
    application.on_response_prepare.append(echo)


async def _traced(tracer: Tracer, request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request; record its span if its client records one, or else if it is sampled."""
    parent, span = None, None
    try:
        followed = tracer.follow(request.headers[TRACEPARENT])
        if followed is not None:
            parent, span = followed
    except (KeyError, ValueError):
        span = tracer.sample()
    if span is None:
        return await handler(request)
    loop = asyncio.get_running_loop()
    began, status = loop.time(), 500
    try:
        response = await handler(request)
        status = response.status
        return response
    except web.HTTPException as error:
        status = error.status
        raise
    finally:
        resource = request.match_info.route.resource
        route = "" if resource is None else resource.canonical
        about: dict[str, str | int] = {
            "raftctl.request_id": request[_ID],
            "http.request.method": request.method,
            "http.route": route,
            "http.response.status_code": status,
            "client.address": request.remote or "",
        }
        ended = loop.time()
        tracer.record(
            f"{request.method} {route}", span, parent, began, ended, about, SpanKind.SERVER
        )

"""The id of each request over HTTP: taken from its client or given here, and echoed.

A proxy that numbers requests sends `X-Request-Id`. The id stands in the lines of the log that are
about the request, so it must be one that can stand there; any other is replaced. RPC has none: the
messages on its connection are requests of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from raftctl.rpc.codec import PATH
from raftctl.tracing import Named, follow, is_request_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from raftctl.tracing import RequestIds

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEADER = "X-Request-Id"
_ID = web.RequestKey("request_id", str)


def number_requests(application: web.Application, ids: RequestIds) -> None:
    """Have each request of the application followed under an id, refused ones too."""

    @web.middleware
    async def name(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == PATH:
            return await handler(request)
        given = request.headers.get(HEADER, "")
        request[_ID] = request_id = given if is_request_id(given) else ids.of_request()
        follow(Named(request_id))
        try:
            return await handler(request)
        finally:
            follow(None)

    async def echo(request: web.Request, response: web.StreamResponse) -> None:
        if _ID in request:
            response.headers[HEADER] = request[_ID]

    # Before those that refuse requests.
    application.middlewares.insert(0, name)
    application.on_response_prepare.append(echo)

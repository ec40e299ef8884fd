"""A request of the console's API, how it is answered, and what protects every answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

from raftctl.console.http._rights import Rights
from raftctl.errors import ErrorCode, KafkaError
from raftctl.http_json import BadFieldError, Fields, error_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from raftctl.security import Authorizer, Requester

    Identify = Callable[[web.Request], Requester]
    Handler = Callable[["Asked"], Awaitable[Mapping[str, Any]]]
    WebHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PATH = "/console"
API = f"{PATH}/api"
OWN_HEADER = "X-Raftctl-Console"
"""Of each request that changes something. A page of another site cannot send it unasked: a browser
asks this node first, which refuses."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
_PROTECTION = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Asked(NamedTuple):
    """A request, as the handlers of views and actions see it."""

    rights: Rights
    fields: Fields
    """Of the query or of the body; a handler ends with `fields.end()`."""
    named: Mapping[str, str]
    """What the path names: the parts in braces of the route."""

    @property
    def requester(self) -> Requester:
        """Who asks."""
        return self.rights.requester


def answering(authorizer: Authorizer | None, identify: Identify) -> Callable[[Handler], WebHandler]:
    """Return what makes a handler of requests of the API from one of `Asked`.

    What the handler returns is the document; KafkaError and BadFieldError become errors.
    """

    def wrapped(handler: Handler) -> WebHandler:
        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                if request.method == "POST" and request.headers.get(OWN_HEADER) != "1":
                    raise BadFieldError(OWN_HEADER, "must be 1: only the console's page acts")
                asked = Asked(
                    Rights(authorizer, identify(request)),
                    await Fields.of(request),
                    dict(request.match_info),
                )
                return web.json_response(await handler(asked))
            except (BadFieldError, KafkaError) as error:
                return error_response(error)

        return answer

    return wrapped


async def nothing_here(request: web.Request) -> web.Response:
    """Answer what no route of the console takes: another method, or a path that is not there."""
    del request
    why = "path: the console has nothing there, or not for this method"
    return error_response(KafkaError(ErrorCode.RESOURCE_NOT_FOUND, why))


async def protect(request: web.Request, response: web.StreamResponse) -> None:
    """Put the security headers on an answer below /console, refusals of the listener included.

    To be connected to the application's signal `on_response_prepare`.
    """
    if request.path == PATH or request.path.startswith(f"{PATH}/"):
        response.headers.update(_PROTECTION)
        response.headers.setdefault("Cache-Control", "no-store")

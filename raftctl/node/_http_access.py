"""Who may use a controller's listener: rules on the cluster, for RPC and HTTP alike (row S6).

A peer's RPC may change the quorum and claim any node id, so it needs CLUSTER_ACTION, as with Apache
Kafka's controllers. What is read over HTTP needs DESCRIBE, and all else ALTER. Signs of life are
for everybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.rpc.codec import PATH
from raftctl.security import ANONYMOUS, Action, Principal, Requester

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from aiohttp.typedefs import Middleware

    from raftctl.security import Authorizer
    from raftctl.security.tls import TlsListener

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OPEN = ("/healthz", "/readyz")
_READING = ("GET", "HEAD")


def identified(tls: TlsListener, inner: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    """Return the protocol of a connection, whose transport knows the principal of its peer."""

    def identify(name: str | None) -> None:
        connection.principal = ANONYMOUS if name is None else Principal.of_user(name)

    connection = tls.wrap(inner, identify)
    return connection


def http_access(authorizer: Authorizer) -> Middleware:
    """Return what answers 403 to a principal that the authorizer denies what it asks for."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _OPEN and not _is_allowed(authorizer, request):
            document = {
                "error": "CLUSTER_AUTHORIZATION_FAILED",
                "message": f"{_principal(request)} may not {_operation(request).name} the cluster",
            }
            return web.json_response(document, status=403)
        return await handler(request)

    return check


def _is_allowed(authorizer: Authorizer, request: web.Request) -> bool:
    action = Action(_operation(request), ResourceType.CLUSTER, CLUSTER_NAME)
    return authorizer.authorize(Requester(_principal(request), request.remote or ""), action)


def _operation(request: web.Request) -> Operation:
    if request.path == PATH:
        return Operation.CLUSTER_ACTION
    return Operation.DESCRIBE if request.method in _READING else Operation.ALTER


def _principal(request: web.Request) -> Principal:
    transport = request.transport
    found = None if transport is None else transport.get_extra_info("principal")
    return found if isinstance(found, Principal) else ANONYMOUS

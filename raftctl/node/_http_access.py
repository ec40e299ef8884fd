"""Who may use a controller's listener: rules on the cluster, for RPC and HTTP alike (row S6).

A peer's RPC may change the quorum and claim any node id, so it needs CLUSTER_ACTION, as with Apache
Kafka's controllers. What is read over HTTP needs DESCRIBE, and all else ALTER. Keys and values have
rules of their own (`raftctl.kv`). Signs of life are for everybody.

A page of another site in a user's browser is kept out in two ways. A request that it sends to this
address has an `Origin`. If its own name is made to resolve to this address, the browser takes this
node for the site: then `Host` has a name that is not the node's. An address in `Host` is as good as
a name, since no resolver is asked for it.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp import web

from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.rpc.codec import PATH
from raftctl.security import ANONYMOUS, Action, Principal, Requester

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Collection

    from aiohttp.typedefs import Middleware

    from raftctl.config import NodeConfig
    from raftctl.security import Authorizer
    from raftctl.security.tls import TlsListener

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OPEN = ("/healthz", "/readyz")
_READING = ("GET", "HEAD")
_SHOWN = 100
"""Characters of a header in an error."""


def identified(tls: TlsListener, inner: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    """Return the protocol of a connection, whose transport knows the principal of its peer."""

    def identify(name: str | None) -> None:
        connection.principal = ANONYMOUS if name is None else Principal.of_user(name)

    connection = tls.wrap(inner, identify)
    return connection


def own_hosts(config: NodeConfig) -> frozenset[str]:
    """Return the names by which clients reach this controller, in lower case."""
    endpoint = config.controller_endpoint
    listeners = (*config.controller_listeners, *(() if endpoint is None else (endpoint,)))
    quorum = (*config.controller_quorum_voters, *config.controller_quorum_bootstrap_servers)
    named = (one.host for one in (*listeners, *quorum))
    return frozenset(map(_normal, ("localhost", *named, *config.http_allowed_hosts)))


def no_foreign_pages(hosts: Collection[str]) -> Middleware:
    """Return what refuses requests that a page of another site has made."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers:
            return _refusal(403, "INVALID_REQUEST", "Origin: browsers are not served", "Origin")
        # Nodes name each other as they are configured, and a browser's WebSocket has an Origin.
        if request.path not in (*_OPEN, PATH):
            host = request.headers.get("Host", "")
            if not _is_address(_without_port(host)) and _normal(_without_port(host)) not in hosts:
                why = f"Host: {host[:_SHOWN]} is no name of this node: http.allowed.hosts adds one"
                return _refusal(421, "INVALID_REQUEST", why, "Host")
        return await handler(request)

    return check


def _refusal(status: int, error: str, message: str, field: str) -> web.Response:
    document = {"error": error, "message": message, "field": field}
    return web.json_response(document, status=status)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _normal(host: str) -> str:
    return host.lower().removesuffix(".")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


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

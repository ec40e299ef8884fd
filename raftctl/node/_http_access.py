"""Who may use a node's listener for HTTP: rules on the cluster, for RPC and HTTP alike (row S6).

A peer's RPC may change the quorum and claim any node id, so it needs CLUSTER_ACTION, as with Apache
Kafka's controllers. What is read over HTTP needs DESCRIBE, and all else ALTER. Keys and values have
rules of their own (`raftctl.kv`). Signs of life are for everybody.

A page of another site in a user's browser is kept out in two ways. A request that it sends to this
address has an `Origin`. If its own name is made to resolve to this address, the browser takes this
node for the site: then `Host` has a name that is not the node's. An address in `Host` is as good as
a name, since no resolver is asked for it.

The console is a page of this node's own: below its path, and nowhere else, a request may have an
`Origin`, which must be that page's. Its handlers decide what a requester may do, by the rules of
the protocol.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp import web

from raftctl.console import API as CONSOLE_API
from raftctl.console import PATH as CONSOLE_PATH
from raftctl.errors import ErrorCode, KafkaError
from raftctl.kv import PATH as KEYS_PATH
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.node._logins import REFUSED
from raftctl.rpc.codec import PATH
from raftctl.security import ANONYMOUS, Action, Principal, Requester
from raftctl.security.sasl import OAUTHBEARER, SaslError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from aiohttp.typedefs import Middleware
    from structlog.typing import FilteringBoundLogger

    from raftctl.config import NodeConfig
    from raftctl.node._logins import ControllerLogins
    from raftctl.security import Authorizer
    from raftctl.security.tls import TlsListener

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OPEN = ("/healthz", "/livez", "/readyz")
_READING = ("GET", "HEAD")
_KEYS = f"{KEYS_PATH}/"
"""Below it rules on keys decide."""
_REQUESTER = web.RequestKey("requester", Requester)
_NOT_PRIVATE = "credentials are taken over TLS only, or from this machine: use SASL_SSL"
_SHOWN = 100
"""Characters of a header in an error."""


def identified(tls: TlsListener, inner: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    """Return the protocol of a connection, whose transport knows the principal of its peer."""

    def identify(name: str | None) -> None:
        connection.principal = ANONYMOUS if name is None else Principal.of_user(name)

    connection = tls.wrap(inner, identify)
    return connection


def own_hosts(config: NodeConfig) -> frozenset[str]:
    """Return the names by which clients reach this node, in lower case."""
    endpoint = config.controller_endpoint
    own = [one for one in (endpoint, config.http_listener) if one is not None]
    listeners = (*config.controller_listeners, *config.advertised, *own)
    names = {
        "localhost",
        *(one.host for one in listeners),
        *(one.host for one in config.controller_quorum_voters),
        *(one.host for one in config.controller_quorum_bootstrap_servers),
        *config.http_allowed_hosts,
    }
    return frozenset(map(_normal, names))


def no_foreign_pages(hosts: Collection[str], *, is_tls: bool = False) -> Middleware:
    """Return what refuses requests that a page of another site has made.

    `is_tls` says whether clients reach this listener by TLS.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers:
            if not _is_console(_path(request)):
                return _refusal(403, "INVALID_REQUEST", "Origin: browsers are not served", "Origin")
            if not _is_own_origin(request, is_tls=is_tls):
                why = "Origin: only the console's own page is served here"
                return _refusal(403, "INVALID_REQUEST", why, "Origin")
        site = request.headers.get("Sec-Fetch-Site", "none")
        if _path(request).startswith(f"{CONSOLE_API}/") and site not in ("none", "same-origin"):
            why = "Sec-Fetch-Site: only the console's own page is served here"
            return _refusal(403, "INVALID_REQUEST", why, "Sec-Fetch-Site")
        # Nodes name each other as they are configured, and a browser's WebSocket has an Origin.
        if _path(request) not in (*_OPEN, PATH):
            host = request.headers.get("Host", "")
            if not _is_address(_without_port(host)) and _normal(_without_port(host)) not in hosts:
                why = f"Host: {host[:_SHOWN]} is no name of this node: http.allowed.hosts adds one"
                return _refusal(421, "INVALID_REQUEST", why, "Host")
        return await handler(request)

    return check


def _path(request: web.Request) -> str:
    """Return the path of the route that answers, however the request has spelt it."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


def _is_console(path: str) -> bool:
    return path == CONSOLE_PATH or path.startswith(f"{CONSOLE_PATH}/")


def _is_own_origin(request: web.Request, *, is_tls: bool) -> bool:
    """Return whether the page that asks is one of the address that it asks.

    Before a listener without TLS there may be a proxy that has it. The other way round, who is
    between would put a page of `http:` before the user.
    """
    scheme, _, host = request.headers["Origin"].partition("://")
    known = ("https",) if is_tls else ("http", "https")
    return scheme in known and host.lower() == request.headers.get("Host", "").lower() != ""


def _refusal(status: int, error: str, message: str, field: str) -> web.Response:
    document = {"error": error, "message": message, "field": field}
    return web.json_response(document, status=status)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _normal(host: str) -> str:
    return host.lower().removesuffix(".")


def _is_loopback(host: str) -> bool:
    return _is_address(host) and ip_address(host).is_loopback


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def identified_by_connection(request: web.Request) -> Requester:
    """Return who asks where connections identify: by a certificate, or nobody by name."""
    transport = request.transport
    found = None if transport is None else transport.get_extra_info("principal")
    principal = found if isinstance(found, Principal) else ANONYMOUS
    return Requester(principal, request.remote or "")


def requester_of(request: web.Request) -> Requester:
    """Return who asks, as the listener has identified the client."""
    found = request.get(_REQUESTER)
    return identified_by_connection(request) if found is None else found


@web.middleware
async def no_logins(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse credentials where nobody logs in: the client counts on what they promise."""
    if "Authorization" in request.headers:
        why = "Authorization: nobody logs in here: this listener speaks no SASL"
        return _refusal(400, "INVALID_REQUEST", why, "Authorization")
    return await handler(request)


def http_logins(
    logins: ControllerLogins, log: FilteringBoundLogger, *, is_tls: bool, delay_s: float
) -> Middleware:
    """Return what has each request log in; nodes do it by themselves, over their RPC.

    Without TLS credentials are taken from this machine alone. A failure is answered with 401 after
    `delay_s`; why is in the log.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if _path(request) in (*_OPEN, PATH):
            return await handler(request)
        host = request.remote or ""
        try:
            if not is_tls and not _is_loopback(host):
                raise SaslError(_NOT_PRIVATE, _NOT_PRIVATE)
            if "Authorization" not in request.headers:
                why = "log in: send an Authorization header"
                raise SaslError(why, why)
            login = await logins.log_in(request.headers["Authorization"])
        except KafkaError as error:
            document = {"error": error.code.name, "message": error.message}
            return web.json_response(document, status=429)
        except SaslError as error:
            log.warning("http_login_failed", peer=host, path=request.path, reason=str(error))
            await asyncio.sleep(delay_s)
            return _unauthorized(logins, error)
        request[_REQUESTER] = Requester(Principal.of_user(login.name), host)
        return await handler(request)

    return check


def _unauthorized(logins: ControllerLogins, error: SaslError) -> web.Response:
    document = {
        "error": ErrorCode.SASL_AUTHENTICATION_FAILED.name,
        "message": error.answer or REFUSED,
    }
    answer = web.json_response(document, status=401)
    if set(logins.mechanisms) - {OAUTHBEARER}:
        answer.headers.add("WWW-Authenticate", 'Basic realm="raftctl", charset="UTF-8"')
    if OAUTHBEARER in logins.mechanisms:
        answer.headers.add("WWW-Authenticate", 'Bearer realm="raftctl"')
    return answer


def http_access(authorizer: Authorizer, *, nodes_log_in: bool = False) -> Middleware:
    """Return what answers 403 to a principal that the authorizer denies what it asks for.

    Nodes that log in over their RPC are asked for there.
    """
    elsewhere = (*_OPEN, PATH) if nodes_log_in else _OPEN

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        path = _path(request)
        if path not in elsewhere and not path.startswith(_KEYS) and not _is_console(path):
            operation, requester = _operation(request), requester_of(request)
            if not may(authorizer, requester, operation):
                document = {
                    "error": "CLUSTER_AUTHORIZATION_FAILED",
                    "message": f"{requester.principal} may not {operation.name} the cluster",
                }
                return web.json_response(document, status=403)
        return await handler(request)

    return check


def may(authorizer: Authorizer, requester: Requester, operation: Operation) -> bool:
    """Return whether the authorizer allows the operation on the cluster."""
    return authorizer.authorize(requester, Action(operation, ResourceType.CLUSTER, CLUSTER_NAME))


def _operation(request: web.Request) -> Operation:
    if _path(request) == PATH:
        return Operation.CLUSTER_ACTION
    return Operation.DESCRIBE if request.method in _READING else Operation.ALTER

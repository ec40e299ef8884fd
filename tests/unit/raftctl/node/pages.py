"""A listener with RPC and a page, for tests of who may use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from raftctl.node._http_access import requester_of
from raftctl.raft.messages import NodeId, TransferLeadershipRequest
from raftctl.rpc import start_http

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from aiohttp.typedefs import Middleware

    from raftctl.rpc import RpcServer
    from raftctl.runtime.real import RealRuntime

CLUSTER_ID = "a-cluster"
ASKED = TransferLeadershipRequest(NodeId(3))
"""What `RpcAndPage` answers with the request itself."""


class RpcAndPage:
    """A listener on this machine."""

    def __init__(self, runtime: RealRuntime) -> None:
        self.runtime = runtime
        self.port = 0
        self.senders: list[int] = []

    async def serve(
        self,
        rpc: RpcServer,
        middlewares: Iterable[Middleware],
        wrap: Callable[[asyncio.BaseProtocol], asyncio.BaseProtocol] | None = None,
    ) -> web.AppRunner:
        rpc.on(TransferLeadershipRequest, self._answer)
        app = web.Application(middlewares=middlewares)
        app.router.add_get("/healthz", self._page)
        app.router.add_get("/page", self._page)
        app.router.add_post("/page", self._page)
        rpc.mount(app)
        runner, self.port = await start_http(app, "127.0.0.1", 0, wrap=wrap)
        return runner

    def _answer(self, request: object, reply: object, peer_id: int) -> None:
        self.senders.append(peer_id)
        assert callable(reply)
        reply(request)

    async def _page(self, request: web.Request) -> web.Response:
        return web.json_response({"asks": str(requester_of(request).principal)})

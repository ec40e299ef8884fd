"""Signs of life of a node, and its metrics, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable

    from raftctl.metrics import Metrics


class HealthApi:
    """Answers for one node, of whatever role."""

    def __init__(self, metrics: Metrics, is_ready: Callable[[], bool]) -> None:
        """`is_ready` says whether the node serves those whom it is for."""
        self._metrics = metrics
        self._is_ready = is_ready

    def routes(self) -> list[web.RouteDef]:
        """Return the routes for the node's application."""
        return [
            web.get("/healthz", self._livez),
            web.get("/livez", self._livez),
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._scrape),
        ]

    async def _livez(self, request: web.Request) -> web.Response:
        """The event loop turns, or nobody would answer."""
        return web.json_response({"alive": True})

    async def _readyz(self, request: web.Request) -> web.Response:
        ready = self._is_ready()
        return web.json_response({"ready": ready}, status=200 if ready else 503)

    async def _scrape(self, request: web.Request) -> web.StreamResponse:
        """The metrics in Prometheus' text format, a family at a time."""
        response = web.StreamResponse(headers={"Content-Type": self._metrics.content_type})
        await response.prepare(request)
        async for piece in self._metrics.text():
            await response.write(piece)
        await response.write_eof()
        return response

"""Signs of life of a node, and its metrics, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from raftctl.admin._readiness import Readiness
    from raftctl.metrics import Metrics


class HealthApi:
    """Answers for one node, of whatever role."""

    def __init__(
        self, metrics: Metrics, readiness: Readiness, look: Callable[[], Awaitable[None]]
    ) -> None:
        """`readiness` says whether the node serves those whom it is for; `look` is awaited before
        each scrape, for what takes long.
        """
        self._metrics = metrics
        self._look = look
        self._readiness = readiness
        metrics.keep(readiness)

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
        """200 if the node serves; else 503, with each reason."""
        problems = await self._readiness.problems()
        document = {
            "ready": not problems,
            "problems": [{"name": one.name, "message": one.message} for one in problems],
        }
        return web.json_response(document, status=503 if problems else 200)

    async def _scrape(self, request: web.Request) -> web.StreamResponse:
        """The metrics in Prometheus' text format, some at a time."""
        await self._look()
        response = web.StreamResponse(headers={"Content-Type": self._metrics.content_type})
        await response.prepare(request)
        async for piece in self._metrics.text():
            await response.write(piece)
        await response.write_eof()
        return response

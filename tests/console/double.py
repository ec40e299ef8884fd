"""A double of the console's server: the same contract, with data as large or odd as a test wants.

It serves the real page with the real headers; what a real cluster shows rarely (10,000 topics, a
hanging transaction, a record of a gigabyte, an hour of changes) stands here at once.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from tests.console import double_data as data

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
LIMIT_MAX = 500


class Double:
    """What the server knows; tests change it and call `changed`."""

    def __init__(self, world: data.World) -> None:
        self.world = world
        self.acted: list[tuple[str, Any]] = []
        """Name and body of each action."""
        self.answering = asyncio.Event()
        """Cleared, nothing is answered any more, as by a network that drops all packets."""
        self.answering.set()
        self.refusal: dict[str, Any] | None = None
        """What the next action is refused with."""
        self.asked: list[str] = []
        """Paths of requests of the API, without query."""
        self._streams: set[asyncio.Queue[tuple[str, Any]]] = set()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, port: int = 0) -> None:
        """Serve on a free port, or on the one given."""
        app = web.Application()
        app.router.add_get("/prefix/console/api/events", self._events)
        app.router.add_get("/prefix/console/api/{path:.*}", self._get)
        app.router.add_post("/prefix/console/api/actions/{name}", self._act)
        app.router.add_get("/prefix/console/{file:[^/]*}", _file)
        app.on_response_prepare.append(_protect)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/prefix/console/"

    async def stop(self) -> None:
        """End all streams and close the port."""
        for stream in self._streams:
            stream.put_nowait(("end", None))
        assert self._runner is not None
        await self._runner.cleanup()

    def publish(self, kind: str, document: Any) -> None:
        """Send an event to every page."""
        for stream in self._streams:
            stream.put_nowait((kind, document))

    def changed(self, **what: Any) -> None:
        """Publish that something changed: `topics=["orders"]`, `brokers=True`."""
        self.world.metadata_offset += 1
        event = dict.fromkeys(("brokers", "configs", "acls", "quotas", "groups"), False)
        offset = {"metadata_offset": self.world.metadata_offset}
        self.publish("changed", {**event, "topics": [], **offset, **what})
        self.publish("overview", self.world.overview())
        self.publish("quorum", self.world.quorum())

    async def _events(self, request: web.Request) -> web.StreamResponse:
        await self.answering.wait()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        stream: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        stream.put_nowait(("overview", self.world.overview()))
        stream.put_nowait(("quorum", self.world.quorum()))
        self._streams.add(stream)
        try:
            with suppress(ConnectionError):
                while (event := await stream.get())[0] != "end":
                    kind, document = event
                    offset = self.world.metadata_offset
                    text = f"id: {offset}\nevent: {kind}\ndata: {json.dumps(document)}\n\n"
                    await response.write(text.encode())
        finally:
            self._streams.discard(stream)
        return response

    async def _get(self, request: web.Request) -> web.Response:
        await self.answering.wait()
        path = request.rel_url.raw_path.partition("/api/")[2]
        self.asked.append(path)
        parts = [unquote(part) for part in path.split("/")]
        query = request.query
        tables: dict[tuple[str, ...], Callable[[], Iterable[Mapping[str, Any]]]] = {
            ("problems",): self.world.problems,
            ("brokers",): lambda: self.world.brokers,
            ("topics",): lambda: self.world.topics_of(query.get("only") == "problems"),
            ("groups",): lambda: self.world.groups,
            ("transactions",): lambda: self.world.transactions,
            ("acls",): lambda: self.world.acls,
            ("quotas",): lambda: self.world.quotas,
            ("reassignments",): lambda: self.world.reassignments,
        }
        if found := tables.get(tuple(parts)):
            return web.json_response(_window(list(found()), query, self.world.metadata_offset))
        match parts:
            case ["overview"]:
                return web.json_response(self.world.overview())
            case ["quorum"]:
                return web.json_response(self.world.quorum())
            case ["topics", name, "partitions"]:
                rows = self.world.partitions(name)
                return web.json_response(_window(rows, query, self.world.metadata_offset))
            case ["topics", name] if (topic := self.world.topic(name)) is not None:
                return web.json_response(topic)
            case ["brokers", number] if (broker := self.world.broker(number)) is not None:
                return web.json_response(broker)
            case ["groups", name] if (group := self.world.group(name)) is not None:
                return web.json_response(group)
            case ["transactions", name] if (row := self.world.transaction(name)) is not None:
                return web.json_response(row)
            case ["configs", kind, name]:
                return web.json_response({"configs": self.world.configs(kind, name)})
            case ["messages"]:
                return web.json_response(self.world.messages(query))
        missing = {"error": "RESOURCE_NOT_FOUND", "message": f"There is no {'/'.join(parts)}."}
        return web.json_response(missing, status=404)

    async def _act(self, request: web.Request) -> web.Response:
        assert request.headers["X-Raftctl-Console"] == "1"
        name, body = request.match_info["name"], await request.json()
        self.acted.append((name, body))
        if self.refusal is not None:
            return web.json_response(self.refusal, status=403)
        return web.json_response({"done": f"{name} is done."})


async def _protect(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")


async def _file(request: web.Request) -> web.Response:
    name = request.match_info["file"] or "index.html"
    found = files("raftctl").joinpath("console", "page", name)
    if not found.is_file():
        raise web.HTTPNotFound
    kind = TYPES[name.rpartition(".")[2]]
    return web.Response(body=found.read_bytes(), content_type=kind, charset="utf-8")


def _window(rows: list[Any], query: Mapping[str, str], offset: int) -> dict[str, Any]:
    if wanted := query.get("filter", "").lower():
        rows = [one for one in rows if wanted in str(next(iter(one.values()))).lower()]
    if sort := query.get("sort"):
        column = sort.removeprefix("-")
        rows = sorted(
            rows,
            key=lambda one: (one.get(column) is not None, one.get(column)),
            reverse=sort.startswith("-"),
        )
    first, limit = int(query.get("offset", 0)), min(LIMIT_MAX, int(query.get("limit", 100)))
    shown = rows[first : first + limit]
    return {"total": len(rows), "offset": first, "rows": shown, "metadata_offset": offset}


@asynccontextmanager
async def serving(world: data.World) -> AsyncIterator[Double]:
    """A double that serves a world."""
    double = Double(world)
    await double.start()
    try:
        yield double
    finally:
        await double.stop()

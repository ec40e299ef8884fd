"""Requests of web pages that reach a controller through a user's browser (S6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from raftctl.config import load_config
from raftctl.node._http_access import no_foreign_pages, no_logins, own_hosts
from raftctl.rpc import start_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.req("S6")

CONFIG = load_config(
    "node.id=1\nprocess.roles=controller\nlog.dirs=/data\n"
    "listeners=CONTROLLER://0.0.0.0:9093\n"
    "advertised.listeners=CONTROLLER://one.example.org:9093\n"
    "controller.quorum.voters=1@relay:9093,2@two.example.org:9093\n"
    "http.allowed.hosts=Controllers.Example.Org"
)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def page(request: web.Request) -> web.Response:
        return web.json_response({"path": request.path})

    app = web.Application(middlewares=[no_foreign_pages(own_hosts(CONFIG)), no_logins])
    for path in ("/page", "/healthz", "/rpc"):
        app.router.add_get(path, page)
    runner, found = await start_http(app, "127.0.0.1", 0)
    yield found
    await runner.cleanup()


async def ask(port: int, path: str, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9093",
        "[::1]:9093",
        "10.0.0.7",
        "localhost:80",
        "one.example.org:9093",
        "ONE.example.org.",
        "relay",
        "two.example.org",
        "controllers.example.org:443",
    ],
)
async def test_a_node_is_asked_by_its_names_and_by_any_address(port: int, host: str) -> None:
    assert (await ask(port, "/page", {"Host": host}))[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example.org:9093", "one.example.org.evil.org", "", "127.0.0.1.evil.org"]
)
async def test_a_name_that_was_made_to_resolve_to_a_node_is_refused(port: int, host: str) -> None:
    status, document = await ask(port, "/page", {"Host": host})
    assert (status, document["error"], document["field"]) == (421, "INVALID_REQUEST", "Host")
    assert "http.allowed.hosts" in document["message"]


async def test_signs_of_life_and_calls_of_nodes_have_any_name(port: int) -> None:
    for path in ("/healthz", "/rpc"):
        assert (await ask(port, path, {"Host": "balancer"}))[0] == 200


@pytest.mark.parametrize("path", ["/page", "/rpc", "/healthz"])
async def test_a_request_of_a_page_is_refused_whatever_it_asks_for(port: int, path: str) -> None:
    status, document = await ask(port, path, {"Origin": "http://evil.example.org"})
    assert (status, document["field"]) == (403, "Origin")


@pytest.mark.req("S6", "S8")
async def test_credentials_are_refused_where_nobody_logs_in(port: int) -> None:
    status, document = await ask(port, "/page", {"Authorization": "Basic YTpi"})
    assert (status, document["field"]) == (400, "Authorization")
    assert "YTpi" not in document["message"]

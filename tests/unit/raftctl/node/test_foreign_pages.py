"""Requests of web pages that reach a controller through a user's browser (S6)."""

from __future__ import annotations

from contextlib import asynccontextmanager
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


@asynccontextmanager
async def listening(*, is_tls: bool = False) -> AsyncIterator[int]:
    """Serve pages; `is_tls` is what the listener takes itself for."""

    async def page(request: web.Request) -> web.Response:
        return web.json_response({"path": request.path})

    check = no_foreign_pages(own_hosts(CONFIG), is_tls=is_tls)
    app = web.Application(middlewares=[check, no_logins])
    for path in ("/page", "/healthz", "/rpc", "/console/", "/console/api/overview"):
        app.router.add_get(path, page)
    runner, found = await start_http(app, "127.0.0.1", 0)
    yield found
    await runner.cleanup()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with listening() as found:
        yield found


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


@pytest.mark.req("W3")
async def test_the_consoles_own_page_is_served(port: int) -> None:
    own = f"127.0.0.1:{port}"
    for origin in (f"http://{own}", f"https://{own}", f"HTTP://{own}".lower()):
        assert (await ask(port, "/console/api/overview", {"Origin": origin}))[0] == 200
    named = {"Host": "one.example.org", "Origin": "https://ONE.example.org"}
    assert (await ask(port, "/console/api/overview", named))[0] == 200
    assert (await ask(port, "/page", {"Origin": f"http://{own}"}))[0] == 403


@pytest.mark.req("W3")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example.org"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "file://127.0.0.1:{port}"},
        {"Origin": "http://one.example.org", "Host": "two.example.org"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_the_console_serves_no_page_of_another_site(
    port: int, headers: dict[str, str]
) -> None:
    sent = {name: value.format(port=port) for name, value in headers.items()}
    status, document = await ask(port, "/console/api/overview", sent)
    assert (status, document["error"]) == (403, "INVALID_REQUEST")


@pytest.mark.req("W3")
async def test_a_name_that_was_made_to_resolve_to_a_node_has_no_console(port: int) -> None:
    """Then the page of the other site is of one origin with the node, for the browser."""
    evil = "evil.example.org:9093"
    for path in ("/console/", "/console/api/overview"):
        status, document = await ask(port, path, {"Host": evil, "Origin": f"http://{evil}"})
        assert (status, document["field"]) == (421, "Host")


@pytest.mark.req("W3")
async def test_over_tls_the_page_came_over_tls() -> None:
    """Else who is between would put a page of his own before the user."""
    async with listening(is_tls=True) as port:
        own = f"127.0.0.1:{port}"
        assert (await ask(port, "/console/api/overview", {"Origin": f"https://{own}"}))[0] == 200
        assert (await ask(port, "/console/api/overview", {"Origin": f"http://{own}"}))[0] == 403


@pytest.mark.req("S6", "S8")
async def test_credentials_are_refused_where_nobody_logs_in(port: int) -> None:
    status, document = await ask(port, "/page", {"Authorization": "Basic YTpi"})
    assert (status, document["field"]) == (400, "Authorization")
    assert "YTpi" not in document["message"]

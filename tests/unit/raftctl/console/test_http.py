"""What all answers of the console have in common: files, headers, refusals."""

from __future__ import annotations

import io
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from raftctl.console.http import PageFiles
from tests.unit.raftctl.console.fake_brokers import FakeBrokers
from tests.unit.raftctl.console.served import broker, partition, serving, topic

ROOT = Path(__file__).resolve().parents[4]
PAGE_BYTES_MAX = 150_000
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@pytest.mark.req("W1")
async def test_the_page_is_served_with_its_files() -> None:
    async with serving() as served:
        answer = await served.ask("/console")
        assert (answer.status, answer.headers["Location"]) == (308, "console/")
        page = await served.ask("/console/")
        assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert b"<title>" in page.document
        script = await served.ask("/console/app.js")
        assert (script.status, script.headers["Content-Type"]) == (
            200,
            "text/javascript; charset=utf-8",
        )
        again = await served.ask("/console/", headers={"If-None-Match": page.headers["ETag"]})
        assert (again.status, again.document) == (304, b"")


@pytest.mark.req("W1")
def test_the_page_is_part_of_the_wheel_and_small() -> None:
    """Hatchling takes every file of these packages that version control has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "raftctl" in wheel["packages"]
    assert not {"only-include", "exclude", "artifacts"} & {*wheel}
    assert files("raftctl.console").joinpath("page", "index.html").is_file()
    assert 0 < PageFiles("raftctl.console").size <= PAGE_BYTES_MAX


@pytest.mark.req("W3")
@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/style.css",
        "/console/nothing",
        "/console/api/overview",
        "/console/api/topics?limit=0",
        "/console/api/nothing",
    ],
)
async def test_every_answer_is_protected(path: str) -> None:
    async with serving() as served:
        answer = await served.ask(path)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= {*policy}
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        expected = "no-cache" if path in ("/console/", "/console/style.css") else "no-store"
        assert answer.headers["Cache-Control"] == expected


@pytest.mark.req("W3")
@pytest.mark.parametrize(
    "path",
    [
        "/console/%2e%2e/__init__.py",
        "/console/..%2f__init__.py",
        "/console/page/index.html",
        "/console/%2fetc%2fpasswd",
        "/console/app.js/",
        "/console/__init__.py",
    ],
)
async def test_nothing_but_the_page_is_served(path: str) -> None:
    async with serving() as served:
        answer = await served.ask(path)
        assert answer.status == 404
        assert answer.document["error"] == "RESOURCE_NOT_FOUND"


@pytest.mark.req("W3")
async def test_a_script_comes_back_as_json() -> None:
    script = "<script>alert(1)</script>"
    async with serving() as served:
        served.commit(*topic("orders", partition(1)))
        for path in (f"topics/{script}/partitions", f"{script}"):
            answer = await served.ask(f"/console/api/{path}", params={"filter": script})
            assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
        answer = await served.ask("/console/api/topics", params={"sort": script})
        assert (answer.status, answer.document["field"]) == (400, "sort")
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"


ACTION = "/console/api/actions/delete-topic"
OWN = {"X-Raftctl-Console": "1"}


@pytest.mark.req("W3")
@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"json": {"name": "orders"}}, "X-Raftctl-Console"),
        ({"json": {"name": "orders"}, "headers": {"X-Raftctl-Console": "0"}}, "X-Raftctl-Console"),
        ({"data": {"name": "orders"}, "headers": OWN}, "Content-Type"),
        ({"data": b'{"name": "orders"}', "headers": OWN}, "Content-Type"),
        (
            {"data": b'{"name": "orders"}', "headers": {**OWN, "Content-Type": "text/plain"}},
            "Content-Type",
        ),
        ({"data": b"[1]", "headers": {**OWN, "Content-Type": "application/json"}}, "body"),
        ({"data": b"{", "headers": {**OWN, "Content-Type": "application/json"}}, "body"),
        (
            {"data": b"[" * 100_000, "headers": {**OWN, "Content-Type": "application/json"}},
            "body",
        ),
    ],
)
async def test_what_no_page_of_ours_sends_is_not_done(sent: dict[str, Any], field: str) -> None:
    """A form, or a page of another site, can send no header of its own and no JSON."""
    brokers = FakeBrokers()
    async with serving(client=brokers) as served:
        served.commit(*broker(1), *topic("orders", partition(1)))
        answer = await served.ask(ACTION, method="POST", **sent)
        assert (answer.status, answer.document["field"]) == (400, field)
        assert brokers.asked == []


@pytest.mark.req("W3")
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_is_done_but_by_post(method: str) -> None:
    """A link or a picture of another site is a GET; a browser asks with OPTIONS first."""
    brokers = FakeBrokers()
    async with serving(client=brokers) as served:
        answer = await served.ask(f"{ACTION}?name=orders", method=method, headers=OWN)
        assert answer.status == 404
        assert "Access-Control-Allow-Origin" not in answer.headers
        assert brokers.asked == []


@pytest.mark.req("W3")
async def test_a_body_is_bounded() -> None:
    async with serving() as served:
        headers = {**OWN, "Content-Type": "application/json"}
        body = b'{"name": "' + b"x" * 2_000_000 + b'"}'
        answer = await served.ask(ACTION, method="POST", data=io.BytesIO(body), headers=headers)
        assert (answer.status, answer.document["error"]) == (413, "MESSAGE_TOO_LARGE")

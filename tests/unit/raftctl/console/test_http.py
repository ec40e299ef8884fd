"""What all answers of the console have in common: files, headers, refusals."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from raftctl.console.http import PageFiles
from tests.unit.raftctl.console.served import partition, serving, topic

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

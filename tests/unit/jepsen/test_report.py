"""Reports: what went wrong is on the page, which needs nothing outside itself."""

from __future__ import annotations

import http.client
import threading
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from jepsen.cli.main import run
from jepsen.cli.report import server
from jepsen.core import RunSpec
from jepsen.history import Op, OpType
from jepsen.report.plots import windows
from jepsen.store import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.req("J8")
LINES: list[tuple[int | str, str, str, object]] = [
    (0, "invoke", "write", 1),
    (0, "ok", "write", 1),
    ("nemesis", "invoke", "kill", "one"),
    ("nemesis", "info", "kill", ["broker-1"]),
    (1, "invoke", "read", None),
    (1, "ok", "read", "<script>4711</script>"),
    ("nemesis", "invoke", "start", None),
    ("nemesis", "info", "start", ["broker-1"]),
    ("nemesis", "info", "pause", ["broker-2"]),
    ("nemesis", "info", "heal-all", None),
]
HISTORY = [
    Op(at, at * 10**9, process, OpType(kind), f, value, None if process == "nemesis" else 0)
    for at, (process, kind, f, value) in enumerate(LINES)
]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path, RunSpec("register", "sim", ("kill",), seed=99), "again --now")
    with made.writer() as writer:
        for op in HISTORY:
            writer.append(op)
    return made


class Outside(HTMLParser):
    """Collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag in ("script", "link", "img", "iframe") or names & {"src", "onclick"}:
            self.found.append(tag)


def test_a_page_tells_what_went_wrong_and_how_to_see_it_again(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(folder.path)]) == 0
    assert capsys.readouterr().out.strip() == str(folder.path / "report.html")
    page = (folder.path / "report.html").read_text()
    for wanted in ("invalid", "nonlinearizable", "4711", "again --now", "seed 99", "broker-1"):
        assert wanted in page
    outside = Outside()
    outside.feed(page)
    assert outside.found == []


def test_times_in_which_something_is_broken_are_shaded() -> None:
    found = [(one.kind, one.begin_s, one.end_s) for one in windows(HISTORY)]
    assert found == [("kill", 3.0, 7.0), ("pause", 8.0, 9.0)]


def test_what_nobody_mended_is_broken_to_the_end() -> None:
    assert [(one.kind, one.end_s) for one in windows(HISTORY[:6])] == [("kill", 5.0)]


def test_a_page_of_an_empty_history_can_be_made(tmp_path: Path) -> None:
    empty = RunFolder.create(tmp_path, RunSpec("set", "sim"), "")
    assert run(["report", str(empty.path)]) == 0
    assert "unknown" in (empty.path / "report.html").read_text()


def test_a_browser_sees_all_runs_and_nothing_else(folder: RunFolder, tmp_path: Path) -> None:
    run(["report", str(folder.path)])
    (tmp_path / "secret.html").write_text("secret")
    with server(tmp_path, 0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            port = running.server_address[1]
            index = get(port, "/")
            path = f"/register-sim-kill/{folder.path.name}"
            assert path in index[1]
            assert "nonlinearizable" in get(port, path)[1]
            assert get(port, "/../secret.html")[0] == 404
            assert get(port, "/secret.html")[0] == 404
        finally:
            running.shutdown()
            thread.join()


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("words", [["report", "nowhere"], ["serve", "--store", "nowhere"]])
def test_what_is_not_there_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 254
    assert "nowhere" in capsys.readouterr().err

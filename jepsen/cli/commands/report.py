"""`jepsen report` and `jepsen serve`: what runs look like."""

from __future__ import annotations

from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, unquote

import typer

from jepsen.cli._output import say, tell
from jepsen.errors import InputError
from jepsen.report import document, index_page, index_row, readable_time, report_page
from jepsen.runner import judge_folder
from jepsen.store import DEFAULT_STORE, RunFolder, runs

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST = "127.0.0.1"
REPORT = "report.html"
FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<rect width="16" height="16" rx="3" fill="#2e7d32"/>'
    '<path d="M3 9h3l2-5 2 8 1-3h2" fill="none" stroke="#fff"/></svg>'
)
NO_RUN = document(
    "No such run",
    [
        "<h1>No such run</h1>",
        '<p>It has no verdict, or is not in the store. <a href="/">All runs</a></p>',
    ],
)


def report(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Directory of a run, such as store/latest.")
    ],
    again: Annotated[bool, typer.Option("--again", help="Check the history again first.")] = False,
) -> None:
    """Writes report.html into the folder of a run."""
    folder = RunFolder.open(Path(run))
    if again or folder.results is None:
        judge_folder(folder)
    path = folder.path / REPORT
    path.write_text(page_of(folder), encoding="utf-8")
    say(str(path))


def page_of(folder: RunFolder, back: str = "") -> str:
    """The report of a run that has been judged. `back`: where all runs are; empty: nowhere."""
    results = folder.results
    if results is None:
        raise InputError(f"{folder.path}: not judged yet: jepsen report {folder.path} does it")
    began = readable_time(folder.path.name)
    return report_page(folder.spec, folder.command, results, folder.history(), began, back)


def serve(
    store: Annotated[
        str, typer.Option(metavar="DIR", help="Directory of the runs.")
    ] = DEFAULT_STORE,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0: any free port.")
    ] = 8080,
) -> None:
    """Serves the reports of a store on 127.0.0.1, until Ctrl-C."""
    if not Path(store).is_dir():
        raise InputError(f"--store {store}: no such folder")
    with server(Path(store), port) as running:
        tell(f"http://{HOST}:{running.server_address[1]}/")
        running.serve_forever()


def server(store: Path, port: int) -> ThreadingHTTPServer:
    """The server, not serving yet. InputError if the port is taken."""
    try:
        return ThreadingHTTPServer((HOST, port), partial(_Handler, store))
    except OSError as error:
        raise InputError(f"--port {port}: {error.strerror}: choose another") from None


class _Handler(BaseHTTPRequestHandler):
    """The index at `/`, the report of a run at `/<test>/<time>`; nothing else.

    `?workload=` and `?nemesis=` choose runs of the index.
    """

    def __init__(self, store: Path, *rest: Any) -> None:
        self._store = store
        super().__init__(*rest)

    def do_GET(self) -> None:
        """Answers a request."""
        path, _, query = self.path.partition("?")
        if path == "/favicon.ico":
            self._answer(200, "image/svg+xml", FAVICON)
            return
        wanted = dict(parse_qsl(query))
        page = self._page(unquote(path).strip("/"), wanted)
        self._answer(404 if page is None else 200, "text/html; charset=utf-8", page or NO_RUN)

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Drops the line: each request would be one."""

    def _page(self, path: str, wanted: Mapping[str, str]) -> str | None:
        folders = {f"{one.path.parent.name}/{one.path.name}": one for one in runs(self._store)}
        if not path:
            rows = [index_row(name, one.spec, one.results) for name, one in folders.items()]
            return index_page(rows, wanted.get("workload", ""), wanted.get("nemesis", ""))
        # Only what the store lists is looked at, so no path leads out of it.
        folder = folders.get(path)
        return None if folder is None or folder.results is None else page_of(folder, "/")

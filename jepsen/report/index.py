"""The page of all runs: the latest verdict of each workload under all faults, and a list."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from jepsen.report.page import document
from jepsen.report.tables import readable_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jepsen.core import RunSpec

HEALTHY = "none"
NO_VERDICT = "no verdict"
"""Of a run that has not ended, or broke off."""


class Row(NamedTuple):
    """A run in the list."""

    path: str
    test: str
    time: str
    word: str
    """Its verdict."""
    workload: str
    faults: str


def faults_of(spec: RunSpec) -> str:
    """The faults of a run, as the index names them."""
    return ",".join(spec.nemesis) or HEALTHY


def index_page(rows: Sequence[Row], workload: str = "", faults: str = "") -> str:
    """All runs, the newest first; of that workload and those faults alone, where they are named."""
    chosen = [row for row in rows if workload in ("", row.workload) and faults in ("", row.faults)]
    body = ["<h1>Runs</h1>", *_matrix(rows), *_filters(workload, faults)]
    body.append('<table class="runs"><tr><th>test</th><th>time</th><th>verdict</th></tr>')
    body += [
        f'<tr><td class="mark {row.word}"><a href="{escape(row.path, quote=True)}">'
        f"{escape(row.test)}</a></td><td>{escape(readable_time(row.time))}</td>"
        f"<td>{row.word}</td></tr>"
        for row in chosen
    ]
    return document("Runs", [*body, "</table>"])


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    latest: dict[tuple[str, str], Row] = {}
    for row in rows:
        # A run that broke off, or goes on, takes nothing from the verdict before it.
        if row.word != NO_VERDICT:
            latest.setdefault((row.workload, row.faults), row)
    if not latest:
        return
    workloads = sorted({workload for workload, _ in latest})
    kinds = sorted({faults for _, faults in latest}, key=lambda one: (one != HEALTHY, one))
    yield '<h2>Latest verdicts</h2><table class="matrix"><tr><th>workload</th>'
    yield "".join(f"<th>{_link(kind, nemesis=kind)}</th>" for kind in kinds) + "</tr>"
    for workload in workloads:
        yield f"<tr><th>{_link(workload, workload=workload)}</th>"
        for kind in kinds:
            last = latest.get((workload, kind))
            yield "<td></td>" if last is None else _verdict(last)
        yield "</tr>"
    yield "</table>"


def _verdict(row: Row) -> str:
    path = escape(row.path, quote=True)
    faults = escape(row.faults, quote=True)
    return (
        f'<td class="mark {row.word}" data-faults="{faults}"><a href="{path}">{row.word}</a></td>'
    )


def _filters(workload: str, faults: str) -> Iterator[str]:
    yield "<h2>All runs</h2>"
    if workload or faults:
        told = " under ".join(one for one in (workload, faults) if one)
        yield f'<p>Only {escape(told)}: <a href="/">show all</a></p>'


def _link(text: str, **query: str) -> str:
    return f'<a href="/?{escape(urlencode(query), quote=True)}">{escape(text)}</a>'

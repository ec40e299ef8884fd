"""The page of all runs: the latest verdict of each workload under all faults, and a list."""

from __future__ import annotations

from html import escape
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from jepsen.core import format_faults
from jepsen.report._page import cut, document, kinds_of
from jepsen.report._tables import lasted, readable_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jepsen.core.spec import RunSpec

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
    """Those that were asked for."""
    env: str = ""
    more: tuple[str, str, str, str, str] = ("", "", "", "", "")
    """As in `MORE`."""


MORE = ("faults", "operations", "lasted", "seed", "found")
"""What the list tells of a run beside its name, time and verdict."""


def texts_of(spec: RunSpec, results: Mapping[str, Any] | None) -> tuple[str, str, str, str, str]:
    """The cells of `MORE`; all but the seed are empty for a run without a verdict."""
    if results is None:
        return ("", "", "", str(spec.seed), "")
    verdicts = results["checkers"].values()
    kinds = [f"{name} {count}" for one in verdicts for name, count in kinds_of(one).items()]
    reasons = [one["why_unknown"] for one in verdicts if one.get("why_unknown")]
    return (
        format_faults(results.get("faults", {})),
        str(results["operations"]),
        lasted(results["seconds"]) if "seconds" in results else "",
        str(spec.seed),
        "; ".join(filter(None, [", ".join(kinds), *reasons])),
    )


def faults_of(spec: RunSpec) -> str:
    """The faults of a run, as the index names them."""
    return ",".join(spec.nemesis) or HEALTHY


def index_page(rows: Sequence[Row], workload: str = "", faults: str = "") -> str:
    """All runs, the newest first; of that workload and those faults alone, where they are named."""
    chosen = [row for row in rows if workload in ("", row.workload) and faults in ("", row.faults)]
    body = ["<h1>Runs</h1>", *_matrix(rows), *_filters(workload, faults)]
    heads = "".join(f"<th>{head}</th>" for head in ("test", "time", "verdict", *MORE))
    body.append(f'<div class="wide"><table class="runs"><tr>{heads}</tr>')
    body += map(_listed, chosen)
    return document("Runs", [*body, "</table></div>"])


def _listed(row: Row) -> str:
    """A run's line; each cell has its heading for narrow screens, where there is no other."""
    name = f'<a href="{escape(row.path, quote=True)}">{escape(row.test)}</a>'
    plain = (escape(readable_time(row.time)), f"<b>{row.word}</b>")
    more = starmap(_labelled, zip(MORE, row.more, strict=True))
    return (
        f'<tr><td class="mark {row.word}">{name}</td>'
        f"{''.join(f'<td>{cell}</td>' for cell in plain)}{''.join(more)}</tr>"
    )


def _labelled(head: str, text: str) -> str:
    return f'<td data-label="{head}">{cut(text)}</td>' if text else "<td></td>"


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    latest: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        # A run that broke off, or goes on, takes nothing from the verdict before it; nor does
        # one in another environment, which is another cluster.
        if row.word != NO_VERDICT:
            latest.setdefault((row.workload, row.env, row.faults), row)
    if not latest:
        return
    lines = sorted({(workload, env) for workload, env, _ in latest})
    kinds = sorted({faults for *_, faults in latest}, key=lambda one: (one != HEALTHY, one))
    yield '<h2>Latest verdicts</h2><table class="matrix"><tr><th>workload</th>'
    yield "".join(f"<th>{_link(kind, nemesis=kind)}</th>" for kind in kinds) + "</tr>"
    for workload, env in lines:
        where = f" in {escape(env)}" if env else ""
        yield f"<tr><th>{_link(workload, workload=workload)}{where}</th>"
        for kind in kinds:
            last = latest.get((workload, env, kind))
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

"""The page of one run, and the page of all runs with the latest verdict of each workload."""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from itertools import chain, groupby, starmap
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from jepsen.checkers.verdict import WORDS
from jepsen.core import format_faults
from jepsen.generator.core import SECOND_NS
from jepsen.history import OpType
from jepsen.report._plots import (
    ANOMALY,
    COLOURS,
    DONE,
    FAILING,
    PENDING,
    QUANTILES,
    SHADES,
    Mark,
    Window,
    failing_window,
    latency_plot,
    leader_strip,
    quantile_plots,
    rate_plot,
    windows,
)
from jepsen.report._style import STYLE
from jepsen.report._tables import fault_table, format_statistics, lasted, readable_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jepsen.core.spec import RunSpec
    from jepsen.history import Op


ANOMALIES_SHOWN_MAX = 3
"""Of each kind that a checker found; results.json has all."""
KINDS_OPEN_MAX = 4
"""Of so many kinds the first anomaly is shown at once; all else on demand."""
FUNCTIONS_OPEN_MAX = 2
"""Of so many functions the latency is plotted at once."""
LINES_SHOWN_MAX = 12
ROWS_OPEN_MAX = 8
TEXT_SHOWN_MAX = 300
"""Characters of an operation or an example; the rest is shown on demand."""
ENDS = [(kind.value, colour) for kind, colour in COLOURS.items()]
"""How operations end, and the colour of each."""
NONLINEARIZABLE = "nonlinearizable"


def report_page(
    spec: RunSpec,
    command: str,
    results: Mapping[str, Any],
    history: Sequence[Op],
    began: str = "",
    back: str = "",
) -> str:
    """Return the whole page; it loads nothing. `began`: date and time; `back`: link to all runs."""
    word = WORDS[results["valid"]]
    broken, found = windows(history), _shown(results["checkers"], history)
    body = [
        *([f'<p><a href="{escape(back, quote=True)}">All runs</a></p>'] if back else []),
        f"<h1>{escape(spec.name)}</h1>",
        *_card(spec, word, results, began, history),
        *_checkers(results["checkers"]),
        *fault_table(history, broken),
        "<h2>Latency and rate</h2>",
        *_charts(history, broken, found),
        "<h2>Anomalies</h2>",
        *_kinds(results["checkers"], found),
        *_anomalies(results["checkers"], found, history),
        "<h2>Run it again</h2>",
        f"<pre>{escape(command)}</pre>",
        _on_demand(
            "the whole specification",
            [f"<pre>{escape(json.dumps(spec.to_json(), indent=2))}</pre>"],
        ),
    ]
    return document(f"{spec.name}: {word}", body)


def document(title: str, body: Sequence[str]) -> str:
    """Return a whole page that refers to nothing outside itself."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _charts(
    history: Sequence[Op], broken: Sequence[Window], found: Sequence[_Shown]
) -> Iterator[str]:
    """Each with its heading; a sentence where there is nothing to draw."""
    if not any(op.by_client and op.type is not OpType.INVOKE for op in history):
        yield "<p>There are no charts, since no operation of a client has ended.</p>"
        return
    yield _heading("Latency of each operation, by outcome")
    yield _legend({one.kind for one in broken}, anomalies=bool(found))
    yield latency_plot(history, broken, [one.mark for one in found if one.mark])
    yield from _quantiles(history, broken)
    yield _heading("Operations per second, by outcome")
    yield keys(ENDS)
    yield rate_plot(history, broken)
    if strip := leader_strip(history):
        yield f'{_heading("Active controller")}<div class="wide">{strip}</div>'


def _quantiles(history: Sequence[Op], broken: Sequence[Window]) -> Iterator[str]:
    """A plot of each function, the first few at once."""
    plots = [
        f"{_heading(f'Latency of successful {f}, by percentile')}{quantile_legend()}{plot}"
        for f, plot in quantile_plots(history, broken).items()
    ]
    yield from plots[:FUNCTIONS_OPEN_MAX]
    if more := plots[FUNCTIONS_OPEN_MAX:]:
        yield _on_demand(f"show {len(more)} more functions", more)


def _heading(text: str) -> str:
    return f'<p class="heading" role="heading" aria-level="3">{escape(text)}</p>'


def _checkers(checkers: Mapping[str, Any]) -> Iterator[str]:
    yield "<table><tr><th>checker</th><th>verdict</th><th>found</th></tr>"
    for name, verdict in checkers.items():
        reason, shown = verdict.get("why_unknown"), format_statistics(verdict["statistics"])
        shown = "<br>".join(one for one in (cut(reason or ""), shown) if one)
        yield (
            f"<tr><td>{escape(name)}</td><td>{WORDS[verdict['valid']]}</td><td>{shown}</td></tr>"
        )
    yield "</table>"


def _legend(kinds: set[str], *, anomalies: bool) -> str:
    faults = [(kind, SHADES[kind]) for kind in sorted(kinds) if kind in SHADES]
    return keys([*ENDS, *faults, *[("anomaly", ANOMALY)] * anomalies])


def quantile_legend() -> str:
    """Return the legend of a plot of quantiles."""
    named = {at: f"p{at * 100:g}" if at < 1 else "max" for at in QUANTILES}
    return keys([(f"{named[at]}", colour) for at, colour in QUANTILES.items()])


def keys(named: Sequence[tuple[str, str]]) -> str:
    """Return a legend: names, each with its colour."""
    shown = [
        f'<span class="key"><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in named
    ]
    return f"<p>{''.join(shown)}</p>"


class _Shown(NamedTuple):
    """An anomaly on the page."""

    checker: str
    document: Mapping[str, Any]
    lines: Sequence[int]
    """Of the history, that show it."""
    number: int
    mark: Mark | None
    """In the plot, if it has lines."""


def _shown(checkers: Mapping[str, Any], history: Sequence[Op]) -> list[_Shown]:
    found: list[_Shown] = []
    for checker, verdict in checkers.items():
        for anomaly in _some_of_each(verdict["anomalies"]):
            lines, number = _lines(anomaly["lines"], history), len(found) + 1
            times = [history[index].time / SECOND_NS for index in lines]
            mark = Mark(number, anomaly["name"], times[0], times[-1]) if times else None
            found.append(_Shown(checker, anomaly, lines, number, mark))
    return found


def cut(text: str) -> str:
    """Return the text in HTML; of a long one the beginning, and the rest on demand."""
    if len(text) <= TEXT_SHOWN_MAX:
        return escape(text)
    begin, rest = text[:TEXT_SHOWN_MAX], text[TEXT_SHOWN_MAX:]
    return (
        f"{escape(begin)}<details><summary>show all {len(text)} characters</summary>"
        f"{escape(rest)}</details>"
    )


def _some_of_each(anomalies: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first few of each kind, in their order."""
    seen: Counter[str] = Counter()
    chosen = []
    for one in anomalies:
        seen[one["name"]] += 1
        if seen[one["name"]] <= ANOMALIES_SHOWN_MAX:
            chosen.append(one)
    return chosen


def kinds_of(verdict: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of anomalies of each kind that a checker found."""
    listed = Counter(one["name"] for one in verdict["anomalies"])
    counted = verdict["statistics"].get("found", {})
    return {name: counted.get(name, count) for name, count in listed.items()}


def _card(
    spec: RunSpec, word: str, results: Mapping[str, Any], began: str, history: Sequence[Op]
) -> Iterator[str]:
    """The verdict and why, in a few lines."""
    found = [
        f"{name} {count}"
        for verdict in results["checkers"].values()
        for name, count in kinds_of(verdict).items()
    ]
    reasons = [
        verdict["why_unknown"]
        for verdict in results["checkers"].values()
        if verdict.get("why_unknown")
    ]
    mark = " (interrupted)" if results.get("interrupted") else ""
    yield f'<p class="card {word}"><b>{word}{mark}</b>'
    for line in [", ".join(found), *reasons]:
        yield f"<br>{cut(line)}" if line else ""
    seconds = results.get("seconds", history[-1].time / SECOND_NS if history else 0.0)
    yield f"<br>began {escape(began)}" if began else ""
    yield f"<br>{results['operations']} operations, lasted {lasted(seconds)}, seed {spec.seed}"
    if struck := results.get("faults"):
        yield f"<br>faults that struck: {escape(format_faults(struck))}"
    yield "</p>"


def _kinds(checkers: Mapping[str, Any], shown: Sequence[_Shown]) -> Iterator[str]:
    """A table: each kind, how many there are, and the first."""
    rows = [
        (name, checker, count)
        for checker, verdict in checkers.items()
        for name, count in kinds_of(verdict).items()
    ]
    if not rows:
        return
    yield '<table class="operations"><tr><th>kind</th><th>count</th><th>first example</th></tr>'
    for name, checker, count in rows:
        first = next(one for one in shown if (one.checker, one.document["name"]) == (checker, name))
        detail = {key: v for key, v in first.document.items() if key not in ("name", "lines")}
        text = json.dumps(detail, ensure_ascii=False)
        yield (
            f'<tr><td><a href="#anomaly-{first.number}">{escape(name)}</a></td>'
            f"<td>{count}</td><td><code>{cut(text)}</code></td></tr>"
        )
    yield "</table>"


def _anomalies(
    checkers: Mapping[str, Any], shown: Sequence[_Shown], history: Sequence[Op]
) -> Iterator[str]:
    opened = 0
    for name, verdict in checkers.items():
        mine = [one for one in shown if one.checker == name]
        for kind, group in groupby(sorted(mine, key=_kind), key=_kind):
            first, *others = (_anomaly(one, history) for one in group)
            if opened < KINDS_OPEN_MAX:
                yield from first
            else:
                others.insert(0, first)
            opened += 1
            if others:
                yield _on_demand(f"show {len(others)} of {kind}", chain(*others))
        if (more := len(verdict["anomalies"]) - len(_some_of_each(verdict["anomalies"]))) > 0:
            yield f"<p>and {more} more in results.json</p>"
    if not shown:
        yield "<p>None.</p>"


def _kind(one: _Shown) -> str:
    return str(one.document["name"])


def _on_demand(summary: str, parts: Iterable[str]) -> str:
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def _anomaly(shown: _Shown, history: Sequence[Op]) -> Iterator[str]:
    anomaly = shown.document
    detail = {key: value for key, value in anomaly.items() if key not in ("name", "lines")}
    where = f' <a href="#mark-{shown.number}">in the plot</a>' if shown.mark else ""
    yield (
        f'<h3 id="anomaly-{shown.number}">{escape(anomaly["name"])} '
        f"<small>({escape(shown.checker)}){where}</small></h3>"
    )
    yield f"<p><code>{cut(json.dumps(detail, ensure_ascii=False))}</code></p>"
    if anomaly["name"] == NONLINEARIZABLE and "operation" in anomaly:
        yield keys([("returned", DONE), ("under way", PENDING), ("fits nowhere", FAILING)])
        yield f'<div class="wide">{failing_window(anomaly, history)}</div>'
    heads = ("line", "time", "process", "type", "operation")
    if not shown.lines:
        return
    head = f"<tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"
    rows = []
    for op in (history[index] for index in shown.lines):
        what = f"{op.f} {json.dumps(op.value)}"
        what += "" if op.key is None else f" of key {op.key}"
        what += "" if op.error is None else f": {op.error}"
        cells = (op.index, f"{op.time / 1e9:.3f} s", op.process, op.type, what)
        rows.append(f"<tr>{''.join(f'<td>{cut(str(cell))}</td>' for cell in cells)}</tr>")
    begin, rest = rows[:ROWS_OPEN_MAX], rows[ROWS_OPEN_MAX:]
    yield f'<table class="operations">{head}{"".join(begin)}</table>'
    if rest:
        table = ['<table class="operations">', head, *rest, "</table>"]
        yield _on_demand(f"show {len(rest)} more operations", table)


def _lines(shown: Sequence[int], history: Sequence[Op]) -> list[int]:
    """The lines that show an anomaly, each with the invocation that belongs to it."""
    found: dict[int, None] = {}
    for index in [one for one in shown if 0 <= one < len(history)][:LINES_SHOWN_MAX]:
        process = history[index].process
        begin = index
        while begin > 0 and (history[begin].process != process or history[begin].type != "invoke"):
            begin -= 1
        found |= {begin: None, index: None} if history[begin].process == process else {index: None}
    return sorted(found)


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
"""What the list shows of a run beside its name, time and verdict."""


def index_row(name: str, spec: RunSpec, results: Mapping[str, Any] | None) -> Row:
    """Return the row of a run. `name`: `TEST/TIME`; `results`: None before it is judged."""
    test, _, time = name.partition("/")
    word = NO_VERDICT if results is None else WORDS[results["valid"]]
    described = texts_of(spec, results)
    return Row(
        f"/{quote(name)}", test, time, word, spec.workload, faults_of(spec), spec.env, described
    )


def texts_of(spec: RunSpec, results: Mapping[str, Any] | None) -> tuple[str, str, str, str, str]:
    """Return the cells of `MORE`; all but the seed are empty for a run without a verdict."""
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
    """Return the faults of a run, as the index names them."""
    return ",".join(spec.nemesis) or HEALTHY


def index_page(rows: Sequence[Row], workload: str = "", faults: str = "") -> str:
    """Return all runs, the newest first; of that workload and those faults alone, where they are
    named.
    """
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
        shown = " under ".join(one for one in (workload, faults) if one)
        yield f'<p>Only {escape(shown)}: <a href="/">show all</a></p>'


def _link(text: str, **query: str) -> str:
    return f'<a href="/?{escape(urlencode(query), quote=True)}">{escape(text)}</a>'

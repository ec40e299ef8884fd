"""One page about what was judged on Spark: verdicts, what was found, how to find the rest."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from jepsen.checkers.verdict import WORDS, merge_valid, verdict_document
from jepsen.report import ENDS, LINES_SHOWN_MAX, document, keys, quantile_legend
from jepsen.report.steps import latency_steps, rate_steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jepsen.checkers.verdict import Verdict
    from jepsen.report.steps import Series

HISTORIES_SHOWN_MAX = 200
HISTORIES_PLOTTED_MAX = 5
ANOMALIES_SHOWN_MAX = 5
"""Of each kind and history; the table of anomalies has all."""
JUDGED_BY = "keys_by_"
DETAIL_SHOWN_MAX = 600
"""Characters."""


def plotted(verdicts: Mapping[str, Verdict]) -> list[str]:
    """The histories of which there are plots on the page, if latency and availability are kept."""
    return [name for name, _ in _by_word(verdicts)[:HISTORIES_PLOTTED_MAX]]


def spark_page(
    verdicts: Mapping[str, Verdict], command: str, series: Mapping[str, Series] | None = None
) -> str:
    """The page; it refers to nothing outside itself. Those that are wrong come first.

    `series`: of those `plotted`; None if latency and availability were not kept.
    """
    word = WORDS[merge_valid(one.valid for one in verdicts.values())]
    by_word = _by_word(verdicts)
    title = f"{len(verdicts)} {'history' if len(verdicts) == 1 else 'histories'}: {word}"
    body = [f"<h1>{title}</h1>"]
    for name, verdict in by_word[:HISTORIES_SHOWN_MAX]:
        body += _history(name, verdict)
        if series and name in series:
            body += _plots(series[name])
    if len(by_word) > HISTORIES_SHOWN_MAX:
        body.append(f"<p>and {len(by_word) - HISTORIES_SHOWN_MAX} more</p>")
    by_second = ", <code>latency</code> and <code>availability</code> by the second"
    body += [
        "<h2>All of it</h2>",
        "<p>Beside this page are, as Parquet: <code>verdicts</code> and <code>anomalies</code> of "
        f"all keys{'' if series is None else by_second}.</p>",
        f"<pre>{escape(command)}</pre>",
    ]
    return document(title, body)


def _by_word(verdicts: Mapping[str, Verdict]) -> list[tuple[str, Verdict]]:
    order = ["invalid", "unknown", "valid"]
    return sorted(verdicts.items(), key=lambda item: order.index(WORDS[item[1].valid]))


def _plots(series: Series) -> Iterator[str]:
    """Latency and rate, and what exactly the lines are."""
    many = series.step_s > 1
    if series.latency:
        highest = f"; of each {series.step_s} seconds, the second in which the line is highest"
        yield "<h3>Latency</h3>"
        yield f"<p>Of what succeeded, by the second in which it began{highest if many else ''}.</p>"
        yield quantile_legend()
        for f, plot in latency_steps(series).items():
            yield f"<h4>{escape(f)}</h4>{plot}"
        if (more := series.functions - len(series.latency)) > 0:
            yield f"<p>and {more} more, of which fewer succeeded</p>"
    mean = f", the mean of each {series.step_s} seconds" if many else ""
    yield (
        f"<h3>Rate</h3><p>Operations of all functions that ended in a second{mean}. Those that "
        "never ended are info where they began. The last second may be a part of one.</p>"
    )
    yield keys(ENDS)
    yield rate_steps(series)


def _history(name: str, verdict: Verdict) -> Iterator[str]:
    word = WORDS[verdict.valid]
    # Which algorithm judged how many keys is for `--print json`.
    statistics = {
        key: value for key, value in verdict.statistics.items() if not key.startswith(JUDGED_BY)
    }
    found = statistics.pop("found", {})
    told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in statistics.items())
    yield f"<h2>{escape(name)}</h2>"
    why = escape(verdict.why_unknown)
    yield f'<p class="card {word}"><b>{word}</b> {why}<br>{escape(told)}</p>'
    if found:
        yield "<table><tr><th>anomaly</th><th>how many</th></tr>"
        for kind, count in found.items():
            yield f"<tr><td>{escape(kind)}</td><td>{count}</td></tr>"
        yield "</table>"
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for anomaly in verdict_document(verdict)["anomalies"]:
        by_kind.setdefault(anomaly["name"], []).append(anomaly)
    if by_kind:
        yield "<h3>The first of each</h3>"
        yield '<table class="operations">'
        yield "<tr><th>anomaly</th><th>lines</th><th>what</th></tr>"
        for mine in by_kind.values():
            yield from map(_anomaly, mine[:ANOMALIES_SHOWN_MAX])
        yield "</table>"


def _anomaly(anomaly: dict[str, Any]) -> str:
    name, lines = anomaly.pop("name"), anomaly.pop("lines")
    text = json.dumps(anomaly, ensure_ascii=False)
    if len(text) > DETAIL_SHOWN_MAX:
        text = text[:DETAIL_SHOWN_MAX] + " …"
    where = ", ".join(map(str, lines[:LINES_SHOWN_MAX]))
    if len(lines) > LINES_SHOWN_MAX:
        where += ", …"
    return f"<tr><td>{escape(name)}</td><td>{where}</td><td>{escape(text)}</td></tr>"

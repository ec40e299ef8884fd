"""The page of histories that Spark judged: verdicts, first anomalies, latency and rate by steps.

The plots have a value for each step of some seconds, not a point for each operation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jepsen.checkers.verdict import WORDS, merge_valid, verdict_document
from jepsen.report._page import ENDS, LINES_SHOWN_MAX, document, keys, quantile_legend
from jepsen.report._plots import (
    COLOURS,
    QUANTILES,
    Scale,
    decade,
    latency_rows,
    line,
    rate_rows,
    round_rate,
    svg,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from jepsen.checkers.verdict import Verdict
    from jepsen.history import OpType


@dataclass
class Series:
    """Course of a history, in steps of as many seconds each; the last may have fewer."""

    first_s: int
    seconds: int
    step_s: int
    ended: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By number of the step, from 0: how many ended as ok, fail and info, as `COLOURS` has them."""
    latency: dict[str, dict[int, tuple[float, ...]]] = field(default_factory=dict)
    """By function and step: quantiles in milliseconds, as `QUANTILES` has them; no step in which
    none succeeded."""
    functions: int = 0
    """That have succeeded; `latency` may have fewer."""

    def begin_s(self, step: int) -> int:
        """Return when a step begins; behind the last, when that ends."""
        return self.first_s + min(self.seconds, step * self.step_s)

    def rates(self) -> dict[OpType, dict[int, float]]:
        """By end and step, operations a second; 0 where nothing ended."""
        lengths = dict(enumerate(end - begin for begin, end in pairwise(self._borders())))
        nothing = (0,) * len(COLOURS)
        return {
            kind: {step: self.ended.get(step, nothing)[at] / s for step, s in lengths.items()}
            for at, kind in enumerate(COLOURS)
        }

    def _borders(self) -> list[int]:
        last_s = self.first_s + self.seconds
        return [*range(self.first_s, last_s, self.step_s), last_s]


def latency_steps(series: Series) -> dict[str, str]:
    """By function a plot of the quantiles of its latencies, all on the same scale."""
    top = max((one[-1] for mine in series.latency.values() for one in mine.values()), default=1.0)
    scale = _scale(series, decade(top))
    plots = {}
    for f, by_step in series.latency.items():
        lines: list[str] = []
        for at, colour in enumerate(QUANTILES.values()):
            values = {step: quantiles[at] for step, quantiles in by_step.items()}
            lines += _stairs(series, values, scale, scale.log_y, colour)
        slowest, step = max((quantiles[-1], -step) for step, quantiles in by_step.items())
        about = f"The slowest took {slowest:.1f} ms, at {series.begin_s(-step)} s."
        plots[f] = svg(f"Latency of {f}", scale, [*latency_rows(scale), *lines], about)
    return plots


def rate_steps(series: Series) -> str:
    """Operations a second by how they ended, of all functions."""
    rates = series.rates()
    tops = {kind: max(by_step.values()) for kind, by_step in rates.items()}
    scale = _scale(series, round_rate(max(tops.values()) or 1.0))
    lines: list[str] = []
    for kind, colour in COLOURS.items():
        lines += _stairs(series, rates[kind], scale, scale.y, colour)
    about = "At most, " + ", ".join(f"{kind.value} {top:.1f}/s" for kind, top in tops.items())
    return svg("Rate", scale, [*rate_rows(scale), *lines], f"{about}.")


def _scale(series: Series, top: float) -> Scale:
    return Scale(series.first_s + series.seconds, top, series.first_s)


def _stairs(
    series: Series,
    values: Mapping[int, float],
    scale: Scale,
    y: Callable[[float], float],
    colour: str,
) -> Iterator[str]:
    """A value for as long as its step; steps without one are a gap."""
    points: list[tuple[float, float]] = []
    last = -1
    for step, value in sorted(values.items()):
        if points and step > last + 1:
            yield line(points, colour)
            points = []
        ends = (series.begin_s(step), series.begin_s(step + 1))
        points += [(scale.x(at_s), y(value)) for at_s in ends]
        last = step
    yield line(points, colour)


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
    shown = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in statistics.items())
    yield f"<h2>{escape(name)}</h2>"
    why = escape(verdict.why_unknown)
    yield f'<p class="card {word}"><b>{word}</b> {why}<br>{escape(shown)}</p>'
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

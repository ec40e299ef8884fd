"""One page about what was judged on Spark: verdicts, what was found, how to find the rest."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from jepsen.checkers.verdict import merge_valid, verdict_document
from jepsen.report.page import WORDS, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jepsen.checkers.verdict import Verdict

HISTORIES_SHOWN_MAX = 200
ANOMALIES_SHOWN_MAX = 20
"""Of each history; the table of anomalies has all."""


def spark_page(verdicts: Mapping[str, Verdict], command: str) -> str:
    """The page; it refers to nothing outside itself. Those that are wrong come first."""
    word = WORDS[merge_valid(one.valid for one in verdicts.values())]
    by_word = sorted(
        verdicts.items(),
        key=lambda item: ["invalid", "unknown", "valid"].index(WORDS[item[1].valid]),
    )
    body = [
        f"<h1>{len(verdicts)} histories: {word}</h1>",
        *(line for name, one in by_word[:HISTORIES_SHOWN_MAX] for line in _history(name, one)),
    ]
    if len(by_word) > HISTORIES_SHOWN_MAX:
        body.append(f"<p>and {len(by_word) - HISTORIES_SHOWN_MAX} more</p>")
    body += [
        "<h2>All of it</h2>",
        "<p>Beside this page are, as Parquet: <code>verdicts</code> and <code>anomalies</code> of "
        "all keys, <code>latency</code> and <code>availability</code> by the second.</p>",
        f"<pre>{escape(command)}</pre>",
    ]
    return document(f"{len(verdicts)} histories: {word}", body)


def _history(name: str, verdict: Verdict) -> Iterator[str]:
    word = WORDS[verdict.valid]
    statistics = dict(verdict.statistics)
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
    shown = verdict_document(verdict)["anomalies"][:ANOMALIES_SHOWN_MAX]
    if shown:
        yield "<table><tr><th>first of them</th><th>lines</th><th>what</th></tr>"
        yield from map(_anomaly, shown)
        yield "</table>"


def _anomaly(anomaly: dict[str, Any]) -> str:
    name, lines = anomaly.pop("name"), anomaly.pop("lines")
    text = json.dumps(anomaly, ensure_ascii=False)
    where = ", ".join(map(str, lines))
    return f"<tr><td>{escape(name)}</td><td>{where}</td><td>{escape(text)}</td></tr>"

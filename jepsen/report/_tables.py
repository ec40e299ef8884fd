"""Tables and texts that pages of runs have in common: faults, statistics, dates."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from jepsen.generator.core import SECOND_NS
from jepsen.nemesis.faults import in_words, kind_struck, kind_tried

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jepsen.history import Op
    from jepsen.report._plots import Window

FAULTS_SHOWN_MAX = 12
"""The others are shown on demand."""
SHORT_S = 10.0
_STAMP, _SHOWN = "%Y%m%dT%H%M%S", "%Y-%m-%d %H:%M:%S UTC"


def readable_time(name: str) -> str:
    """`2026-11-23 12:45:12 UTC` of `20261123T124512`; what is no such name stays as it is."""
    stamp, _, number = name.partition(".")
    try:
        text = datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC).strftime(_SHOWN)
    except ValueError:
        return name
    return f"{text} ({number})" if number else text


def lasted(seconds: float) -> str:
    """`8.4 s`, `37 s`: a tenth matters only to what was short."""
    return f"{seconds:.1f} s" if seconds < SHORT_S else f"{seconds:.0f} s"


def fault_table(history: Sequence[Op], broken: Sequence[Window]) -> Iterator[str]:
    """Return each fault: when it began, how long it lasted, and what was done to which nodes."""
    ends = {(one.kind, one.begin_s): one.end_s for one in broken}
    rows = []
    for op in history:
        if not kind_tried(op):
            continue
        at_s = op.time / SECOND_NS
        end_s = ends.get((op.f, at_s), at_s)
        lasted = f"{end_s - at_s:.1f} s" if end_s > at_s else ""
        shade = "" if kind_struck(op) else ' class="missed"'
        cells = (f"{at_s:.1f} s", lasted, in_words(op))
        rows.append(f"<tr{shade}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    if not rows:
        return
    yield "<h2>Faults</h2>"
    yield _fault_rows(rows[:FAULTS_SHOWN_MAX])
    if more := rows[FAULTS_SHOWN_MAX:]:
        yield f"<details><summary>show {len(more)} more</summary>{_fault_rows(more)}</details>"


def _fault_rows(rows: Sequence[str]) -> str:
    heads = "<tr><th>time</th><th>lasted</th><th>fault and target</th></tr>"
    return f"<table>{heads}{''.join(rows)}</table>"


def format_statistics(statistics: Mapping[str, Any]) -> str:
    """In HTML, a line for each entry: `counts of poll: invoke 409, ok 400`."""
    return "<br>".join(escape(line) for line in _lines(statistics))


def _lines(statistics: Mapping[str, Any]) -> Iterator[str]:
    plain = {name: value for name, value in statistics.items() if not isinstance(value, Mapping)}
    if plain:
        yield _format(plain)
    for name, value in statistics.items():
        if not isinstance(value, Mapping) or not value:
            continue
        if any(isinstance(inner, Mapping) for inner in value.values()):
            yield from (
                f"{_words(name)} of {key}: {_format(inner)}" for key, inner in value.items()
            )
        else:
            yield f"{_words(name)}: {_format(value)}"


def _format(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(str(name))} {_format(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return " ".join(_format(one) for one in value) or "none"
    return "yes" if value is True else "no" if value is False else str(value)


def _words(name: str) -> str:
    """`longest outage (s)` of `longest_outage_s`."""
    text = name.removesuffix("_s").replace("_", " ")
    return f"{text} (s)" if name.endswith("_s") else text

"""Where a history stops being linearizable, as SVG: who was doing what just then."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from jepsen.history import Operation, OpType, operations
from jepsen.history.edn import hashable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jepsen.history import Op

WIDTH, LEFT, ROW, BAR, HEAD = 960, 110, 30, 22, 22
OPERATIONS_SHOWN_MAX = 30
BEFORE = 8
"""Operations shown that had returned already, for what had been; so many of unknown outcome too."""
FAILING, PENDING, DONE = "#b3261e", "#d98324", "#2a78d6"
NEVER = 1 << 62
CHARACTER = 6.2
"""The width of one, roughly."""


def failing_window(anomaly: Mapping[str, Any], history: Sequence[Op]) -> str:
    """The operations on the key around the one that fits nowhere, a row a process.

    Time goes by lines of the history, so that short operations can be seen too.
    """
    shown = _shown(anomaly, history)
    if not shown:
        return ""
    failing = anomaly["operation"]["index"]
    lines = sorted({one.invoke.index for one in shown} | {min(_end(one), failing) for one in shown})
    places = {line: at for at, line in enumerate(lines)}
    processes = sorted({int(one.invoke.process) for one in shown})
    rows = {process: at for at, process in enumerate(processes)}
    step = (WIDTH - LEFT) / len(lines)
    height = HEAD + ROW * len(processes) + 6
    parts = [
        f'<text x="0" y="{HEAD + ROW * at + BAR - 6}">process {process}</text>'
        for process, at in rows.items()
    ]
    for one in shown:
        begin = LEFT + step * places[one.invoke.index]
        end = LEFT + step * (places[min(_end(one), failing)] + 0.85)
        top = HEAD + ROW * rows[int(one.invoke.process)]
        parts += _bar(one, failing, begin, end, top)
    states = ", ".join(anomaly.get("possible-states", ()))
    told = f"Before line {failing} the value may have been: {states or 'nothing possible'}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Failing window">'
        f'<text x="0" y="14">{escape(told)}</text>{"".join(parts)}</svg>'
    )


def _shown(anomaly: Mapping[str, Any], history: Sequence[Op]) -> list[Operation]:
    """Those under way when it went wrong, and a few that had ended or may yet take effect."""
    failing = anomaly["operation"]["index"]
    key = hashable(anomaly.get("key"))
    mine = [
        one
        for one in operations(history)
        if hashable(one.invoke.key) == key
        and one.invoke.index <= failing
        and one.type is not OpType.FAIL
    ]
    named = set(anomaly["lines"])
    told = [one for one in mine if {one.invoke.index, _end(one)} & named]
    ended = [one for one in mine if one not in told and one.type is OpType.OK]
    ended = sorted((one for one in ended if _end(one) < failing), key=_end)[-BEFORE:]
    unknown = [one for one in mine if one not in told and one.type is OpType.INFO][-BEFORE:]
    shown = [*ended, *unknown, *told[-OPERATIONS_SHOWN_MAX:]]
    return sorted(shown, key=lambda one: one.invoke.index)


def _end(one: Operation) -> int:
    unknown = one.completion is None or one.type is OpType.INFO
    return NEVER if unknown or one.completion is None else one.completion.index


def _bar(one: Operation, failing: int, begin: float, end: float, top: float) -> Iterator[str]:
    is_failing = _end(one) == failing
    colour = FAILING if is_failing else DONE if _end(one) < failing else PENDING
    label = _label(one)
    how = "does not fit" if is_failing else "returned" if colour == DONE else "under way"
    room = int((end - begin) / CHARACTER)
    text = label if len(label) <= room else label[: max(0, room - 1)] + "…" if room > 2 else ""
    yield (
        f"<g><title>line {one.invoke.index}: {escape(label)}, {how}</title>"
        f'<rect x="{begin:.1f}" y="{top}" width="{end - begin:.1f}" height="{BAR}" rx="3" '
        f'fill="{colour}" opacity="{1 if is_failing else 0.75}"/>'
        f'<text x="{begin + 4:.1f}" y="{top + BAR - 7}" style="fill:#fff">{escape(text)}</text></g>'
    )


def _label(one: Operation) -> str:
    value = json.dumps(one.value, ensure_ascii=False, default=str)
    if one.type is OpType.INFO:
        return f"{one.invoke.f} {value} ?"
    arrow = "→ " if one.invoke.value is None else ""
    return f"{one.invoke.f} {arrow}{value}"

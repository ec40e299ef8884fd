"""Plots as SVG: latency and rate over the time of a test, faults, and nonlinearizable keys.

All plots over time share scales, rows, lines and colours. `failing_window` shows where the history
of a key stops being linearizable: which operations of which processes were open then.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

from jepsen.generator.core import NEMESIS, OBSERVER, SECOND_NS
from jepsen.history import Operation, OpType, operations
from jepsen.history.edn import hashable
from jepsen.nemesis.faults import in_words, kind_struck
from jepsen.nemesis.plan import HEAL, PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from jepsen.history import Op

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 240, 60, 24
QUANTILES = {0.5: "#2a78d6", 0.95: "#7b5ea7", 0.99: "#d98324", 1.0: "#b3261e"}
COLOURS = {OpType.OK: "#2a78d6", OpType.FAIL: "#d98324", OpType.INFO: "#b3261e"}
LATENCY_MS_MIN = 0.1
SECOND_MS = 1000
TIMES = 8
"""On the axis of time, about; no more."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Conversion of seconds and values to places in a plot."""

    end_s: float
    top: float
    """The highest value: milliseconds, or operations a second."""
    begin_s: float = 0.0

    def x(self, at_s: float) -> float:
        """Where a second of the test is."""
        return LEFT + (WIDTH - LEFT) * (at_s - self.begin_s) / (self.end_s - self.begin_s)

    def y(self, value: float) -> float:
        """Where a value is, from 0 at the bottom."""
        return 10 + (HEIGHT - BOTTOM - 10) * (1 - value / self.top)

    def log_y(self, ms: float) -> float:
        """Where a latency is, each power of ten as far from the next."""
        decades = _decades(self.top)
        return 10 + (HEIGHT - BOTTOM - 10) * (1 - _decades(max(ms, LATENCY_MS_MIN)) / decades)


def _decades(ms: float) -> float:
    return log10(ms / LATENCY_MS_MIN)


def decade(ms: float) -> float:
    """The next power of ten, at least one above the lowest."""
    top = LATENCY_MS_MIN * 10
    while top < ms:
        top *= 10
    return top


def round_rate(rate: float) -> float:
    """Return a rate that is no lower, and a short number, as is its half."""
    return _round_up(rate, (1, 2, 4, 6, 8, 10))


def _round_up(value: float, steps: Iterable[int]) -> float:
    """The next of these times a power of ten; the last is 10."""
    power: float = 10.0 ** floor(log10(value))
    return next((step * power for step in steps if step * power >= value), 10 * power)


def latency_rows(scale: Scale) -> Iterator[str]:
    """A line and its milliseconds for each power of ten."""
    ms = LATENCY_MS_MIN
    while ms <= scale.top:
        yield _row(scale.log_y(ms), f"{ms:g} ms" if ms < SECOND_MS else f"{ms / SECOND_MS:g} s")
        ms *= 10


def rate_rows(scale: Scale) -> Iterator[str]:
    """A line and its operations a second at the bottom, half-way and at the top."""
    for part in (0, 0.5, 1):
        yield _row(scale.y(scale.top * part), f"{_short(scale.top * part)}/s")


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if value >= 1e4 else f"{value:.4g}"


def _row(y: float, label: str) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
    )


def line(points: Iterable[tuple[float, float]], colour: str) -> str:
    """From place to place."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def svg(title: str, scale: Scale, parts: Iterable[str], about: str = "") -> str:
    """A plot with its axis of time. `about`: for screen readers."""
    description = f"<desc>{escape(about)}</desc>" if about else ""
    shapes = "".join([*_times(scale), *parts])
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">'
        f"{description}{shapes}</svg>"
    )


def _times(scale: Scale) -> Iterator[str]:
    """Round seconds, each as far from the next."""
    step_s = _round_up((scale.end_s - scale.begin_s) / TIMES, (1, 2, 5, 10))
    first, last = ceil(scale.begin_s / step_s), floor(scale.end_s / step_s)
    for at_s in (number * step_s for number in range(first, last + 1)):
        x = scale.x(at_s)
        anchor = "end" if x > WIDTH - 30 else "middle"
        yield f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{at_s:.12g} s</text>'


POINTS_MAX = 4_000
"""More make the page slow and show nothing more."""
BUCKETS = 120
SLICES = 60
LEADERS = ("#35648f", "#6b7f3a", "#8a5a83", "#a0673b", "#4f7f7a")
LEADER_SEEN = "leader"
SHADES = {one.begin: one.shade for one in PACKAGES.values()}
"""By the operation that begins a fault."""
ANOMALY = "#c2185b"
_ENDS = {one.end: one.begin for one in PACKAGES.values() if one.end}


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which something was broken, in seconds of the test."""

    kind: str
    begin_s: float
    end_s: float
    description: str
    """What was done to whom, for people."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An anomaly on the page, and when its operations were, in seconds of the test."""

    number: int
    name: str
    begin_s: float
    end_s: float


def windows(history: Sequence[Op]) -> list[Window]:
    """When what was broken; what was never mended lasts to the end."""
    opened: dict[str, tuple[float, str]] = {}
    found = []
    last_s = history[-1].time / SECOND_NS if history else 0.0
    for op in history:
        if op.process != NEMESIS or op.type is OpType.INVOKE:
            continue
        at_s = op.time / SECOND_NS
        closing = list(opened) if op.f == HEAL else [_ENDS[op.f]] if op.f in _ENDS else []
        for kind in closing:
            if kind in opened:
                begin_s, description = opened.pop(kind)
                found.append(Window(kind, begin_s, at_s, description))
        # Nothing is broken by a fault that hit nobody.
        if not kind_struck(op):
            continue
        if op.f in _ENDS.values():
            opened.setdefault(op.f, (at_s, in_words(op)))
        elif op.f in PACKAGES:
            found.append(Window(op.f, at_s, at_s, in_words(op)))
    found += [
        Window(kind, begin, last_s, description) for kind, (begin, description) in opened.items()
    ]
    return sorted(found, key=lambda window: window.begin_s)


def latency_plot(
    history: Sequence[Op], broken: Iterable[Window], anomalies: Iterable[Mark] = ()
) -> str:
    """Each operation at its beginning, how long it took on a logarithmic scale, by its end.

    An anomaly is a stripe, linked to its place on the page and back.
    """
    points = [
        (one.invoke.time, (one.completion.time - one.invoke.time) / 1e6, one.type, one.invoke.f)
        for one in operations(history)
        if one.completion is not None
    ]
    step = max(1, len(points) // POINTS_MAX)
    # What went wrong is shown whole: it is little, and what people look for.
    shown = [point for at, point in enumerate(points) if at % step == 0 or point[2] is OpType.INFO]
    scale = Scale(_end_s(history), decade(max((ms for _, ms, _, _ in points), default=1.0)))
    marks = [
        f'<circle cx="{scale.x(time / SECOND_NS):.1f}" cy="{scale.log_y(ms):.1f}" r="2" '
        f'fill="{COLOURS[kind]}"><title>{escape(f)} {kind} {ms:.1f} ms</title></circle>'
        for time, ms, kind, f in shown
    ]
    stripes = [_stripe(scale, one) for one in anomalies]
    return _svg("Latency", scale, broken, [*latency_rows(scale), *stripes, *marks])


def _stripe(scale: Scale, anomaly: Mark) -> str:
    x = scale.x(anomaly.begin_s)
    width = max(3.0, scale.x(anomaly.end_s) - x)
    return (
        f'<a href="#anomaly-{anomaly.number}"><rect id="mark-{anomaly.number}" class="stripe" '
        f'fill="{ANOMALY}" x="{x:.1f}" y="0" width="{width:.1f}" height="{HEIGHT - BOTTOM}">'
        f"<title>{escape(anomaly.name)}</title></rect></a>"
    )


def quantile_plots(history: Sequence[Op], broken: Sequence[Window]) -> dict[str, str]:
    """By function, those with most successes first: polls that wait would hide what sends take."""
    succeeded = Counter(op.f for op in history if op.by_client and op.type is OpType.OK)
    return {f: quantile_plot(history, broken, f) for f, _ in succeeded.most_common()}


def quantile_plot(
    history: Sequence[Op], broken: Iterable[Window], function: str | None = None
) -> str:
    """Of the latencies of what succeeded, quantiles of each slice of the test."""
    slices: dict[int, list[float]] = {}
    end_s = _end_s(history)
    slice_s = end_s / SLICES
    for one in operations(history):
        if function not in (None, one.invoke.f):
            continue
        if one.type is OpType.OK and one.completion is not None:
            at = min(SLICES - 1, int(one.invoke.time / SECOND_NS / slice_s))
            ms = (one.completion.time - one.invoke.time) / 1e6
            slices.setdefault(at, []).append(ms)
    for latencies in slices.values():
        latencies.sort()
    scale = Scale(end_s, decade(max((one[-1] for one in slices.values()), default=1.0)))
    lines = []
    for quantile, colour in QUANTILES.items():
        points = [
            (scale.x((at + 0.5) * slice_s), scale.log_y(_quantile(one, quantile)))
            for at, one in sorted(slices.items())
        ]
        lines.append(line(points, colour))
    return _svg("Latency quantiles", scale, broken, [*latency_rows(scale), *lines])


def _quantile(latencies: Sequence[float], quantile: float) -> float:
    """By the nearest rank; the latencies are sorted."""
    return latencies[max(0, ceil(quantile * len(latencies)) - 1)]


def leader_strip(history: Sequence[Op]) -> str:
    """Who was the active controller when, and in which epoch; nothing if nobody looked."""
    seen = [
        (op.time / SECOND_NS, *op.value)
        for op in history
        if op.process == OBSERVER and op.f == LEADER_SEEN
    ]
    if not seen:
        return ""
    scale = Scale(_end_s(history), 1.0)
    names = sorted({name for _, name, _ in seen})
    parts = []
    ends = [at_s for at_s, _, _ in seen[1:]] + [scale.end_s]
    for (begin_s, name, epoch), end_s in zip(seen, ends, strict=True):
        x, width = scale.x(begin_s), scale.x(end_s) - scale.x(begin_s)
        label = f"{name}, epoch {epoch}"
        text = label if len(label) * 6 < width else str(epoch) if width > 20 else ""
        colour = LEADERS[names.index(name) % len(LEADERS)]
        parts.append(
            f'<g><title>{escape(label)} from {begin_s:.1f} s</title><rect x="{x:.1f}" y="2" '
            f'width="{max(1.0, width):.1f}" height="20" fill="{colour}"/><text x="{x + 4:.1f}" '
            f'y="16" style="fill:#fff">{escape(text)}</text></g>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} 24" role="img" aria-label="Leader"><text x="{LEFT - 6}" y="16" '
        f'text-anchor="end">leader</text>{"".join(parts)}</svg>'
    )


def rate_plot(history: Sequence[Op], broken: Iterable[Window]) -> str:
    """Operations a second by how they ended."""
    end_s = _end_s(history)
    bucket_s = end_s / BUCKETS
    counts: Counter[tuple[OpType, int]] = Counter()
    for op in history:
        if op.by_client and op.type is not OpType.INVOKE:
            counts[op.type, min(BUCKETS - 1, int(op.time / SECOND_NS / bucket_s))] += 1
    scale = Scale(end_s, round_rate(max(counts.values(), default=1) / bucket_s))
    lines = []
    for kind, colour in COLOURS.items():
        points = [
            (scale.x((at + 0.5) * bucket_s), scale.y(counts[kind, at] / bucket_s))
            for at in range(BUCKETS)
        ]
        lines.append(line(points, colour))
    return _svg("Rate", scale, broken, [*rate_rows(scale), *lines])


def _end_s(history: Sequence[Op]) -> float:
    return max(0.001, history[-1].time / SECOND_NS if history else 0.0)


def _svg(title: str, scale: Scale, broken: Iterable[Window], parts: Iterable[str]) -> str:
    return svg(title, scale, [*_shades(scale, broken), *parts])


def _shades(scale: Scale, broken: Iterable[Window]) -> Iterator[str]:
    for one in broken:
        x = scale.x(one.begin_s)
        width = max(2.0, scale.x(one.end_s) - x)
        yield (
            f'<rect x="{x:.1f}" y="0" width="{width:.1f}" height="{HEIGHT - BOTTOM}" '
            f'fill="{SHADES.get(one.kind, "#999")}" opacity="0.25">'
            f"<title>{escape(one.description)}</title></rect>"
        )


NAMES_WIDTH, ROW, BAR, HEAD = 110, 30, 22, 22
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
    step = (WIDTH - NAMES_WIDTH) / len(lines)
    height = HEAD + ROW * len(processes) + 6
    parts = [
        f'<text x="0" y="{HEAD + ROW * at + BAR - 6}">process {process}</text>'
        for process, at in rows.items()
    ]
    for one in shown:
        begin = NAMES_WIDTH + step * places[one.invoke.index]
        end = NAMES_WIDTH + step * (places[min(_end(one), failing)] + 0.85)
        top = HEAD + ROW * rows[int(one.invoke.process)]
        parts += _bar(one, failing, begin, end, top)
    states = ", ".join(anomaly.get("possible-states", ()))
    sentence = f"Before line {failing} the value may have been: {states or 'nothing possible'}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Failing window">'
        f'<text x="0" y="14">{escape(sentence)}</text>{"".join(parts)}</svg>'
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
    involved = [one for one in mine if {one.invoke.index, _end(one)} & named]
    ended = [one for one in mine if one not in involved and one.type is OpType.OK]
    ended = sorted((one for one in ended if _end(one) < failing), key=_end)[-BEFORE:]
    unknown = [one for one in mine if one not in involved and one.type is OpType.INFO][-BEFORE:]
    shown = [*ended, *unknown, *involved[-OPERATIONS_SHOWN_MAX:]]
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

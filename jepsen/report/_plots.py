"""Plots of a history as SVG: latency of every operation, rate, and when what was broken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from math import ceil
from typing import TYPE_CHECKING

from jepsen.generator.core import NEMESIS, OBSERVER, SECOND_NS
from jepsen.history import OpType, operations
from jepsen.nemesis.faults import in_words, kind_struck
from jepsen.nemesis.plan import HEAL, PACKAGES
from jepsen.report._axes import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    QUANTILES,
    WIDTH,
    Scale,
    decade,
    latency_rows,
    line,
    rate_rows,
    round_rate,
    svg,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jepsen.history import Op

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
    told: str
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
                begin_s, told = opened.pop(kind)
                found.append(Window(kind, begin_s, at_s, told))
        # Nothing is broken by a fault that hit nobody.
        if not kind_struck(op):
            continue
        if op.f in _ENDS.values():
            opened.setdefault(op.f, (at_s, in_words(op)))
        elif op.f in PACKAGES:
            found.append(Window(op.f, at_s, at_s, in_words(op)))
    found += [Window(kind, begin, last_s, told) for kind, (begin, told) in opened.items()]
    return sorted(found, key=lambda window: window.begin_s)


def latency_plot(
    history: Sequence[Op], broken: Iterable[Window], anomalies: Iterable[Mark] = ()
) -> str:
    """Each operation at its beginning, how long it took on a logarithmic scale, by its end.

    An anomaly is a stripe that leads to what the page tells of it, and is led to from there.
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
            f"<title>{escape(one.told)}</title></rect>"
        )

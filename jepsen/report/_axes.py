"""What all plots over the time of a test share, as SVG: scales, rows, lines, colours."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from jepsen.history import OpType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 240, 60, 24
QUANTILES = {0.5: "#2a78d6", 0.95: "#7b5ea7", 0.99: "#d98324", 1.0: "#b3261e"}
COLOURS = {OpType.OK: "#2a78d6", OpType.FAIL: "#d98324", OpType.INFO: "#b3261e"}
LATENCY_MS_MIN = 0.1
SECOND_MS = 1000
TIMES = 8
"""On the axis of time, about; no more."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From seconds and values to places in a plot."""

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
    """One that is no lower, and a short number, as is its half."""
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
    """A plot with its axis of time. `about`: for whoever does not see it."""
    told = f"<desc>{escape(about)}</desc>" if about else ""
    shapes = "".join([*_times(scale), *parts])
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">'
        f"{told}{shapes}</svg>"
    )


def _times(scale: Scale) -> Iterator[str]:
    """Round seconds, each as far from the next."""
    step_s = _round_up((scale.end_s - scale.begin_s) / TIMES, (1, 2, 5, 10))
    first, last = ceil(scale.begin_s / step_s), floor(scale.end_s / step_s)
    for at_s in (number * step_s for number in range(first, last + 1)):
        x = scale.x(at_s)
        anchor = "end" if x > WIDTH - 30 else "middle"
        yield f'<text x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{at_s:.12g} s</text>'

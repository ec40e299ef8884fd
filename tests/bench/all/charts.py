"""Pictures as SVG: bars beside a peer, and curves of growth; for light pages and dark ones."""

from __future__ import annotations

from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

WIDTH = 760
NAMES, VALUES = 300, 130
ROW, BAR, HEAD = 40, 13, 46
HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 64, 16, 46, 44
COLOURS = ("ours", "peer", "third", "fourth", "fifth", "sixth")
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-size: 14px; font-weight: 600 } .quiet { fill: #57606a }
.grid { stroke: #d0d7de } .ours { fill: #2a78d6; stroke: #2a78d6 }
.peer { fill: #9aa4b2; stroke: #9aa4b2 } .third { fill: #d98324; stroke: #d98324 }
.fourth { fill: #7b5ea7; stroke: #7b5ea7 } .fifth { fill: #1a7440; stroke: #1a7440 }
.sixth { fill: #c2185b; stroke: #c2185b } polyline { fill: none !important; stroke-width: 2 }
.missed { fill: #b3261e } .met { fill: #1a7440 }
@media (prefers-color-scheme: dark) {
text { fill: #e4e9f0 } .quiet { fill: #a3afbf } .grid { stroke: #3a4450 }
.ours { fill: #6aa5f0; stroke: #6aa5f0 } .peer { fill: #7d8896; stroke: #7d8896 }
.missed { fill: #ff938a } .met { fill: #66cf92 } }
</style>"""


class Row(NamedTuple):
    """One figure of ours beside that of a peer."""

    label: str
    unit: str
    ours: float
    peer: float | None
    peer_name: str
    verdict: str
    """Ratio and goal, as text."""
    met: bool


def bars(title: str, rows: Sequence[Row]) -> str:
    """Two bars a row, both on the scale of the row, since units differ."""
    parts = [_text(0, 18, title, "title"), *_key(["raftctl", "peer"])]
    for number, row in enumerate(rows):
        parts += _row(row, HEAD + number * ROW)
    return _svg(title, HEAD + len(rows) * ROW, parts)


def _row(row: Row, top: int) -> Iterator[str]:
    greatest = max(row.ours, row.peer or 0.0) or 1.0
    room = WIDTH - NAMES - VALUES - 70
    yield _text(0, top + 12, row.label)
    yield _text(0, top + 27, row.verdict, "met" if row.met else "missed")
    values = [("ours", row.ours, "")]
    if row.peer is not None:
        values.append(("peer", row.peer, f" {row.peer_name}"))
    for place, (colour, value, name) in enumerate(values):
        y, width = top + place * (BAR + 2), max(1.0, room * value / greatest)
        yield f'<rect class="{colour}" x="{NAMES}" y="{y}" width="{width:.1f}" height="{BAR}"/>'
        yield _text(NAMES + width + 6, y + 11, f"{short(value)} {row.unit}{name}", "quiet")


def curves(
    title: str, across: str, up: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> str:
    """A line for each series; both axes are logarithmic, and what is not above 0 is left out."""
    drawn = {name: sorted(one for one in of if min(one) > 0) for name, of in series.items()}
    lines = {name: of for name, of in drawn.items() if of}
    points = [point for of in lines.values() for point in of]
    parts = [_text(0, 18, title, "title"), *_key(list(lines))]
    if points:
        width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        wide = _Axis.around([x for x, _ in points], LEFT, width)
        high = _Axis.around([y for _, y in points], HEIGHT - BOTTOM, -height)
        parts += _grid(wide, high)
        for colour, of in zip(COLOURS, lines.values(), strict=False):
            places = [(wide.place(x), high.place(y)) for x, y in of]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline class="{colour}" points="{path}"/>')
            parts += [
                f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places
            ]
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 6, across, "quiet", "middle"))
    parts.append(_text(0, TOP - 6, up, "quiet"))
    return _svg(title, HEIGHT, parts)


def timeline(
    title: str, across: str, up: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> str:
    """A line for each series on plain axes from 0."""
    parts = [_text(0, 18, title, "title"), *_key(list(series), top=TOP - 16)]
    points = [point for of in series.values() for point in of]
    if points:
        wide = _Linear(round_up(max(x for x, _ in points)), LEFT, WIDTH - LEFT - RIGHT)
        height = HEIGHT - TOP - BOTTOM
        high = _Linear(round_up(max(y for _, y in points)), HEIGHT - BOTTOM, -height)
        parts += _grid(wide, high)
        for colour, of in zip(COLOURS, series.values(), strict=False):
            path = " ".join(f"{wide.place(x):.1f},{high.place(y):.1f}" for x, y in of)
            parts.append(f'<polyline class="{colour}" points="{path}"/>')
    parts.append(_text((LEFT + WIDTH) / 2, HEIGHT - 6, across, "quiet", "middle"))
    parts.append(_text(0, TOP - 6, up, "quiet"))
    return _svg(title, HEIGHT, parts)


def round_up(value: float) -> float:
    """The next of 1, 2, 3, 4, 6, 8, 10 times a power of ten."""
    power: float = 10.0 ** floor(log10(value)) if value > 0 else 1.0
    return next((one * power for one in (1, 2, 3, 4, 6, 8) if one * power >= value), 10 * power)


class _Linear(NamedTuple):
    """From 0 at one place to a greatest value at another."""

    greatest: float
    begin: float
    length: float

    def place(self, value: float) -> float:
        """Where a value is."""
        return self.begin + self.length * value / self.greatest

    def marks(self) -> Iterator[tuple[float, float]]:
        """Quarters and their places."""
        for quarter in range(5):
            value = self.greatest * quarter / 4
            yield value, self.place(value)


class _Axis(NamedTuple):
    """Powers of ten from one place to another."""

    first: int
    last: int
    begin: float
    length: float

    @classmethod
    def around(cls, values: Sequence[float], begin: float, length: float) -> _Axis:
        """An axis with all these values."""
        first, last = floor(log10(min(values))), ceil(log10(max(values)))
        return cls(first, max(last, first + 1), begin, length)

    def place(self, value: float) -> float:
        """Where a value is."""
        return self.begin + self.length * (log10(value) - self.first) / (self.last - self.first)

    def marks(self) -> Iterator[tuple[float, float]]:
        """Each power of ten and its place."""
        for power in range(self.first, self.last + 1):
            yield 10.0**power, self.place(10.0**power)


def _grid(wide: _Axis | _Linear, high: _Axis | _Linear) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value, x in wide.marks():
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>'
        yield _text(x, bottom + 16, short(value), "quiet", "middle")
    for value, y in high.marks():
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(LEFT - 6, y + 4, short(value), "quiet", "end")


def _key(names: Sequence[str], top: int = 8) -> Iterator[str]:
    x = float(WIDTH)
    for colour, name in reversed(list(zip(COLOURS, names, strict=False))):
        x -= 7.0 * len(name) + 24
        yield f'<rect class="{colour}" x="{x:.1f}" y="{top}" width="10" height="10"/>'
        yield _text(x + 15, top + 9, name, "quiet")


def short(value: float) -> str:
    """Three digits, with k or M: 0.18, 12.3k, 2M."""
    for least, letter in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= least:
            scaled = value / (1e6 if letter == "M" else 1e3)
            return f"{scaled:.3g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    of_kind = f' class="{kind}"' if kind else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text{of_kind} {place}>{escape(text)}</text>"


def _svg(title: str, height: float, parts: Iterable[str]) -> str:
    label = f'role="img" aria-label="{escape(title)}"'
    box = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} {label}>'
    return "\n".join([head, STYLE, *parts, "</svg>"]) + "\n"

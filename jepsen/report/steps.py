"""Plots of what was counted by steps of some seconds: latency of each function, and rate."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

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

    from jepsen.history import OpType


@dataclass
class Series:
    """How a history went on, in steps of as many seconds each; the last may have fewer."""

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
        """When a step begins; behind the last, when that ends."""
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

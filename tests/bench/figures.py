"""A figure: the median of several turns, with all turns, so that a reader can judge its spread."""

from __future__ import annotations

import os
import platform
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def figure(values: Sequence[float], unit: str, goal: str, digits: int = 3) -> dict[str, Any]:
    """One figure as it stands in the JSON."""
    turns = [round(value, digits) for value in values]
    median = round(statistics.median(turns), digits)
    return {"median": median, "max": max(turns), "unit": unit, "goal": goal, "turns": turns}


def report(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures and the machine that they were measured on."""
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }
    return {"machine": machine, "figures": figures}

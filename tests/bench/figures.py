"""A figure: the median of several turns, with all turns, so that a reader can judge its spread."""

from __future__ import annotations

import os
import platform
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OVERLOADED = "overloaded"
"""The key of what stands in place of a number."""


def figure(values: Sequence[float], unit: str, goal: str, digits: int = 3) -> dict[str, Any]:
    """One figure as it stands in the JSON."""
    turns = [round(value, digits) for value in values]
    median = round(statistics.median(turns), digits)
    return {"median": median, "max": max(turns), "unit": unit, "goal": goal, "turns": turns}


def overloaded(what: str, unit: str, goal: str) -> dict[str, Any]:
    """A figure that there is none of: who could not keep the pace, and what it kept."""
    return {"median": None, "max": None, "unit": unit, "goal": goal, "turns": [], OVERLOADED: what}


def line(name: str, value: Mapping[str, Any]) -> str:
    """One figure as it is printed."""
    if OVERLOADED in value:
        return f"{name}: overloaded: {value[OVERLOADED]} ({value['goal']})\n"
    return f"{name}: {value['median']} {value['unit']} ({value['goal']})\n"


def report(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures and the machine that they were measured on."""
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }
    return {"machine": machine, "figures": figures}

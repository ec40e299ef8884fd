"""Cuts: the part of a seed's run that is repeated.

A scenario derives its faults and the number of its operations from the seed, and lets `Cuts` take
some away. A run remembers and prints what it began with, so that a failing one can be made smaller
(`jepsen.simulator.runner.many`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jepsen.nemesis.plan import Plan

if TYPE_CHECKING:
    import argparse

_SIZE = re.compile(r"^size: faults=(\d+) operations=(\d+)$", re.MULTILINE)


@dataclass
class Cuts:
    """Keeps the faults of these places in the plan, and at most so many operations; None: all."""

    faults: tuple[int, ...] | None = None
    operations: int | None = None
    plan: Plan | None = None
    """The faults of the run, where they do not follow from the seed."""
    kept: Plan | None = field(default=None, init=False, compare=False)
    """The faults that the run had; None before it asked for them."""
    had_faults: int = field(default=0, init=False)
    had_operations: int = field(default=0, init=False)

    def keep_faults(self, drawn: Plan) -> Plan:
        """Return the part of the plan that is kept, in order."""
        plan = drawn if self.plan is None else self.plan
        self.had_faults = len(plan)
        places = range(len(plan)) if self.faults is None else self.faults
        self.kept = tuple(plan[number] for number in places if number < len(plan))
        return self.kept

    def keep_operations(self, count: int) -> int:
        """Return how many of `count` operations are kept."""
        self.had_operations = count
        return count if self.operations is None else min(count, self.operations)

    def size_line(self) -> str:
        """Return the line of a failed run's output that says what there is to cut."""
        return f"size: faults={self.had_faults} operations={self.had_operations}\n"

    @staticmethod
    def size_in(output: str) -> tuple[int, int] | None:
        """Return the faults and operations of that line; None for an output without one."""
        size = _SIZE.search(output)
        return None if size is None else (int(size[1]), int(size[2]))

    def options(self) -> list[str]:
        """Return the options of `python -m jepsen.simulator run` that make these cuts."""
        options = []
        if self.faults is not None:
            options += ["--faults", ",".join(map(str, self.faults)) or "none"]
        if self.operations is not None:
            options += ["--operations", str(self.operations)]
        return options

    @staticmethod
    def add_options(parser: argparse.ArgumentParser) -> None:
        """Add those options to a parser of a command line."""
        parser.add_argument("--faults", help="keep only the faults of these places, or none: 0,3,4")
        parser.add_argument("--operations", type=int, help="at most so many operations a client")

    @staticmethod
    def parse(faults: str | None, operations: int | None) -> Cuts:
        """Return the cuts that the values of those options ask for."""
        if faults is None:
            return Cuts(None, operations)
        numbers = [] if faults == "none" else faults.split(",")
        return Cuts(tuple(map(int, numbers)), operations)

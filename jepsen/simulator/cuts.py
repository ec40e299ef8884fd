"""Cuts: the part of a seed's run that is repeated.

A scenario derives its faults and the number of its operations from the seed, and lets `Cuts` take
some away. A run remembers and prints what it began with, so that a failing one can be made smaller
(`jepsen.simulator.runner.many`).
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

_SIZE = re.compile(r"^size: faults=(\d+) operations=(\d+)$", re.MULTILINE)


@dataclass
class Cuts:
    """Keeps the faults of these places in the plan, and at most so many operations; None: all."""

    faults: tuple[int, ...] | None = None
    operations: int | None = None
    had_faults: int = field(default=0, init=False)
    had_operations: int = field(default=0, init=False)

    def keep_faults(self, plan: Sequence[T]) -> tuple[T, ...]:
        """Return the part of the plan that is kept, in order."""
        self.had_faults = len(plan)
        if self.faults is None:
            return tuple(plan)
        return tuple(plan[number] for number in self.faults if number < len(plan))

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
    def from_options(options: Sequence[str]) -> Cuts:
        """Return the cuts that `options` ask for."""
        parser = argparse.ArgumentParser()
        Cuts.add_options(parser)
        parsed = parser.parse_args(options)
        return Cuts.parse(parsed.faults, parsed.operations)

    @staticmethod
    def parse(faults: str | None, operations: int | None) -> Cuts:
        """Return the cuts that the values of those options ask for."""
        if faults is None:
            return Cuts(None, operations)
        numbers = [] if faults == "none" else faults.split(",")
        return Cuts(tuple(map(int, numbers)), operations)

"""Runs a scenario with many seeds on all cores, and makes the first seeds that fail smaller."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.nemesis.plan import smallest
from jepsen.simulator.coverage import known_in, summary
from jepsen.simulator.cuts import Cuts
from jepsen.simulator.runner.fork_server import ForkServers
from jepsen.simulator.runner.run import replay_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jepsen.nemesis.plan import Places
    from jepsen.simulator.runner.determinism import RunResult

PROGRESS_S = 10.0


class Tally:
    """The outcomes of the seeds so far."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self.done = 0
        self.failed = 0
        self.simulated_s = 0.0
        self.events = 0
        self.covered: set[str] = set()
        self._began_s = time.monotonic()
        self._printed_s = self._began_s

    def add(self, result: RunResult) -> None:
        """Count one run, and report progress if that was long ago."""
        self.done += 1
        self.failed += not result.ok
        self.simulated_s += result.simulated_s
        self.events += result.events
        self.covered |= result.covered
        if time.monotonic() - self._printed_s >= PROGRESS_S:
            self._printed_s = time.monotonic()
            sys.stdout.write(f"{self.done} of {self.seeds} seeds, {self._failures}: {self.speed}\n")
            sys.stdout.flush()

    @property
    def speed(self) -> str:
        """Seeds a minute, simulated seconds a second and events a second, of all processes."""
        elapsed_s = max(time.monotonic() - self._began_s, 0.001)
        return (
            f"{60 * self.done / elapsed_s:.0f} seeds/minute, "
            f"{self.simulated_s / elapsed_s:.0f} simulated s/s, "
            f"{self.events / elapsed_s:,.0f} events/s"
        )

    @property
    def verdict(self) -> str:
        """The line that a call of `many` ends with."""
        return f"{self.seeds} seeds: {self.seeds - self.failed} ok, {self._failures}"

    @property
    def _failures(self) -> str:
        return f"{self.failed} violations"


def run_many(
    target: str,
    seeds: Sequence[int],
    processes: int,
    shrunk_max: int,
    coverage_path: str | None = None,
    *,
    keep: Callable[[RunResult], None],
    learn: bool = False,
) -> int:
    """Run all seeds; the exit status is 0 if none failed. Each that did is for `keep`.

    What they have reached is compared with what a file knows of earlier runs, which may `learn`.
    """
    known = set[str]() if coverage_path is None else known_in(coverage_path)
    tally = Tally(len(seeds))
    with (
        ForkServers(processes) as interpreters,
        ThreadPoolExecutor(max_workers=processes) as pool,
    ):
        for result in pool.map(lambda seed: interpreters.run(target, seed), seeds):
            tally.add(result)
            if result.ok:
                continue
            sys.stdout.write(result.output)
            keep(result)
            sys.stdout.flush()
            if tally.failed <= shrunk_max:
                _shrink(interpreters, target, result)
    if tally.covered:
        sys.stdout.write(summary(tally.covered, known))
    if learn and coverage_path is not None:
        lines = sorted(tally.covered | known)
        Path(coverage_path).write_text("".join(f"{one}\n" for one in lines), encoding="utf-8")
    sys.stdout.write(f"{tally.speed}\n{tally.verdict}\n")
    return 1 if tally.failed else 0


def _shrink(interpreters: ForkServers, target: str, failed: RunResult) -> None:
    """Prints a smaller run of the seed that fails too, if there is one."""
    found: dict[tuple[str, ...], str] = {}

    def fails(cuts: Cuts) -> bool:
        result = interpreters.run(target, failed.seed, options=cuts.options())
        found[tuple(cuts.options())] = result.output
        return not result.ok

    cuts = shrink(failed.output, fails)
    if cuts is not None:
        sys.stdout.write("smaller:\n" + found.get(tuple(cuts.options()), ""))
        sys.stdout.write(replay_line(target, failed.seed, cuts))
        sys.stdout.flush()


def shrink(output: str, fails: Callable[[Cuts], bool]) -> Cuts | None:
    """Return the smallest cuts found with which a run fails; None if nothing could be taken away.

    `output` is what the whole run printed; `fails` repeats the run with cuts.
    """
    size = Cuts.size_in(output)
    if size is None:
        return None
    count, had = size

    def kept(places: Places, operations: int) -> Cuts:
        return Cuts(places, operations if operations < had else None)

    small = smallest(count, lambda *part: fails(kept(*part)), had)
    return None if small == (tuple(range(count)), had) else kept(*small)

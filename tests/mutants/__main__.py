"""Plants each bug of the catalogue and runs seeds until its property catches it: `make mutants`.

The product as it is passes each seed first. The last line is `caught N of N`; the exit status is 0
if all were caught. With names as arguments only those mutants are run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from jepsen.simulator.runner.fork_server import ForkServers
from tests.mutants import node_scenarios
from tests.mutants.catalog import CATALOG
from tests.mutants.edit import failure
from tests.mutants.edit_catalog import EDITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.edit import Edit
    from tests.mutants.mutant import Mutant

CORE_SEEDS = 150
NODE_SEEDS = 12
TESTS_AT_ONCE = 25
CORE_TIMEOUT_S = 1_800
UNMUTATED = "-"


class Outcome(NamedTuple):
    """What became of a mutant; `caught_by` is None if no seed was enough."""

    mutant: Mutant
    caught_by: str | None
    seeds: int
    others: tuple[str, ...]
    """Properties that failed and were not the named ones."""


class Runs:
    """Runs of the product as it is, each made once; the first use waits for it."""

    def __init__(self, interpreters: ForkServers) -> None:
        self._interpreters = interpreters
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, int], Future[str | None]] = {}

    def passes(self, scenario: str, seed: int) -> None:
        """Raises RuntimeError unless the product as it is passes the seed."""
        with self._lock:
            run = self._runs.get((scenario, seed))
            mine = run is None
            if run is None:
                run = self._runs[scenario, seed] = Future()
        if mine:
            run.set_result(self.broken(scenario, seed))
        broken = run.result()
        if broken is not None:
            raise RuntimeError(f"{scenario}, seed {seed}: broken without a mutant: {broken}")

    def broken(self, target: str, seed: int) -> str | None:
        """The property that a scenario or a mutant breaks with this seed."""
        result = self._interpreters.run(f"{node_scenarios.__name__}:{target}", seed)
        return None if result.ok else node_scenarios.broken_property(result.output)


def _try_node(mutant: Mutant, runs: Runs) -> Outcome:
    others: dict[str, None] = {}
    for seed in range(1, NODE_SEEDS + 1):
        runs.passes(mutant.scenario, seed)
        broken = runs.broken(mutant.name, seed)
        if broken in mutant.properties:
            return Outcome(mutant, broken, seed, tuple(others))
        if broken is not None:
            others[broken] = None
    return Outcome(mutant, None, NODE_SEEDS, tuple(others))


def _try_core(mutant: Mutant) -> Outcome:
    command = [sys.executable, "-m", "tests.mutants.core_scenarios", mutant.name, str(CORE_SEEDS)]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=CORE_TIMEOUT_S, check=False
    )
    if finished.returncode != 0:
        raise RuntimeError(f"{mutant.name}: {finished.stdout}{finished.stderr}")
    seeds, caught_by, *others = finished.stdout.splitlines()
    return Outcome(mutant, caught_by or None, int(seeds), tuple(others))


def _try(mutant: Mutant, runs: Runs) -> Outcome:
    return _try_core(mutant) if mutant.level == "core" else _try_node(mutant, runs)


def _line(outcome: Outcome) -> str:
    mutant = outcome.mutant
    seeds = "1 seed" if outcome.seeds == 1 else f"{outcome.seeds} seeds"
    text = f"NOT CAUGHT after {seeds}"
    if outcome.caught_by is not None:
        text = f"caught by {outcome.caught_by} after {seeds}"
    elif outcome.others:
        text += f", though broken: {'; '.join(outcome.others)}"
    return f"{mutant.level} {mutant.name}: {text}"


def _pass(tests: Sequence[str]) -> None:
    """Raises RuntimeError if one of the tests fails with the product as it is."""
    if failed := failure(*tests):
        raise RuntimeError(f"{failed}: fails without a mutant")


def _is_caught(edit: Edit) -> bool:
    """Whether the test that an edit names fails with it."""
    return failure(edit.test, planted=edit.name) == edit.test


def _edit_line(edit: Edit, *, caught: bool) -> str:
    text = f"caught by {edit.test} after 1 run" if caught else f"NOT CAUGHT by {edit.test}"
    return f"unit {edit.name}: {text}"


def main(arguments: Sequence[str]) -> int:
    """Runs the mutants, prints a line for each, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    names, processes = options.names, options.processes
    unknown = sorted(set(names) - {one.name for one in (*CATALOG, *EDITS)})
    if unknown:
        parser.error(f"{', '.join(unknown)}: no mutant; see tests/mutants/*_catalog.py for names")
    chosen = [mutant for mutant in CATALOG if not names or mutant.name in names]
    edits = [edit for edit in EDITS if not names or edit.name in names]
    caught = 0
    with (
        ForkServers(processes) as interpreters,
        ThreadPoolExecutor(max_workers=processes) as pool,
    ):
        runs = Runs(interpreters)
        for outcome in pool.map(lambda mutant: _try(mutant, runs), chosen):
            caught += outcome.caught_by is not None
            sys.stdout.write(_line(outcome) + "\n")
            sys.stdout.flush()
        # Without a mutant, many in one process: most of a run's time is its start.
        tests = sorted({edit.test for edit in edits})
        starts = range(0, len(tests), TESTS_AT_ONCE)
        list(pool.map(_pass, [tests[start : start + TESTS_AT_ONCE] for start in starts]))
        for edit, is_caught in zip(edits, pool.map(_is_caught, edits), strict=True):
            caught += is_caught
            sys.stdout.write(_edit_line(edit, caught=is_caught) + "\n")
            sys.stdout.flush()
    count = len(chosen) + len(edits)
    sys.stdout.write(f"caught {caught} of {count}\n")
    return 0 if count and caught == count else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

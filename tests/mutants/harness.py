"""Plants bugs and has `jepsen test` find them, simulated and on real processes: `make bugs-found`.

A bug is found when a run of its workload and faults is invalid that is valid without it. Seeds are
tried one after the other. With `--write` their rows go to docs/reference/bugs-found.md.
`python -m jepsen.simulator run tests.mutants.harness:<mutant>_by_<workload>` runs a bug with a
seed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jepsen.core import PROPERTIES, judge
from jepsen.core.spec import RunSpec, workload_of
from jepsen.simulator import environment
from jepsen.simulator.runner.fork_server import ForkServers
from tests.mutants import processes
from tests.mutants.node_catalog import NODE_MUTANTS
from tests.mutants.processes import FOUND, found_by

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any

    from jepsen.simulator.runner.determinism import RunResult
    from jepsen.simulator.world import World

_VIOLATION = re.compile(r"\bViolation(?:: |\([\"'])(\w+):")
"""What a node or an invariant of the simulated cluster raised."""
_CUT_SHORT = re.compile(r"^Timeout \(\d", re.MULTILINE)
"""As faulthandler begins what it writes before it ends a run."""
MODULE = "tests.mutants.harness"
"""By whatever name it is run."""
SEEDS = 6
RUN_S = 1_200.0
"""How long a run may take where the machine has much else to do."""
ON_PROCESSES = "## On real processes"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "bugs-found.md"
SIM, LOCAL = "sim", "local"


class Hunt(NamedTuple):
    """Which test is to find a bug."""

    mutant: str
    workload: str
    nemesis: tuple[str, ...]
    env: str = SIM

    @property
    def scenario(self) -> str:
        """By this name a run of the hunt is found in this module."""
        env = "" if self.env == SIM else f"_in_{self.env}"
        return f"{self.mutant}_by_{self.workload}{env}".replace("-", "_")


HUNTS = (
    Hunt("controller_publishes_before_commit", "register", ("partition",)),
    Hunt("controller_answers_before_commit", "register", ("partition",)),
    Hunt("controller_answers_before_commit", "topics", ("partition",)),
    Hunt("lock_is_given_to_who_waits", "lock", ("partition",)),
    Hunt("watch_tells_the_newest_only", "watch", ("partition",)),
    Hunt("observer_reads_uncommitted", "set", ("partition",)),
    Hunt("high_watermark_of_leader_only", "queue", ("partition",)),
    Hunt("consumer_reads_uncommitted", "queue", ("partition",)),
    Hunt("fenced_broker_leads", "queue", ("kill",)),
    Hunt("leader_epoch_stays", "queue", ("kill",)),
    Hunt("aborted_transactions_are_not_told", "queue-txn", ("kill",)),
    Hunt("lock_is_given_to_who_waits", "lock", ("partition",), LOCAL),
    Hunt("watch_tells_the_newest_only", "watch", ("partition",), LOCAL),
    Hunt("high_watermark_of_leader_only", "queue", ("partition",), LOCAL),
    Hunt("consumer_reads_uncommitted", "queue", ("partition",), LOCAL),
    Hunt("aborted_transactions_are_not_told", "queue-txn", ("kill",), LOCAL),
    Hunt("committed_reader_passes_open_transactions", "queue-txn", ("kill",), LOCAL),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of a hunt; `by` is empty if no seed was enough."""

    hunt: Hunt
    by: str
    seed: int
    ran_s: float
    """Of virtual time, or of the clock where nothing is simulated."""
    processor_s: float
    """Of all runs up to the one that found it, as `ran_s`."""


def spec_of(hunt: Hunt, seed: int) -> RunSpec:
    """Short, with many faults."""
    return RunSpec(
        hunt.workload,
        hunt.env,
        hunt.nemesis,
        time_limit_s=20.0,
        rate=100.0,
        concurrency=10,
        interval_s=1.5,
        seed=seed,
        topic=f"jepsen-{seed}",
    )


async def _run(world: World, mutant: str, hunt: Hunt) -> None:
    """Raises AssertionError if the run is invalid; an empty name of a mutant plants none."""
    for one in NODE_MUTANTS:
        if one.name == mutant:
            one.plant()
    world.test = spec = spec_of(hunt, world.seed)
    await environment.run_test(world)
    verdicts = judge(spec, world.history)
    if found := found_by(verdicts):
        raise AssertionError(found)


def __getattr__(name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
    """The scenario of a hunt, or behind `sound_` of the product as it is in the same test."""
    scenario = name.removeprefix("sound_")
    hunt = next((one for one in HUNTS if one.env == SIM and one.scenario == scenario), None)
    if hunt is None:
        raise AttributeError(name)
    workload_of(spec_of(hunt, 0))
    return partial(_run, mutant="" if name != scenario else hunt.mutant, hunt=hunt)


def finding(result: RunResult) -> str:
    """What a failed run was found by: checkers and anomalies, or what a node said as it ended.

    TimeoutError for a run that was cut short, which shows how busy the machine is and no bug.
    """
    if _CUT_SHORT.search(result.output):
        raise TimeoutError(f"seed {result.seed}: the run was not over in time; try it alone")
    last = result.output.rpartition(FOUND)
    if last[1]:
        return last[2].partition("\n")[0]
    violation = _VIOLATION.search(result.output)
    return f"{PROPERTIES}: {violation[1] if violation else 'cluster-failed'}"


class Hunter:
    """Goes on hunts, with the runs of the product as it is made once."""

    def __init__(self, interpreters: ForkServers) -> None:
        self._interpreters = interpreters
        self._sound: set[tuple[str, tuple[str, ...], str, int]] = set()

    def go(self, hunt: Hunt, seeds: Sequence[int]) -> Found:
        """Tries seeds until the bug is found. RuntimeError if a run is invalid without it.

        TimeoutError as for `finding`.
        """
        ran_s = processor_s = 0.0
        for seed in seeds:
            result = self._result(hunt, seed)
            ran_s += result.simulated_s
            processor_s += result.processor_s
            if not result.ok:
                by = finding(result)
                self._check_sound(hunt, seed)
                return Found(hunt, by, seed, ran_s, processor_s)
        return Found(hunt, "", 0, ran_s, processor_s)

    def _result(self, hunt: Hunt, seed: int, *, sound: bool = False) -> RunResult:
        """Of a run with the bug, or of the product as it is."""
        if hunt.env == LOCAL:
            return processes.result_of("" if sound else hunt.mutant, spec_of(hunt, seed), RUN_S)
        scenario = f"{MODULE}:{'sound_' if sound else ''}{hunt.scenario}"
        return self._interpreters.run(scenario, seed, timeout_s=RUN_S)

    def _check_sound(self, hunt: Hunt, seed: int) -> None:
        run = hunt.workload, hunt.nemesis, hunt.env, seed
        if run not in self._sound:
            result = self._result(hunt, seed, sound=True)
            if not result.ok:
                raise RuntimeError(f"{run}: broken without a mutant: {finding(result)}")
            self._sound.add(run)


def page(rows: Mapping[Hunt, str]) -> str:
    """The tables of what was found; hunts without a row have not been gone on."""
    lines = [
        "# Bugs found",
        "",
        "<!-- Generated by `make bugs-found`: change the code, not this page. -->",
        "",
        "Each bug was planted into the code and found by a test of the harness as users run it,",
        "`jepsen test WORKLOAD --env sim --nemesis FAULTS`, whose run with the same seed is valid",
        "without the bug. Seeds were tried from 1 on. The seconds are those of all runs up to the",
        "one that found the bug: of virtual time, and of one processor.",
        "",
        "| bug | what the code does | workload | faults | found by | seed | virtual s | cpu s |",
        "|---|---|---|---|---|---|---|---|",
        *(rows[hunt] for hunt in HUNTS if hunt.env == SIM and hunt in rows),
        "",
        ON_PROCESSES,
        "",
        "With `--env local`: the bug is in the processes of three controllers and three brokers.",
        "Chance has a part in these runs, whatever the seed. The seconds are those of the clock,",
        "from a cluster's first start to the verdict.",
        "",
        "| bug | what the code does | workload | faults | found by | seed | s |",
        "|---|---|---|---|---|---|---|",
        *(rows[hunt] for hunt in HUNTS if hunt.env == LOCAL and hunt in rows),
    ]
    return "\n".join(lines) + "\n"


def row(one: Found) -> str:
    """The line of the table."""
    breaks = {mutant.name: mutant.breaks for mutant in NODE_MUTANTS}
    cells = (
        *_named(one.hunt, breaks[one.hunt.mutant]),
        one.by.replace("|", "&#124;") or "not found",
        str(one.seed or "-"),
        f"{one.ran_s:.0f}",
        *[f"{one.processor_s:.0f}"] * (one.hunt.env == SIM),
    )
    return f"| {' | '.join(cells)} |"


def _named(hunt: Hunt, breaks: str) -> tuple[str, ...]:
    """The first cells of a hunt's line."""
    faults = ", ".join(f"`{name}`" for name in hunt.nemesis) or "none"
    return f"`{hunt.mutant}`", breaks, f"`{hunt.workload}`", faults


def rows_of(text: str) -> dict[Hunt, str]:
    """The lines of a page by their hunts, of those that there are still."""
    breaks = {mutant.name: mutant.breaks for mutant in NODE_MUTANTS}
    simulated, _, real = text.partition(ON_PROCESSES)
    return {
        hunt: line
        for hunt in HUNTS
        for line in (simulated if hunt.env == SIM else real).splitlines()
        if line.startswith(f"| {' | '.join(_named(hunt, breaks[hunt.mutant]))} |")
    }


def main() -> int:
    """Hunts, prints a line a bug, and returns the exit status: 0 if all were found."""
    parser = argparse.ArgumentParser(prog="tests.mutants.harness", description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants, or <mutant>_by_<workload>")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--write", action="store_true", help="their rows of the page, too")
    options = parser.parse_args()
    chosen = set(options.names)
    if unknown := chosen - {name for one in HUNTS for name in (one.mutant, one.scenario)}:
        parser.error(f"{', '.join(sorted(unknown))}: no mutant that is hunted; see HUNTS")
    hunts = [one for one in HUNTS if not chosen or chosen & {one.mutant, one.scenario}]
    seeds = range(1, options.seeds + 1)
    processes = os.cpu_count() or 1
    found = []
    with (
        ForkServers(processes) as interpreters,
        ThreadPoolExecutor(max_workers=processes) as pool,
    ):
        hunter = Hunter(interpreters)
        for one in pool.map(lambda hunt: hunter.go(hunt, seeds), hunts):
            found.append(one)
            told = f"seed {one.seed}, {one.by}" if one.by else "NOT FOUND"
            sys.stdout.write(f"{one.hunt.scenario}: {told}, {one.processor_s:.0f} s\n")
            sys.stdout.flush()
            if options.write:
                kept = rows_of(PAGE.read_text(encoding="utf-8"))
                PAGE.write_text(page(kept | {one.hunt: row(one)}), encoding="utf-8")
    return 0 if all(one.by for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())

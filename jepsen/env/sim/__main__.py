"""Runs a scenario with one seed or many.

`python -m jepsen.env.sim run module:function --seed N` replays one seed; `many module:function
--seeds N` runs each of N seeds in a process of its own; the first that fail it makes smaller (fewer
faults, fewer operations), and prints how to replay them.
A scenario is `async def function(world: World) -> None`. The last line of the output is
`seed N: ok, trace HASH`, or says that the seed failed; the exit status is 0 or 1. `--trace FILE`
writes every event, so that two runs that should be equal can be compared line by line.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import sys
import traceback
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from jepsen.env.sim import determinism
from jepsen.env.sim.cuts import Cuts
from jepsen.env.sim.shrink import shrink, size_line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from jepsen.env.sim.world import World

    Scenario = Callable[[World], Coroutine[Any, Any, object]]

TAIL_LINES = 40
SHRUNK_MAX = 3
"""How many failing seeds of one call are shrunk: the later ones tend to fail alike."""


def main(arguments: Sequence[str]) -> int:
    """Parses the command line, runs the seed and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jepsen.env.sim", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run one scenario with one seed")
    run.add_argument("target", help="the scenario, as module:function")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--faults", help="keep only the faults of these places, or none: 0,3,4")
    run.add_argument("--operations", type=int, help="at most so many operations of each client")
    run.add_argument("--trace", help="write every event to this file")
    many = commands.add_parser("many", help="run one scenario with many seeds")
    many.add_argument("target", help="the scenario, as module:function")
    many.add_argument("--seeds", type=int, default=20)
    many.add_argument("--first", type=int, default=1, help="the first seed")
    many.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    many.add_argument("--no-shrink", action="store_true", help="report failing seeds as they are")
    options = parser.parse_args(arguments)
    if "seeds" in options:
        seeds = range(options.first, options.first + options.seeds)
        shrunk_max = 0 if options.no_shrink else SHRUNK_MAX
        return _run_many(options.target, seeds, options.processes, shrunk_max)
    if not determinism.is_prepared():
        _restart(arguments)
    determinism.install(options.seed)
    scenario = _load(options.target)
    determinism.stabilize_hashes()
    determinism.quiet_collector()
    cuts = Cuts.parse(options.faults, options.operations)
    return _run(scenario, options.target, options.seed, options.trace, cuts)


def _restart(arguments: Sequence[str]) -> None:
    # Hash order is settled when the interpreter starts, so only a new one can have it fixed.
    command = [sys.executable, "-m", "jepsen.env.sim", *arguments]
    os.execve(sys.executable, command, determinism.environment(os.environ))


def _load(target: str) -> Scenario:
    module_name, _, function_name = target.partition(":")
    scenario: Scenario = getattr(importlib.import_module(module_name), function_name)
    return scenario


def _run(scenario: Scenario, target: str, seed: int, trace_path: str | None, cuts: Cuts) -> int:
    from jepsen.env.sim.world import World

    with contextlib.ExitStack() as stack:
        sink = None
        if trace_path is not None:
            sink = stack.enter_context(open(trace_path, "w", encoding="utf-8")).write
        world = stack.enter_context(World(seed, cuts=cuts))
        world.trace.sink = sink
        logging.getLogger().addHandler(_LogToTrace(world))
        try:
            world.run(scenario(world))
        except BaseException:  # noqa: BLE001 - whatever it was, the seed and its story are told
            tail = deque(world.trace.recent, TAIL_LINES)
            sys.stdout.write("".join(tail) + traceback.format_exc())
            sys.stdout.write(size_line(cuts) + _replay(target, seed, cuts))
            sys.stdout.write(f"seed {seed}: FAILED, trace {world.trace_hash()}\n")
            return 1
        sys.stdout.write(f"seed {seed}: ok, trace {world.trace_hash()}\n")
        return 0


def _replay(target: str, seed: int, cuts: Cuts) -> str:
    options = " ".join(["", *cuts.options()])
    return f"replay: python -m jepsen.env.sim run {target} --seed {seed}{options}\n"


def _run_many(target: str, seeds: range, processes: int, shrunk_max: int) -> int:
    failed = 0
    with ThreadPoolExecutor(max_workers=processes) as pool:
        for result in pool.map(lambda seed: determinism.run_in_subprocess(target, seed), seeds):
            if result.ok:
                continue
            failed += 1
            sys.stdout.write(result.output)
            sys.stdout.flush()
            if failed <= shrunk_max:
                _shrink(target, result)
    sys.stdout.write(f"{len(seeds)} seeds: {len(seeds) - failed} ok, {failed} violations\n")
    return 1 if failed else 0


def _shrink(target: str, failed: determinism.RunResult) -> None:
    """Prints a smaller run of the seed that fails too, if there is one."""
    found: dict[tuple[str, ...], str] = {}

    def fails(cuts: Cuts) -> bool:
        result = determinism.run_in_subprocess(target, failed.seed, options=cuts.options())
        found[tuple(cuts.options())] = result.output
        return not result.ok

    cuts = shrink(failed.output, fails)
    if cuts is not None:
        sys.stdout.write("smaller:\n" + found.get(tuple(cuts.options()), ""))
        sys.stdout.write(_replay(target, failed.seed, cuts))
        sys.stdout.flush()


class _LogToTrace(logging.Handler):
    """Puts what libraries log at warning level or above into the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._trace = world.trace

    def emit(self, record: logging.LogRecord) -> None:
        """Adds one record."""
        self._trace.add("-", "library", f"{record.name} {record.getMessage()}")


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # No clean-up of the interpreter: it would run code of processes that were killed.
    os._exit(status)

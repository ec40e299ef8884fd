"""Runs of one scenario with one seed in this prepared interpreter, and their results.

A scenario is `async def function(world: World) -> None`, named as `module:function`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import sys
import traceback
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.checkers.verdict import Anomaly
from jepsen.errors import InputError
from jepsen.simulator.cuts import Cuts
from jepsen.simulator.runner import determinism
from raftctl.failures import outcome_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine
    from typing import Any, TextIO

    from jepsen.simulator.world import World

    Scenario = Callable[[World], Coroutine[Any, Any, object]]

TAIL_LINES = 40


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run to a parser of a command line."""
    Cuts.add_options(parser)
    parser.add_argument("--trace", help="write every event to this file")
    parser.add_argument("--servers", help="write what servers are seen to do to this file")
    parser.add_argument("--folder", help="a run's folder: its test is performed, its history kept")


def load(target: str) -> Scenario:
    """Return the scenario `module:function`; only after `determinism.prepare`.

    Raises InputError if there is none.
    """
    check_target(target)
    module_name, _, function_name = target.partition(":")
    module = importlib.import_module(module_name)
    try:
        scenario: Scenario = getattr(module, function_name)
    except AttributeError:
        raise InputError(f"{target}: {module_name} has no scenario {function_name}") from None
    return scenario


def check_target(target: str) -> None:
    """Raise InputError if no module is named; each process looks the scenario up itself."""
    module_name, _, function_name = target.partition(":")
    if not (module_name and function_name):
        raise InputError(f"{target}: name a scenario as module:function")
    try:
        found = importlib.util.find_spec(module_name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise InputError(f"{target}: no module {module_name}; name one that can be imported")


def run_seed(
    target: str,
    seed: int,
    options: argparse.Namespace,
    *,
    covered: bool = False,
) -> int:
    """Run a seed to its end, and return the exit status: 0 if nothing went wrong.

    The files get every event of the world, and the observed events of servers as lines of a
    history. A folder of a run has the test, and gets the history and the ending. With `covered` a
    line lists what the run has reached. The last line of the output is `seed N: ok, trace HASH`, or
    says that the seed failed.
    """
    scenario = load(target)
    from jepsen.core import Ending
    from jepsen.simulator.properties import Recorder
    from jepsen.simulator.world import World
    from jepsen.store import RunFolder

    determinism.stabilize_hashes()
    determinism.quiet_collector()
    determinism.begin(seed)
    with contextlib.ExitStack() as stack:
        # The files first: a world that ends still writes to them.
        trace, servers = (
            stack.enter_context(opened(f"--{name}", path))
            if (path := getattr(options, name)) is not None
            else None
            for name in ("trace", "servers")
        )
        folder = None if options.folder is None else RunFolder.open(Path(options.folder))
        cuts = Cuts.parse(options.faults, options.operations)
        history = None if folder is None else stack.enter_context(folder.writer())
        world = stack.enter_context(World(seed, cuts=cuts))
        if folder is not None and history is not None:
            world.test, world.note = folder.spec, history.append
            cuts.plan = folder.spec.plan
        if trace is not None:
            world.trace.sink = trace.write
        if servers is not None:
            world.recorder = Recorder(world.loop.time, servers.write)
        logging.getLogger().addHandler(_LogToTrace(world))
        _, error = outcome_of(lambda: world.run(scenario(world)))
        if isinstance(error, InputError):
            raise error
        found = anomalies_of(world)
        if folder is not None:
            checkers = tuple(world.checkers)
            folder.write_ending(Ending(broken_by(error, world.elapsed_s), None, checkers).to_json())
            if cuts.kept is not None:
                folder.write_plan(cuts.kept)
        if covered:
            sys.stdout.write(determinism.covered_line(world.coverage.seen))
        if error is not None or found:
            tail = deque(world.trace.recent, TAIL_LINES)
            raised = [] if error is None else traceback.format_exception(error)
            sys.stdout.write("".join([*tail, *raised, *found]))
            sys.stdout.write(cuts.size_line() + replay_line(target, seed, cuts))
            sys.stdout.write(_ran_line(world))
            sys.stdout.write(f"seed {seed}: FAILED, trace {world.trace_hash()}\n")
            return 1
        sys.stdout.write(_ran_line(world))
        sys.stdout.write(f"seed {seed}: ok, trace {world.trace_hash()}\n")
        return 0


def anomalies_of(world: World) -> list[str]:
    """What the checkers find in the history that the scenario has noted for them, as lines.

    Nothing where the history goes to a run's folder, in which it is judged.
    """
    from jepsen.checkers.registry import CHECKERS

    return [
        f"{name}: {one.name}: {dict(one.detail)}\n"
        for name in world.checkers
        for one in CHECKERS[name](world.history).anomalies
    ]


def broken_by(error: BaseException | None, at_s: float) -> tuple[Anomaly, ...]:
    """Return the causes of a run's end as anomalies: broken properties by name, failed nodes.

    `at_s`: the time of the end, for a failure of the scenario alone. Empty without an error.
    """
    from jepsen.simulator.properties import Violation
    from jepsen.simulator.world import Failure, WorldFailed

    if error is None:
        return ()
    failures = error.failures if isinstance(error, WorldFailed) else [Failure("", at_s, error)]
    return tuple(
        Anomaly(
            one.error.name if isinstance(one.error, Violation) else "cluster-failed",
            {"what": str(one.error), "node": one.node or "scenario", "at_s": round(one.at_s, 6)},
        )
        for one in failures
    )


def opened(option: str, path: str) -> TextIO:
    """Open a file for writing.

    Raises InputError if it cannot be opened.
    """
    try:
        return open(path, "w", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written: {error.strerror}") from None


def replay_line(target: str, seed: int, cuts: Cuts) -> str:
    """Return the command that runs the same again."""
    options = " ".join(["", *cuts.options()])
    return f"replay: python -m jepsen.simulator run {target} --seed {seed}{options}\n"


def _ran_line(world: World) -> str:
    return determinism.ran_line(world.elapsed_s, world.loop.handles_run)


class _LogToTrace(logging.Handler):
    """Puts what libraries log at warning level or above into the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._trace = world.trace

    def emit(self, record: logging.LogRecord) -> None:
        """Adds one record."""
        self._trace.add("-", "library", f"{record.name} {record.getMessage()}")

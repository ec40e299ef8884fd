"""Runs a scenario with one seed or many.

`python -m jepsen.simulator run module:function --seed N` replays one seed; `many module:function
--seeds N` runs each of N seeds in a process of its own; the first that fail it makes smaller (fewer
faults, fewer operations), and prints how to replay them. Each that fails is kept in the store, as a
run of `jepsen test`.
A scenario is `async def function(world: World) -> None`. The last line of the output is
`seed N: ok, trace HASH`, or says that the seed failed; the exit status is 0 or 1, or 2 with a
sentence for arguments that name nothing. `--trace FILE`
writes every event, so that two runs that should be equal can be compared line by line; `--servers
FILE` what servers are seen to do, as lines that `jepsen check --checker trace` judges.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

from jepsen.errors import InputError
from jepsen.simulator.runner import determinism
from jepsen.simulator.runner.run import add_options, check_target, run_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.simulator.runner.determinism import RunResult

JEPSEN = (sys.executable, "-m", "jepsen.cli.main")
SHRUNK_MAX = 3
"""The failing seeds of one call that are shrunk: the later ones tend to fail alike."""


def main(arguments: Sequence[str]) -> int:
    """Parse the command line, run what it says and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options, arguments)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return determinism.BAD_ARGUMENTS


def _run(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    if options.command == "many":
        from jepsen.simulator.runner.many import run_many

        check_target(options.target)
        seeds = range(options.first, options.first + options.seeds)
        shrunk_max = 0 if options.no_shrink else SHRUNK_MAX
        known, learn = options.coverage, options.learn
        return run_many(
            options.target,
            seeds,
            options.processes,
            shrunk_max,
            known,
            keep=partial(_keep, options),
            learn=learn,
        )
    if not determinism.is_prepared():
        _restart(arguments)
    if options.command == "serve":
        from jepsen.simulator.runner.fork_server import serve_runs

        serve_runs(sys.stdin, sys.stdout)
        return 0
    determinism.prepare()
    return run_seed(options.target, options.seed, options)


def _keep(options: argparse.Namespace, failed: RunResult) -> None:
    """Repeat a seed that failed as a test of the harness, whose folder stays."""
    words = ["test", options.target, "--env", "sim", "--seed", str(failed.seed)]
    kept = subprocess.run(
        [*JEPSEN, *words, "--store", options.store],
        env=determinism.environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(f"kept: {kept.stdout or kept.stderr}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jepsen.simulator", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    run = commands.add_parser("run", help="run one scenario with one seed")
    run.add_argument("target", help="the scenario, as module:function")
    run.add_argument("--seed", type=int, default=1)
    add_options(run)
    many = commands.add_parser("many", help="run one scenario with many seeds")
    many.add_argument("target", help="the scenario, as module:function")
    many.add_argument("--seeds", type=int, default=20)
    many.add_argument("--first", type=int, default=1, help="the first seed")
    many.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    many.add_argument("--store", default="store", help="directory for the runs of failing seeds")
    many.add_argument("--no-shrink", action="store_true", help="report failing seeds as they are")
    many.add_argument("--coverage", help="compare what is reached with the lines of this file")
    many.add_argument("--learn", action="store_true", help="add to that file what is new")
    commands.add_parser("serve", help="run what standard input asks for, in forks")
    return parser


def _restart(arguments: Sequence[str]) -> None:
    # Hash order is fixed when the interpreter starts, so only a new one can have it fixed.
    command = [sys.executable, "-m", "jepsen.simulator", *arguments]
    os.execve(sys.executable, command, determinism.environment(os.environ))


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # No clean-up of the interpreter: it would run code of processes that were killed.
    os._exit(status)

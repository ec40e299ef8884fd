"""Runs the test of a run folder in the deterministic world: `python -m jepsen.simulator.harness
DIR`.

Its history goes to the folder while it runs. The last line of the output is `seed N: ok, trace
HASH`, or says that the cluster failed by itself; the exit status is 0 or 1, or BAD_INPUT with what
is wrong with the specification.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.simulator.runner import determinism
from raftctl.failures import outcome_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.simulator.world import SimRuntime, World
    from jepsen.store import RunFolder

CLIENTS_NODE = "jepsen"
BAD_INPUT = 254


def start(folder: Path) -> subprocess.Popen[str]:
    """Starts the run in an interpreter of its own, whose output is what came of it."""
    return subprocess.Popen(
        [sys.executable, "-m", "jepsen.simulator.harness", str(folder)],
        env=determinism.environment(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def main(arguments: Sequence[str]) -> int:
    """Runs the folder's test and returns the exit status."""
    determinism.prepare()
    from jepsen.simulator.world import World
    from jepsen.store import RunFolder
    from raftctl.errors import ConfigError

    folder = RunFolder.open(Path(arguments[0]))
    seed = folder.spec.seed
    _import_everything(folder)
    determinism.stabilize_hashes()
    determinism.quiet_collector()
    determinism.begin(seed)
    with World(seed) as world:
        _, error = outcome_of(lambda: world.run(scenario(world, folder)))
        if isinstance(error, ConfigError):
            sys.stdout.write(f"{error}\n")
            return BAD_INPUT
        if error is not None:
            sys.stdout.write("".join(traceback.format_exception(error)))
            sys.stdout.write(f"seed {seed}: FAILED, trace {world.trace_hash()}\n")
            return 1
        sys.stdout.write(f"seed {seed}: ok, trace {world.trace_hash()}\n")
    return 0


def _import_everything(folder: RunFolder) -> None:
    """Before the seed begins: what is drawn at imports has no part in a run."""
    from jepsen.core.spec import workload_of

    importlib.import_module("jepsen.simulator.environment")
    workload_of(folder.spec)


async def scenario(world: World, folder: RunFolder) -> None:
    """From a cluster that is started to the last operation of the folder's test."""
    from jepsen.core import Run
    from jepsen.simulator.environment import SimEnvironment

    spec = folder.spec
    cluster = SimEnvironment(world, spec.cluster)
    cluster.start()

    async def test(runtime: SimRuntime) -> None:
        await cluster.wait_ready()
        with folder.writer() as writer:
            await Run(spec, cluster, writer.append).run()

    await world.start(CLIENTS_NODE, test).done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

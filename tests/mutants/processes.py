"""Bugs planted into the nodes of real clusters, whose processes are forked from one that has them.

`run MUTANT` reads a test (`RunSpec.to_json`) on stdin, runs it on such a cluster, and prints what
was found; `nodes MUTANT` is what its nodes are forked from. An empty name plants nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jepsen.cli import _options as options
from jepsen.core.spec import RunSpec
from jepsen.simulator.runner.determinism import RunResult
from raftctl.cli.local import fork_server as preloaded
from raftctl.localcluster import fork_server as launcher
from tests.mutants.node_catalog import NODE_MUTANTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jepsen.checkers.verdict import Verdict

FOUND = "found by "
_RUN = (sys.executable, "-m", "tests.mutants.processes", "run")
_NODES = (sys.executable, "-m", "tests.mutants.processes", "nodes")


def found_by(verdicts: Mapping[str, Verdict]) -> str:
    """Checkers and anomalies; empty if there are none."""
    names = {
        f"{checker}: {anomaly.name}"
        for checker, verdict in verdicts.items()
        for anomaly in verdict.anomalies
    }
    return FOUND + ", ".join(sorted(names)) if names else ""


def result_of(mutant: str, spec: RunSpec, timeout_s: float) -> RunResult:
    """What a run found, in a process of its own; its seconds are those of the clock."""
    began_s = time.monotonic()
    done = subprocess.run(
        [*_RUN, mutant],
        input=json.dumps(spec.to_json()),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    seconds = time.monotonic() - began_s
    if done.returncode:
        raise RuntimeError(f"{spec.name}, seed {spec.seed}: {done.stderr[-2000:]}")
    return RunResult(spec.seed, FOUND not in done.stdout, "", done.stdout, seconds)


def _run(mutant: str) -> None:
    launcher.PRELOADED = (*_NODES, mutant)
    spec = RunSpec.from_json(json.load(sys.stdin))
    with tempfile.TemporaryDirectory() as store:
        _, verdicts = options.run_one(spec, Path(store))
    sys.stdout.write(found_by(verdicts) + "\n")


def _nodes(mutant: str) -> None:
    for one in NODE_MUTANTS:
        if one.name == mutant:
            one.plant()
    preloaded.main()


if __name__ == "__main__":
    {"run": _run, "nodes": _nodes}[sys.argv[1]](sys.argv[2])

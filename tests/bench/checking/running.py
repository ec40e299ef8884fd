"""What a run costs the harness itself; a part of `make bench-check`.

Clients of registers answer from memory, a millisecond after they are asked, so the processor's time
goes to generator, interpreter and history. It is that of the one thread that there is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jepsen.client import Completion, ok
from jepsen.core import Run
from jepsen.core.spec import RunSpec
from jepsen.environments import ClusterSpec
from jepsen.environments.external import ExternalEnvironment
from jepsen.generator.core import NEMESIS
from jepsen.history import OpType
from jepsen.history.formats import HistoryWriter
from tests.bench.figures import figure, report

if TYPE_CHECKING:
    from jepsen.history import Op

RATE = 5_000
OPERATIONS = 20_000
CLIENTS = 20
LATENCY_S = 0.001
TURNS = 3


class Ran(NamedTuple):
    """What a run has taken."""

    operations: int
    wall_s: float
    processor_s: float

    @property
    def cores(self) -> float:
        """At RATE operations a second."""
        return self.processor_s / self.operations * RATE


class _Answers:
    """See `jepsen.client.Client`."""

    async def open(self) -> None:
        """There is nobody to connect to."""

    async def close(self) -> None:
        """See `open`."""

    async def invoke(self, op: Op) -> Completion:
        """As if somebody were asked."""
        await asyncio.sleep(LATENCY_S)
        return ok(op.value)


def run_once(folder: Path) -> Ran:
    """So many operations of `register` at RATE, if the machine can, with their history."""
    spec = RunSpec("register", "external", time_limit_s=3_600, rate=RATE, concurrency=CLIENTS)
    run = Run(spec, ExternalEnvironment(ClusterSpec()), lambda op: note(op))
    run.interpreter.client_of = lambda _: _Answers()
    count = 0
    with HistoryWriter(folder / "history.jsonl") as writer:

        def note(op: Op) -> None:
            nonlocal count
            count += op.type is OpType.INVOKE and op.process != NEMESIS
            writer.append(op)
            if count >= OPERATIONS:
                run.stop()

        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        asyncio.run(run.run())
        taken = time.perf_counter() - began_s, time.thread_time() - began_cpu_s
    return Ran(count, *taken)


def main() -> None:
    """Runs it some times, prints a line, and writes the JSON."""
    parser = argparse.ArgumentParser(prog="tests.bench.checking.running", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("out/bench-harness.json"))
    options = parser.parse_args()
    turns = []
    for _ in range(TURNS):
        with tempfile.TemporaryDirectory() as folder:
            turns.append(run_once(Path(folder)))
    told = {
        "harness_run": figure(
            [one.cores for one in turns],
            f"cores at {RATE} operations/s",
            "goal: at most 1",
        ),
        "harness_rate": figure(
            [one.operations / one.wall_s for one in turns], "operations/s", f"asked for: {RATE}", 0
        ),
    }
    for name, one in told.items():
        sys.stdout.write(f"{name}: {one['median']} {one['unit']} ({one['goal']})\n")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report(told), indent=2))


if __name__ == "__main__":
    main()

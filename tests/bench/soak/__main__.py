"""`make soak HOURS=3`: load with faults for hours; memory, open files, tasks; a JSON and plots.

Without a problem the exit status is 0. Histories that are not valid stay in the store, whose folder
the JSON names; logs and disks of the nodes stay beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jepsen.cli.main import REPORTED_BY_CALLERS
from jepsen.core import overall
from jepsen.environments import ClusterSpec
from jepsen.environments.local import RELAYS
from jepsen.environments.local.environment import network_of
from jepsen.environments.local.servers import judge_servers
from tests.bench.all.charts import timeline
from tests.bench.figures import report
from tests.bench.kafka.session import end_with_clusters
from tests.bench.soak.rounds import RECORD, Judged, Rounds, Shape, WatchedEnvironment
from tests.bench.soak.verdict import MEBIBYTE, Sample, Soak, Span, judge, series

if TYPE_CHECKING:
    from collections.abc import Sequence

HOUR_S = 3600.0
ROUND_S, REST_S = 600.0, 30.0
UNKNOWN_MAX = 0.1
"""The part of the tests that may show nothing, as when a client has hung."""
SPEC = ClusterSpec(3, 3, {"group.initial.rebalance.delay.ms": "0"})
PLOTS = {
    "memory_bytes": ("Memory of the nodes", "MiB", MEBIBYTE),
    "files": ("Open files of the nodes", "files", 1),
    "tasks": ("Tasks of the nodes", "tasks", 1),
}


def main(words: Sequence[str]) -> None:
    """Runs rounds for so long, judges what they left, and writes what came of it."""
    given = _parse(words)
    end_with_clusters()
    # Clients say what faults do to them, thousands of times.
    for library in REPORTED_BY_CALLERS:
        logging.getLogger(library).setLevel(logging.CRITICAL)
    nodes = given.output / "nodes"
    nodes.parent.mkdir(parents=True, exist_ok=True)
    if nodes.exists():
        sys.exit(f"{nodes} is there already: name another folder, or delete it")
    # No longer than a sixth of the soak, so that there are rests to compare.
    round_s = min(ROUND_S, given.hours * HOUR_S / 6)
    shape = Shape(round_s, given.rate, given.seed)
    environment = WatchedEnvironment(nodes, SPEC, network_of(RELAYS, cut=True))
    try:
        environment.start()
        soak, rounds, committed = asyncio.run(_run(environment, given, shape))
    finally:
        environment.stop()
    servers = judge_servers(nodes, committed, [one for round_ in rounds for one in round_.seen])
    problems = [one for round_ in rounds for one in round_.with_verdict(False)]
    unknown = [one for round_ in rounds for one in round_.with_verdict("unknown")]
    if len(unknown) > UNKNOWN_MAX * sum(len(one.verdicts) for one in rounds):
        problems += unknown
    if overall(servers) is not True:
        problems.append(f"disks: {servers}")
    samples = samples_of(nodes)
    spared = [*environment.controllers[:-1], *environment.brokers[:-1]]
    found, wrong = judge(samples, soak, spared)
    document = {
        **report({}),
        "hours": round((soak.whole.end_s - soak.whole.begin_s) / HOUR_S, 3),
        "rate": given.rate,
        "rounds": [one.verdicts for one in rounds],
        "unknown": unknown,
        "disks": {name: one.valid for name, one in servers.items()},
        "nodes": found,
        "problems": problems + wrong,
    }
    write(document, samples, soak, given.output)
    sys.stdout.write("".join(f"{one}\n" for one in document["problems"] or ["no problem"]))
    if document["problems"]:
        sys.exit(1)


async def _run(
    environment: WatchedEnvironment, given: argparse.Namespace, shape: Shape
) -> tuple[Soak, list[Judged], int | None]:
    """The rounds, and the end of the metadata when the cluster had come to rest."""
    try:
        await environment.wait_ready(lambda _: None)
        rounds = Rounds(environment, given.output / "store", shape)
        rests: list[Span] = []
        done: list[Judged] = []
        began_s = time.time()
        while not done or time.time() - began_s < given.hours * HOUR_S:
            done.append(await rounds.run(len(done)))
            rest_s = time.time()
            await asyncio.sleep(min(REST_S, shape.seconds))
            rests.append(Span(rest_s, time.time()))
            _tell(len(done), time.time() - began_s, done[-1])
        committed = await environment.committed_at_rest()
        return Soak(Span(began_s, time.time()), rests), done, committed
    finally:
        await environment.close()


def _tell(number: int, elapsed_s: float, judged: Judged) -> None:
    said = ", ".join(f"{name} {one['valid']}" for name, one in judged.verdicts.items())
    sys.stdout.write(f"{elapsed_s / HOUR_S:5.2f} h, round {number}: {said}\n")
    sys.stdout.flush()


def samples_of(nodes: Path) -> list[Sample]:
    """What all nodes noted, in order of time; a node that was killed may leave half a line."""
    found = [
        Sample(record.parent.name, **json.loads(line))
        for record in nodes.glob(f"*/{RECORD}")
        for line in record.read_text(encoding="utf-8").splitlines()
        if line.endswith("}")
    ]
    return sorted(found, key=lambda one: one.at_s)


def write(document: dict[str, Any], samples: Sequence[Sample], soak: Soak, folder: Path) -> None:
    """Writes the JSON and a plot for each kind of thing that nodes hold."""
    (folder / "soak.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    for name, (title, unit, scale) in PLOTS.items():
        lines = {
            node: [(hours, value / scale) for hours, value in points]
            for node, points in series(samples, soak, name).items()
        }
        plot = timeline(title, "hours", unit, lines)
        (folder / f"soak-{name.removesuffix('_bytes')}.svg").write_text(plot, encoding="utf-8")


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=40.0, help="operations/s of each workload")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("out/soak"), metavar="FOLDER")
    return parser.parse_args(words)


if __name__ == "__main__":
    main(sys.argv[1:])

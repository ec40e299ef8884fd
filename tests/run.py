"""The runner of the longer runs: `python -m tests.run NAME [SETTING=VALUE ...]`.

A run is a list of commands that stops at the first failure. `--help` lists all runs with their
durations and settings; `--print` shows the commands of one run without starting them. The value
of a setting comes from the command line, else from the environment, where `make NAME X=1` puts it.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = "raftctl broker jepsen tests"
COVERAGE = "--coverage tests/simulation/cluster_coverage.txt"
CORES = "python -m tests.simulation.core_swarm"
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Run:
    """Commands as they are typed in the virtual environment, with places for settings.

    `[--seed SEED=1]` is an option with a setting and its default; without a default the option is
    left out while the setting is empty. `[--full if FULL]` is an option without a value.
    """

    about: str
    takes: str
    """How long it takes on two cores."""
    commands: tuple[str, ...]


def run(about: str, takes: str, *commands: str) -> Run:
    """A run from its commands."""
    return Run(about, takes, commands)


RUNS: dict[str, Run] = {
    "check-types": run("mypy --strict over all packages", "30 s", "mypy"),
    "check-rules": run(
        "format, lint, import contracts, house rules",
        "25 s",
        f"ruff format --check {PACKAGES}",
        f"ruff check {PACKAGES}",
        "lint-imports",
        "pytest -q tests/test_tidy.py tests/test_packages.py",
    ),
    "test-howtos": run(
        "the how-to pages whose commands take minutes",
        "minutes",
        "pytest -q -n 2 --dist worksteal -o faulthandler_timeout=300 tests/howtos",
    ),
    "test-console": run(
        "the console in Chromium and Firefox: views, actions, axe, scale; on a real cluster too",
        "10 min",
        "pytest -q -o faulthandler_timeout=300 tests/console",
    ),
    "screenshots": run(
        "the pictures of the console in docs/images/console, by Chromium",
        "1 min",
        "python -m tests.console.screenshots",
    ),
    "test-suites": run(
        "the test suites of other projects, on our brokers",
        "32 min",
        "pytest -q tests/suites",
    ),
    "test-dashboards": run(
        "the dashboards and rules of Strimzi, evaluated by a Prometheus; docs/how-to/monitor.md",
        "2 min",
        "pytest -q tests/peers/test_prometheus.py [--dashboards DASHBOARDS]",
    ),
    "sim-cores": run(
        "the quorum's cores alone; each seed draws faults and shape",
        "minutes",
        f"{CORES} [--seed SEED] [--seeds SEEDS=300]",
    ),
    "sim-ci": run(
        "the seeds of continuous integration: the same every time",
        "8 min",
        "python -m jepsen.simulator many tests.simulation.cluster_chaos:chaos"
        f" --first 0 --seeds 200 {COVERAGE}",
        f"{CORES} --first 0 --seeds 300",
    ),
    "properties": run(
        "random requests, failovers and snapshots beside a model",
        "minutes",
        "python -m tests.properties [--sequences SEQUENCES=2000] [--seed SEED=0]",
    ),
    "properties-linearizable": run(
        "the checker of linearizability beside exhaustive search",
        "minutes",
        "python -m tests.properties.linearizability [--histories COUNT=20000] [--seed SEED=0]",
    ),
    "mutants": run(
        "known bugs, planted one by one; a named property catches each",
        "11 min",
        "python -m tests.mutants",
    ),
    "bugs-found": run(
        "`jepsen test` finds planted bugs; writes docs/reference/bugs-found.md",
        "minutes",
        "python -m tests.mutants.harness --write",
    ),
    "fuzz": run(
        "random frames to a broker in the same process; MODE: served, before, during, sockets",
        "minutes",
        "python -m tests.fuzz [--mode MODE] [--frames FRAMES=100000] [--seed SEED=1] [--only ONLY]",
    ),
    "bench": run(
        "the quorum beside etcd, and a broker by itself",
        "minutes",
        "python -m tests.bench --output out/bench.json",
    ),
    "bench-all": run(
        "all figures that fit an hour: one JSON and a page; beside Apache Kafka, etcd, Porcupine",
        "1 hour",
        "python -m tests.bench.all --output out/bench-all.json --page out/figures"
        " [--only ONLY] [--quick if QUICK] [--keep if KEEP]",
    ),
    "soak": run(
        "load with faults for hours: memory, open files, tasks, no record lost; JSON and plots",
        "HOURS",
        "python -m tests.bench.soak --output out/soak [--hours HOURS=3] [--rate RATE]"
        " [--seed SEED]",
    ),
    "bench-kafka": run(
        "brokers beside Apache Kafka; needs Java and Maven",
        "minutes",
        "python -m tests.bench kafka --output out/bench-kafka.json [--only ONLY] [--full if FULL]",
    ),
    "bench-puts": run(
        "puts by how many are under way and by size, beside etcd",
        "7 min",
        "python -m tests.bench.quorum.grid --output out/bench-puts.json"
        " [--outstanding OUTSTANDING] [--turns TURNS]",
    ),
    "bench-groups": run(
        "groups and transactions beside Apache Kafka",
        "20 min",
        "python -m tests.bench groups --output out/bench-groups.json [--only ONLY]",
    ),
    "bench-scale": run(
        "controllers alone, with up to two million partitions",
        "hours",
        "python -m tests.bench.scale.main --output out/bench-scale.json"
        " [--up-to PARTITIONS] [--observers OBSERVERS]",
    ),
    "bench-console": run(
        "the console of a node at 10,000 topics, and with 50 viewers",
        "1 min",
        "python -m tests.bench.console --output out/bench-console.json",
    ),
    "bench-security": run(
        "TLS, logins, quotas and rules; needs Java and Maven",
        "15 min",
        "python -m tests.bench.security.main --output out/bench-security.json"
        " [--only ONLY] [--rules RULES]",
    ),
    "bench-metrics": run(
        "what a scrape costs, and counting",
        "10 min",
        "python -m tests.bench.metrics.main --output out/bench-metrics.json"
        " [--only ONLY] [--turns TURNS]",
    ),
    "bench-spark": run(
        "generated histories judged on Spark; needs Java",
        "hours",
        "python -m tests.bench.spark.main --output out/bench-spark.json"
        " [--sizes SIZES] [--log-sizes LOG_SIZES] [--hot HOT]",
    ),
    "bench-check": run(
        "the checker beside Porcupine (needs Go), and the cost of a run",
        "minutes",
        "python -m tests.bench.checking.running",
        "python -m tests.bench.checking --output out/bench-check.json"
        " [--histories HISTORIES] [--keys KEYS]",
    ),
    "spark-equality": run(
        "random histories, judged on Spark and in one process",
        "minutes",
        "python -m tests.kit.spark.equality [--count COUNT=5000] [--seed SEED=0]",
        "python -m tests.kit.spark.logs [--count COUNT=5000] [--seed SEED=0]",
        "python -m tests.kit.spark.txns [--count COUNT=5000] [--seed SEED=0]",
        "python -m tests.kit.spark.traces [--count COUNT=5000] [--seed SEED=0]",
    ),
}
_OPTION = re.compile(r" \[(--[\w-]+)(?: ([A-Z_]+)(?:=(\w+))?| if ([A-Z_]+))\]")


def settings_of(name: str) -> list[str]:
    """The settings of a run, each once, with defaults: `SEED=0`, `ONLY`."""
    found = [
        "=".join(part for part in (flag or setting, default) if part)
        for command in RUNS[name].commands
        for _, setting, default, flag in _OPTION.findall(command)
    ]
    return list(dict.fromkeys(found))


def commands(name: str, settings: Mapping[str, str]) -> list[str]:
    """The commands of a run with the values of its settings in place."""

    def option(match: re.Match[str]) -> str:
        word, setting, default, flag = match.groups()
        value = settings.get(flag or setting, "") or default
        if not value:
            return ""
        return f" {word}" if flag else f" {word} {value}"

    return [_OPTION.sub(option, command) for command in RUNS[name].commands]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The name of a run, its settings, and whether it is printed only."""
    width = max(len(name) for name in RUNS)
    listed = [
        f"  {name:{width}}  {one.takes:>7}  {one.about}"
        + (f"\n  {'':{width}}  {'':7}  {given}" if (given := " ".join(settings_of(name))) else "")
        for name, one in RUNS.items()
    ]
    parser = argparse.ArgumentParser(
        prog="python -m tests.run",
        description="Runs one of the longer runs. `make NAME SETTING=VALUE` does the same.",
        epilog="\n".join(["runs, with their time on two cores, and settings:", *listed]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=list(RUNS), metavar="NAME")
    parser.add_argument("settings", nargs="*", metavar="SETTING=VALUE")
    parser.add_argument("--print", action="store_true", help="show the commands, start nothing")
    parsed = parser.parse_args(arguments)
    known = [one.partition("=")[0] for one in settings_of(parsed.name)]
    for one in parsed.settings:
        setting, equals, _ = one.partition("=")
        if not equals or setting not in known:
            parser.error(f"{one}: settings of {parsed.name} are {', '.join(known) or 'none'}")
    return parsed


def perform(line: str) -> int:
    """Runs one command from the checkout and returns its exit status.

    A SIGTERM goes on to the command: make ends its children so, and a shell ends make.
    """
    program, *arguments = shlex.split(line)
    path = Path(sys.executable).parent / program
    with subprocess.Popen([str(path), *arguments], cwd=ROOT) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        try:
            return child.wait()
        except KeyboardInterrupt:
            child.wait()
            return INTERRUPTED


def main(arguments: Sequence[str]) -> int:
    """Performs the commands of the run until one fails; returns its exit status, else 0."""
    parsed = parse(arguments)
    given = dict(one.split("=", 1) for one in parsed.settings)
    for line in commands(parsed.name, {**os.environ, **given}):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        if not parsed.print and (status := perform(line)):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`jepsen test`: breaks a cluster, records what its clients saw, judges it."""

from __future__ import annotations

import contextlib
import random
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.cli.output import (
    Output,
    OutputOption,
    anomaly_lines,
    exit_status,
    say,
    say_json,
    tell,
    word,
)
from jepsen.core import CLIENTS, WORKLOADS, RunSpec, check_spec, overall
from jepsen.errors import InputError
from jepsen.nemesis import PACKAGES
from jepsen.running import ENVIRONMENTS, run_and_judge
from jepsen.store import DEFAULT_STORE, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from jepsen.checkers.verdict import Valid, Verdict

SEED_MAX = 1_000_000


def run(
    workload: Annotated[str, typer.Argument(metavar="|".join(WORKLOADS), help="What to do.")],
    env: Annotated[
        str, typer.Option(metavar="|".join(ENVIRONMENTS), help="Where the cluster is.")
    ] = "local",
    nemesis: Annotated[
        str, typer.Option(metavar=",".join(PACKAGES), help="What goes wrong; empty: nothing.")
    ] = "",
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds, without the end.")] = 30.0,
    rate: Annotated[float, typer.Option(min=0.01, help="Operations a second, of all.")] = 50.0,
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Clients.")] = 6,
    interval: Annotated[
        float, typer.Option(min=0.01, help="Seconds between faults, and that one lasts, about.")
    ] = 4.0,
    seed: Annotated[int | None, typer.Option(min=0, help="Of all chance; else a new one.")] = None,
    test_count: Annotated[
        int,
        typer.Option(min=1, help="Runs, each with the next seed; ends with the first not valid."),
    ] = 1,
    controllers: Annotated[int, typer.Option(min=1, max=9, help="Of a new cluster.")] = 3,
    brokers: Annotated[int, typer.Option(min=1, max=100, help="Of a new cluster.")] = 3,
    keys: Annotated[int, typer.Option(min=1, max=1000, help="Partitions of the topic.")] = 3,
    replication: Annotated[int, typer.Option(min=1, max=100, help="Replicas of each.")] = 3,
    acks: Annotated[str, typer.Option(metavar="all|1|0", help="What producers wait for.")] = "all",
    client: Annotated[
        str, typer.Option(metavar="|".join(CLIENTS), help="For queue; sim: aiokafka only.")
    ] = "",
    topic: Annotated[str, typer.Option(help="For queue; a new one on an external cluster.")] = "",
    bootstrap_servers: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="Of an external cluster.")
    ] = "",
    override: Annotated[
        list[str] | None,
        typer.Option("--override", "-o", metavar="KEY=VALUE", help="A configuration key of nodes."),
    ] = None,
    store: Annotated[str, typer.Option(metavar="DIR", help="Where runs are kept.")] = DEFAULT_STORE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Runs a test and judges it; what there is of it stays in the store.

    Prints `FOLDER valid`, `invalid` or `unknown`. In env sim the same options and seed are the same
    run. Ctrl-C ends a run early, which is then healed, kept and judged. Exit status 0 valid, 1
    invalid, 2 unknown, 254 bad arguments.
    """
    if acks not in ("all", "0", "1"):
        raise InputError(f"--acks {acks}: choose one of all, 1, 0")
    if env not in ENVIRONMENTS:
        raise InputError(f"--env {env}: choose one of {', '.join(ENVIRONMENTS)}")
    spec = RunSpec(
        workload,
        env,
        tuple(name for name in nemesis.split(",") if name),
        time_limit,
        rate,
        concurrency,
        interval,
        random.randrange(SEED_MAX) if seed is None else seed,
        keys=keys,
        replication=replication,
        acks=acks,
        client=client or ("aiokafka" if env == "sim" else "librdkafka"),
        topic=topic,
        controllers=controllers,
        brokers=brokers,
        overrides=_overrides(override or ()),
        bootstrap_servers=bootstrap_servers,
    )
    raise typer.Exit(exit_status(_several(spec, test_count, Path(store), output)))


def _several(spec: RunSpec, count: int, store: Path, output: Output) -> Valid:
    """Runs with one seed after the other until one is not valid."""
    for seed in range(spec.seed, spec.seed + count):
        valid = _one(replace(spec, seed=seed, topic=spec.topic or f"jepsen-{seed}"), store, output)
        if valid is not True:
            return valid
    return True


def _one(spec: RunSpec, store: Path, output: Output) -> Valid:
    check_spec(spec)
    folder = RunFolder.create(store, spec, rerun_command(spec))
    with _progress() as told:
        verdicts = run_and_judge(folder, told)
    _show(folder, verdicts, output)
    return overall(verdicts)


def _show(folder: RunFolder, verdicts: dict[str, Verdict], output: Output) -> None:
    if output is Output.JSON:
        say_json({"folder": str(folder.path), **(folder.results or {})})
        return
    for name, verdict in verdicts.items():
        tell(f"{name}: {word(verdict.valid)}  {verdict.why_unknown}".rstrip())
        for line in anomaly_lines(verdict):
            tell(f"  {line}")
    say(f"{folder.path} {word(overall(verdicts))}")


def rerun_command(spec: RunSpec) -> str:
    """The command line that runs the same again."""
    options = {
        "--env": spec.env,
        "--nemesis": ",".join(spec.nemesis),
        "--time-limit": f"{spec.time_limit_s:g}",
        "--rate": f"{spec.rate:g}",
        "--concurrency": str(spec.concurrency),
        "--interval": f"{spec.interval_s:g}",
        "--seed": str(spec.seed),
        "--controllers": str(spec.controllers),
        "--brokers": str(spec.brokers),
        "--keys": str(spec.keys),
        "--replication": str(spec.replication),
        "--acks": spec.acks,
        "--client": spec.client,
        "--topic": spec.topic,
        "--bootstrap-servers": spec.bootstrap_servers,
    }
    words = ["jepsen", "test", spec.workload]
    for option, value in options.items():
        words += [option, value] if value else []
    for key, value in spec.overrides.items():
        words += ["-o", f"{key}={value}"]
    return shlex.join(words)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line that is written over on a terminal, else lines one after the other."""
    if not sys.stderr.isatty():
        yield tell
        return

    def over(line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line[:150]}")
        sys.stderr.flush()

    yield over
    sys.stderr.write("\n")


def _overrides(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not (key and equals):
            raise InputError(f"-o {one}: write KEY=VALUE")
        found[key.strip()] = value
    return found

"""`jepsen test-all`: every workload with every nemesis, and with none, in one matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.checkers.verdict import Valid
from jepsen.cli import options
from jepsen.cli.output import Output, OutputOption, exit_status, say, say_json, tell, word
from jepsen.core import (
    LOG_FAULTS,
    LOG_WORKLOADS,
    RunSpec,
    check_spec,
    faults_in,
    overall,
    workloads_in,
)
from jepsen.errors import ClusterError
from jepsen.faults import PACKAGES
from jepsen.store import DEFAULT_STORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEALTHY = "healthy"
NONE = "-"
"""Where a workload has nothing that such a fault could break."""
CRASHED = 255


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of one run."""

    spec: RunSpec
    folder: str
    valid: Valid | None
    """None: the harness or the cluster failed, so that there was nothing to judge."""

    @property
    def word(self) -> str:
        """For people."""
        return "crashed" if self.valid is None else word(self.valid)

    @property
    def nemesis(self) -> str:
        """The column of the matrix."""
        return ",".join(self.spec.nemesis) or HEALTHY


def run(
    workload: Annotated[
        list[str] | None, typer.Option(help="One of them; repeat it. Else all that env has.")
    ] = None,
    env: options.EnvOption = "local",
    nemesis: Annotated[
        list[str] | None,
        typer.Option(
            metavar=",".join(PACKAGES),
            help="What goes wrong in one column; repeat it. Else each fault that env has.",
        ),
    ] = None,
    time_limit: options.TimeLimitOption = 30.0,
    rate: options.RateOption = 50.0,
    concurrency: options.ConcurrencyOption = 6,
    interval: options.IntervalOption = 4.0,
    seed: options.SeedOption = None,
    controllers: options.ControllersOption = 3,
    brokers: options.BrokersOption = 3,
    replication: options.ReplicationOption = 3,
    client: options.ClientOption = "",
    bootstrap_servers: options.BootstrapOption = "",
    override: options.OverrideOption = None,
    store: options.StoreOption = DEFAULT_STORE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Runs every workload with every nemesis, and first with none; goes on whatever comes of it.

    Prints `FOLDER valid`, `invalid`, `unknown` or `crashed` for each run, then the matrix. Exit
    status 0 all valid, 1 some invalid, else 2 some unknown, 255 if a run could not be judged, 254
    bad arguments.
    """
    options.check_words(env, "all")
    template = RunSpec(
        "",
        env,
        (),
        time_limit,
        rate,
        concurrency,
        interval,
        options.new_seed(seed),
        replication=replication,
        client=client or options.default_client(env),
        controllers=controllers,
        brokers=brokers,
        overrides=options.overrides_of(override or ()),
        bootstrap_servers=bootstrap_servers,
    )
    specs = list(matrix(template, workload or workloads_in(env), nemesis or faults_in(env)))
    for spec in specs:
        check_spec(spec)
    outcomes = []
    for spec in specs:
        outcomes.append(_one(spec, Path(store)))
        if output is Output.TABLE:
            say(f"{outcomes[-1].folder} {outcomes[-1].word}")
    _show(outcomes, output)
    raise typer.Exit(worst(outcomes))


def matrix(
    template: RunSpec, workloads: Sequence[str], nemeses: Sequence[str]
) -> Iterator[RunSpec]:
    """A test for each pair, those without faults first; topics are of one run each."""
    columns = list(dict.fromkeys([(), *map(options.comma_separated, nemeses)]))
    pairs = [(n, w) for n in columns for w in workloads if _meet(w, n)]
    for number, (nemesis, workload) in enumerate(pairs):
        topic = f"jepsen-{template.seed}-{number}"
        yield replace(template, workload=workload, nemesis=nemesis, topic=topic)


def _meet(workload: str, nemesis: Sequence[str]) -> bool:
    return workload in LOG_WORKLOADS or not set(nemesis) & set(LOG_FAULTS)


def _one(spec: RunSpec, store: Path) -> _Outcome:
    try:
        folder, verdicts = options.run_one(spec, store)
    except (ClusterError, OSError, TimeoutError) as error:
        tell(f"{spec.name}: {error}")
        return _Outcome(spec, str(store / spec.name), None)
    return _Outcome(spec, str(folder.path), overall(verdicts))


def worst(outcomes: Sequence[_Outcome]) -> int:
    """The exit status: what could not be judged, then what is invalid, then what is unknown."""
    found = [one.valid for one in outcomes]
    if None in found:
        return CRASHED
    order: tuple[Valid, ...] = (False, "unknown", True)
    return exit_status(next(valid for valid in order if valid in found))


def _show(outcomes: Sequence[_Outcome], output: Output) -> None:
    if output is Output.JSON:
        say_json(
            [
                {
                    "workload": one.spec.workload,
                    "nemesis": list(one.spec.nemesis),
                    "valid": one.valid,
                    "folder": one.folder,
                }
                for one in outcomes
            ]
        )
        return
    for line in table(outcomes):
        say(line)


def table(outcomes: Sequence[_Outcome]) -> list[str]:
    """The matrix: a line a workload, a column a nemesis."""
    words = {(one.spec.workload, one.nemesis): one.word for one in outcomes}
    columns = list(dict.fromkeys(one.nemesis for one in outcomes))
    rows = list(dict.fromkeys(one.spec.workload for one in outcomes))
    lines = [
        ["", *columns],
        *([row, *(words.get((row, column), NONE) for column in columns)] for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]

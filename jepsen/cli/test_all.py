"""`jepsen test-all`: every workload with every nemesis, and with none, in one matrix."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.cli import _options as options
from jepsen.cli._matrix_run import run_cell, side_by_side
from jepsen.cli._output import INTERRUPTED, Output, OutputOption, exit_status, say, say_json, tell
from jepsen.core.spec import RunSpec, check_spec, faults_ready, workloads_in
from jepsen.environments.local import RELAYS
from jepsen.errors import InputError
from jepsen.nemesis.faults import PACKAGES
from jepsen.runner.matrix import Cell, matrix, progress, read, summary, text, write
from jepsen.store import DEFAULT_STORE, new_matrix_folder, store_of_matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jepsen.checkers.verdict import Valid

FAILED = 255

ResumeOption = Annotated[
    str,
    typer.Option(
        metavar="DIR", help="Continue an interrupted matrix, such as store/test-all/latest."
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        min=1, max=100, metavar="N", help="Number of tests at a time, each on a cluster of its own."
    ),
]


def run(
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="W,...", help="Workloads; default: all of the environment."),
    ] = None,
    env: options.EnvOption = "local",
    nemesis: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAULT,...",
            help="Faults of one column; repeat it. Default: a column for each fault of "
            f"{', '.join(PACKAGES)}.",
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
    control: options.ControlOption = "",
    network: options.NetworkOption = RELAYS,
    override: options.OverrideOption = None,
    store: options.StoreOption = DEFAULT_STORE,
    resume: ResumeOption = "",
    jobs: JobsOption = 1,
    output: OutputOption = Output.TABLE,
) -> None:
    """Runs every workload without faults and with each fault.

    Prints `FOLDER valid`, `invalid`, `unknown` or `crashed` for each run, then the matrix. From the
    first run on it is also in `store/test-all/latest`, as matrix.json and matrix.md. Ctrl-C ends
    it, once what runs is healed; `--resume` runs what has no verdict then. Exit status 0 all valid,
    1 some invalid, else 2 some unknown, 255 if a run could not be judged, 254 bad arguments, 130
    interrupted.
    """
    if resume:
        folder = Path(resume).resolve()
        command, cells = read(folder)
        _check_jobs(jobs, cells)
        cells = [one if one.judged else one.again() for one in cells]
        raise typer.Exit(_all(folder, command, cells, store_of_matrix(folder), output, jobs))
    options.check_words(env, "all")
    seed = options.new_seed(seed)
    template = RunSpec(
        "",
        env,
        (),
        time_limit,
        rate,
        concurrency,
        interval,
        seed,
        replication=replication,
        client=client or options.default_client(env),
        controllers=controllers,
        brokers=brokers,
        overrides=options.overrides_of(override or ()),
        topic=options.new_topic(env, seed),
        bootstrap_servers=bootstrap_servers,
        control=control,
        network=network,
    )
    rows = [name for words in workload or () for name in options.comma_separated(words)]
    columns = [options.comma_separated(words) for words in nemesis or ()]
    raise typer.Exit(_new(template, rows, columns, Path(store), output, jobs))


def _new(
    template: RunSpec,
    rows: Sequence[str],
    columns: Sequence[Sequence[str]],
    store: Path,
    output: Output,
    jobs: int,
) -> int:
    """Runs a new matrix, of all there is where nothing is asked for; the exit status."""
    env = template.env
    faults = columns or [(name,) for name in faults_ready(env, template.control)]
    cells = list(matrix(template, rows or workloads_in(env), faults))
    _check_jobs(jobs, cells)
    for cell in cells:
        check_spec(cell.spec)
    command = options.matrix_command(template, rows, columns)
    return _all(new_matrix_folder(store), command, cells, store, output, jobs)


def _all(
    folder: Path, command: str, cells: list[Cell], store: Path, output: Output, jobs: int
) -> int:
    """Runs what has no verdict yet; the exit status."""
    write(folder, command, cells)

    def keep(number: int, ran: Cell) -> None:
        cells[number] = ran
        write(folder, command, cells)
        if output is Output.TABLE and ran.outcome is not None:
            say(f"{ran.outcome.folder or ran.spec.name} {ran.word}")

    run_all = one_by_one if jobs == 1 else partial(side_by_side, jobs=jobs)
    whole = run_all(cells, store, keep)
    _show(cells, output)
    tell(f"{summary(cells)}; kept in {folder}")
    if not whole:
        again = f"--resume {folder}" + (f" --jobs {jobs}" if jobs > 1 else "")
        tell(f"interrupted: jepsen test-all {again} goes on")
    return worst(cells) if whole else INTERRUPTED


def one_by_one(cells: Sequence[Cell], store: Path, keep: Callable[[int, Cell], None]) -> bool:
    """Runs what has no verdict yet in this process; False if somebody wants an end."""
    for number, cell in enumerate(cells):
        if cell.judged:
            continue
        tell(progress(cells, number))
        ran = run_cell(cell, store)
        if ran is None:
            return False
        keep(number, ran)
    return True


def _check_jobs(jobs: int, cells: Sequence[Cell]) -> None:
    """InputError where the tests would share a cluster."""
    if jobs > 1 and any(one.spec.env == "external" for one in cells):
        raise InputError(
            f"--jobs {jobs}: an external cluster is one for all tests, "
            "which therefore run one after the other: leave --jobs out"
        )


def worst(cells: Sequence[Cell]) -> int:
    """The exit status: what could not be judged, then what is invalid, then what is unknown."""
    found = [one.outcome.valid for one in cells if one.outcome is not None]
    if None in found:
        return FAILED
    order: tuple[Valid, ...] = (False, "unknown", True)
    return exit_status(next(valid for valid in order if valid in found))


def _show(cells: Sequence[Cell], output: Output) -> None:
    if output is Output.JSON:
        say_json([one.to_json() for one in cells])
        return
    for line in text(cells):
        say(line)

"""`jepsen test-all`: every workload with every nemesis, and with none, in one matrix."""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.cli import options
from jepsen.cli.output import Output, OutputOption, exit_status, say, say_json, tell
from jepsen.core import RunSpec, check_spec, faults_ready, overall, workloads_in
from jepsen.env.local.network import RELAYS
from jepsen.errors import InputError
from jepsen.faults import PACKAGES
from jepsen.matrix import Cell, Outcome, matrix, read, summary, text, write
from jepsen.store import DEFAULT_STORE, LATEST, new_matrix_folder, store_of_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jepsen.checkers.verdict import Valid, Verdict

logger = logging.getLogger(__name__)

FAILED = 255
INTERRUPTED = 130
FOUND_MAX = 5
"""Reasons of one checker that are told; all are in the run's folder."""


def run(
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="W,...", help="Only these; else all that env has."),
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
    control: options.ControlOption = "",
    network: options.NetworkOption = RELAYS,
    override: options.OverrideOption = None,
    store: options.StoreOption = DEFAULT_STORE,
    resume: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="Goes on with a matrix, store/test-all/latest, as it was asked for."
        ),
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Runs every workload with every nemesis, and first with none; goes on whatever comes of it.

    Prints `FOLDER valid`, `invalid`, `unknown` or `crashed` for each run, then the matrix. From the
    first run on it is also in `store/test-all/latest`, as matrix.json and matrix.md. Ctrl-C ends
    it; `--resume` runs what has no verdict then. Exit status 0 all valid, 1 some invalid, else 2
    some unknown, 255 if a run could not be judged, 254 bad arguments, 130 interrupted.
    """
    if resume:
        folder = Path(resume).resolve()
        command, cells = read(folder)
        cells = [one if one.judged else one.again() for one in cells]
        raise typer.Exit(_all(folder, command, cells, store_of_matrix(folder), output))
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
        control=control,
        network=network,
    )
    rows = [name for words in workload or () for name in options.comma_separated(words)]
    columns = [options.comma_separated(words) for words in nemesis or ()]
    raise typer.Exit(_new(template, rows, columns, Path(store), output))


def _new(
    template: RunSpec,
    rows: Sequence[str],
    columns: Sequence[Sequence[str]],
    store: Path,
    output: Output,
) -> int:
    """Runs a new matrix, of all there is where nothing is asked for; the exit status."""
    env = template.env
    faults = columns or [(name,) for name in faults_ready(env, template.control)]
    cells = list(matrix(template, rows or workloads_in(env), faults))
    for cell in cells:
        check_spec(cell.spec)
    command = options.matrix_command(template, rows, columns)
    return _all(new_matrix_folder(store), command, cells, store, output)


def _all(folder: Path, command: str, cells: list[Cell], store: Path, output: Output) -> int:
    """Runs what has no verdict yet; the exit status."""
    whole = True
    write(folder, command, cells)
    for number, cell in enumerate(cells):
        if cell.judged:
            continue
        tell(f"{cell.spec.name}: {number + 1} of {len(cells)}{_remaining(cells)}")
        ran, whole = _one(cell, store)
        cells[number] = ran
        write(folder, command, cells)
        if output is Output.TABLE and ran.outcome is not None:
            say(f"{ran.outcome.folder} {ran.word}")
        if not whole:
            break
    _show(cells, output)
    tell(f"{summary(cells)}; kept in {folder}")
    if not whole:
        tell(f"interrupted: jepsen test-all --resume {folder} goes on")
    return worst(cells) if whole else INTERRUPTED


def _remaining(cells: Sequence[Cell]) -> str:
    """How long the rest takes if it is as what has run."""
    took = [one.outcome.seconds for one in cells if one.outcome is not None]
    if not took:
        return ""
    minutes = (len(cells) - len(took)) * sum(took) / len(took) / 60
    return f", about {minutes:.0f} minutes to go"


def _one(cell: Cell, store: Path) -> tuple[Cell, bool]:
    """What came of it, whatever it raised; False if somebody wants an end."""
    began_s = time.monotonic()
    spec = cell.spec
    try:
        folder, verdicts = options.run_one(spec, store)
    except KeyboardInterrupt:
        return cell, False
    except InputError as error:
        tell(f"{spec.name}: {error}")
        outcome = _crashed(spec, store, str(error))
    except Exception as error:
        logger.exception("%s: no verdict, its history is kept", spec.name)
        outcome = _crashed(spec, store, repr(error))
    else:
        outcome = Outcome(overall(verdicts), str(folder.path), reasons(verdicts))
        if (folder.results or {}).get("interrupted"):
            return cell, False
    took_s = round(time.monotonic() - began_s, 1)
    return Cell(spec, outcome._replace(seconds=took_s)), True


def _crashed(spec: RunSpec, store: Path, why: str) -> Outcome:
    return Outcome(None, str((store / spec.name / LATEST).resolve()), (why,))


def reasons(verdicts: Mapping[str, Verdict]) -> tuple[str, ...]:
    """Why a run is not valid: kinds of anomalies with their numbers, by checker."""
    return tuple(
        f"{name}: {reason}"
        for name, verdict in verdicts.items()
        for reason in _reasons(verdict)[:FOUND_MAX]
    )


def _reasons(verdict: Verdict) -> list[str]:
    counts = Counter(one.name for one in verdict.anomalies)
    told = [f"{name} ({count})" for name, count in counts.items()]
    return told or [verdict.why_unknown] * bool(verdict.why_unknown)


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

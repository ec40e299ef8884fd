"""`jepsen test-all`: every workload with every nemesis, and with none, in one matrix.

Tests run in this process one after the other, or several at a time in processes of their own.
Such a process has an event loop, signals and a block of ports of its own. It reads a test from
stdin as `Cell.to_json` writes it, reports progress on stderr, and writes the test with its outcome;
without one if it was interrupted before the start. The parent alone writes the matrix.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.cli import _options as options
from jepsen.cli._output import INTERRUPTED, Output, OutputOption, exit_status, say, say_json, tell
from jepsen.core import format_faults, overall
from jepsen.core.spec import RunSpec, check_spec, faults_ready, workloads_in
from jepsen.environments import Security
from jepsen.environments.local import RELAYS
from jepsen.errors import ClusterError, InputError
from jepsen.nemesis.plan import PACKAGES
from jepsen.runner.matrix import Cell, CellOutcome, matrix, progress, read, summary, text, write
from jepsen.store import DEFAULT_STORE, new_matrix_folder, put_aside, store_of_matrix

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jepsen.checkers.verdict import Valid, Verdict
    from jepsen.simulator.runner.fork_server import ForkServers


logger = logging.getLogger(__name__)

FOUND_MAX = 5
"""Reasons shown of one checker; all are in the run's folder."""


def run_cell(cell: Cell, store: Path, seeds: ForkServers | None = None) -> Cell | None:
    """The test with what came of it, whatever it raised; None if somebody wants an end."""
    began_s = time.monotonic()
    spec = cell.spec
    try:
        folder, verdicts = options.run_one(spec, store, seeds)
    except KeyboardInterrupt:
        return None
    except InputError as error:
        tell(f"{spec.name}: {error}")
        outcome = CellOutcome(None, "", (str(error),))
    except ClusterError as error:
        tell(f"{spec.name}: {error}")
        outcome = crashed(spec, store, str(error))
    except Exception as error:
        logger.exception("%s: no verdict, its history is kept", spec.name)
        outcome = crashed(spec, store, repr(error))
    else:
        results = folder.results or {}
        outcome = CellOutcome(
            overall(verdicts),
            str(folder.path),
            _found(verdicts),
            faults=format_faults(results.get("faults", {})),
        )
        if results.get("interrupted"):
            return None
    return Cell(spec, outcome._replace(seconds=round(time.monotonic() - began_s, 1)))


def crashed(spec: RunSpec, store: Path, why: str) -> CellOutcome:
    """Of a test that could not be judged."""
    return CellOutcome(None, put_aside(store, spec.name), (why,))


def _found(verdicts: Mapping[str, Verdict]) -> tuple[str, ...]:
    """Why a run is not valid: kinds of anomalies with their numbers, by checker."""
    return tuple(
        f"{name}: {reason}"
        for name, verdict in verdicts.items()
        for reason in _reasons(verdict)[:FOUND_MAX]
    )


def _reasons(verdict: Verdict) -> list[str]:
    counts = Counter(one.name for one in verdict.anomalies)
    reasons = [f"{name} ({count})" for name, count in counts.items()]
    return reasons or [verdict.why_unknown] * bool(verdict.why_unknown)


def run_cell_of_stdin() -> None:
    """Run the test of this process."""
    cell = Cell.from_json(json.load(sys.stdin))
    say(json.dumps((run_cell(cell, Path(sys.argv[1])) or cell).to_json()))


PROGRAM = (sys.executable, "-c", f"from {__name__} import run_cell_of_stdin as run; run()")
CHUNK = 65_536
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Board:
    """Shows the progress of several runs: a line for each on a terminal, else line by line."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._lines: dict[str, str] = {}
        self._drawn = 0

    def show(self, name: str, line: str) -> None:
        """How that run stands now."""
        if not self._live:
            tell(f"{name}: {line}")
            return
        with self.aside():
            self._lines[name] = line

    def remove(self, name: str) -> None:
        """The run is over."""
        with self.aside():
            self._lines.pop(name, None)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """What is printed inside stays above the lines."""
        if self._drawn:
            sys.stderr.write(f"\x1b[{self._drawn}A\x1b[J")
            sys.stderr.flush()
        yield
        # A line that the terminal broke in two could not be written over.
        width = shutil.get_terminal_size().columns - 1
        for name, line in self._lines.items():
            tell(f"{name}: {line}"[:width])
        self._drawn = len(self._lines)


class SideBySide:
    """Runs what has no verdict yet, some at a time."""

    def __init__(
        self, cells: Sequence[Cell], store: Path, keep: Callable[[int, Cell], None]
    ) -> None:
        """`keep` gets the number and the outcome of each test as soon as it is over."""
        self._cells = cells
        self._store = store
        self._keep = keep
        self._board = Board()
        self._running: set[Process] = set()
        self._stopped = False

    async def run(self, jobs: int) -> bool:
        """False if somebody wants an end: what runs is then healed, and none begins."""
        loop = asyncio.get_running_loop()
        for number in ENDINGS:
            loop.add_signal_handler(number, self._stop)
        waiting = iter([number for number, cell in enumerate(self._cells) if not cell.judged])
        workers = [self._one_by_one(waiting, jobs) for _ in range(jobs)]
        for ended in await asyncio.gather(*workers, return_exceptions=True):
            if ended is not None:
                raise ended
        return not self._stopped

    def _stop(self) -> None:
        """The second time, it also ends those that are judging already."""
        self._stopped = True
        for process in self._running:
            _interrupt(process)

    async def _one_by_one(self, waiting: Iterator[int], jobs: int) -> None:
        try:
            for number in waiting:
                if self._stopped:
                    break
                await self._run(number, jobs)
        except BaseException:
            # No run, and no cluster of one, outlives this process.
            self._stop()
            raise

    async def _run(self, number: int, jobs: int) -> None:
        with self._board.aside():
            tell(progress(self._cells, number, jobs))
        ran = await self._one(self._cells[number])
        if ran.outcome is None:
            self._stop()
            return
        with self._board.aside():
            self._keep(number, ran)

    async def _one(self, cell: Cell) -> Cell:
        """The test with what came of it, if anything did before the end."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            str(self._store),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            # Ctrl-C is for this process, which hands it on.
            start_new_session=True,
        )
        self._running.add(process)
        if self._stopped:
            _interrupt(process)
        try:
            return await self._outcome(cell, process)
        finally:
            self._running.discard(process)
            self._board.remove(cell.spec.name)

    async def _outcome(self, cell: Cell, process: Process) -> Cell:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(json.dumps(cell.to_json()).encode())
            process.stdin.close()
        answer, last = await asyncio.gather(
            process.stdout.read(), self._tell_all(cell.spec.name, process.stderr)
        )
        status = await process.wait()
        try:
            return Cell.from_json(json.loads(answer))
        except (ValueError, KeyError, TypeError):
            if self._stopped:
                return cell
            why = f"its process ended with status {status}: {last}"
            return Cell(cell.spec, crashed(cell.spec, self._store, why))

    async def _tell_all(self, name: str, stream: asyncio.StreamReader) -> str:
        """Shows each line as it comes; the last one."""
        last, rest = "", b""
        # Not by the stream's lines, which raise if one is longer than its buffer.
        while piece := await stream.read(CHUNK):
            *lines, rest = (rest[-CHUNK:] + piece).split(b"\n")
            for line in lines:
                last = line.decode(errors="replace").removeprefix(f"{name}: ")
                self._board.show(name, last)
        return last


def _interrupt(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)


def side_by_side(
    cells: Sequence[Cell], store: Path, keep: Callable[[int, Cell], None], jobs: int
) -> bool:
    """Runs what has no verdict yet, `jobs` at a time; False if somebody wants an end."""
    return asyncio.run(SideBySide(cells, store, keep).run(jobs))


FAILED = 255

WorkloadsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="W,...",
        help="Workloads; default: all of the environment. Env sim: also MODULE:FUNCTION.",
    ),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FAULT,...",
        help="Faults of one column; repeat it. Default: a column for each fault of "
        f"{', '.join(PACKAGES)}.",
    ),
]
SeedsOption = Annotated[
    int, typer.Option(min=1, metavar="N", help="Runs of each test, with N seeds from --seed on.")
]
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
    workload: WorkloadsOption = None,
    env: options.EnvOption = "local",
    nemesis: ColumnsOption = None,
    time_limit: options.TimeLimitOption = 30.0,
    rate: options.RateOption = 50.0,
    concurrency: options.ConcurrencyOption = 6,
    interval: options.IntervalOption = 4.0,
    seed: options.SeedOption = None,
    seeds: SeedsOption = 1,
    controllers: options.ControllersOption = 3,
    brokers: options.BrokersOption = 3,
    replication: options.ReplicationOption = 3,
    client: options.ClientOption = "",
    bootstrap_servers: options.BootstrapOption = "",
    control: options.ControlOption = "",
    command_config: options.CommandConfigOption = "",
    network: options.NetworkOption = RELAYS,
    security: options.SecurityOption = Security.PLAINTEXT,
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
        command_config=command_config,
        network=network,
        security=security,
    )
    rows = [name for words in workload or () for name in options.comma_separated(words)]
    columns = [options.comma_separated(words) for words in nemesis or ()]
    templates = [
        replace(template, seed=one, topic=options.new_topic(env, one))
        for one in range(seed, seed + seeds)
    ]
    raise typer.Exit(_new(templates, rows, columns, Path(store), output, jobs))


def _new(
    templates: Sequence[RunSpec],
    rows: Sequence[str],
    columns: Sequence[Sequence[str]],
    store: Path,
    output: Output,
    jobs: int,
) -> int:
    """Run a new matrix for each seed, of all there is where nothing is asked for.

    Returns the exit status.
    """
    template = templates[0]
    env = template.env
    faults = columns or [(name,) for name in faults_ready(env, template.control, template.security)]
    found = [
        list(matrix(one, rows or workloads_in(env, template.security), faults)) for one in templates
    ]
    cells = [cell for of_seed in found for cell in of_seed]
    _check_jobs(jobs, cells)
    for cell in cells:
        check_spec(cell.spec)
    command = options.matrix_command(template, rows, columns)
    command += f" --seeds {len(templates)}" if len(templates) > 1 else ""
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

    several = len({one.spec.seed for one in cells}) > 1 and cells[0].spec.env == "sim"
    alone = one_by_one if jobs == 1 else partial(side_by_side, jobs=jobs)
    run_all = partial(in_forks, jobs=jobs) if several else alone
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


def in_forks(
    cells: Sequence[Cell], store: Path, keep: Callable[[int, Cell], None], jobs: int
) -> bool:
    """Run seeds of the simulator in fork servers; False if somebody wants an end.

    To start an interpreter takes as long as the run of a seed.
    """
    from jepsen.simulator.runner.fork_server import ForkServers

    left = [number for number, cell in enumerate(cells) if not cell.judged]
    with ForkServers(jobs) as seeds, ThreadPoolExecutor(jobs) as pool:
        try:
            for number, ran in zip(
                left, pool.map(lambda one: run_cell(cells[one], store, seeds), left), strict=True
            ):
                if ran is None:
                    return False
                keep(number, ran)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            return False
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

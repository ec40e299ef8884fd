"""`jepsen check`, `check-servers` and `replicas`: verdicts on histories, disks and dumps."""

from __future__ import annotations

import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jepsen.checkers.linearizable import Budget
from jepsen.checkers.registry import CHECKER_NAMES, LINEARIZABLE, MODELS, checker_named, model_named
from jepsen.checkers.replication import check_replicas
from jepsen.checkers.transactions.consistency import CONSISTENCY
from jepsen.checkers.verdict import Verdict, merge_valid, verdict_document
from jepsen.cli._histories import (
    FAILURES,
    MIB,
    DumpsArgument,
    history_of,
    model_option,
    one_of,
    refuse_doubles,
    show,
    show_replicas,
    source_of,
)
from jepsen.cli._output import Output, OutputOption, exit_status, say_json
from jepsen.core import judge
from jepsen.errors import InputError
from jepsen.history import HistoryError
from jepsen.history.formats import Format
from jepsen.log_files import read_dump
from jepsen.runner import judge_servers_of
from jepsen.store import HISTORY_FILE, TEST_FILE, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jepsen.checkers.verdict import Checker
    from jepsen.history import Op


PATIENCE_S = 1.0
"""How much longer than its time limit a check may take before it is cut short."""
RING_AGAIN_S = 0.2
"""Between two alarms of a check that goes on."""

Histories = Annotated[
    list[str],
    typer.Argument(metavar="HISTORY...", help="Files with histories, or folders of runs."),
]
CheckerOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"One of {', '.join(CHECKER_NAMES)}. Default: those of a run's test, for other files "
        "linearizable.",
    ),
]


def check(
    files: Histories,
    checker: CheckerOption = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"Model of linearizable: {', '.join(MODELS)}; its first value in brackets as EDN: "
            "`cas-register(0)`.",
        ),
    ] = "cas-register",
    failures: Annotated[
        str,
        typer.Option(
            metavar="|".join(FAILURES),
            help="Whether a failed cas excludes the expected value, and a read of nil shows nil; "
            "auto: not in EDN, as in Knossos' histories.",
        ),
    ] = "auto",
    consistency: Annotated[
        str,
        typer.Option(
            metavar="NAME", help=f"Consistency model of list-append: {', '.join(CONSISTENCY)}."
        ),
    ] = CONSISTENCY[-1],
    ww_deps: Annotated[
        bool, typer.Option("--ww-deps", help="kafka: search for write cycles too.")
    ] = False,
    form: Annotated[
        Format, typer.Option("--format", metavar="auto|json|edn|log", help="Format of the files.")
    ] = Format.AUTO,
    time_limit: Annotated[
        float, typer.Option(min=0.0, help="Time limit of each history, seconds.")
    ] = 300.0,
    memory: Annotated[
        int, typer.Option(min=1, help="Memory limit of linearizability, MiB.")
    ] = 1024,
    output: OutputOption = Output.TABLE,
) -> None:
    """Judges histories: JSON lines, Parquet, EDN or a Jepsen log.

    Prints `HISTORY valid`, `HISTORY invalid` or `HISTORY unknown` for each; what was found goes to
    stderr, or with `--output json` all into one document. Exit status 0 all valid, 1 some invalid,
    else 2 some unknown, 254 bad arguments.
    """
    named = checker or LINEARIZABLE
    one_of("--checker", named, CHECKER_NAMES)
    one_of("--failures", failures, FAILURES)
    one_of("--consistency", consistency, CONSISTENCY)
    name, initial = model_option(model)

    def budget() -> Budget:
        return Budget(memory * MIB, time.monotonic() + time_limit, time.monotonic)

    options = _options(named, consistency, ww_deps=ww_deps)

    def checker_of(lenient: bool) -> Checker:
        lenient = failures == "ignore" or (failures == "auto" and lenient)
        held_against = model_named(name, lenient=lenient, initial=initial)
        return checker_named(named, held_against, budget, **options)

    choose = _chosen(checker_of, own=checker is None)
    verdicts = {}
    for file, source in {file: source_of(file) for file in files}.items():
        verdicts[file] = _judge(file, source, form, choose(Path(file)), time_limit)
        if output is Output.TABLE:
            show(file, verdicts[file])
    if output is Output.JSON:
        say_json([{"file": file, **verdict_document(one)} for file, one in verdicts.items()])
    raise typer.Exit(exit_status(merge_valid(one.valid for one in verdicts.values())))


def _chosen(
    checker_of: Callable[[bool], Checker], *, own: bool
) -> Callable[[Path], Callable[[bool], Checker]]:
    """By path: with `own`, all that the test of a run looks for; else what was asked for."""

    def choose(path: Path) -> Callable[[bool], Checker]:
        run = run_of(path) if own else None
        return run_checker(run) if run else checker_of

    return choose


def _options(checker: str, consistency: str, *, ww_deps: bool) -> dict[str, Any]:
    """What the checker of that name takes."""
    by_name: dict[str, dict[str, Any]] = {
        "kafka": {"ww_deps": ww_deps},
        "list-append": {"consistency": consistency},
    }
    return by_name.get(checker, {})


def _judge(
    file: str,
    source: str | Path,
    form: Format,
    checker_of: Callable[[bool], Checker],
    time_limit: float,
) -> Verdict:
    try:
        history, lenient = history_of(source, form)
        return within(time_limit, partial(checker_of(lenient), history))
    except HistoryError as error:
        raise InputError(f"{file}: {error}") from None
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        # Values that are not what the checker's operations have.
        raise InputError(
            f"{file}: not a history for this checker ({error}): choose another --checker or --model"
        ) from None


class _TimeIsUp(BaseException):
    """Not an Exception, so that nobody takes it for a fault of the history."""


def within(seconds: float, check: Callable[[], Verdict]) -> Verdict:
    """Return the check's verdict; unknown if it takes longer, unless it has found something.

    In the main thread it is cut short. Elsewhere, and between two looks at the clock, it goes on.
    """
    begun = time.monotonic()
    late = Verdict("unknown", why_unknown=f"it took longer than --time-limit {seconds:g}")

    def ring(*_: object) -> None:
        raise _TimeIsUp

    may_ring = threading.current_thread() is threading.main_thread() and seconds > 0
    before = signal.signal(signal.SIGALRM, ring) if may_ring else None
    try:
        if may_ring:
            # A check that looks at the clock itself says more of why it does not know. The alarm
            # repeats: Python drops an exception that is raised in a finalizer or a callback of the
            # garbage collector, and a single alarm may fall into one.
            signal.setitimer(signal.ITIMER_REAL, seconds + PATIENCE_S, RING_AGAIN_S)
        verdict = check()
    except _TimeIsUp:
        return late
    finally:
        if may_ring:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    return late if verdict.valid is True and time.monotonic() - begun > seconds else verdict


def run_of(path: Path) -> RunFolder | None:
    """The run whose folder, or whose history, the path is."""
    folder = path if path.is_dir() else path.parent
    is_run = path.is_dir() or path.name == HISTORY_FILE
    return RunFolder.open(folder) if is_run and (folder / TEST_FILE).is_file() else None


def run_checker(run: RunFolder) -> Callable[[bool], Checker]:
    """All that the run's test looks for, as one checker."""

    def check(history: Sequence[Op]) -> Verdict:
        found = judge(run.spec, history)
        unknown = [f"{name}: {one.why_unknown}" for name, one in found.items() if one.why_unknown]
        valid = merge_valid(one.valid for one in found.values())
        return Verdict(
            valid,
            tuple(anomaly for one in found.values() for anomaly in one.anomalies),
            tuple(note for one in found.values() for note in one.notes),
            {name: dict(one.statistics) for name, one in found.items()},
            "; ".join(unknown) if valid == "unknown" else "",
        )

    return lambda lenient: check


def check_servers(
    target: Annotated[
        str, typer.Argument(metavar="DIR", help="Directory of a run or of a local cluster.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Judges the disks of a stopped local cluster.

    `metadata`: the logs of all nodes are equal; an epoch has one active controller, a partition's
    leader is in its ISR, epochs never go back. `replicas`: the replicas of each partition are
    equal, byte for byte. `jepsen test --env local` does the same at its end; below what was
    committed a run whose cluster had recovered is judged more strictly than a folder with no run.
    Exit status as for `jepsen check`.
    """
    path = Path(target)
    verdicts = _of_run(path) if (path / TEST_FILE).is_file() else _of_cluster(path)
    if output is Output.JSON:
        say_json({name: verdict_document(verdict) for name, verdict in verdicts.items()})
    else:
        for name, verdict in verdicts.items():
            show(name, verdict)
    raise typer.Exit(exit_status(merge_valid(one.valid for one in verdicts.values())))


def _of_run(path: Path) -> dict[str, Verdict]:
    folder = RunFolder.open(path)
    verdicts = judge_servers_of(folder, folder.history())
    if not verdicts:
        raise InputError(f"{path}: no nodes' disks there: name a run with --env local")
    return verdicts


def _of_cluster(path: Path) -> dict[str, Verdict]:
    from jepsen.environments.local.servers import judge_servers

    return judge_servers(path, None)


def replicas(dumps: DumpsArgument, output: OutputOption = Output.TABLE) -> None:
    """Compares the records that replicas hold at each offset.

    A DUMP is what `raftctl log dump --output json LOG_DIR` prints for a broker, or Kafka's
    `kafka-dump-log --print-data-log` for segments. Dump when all replicas have caught up. Prints
    `N replicas valid`, `invalid`, or `unknown` where no two hold the same offset. Exit status as
    for `jepsen check`.
    """
    refuse_doubles(dumps)
    show_replicas(check_replicas({dump: read_dump(Path(dump)) for dump in dumps}), output)

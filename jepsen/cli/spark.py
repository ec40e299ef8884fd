"""`jepsen spark`: judges histories that are too large for one process."""

from __future__ import annotations

import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jepsen.checkers.registry import CHECKERS as ALL_CHECKERS
from jepsen.checkers.registry import LINEARIZABLE, MODELS, TRACE
from jepsen.checkers.transactions.consistency import CONSISTENCY
from jepsen.checkers.verdict import WORDS, merge_valid, verdict_document
from jepsen.cli._histories import (
    FAILURES,
    MIB,
    DumpsArgument,
    model_option,
    one_of,
    refuse_doubles,
    show,
    show_replicas,
)
from jepsen.cli._output import Output, OutputOption, exit_status, say, say_json
from jepsen.errors import InputError
from jepsen.report.steps import plotted, spark_page
from jepsen.spark.preflight import progress, refuse_files, refuse_other_workloads
from jepsen.spark.recipe import WORKLOADS, Recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jepsen.spark.check import Question
    from jepsen.spark.live import Seen

app = typer.Typer(
    help="Judges histories that are too large for one process.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
CHECKERS = (LINEARIZABLE, "kafka-log", *(name for name in ALL_CHECKERS if name != "kafka"))
WATCHED = tuple(name for name in CHECKERS if name != TRACE)
"""What servers tell is no operation, and only operations are a stream."""
ALL_CORES = "local[*]"
REPORT = "report.html"
STARTING = "starting Spark"

MasterOption = Annotated[
    str, typer.Option(metavar="URL", help="Where Spark runs: `local[4]`, `spark://host:7077`.")
]
DriverMemoryOption = Annotated[
    str, typer.Option(metavar="SIZE", help="Heap of Spark's driver and of each executor: `8g`.")
]
CheckerOption = Annotated[
    str | None,
    typer.Option(
        "--checker",
        metavar="NAME",
        help=f"One of {', '.join(CHECKERS)}. Default: linearizable; a run of another workload "
        "needs it named.",
    ),
]
WatchedOption = Annotated[
    str | None,
    typer.Option("--checker", metavar="NAME", help="As for `jepsen spark check`."),
]
ModelOption = Annotated[
    str, typer.Option("--model", metavar="NAME", help=f"One of {', '.join(MODELS)}.")
]
FailuresOption = Annotated[
    str, typer.Option("--failures", metavar="|".join(FAILURES), help="As for `jepsen check`.")
]
ScratchOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder for temporary files that every worker sees."),
]
TimeLimitOption = Annotated[
    float, typer.Option(min=0.0, help="Seconds for each key; after that it is unknown.")
]
MemoryOption = Annotated[int, typer.Option(min=1, help="Memory for the search of one key, in MiB.")]


@app.callback()
def _commands() -> None:
    """Judges histories that are too large for one process."""


@app.command()
def check(
    files: Annotated[
        list[str],
        typer.Argument(metavar="HISTORY...", help="Histories: files, runs, Parquet folders."),
    ],
    checker: CheckerOption = None,
    model: ModelOption = "cas-register",
    failures: FailuresOption = "auto",
    master: MasterOption = ALL_CORES,
    driver_memory: DriverMemoryOption = "2g",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for verdicts, anomalies, latency and availability as Parquet, and a page.",
        ),
    ] = None,
    scratch: ScratchOption = None,
    consistency: Annotated[
        str, typer.Option(metavar="NAME", help="As for `jepsen check`.")
    ] = CONSISTENCY[-1],
    time_limit: TimeLimitOption = 300.0,
    memory: MemoryOption = 1024,
    shown: Annotated[
        Output, typer.Option("--print", metavar="table|json", help="How to print the result.")
    ] = Output.TABLE,
) -> None:
    """Judges histories key by key on Spark.

    The verdicts are those of `jepsen check`.

    Prints `HISTORY valid`, `HISTORY invalid` or `HISTORY unknown` for each; what was found goes to
    stderr, or with `--print json` all into one document. Exit status as for `jepsen check`.
    """
    asked = _asked(checker or LINEARIZABLE, model, failures)
    one_of("--consistency", consistency, CONSISTENCY)
    if output is not None and output.exists():
        raise InputError(f"--output {output}: exists already; name a new folder")
    size = refuse_files(files, histories=checker != TRACE)
    if checker is None:
        refuse_other_workloads(files)
    from jepsen.spark.session import spark_session

    with (
        progress(STARTING, size) as now,
        tempfile.TemporaryDirectory(prefix="jepsen-", dir=scratch) as folder,
        spark_session(master, driver_memory, scratch) as spark,
    ):
        from jepsen.spark.check import check as judge
        from jepsen.spark.series import read_series

        now.begin("judging on Spark")
        question = replace(_question(asked, time_limit, memory), consistency=consistency)
        kept = Path(folder) / "kept" if output is None else output
        # What servers tell has no latency.
        with_series = output is not None and checker != TRACE
        verdicts = judge(spark, files, failures, question, kept, Path(folder), series=with_series)
        if output is not None:
            command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
            series = read_series(spark, output, plotted(verdicts)) if with_series else None
            (output / REPORT).write_text(spark_page(verdicts, command, series))
    if shown is Output.JSON:
        say_json([{"file": file, **verdict_document(one)} for file, one in verdicts.items()])
    else:
        for file, verdict in verdicts.items():
            show(file, verdict)
    valid = merge_valid(one.valid for one in verdicts.values())
    if shown is Output.TABLE and len(verdicts) > 1:
        say(f"all {WORDS[valid]}")
    raise typer.Exit(exit_status(valid))


def _asked(
    checker: str, model: str, failures: str, known: Sequence[str] = CHECKERS
) -> tuple[str, str, Any]:
    """(checker, model, initial value). Raises InputError."""
    one_of("--checker", checker, known)
    one_of("--failures", failures, FAILURES)
    return checker, *model_option(model)


def _question(asked: tuple[str, str, Any], time_limit: float, memory: int) -> Question:
    from jepsen.spark.check import Limits, Question

    return Question(*asked, Limits(time_limit, memory * MIB))


@app.command()
def watch(
    history: Annotated[
        str, typer.Argument(metavar="HISTORY", help="Run folder, or JSON lines, that grows.")
    ],
    checker: WatchedOption = None,
    model: ModelOption = "cas-register",
    failures: FailuresOption = "auto",
    master: MasterOption = ALL_CORES,
    driver_memory: DriverMemoryOption = "2g",
    scratch: ScratchOption = None,
    idle: Annotated[
        float, typer.Option(min=0.0, help="Seconds without a new line after which it ends.")
    ] = 30.0,
    time_limit: TimeLimitOption = 300.0,
    memory: MemoryOption = 1024,
) -> None:
    """Judges a history while it is being written.

    Prints `N operations valid`, `invalid` or `unknown` for as many as have ended each time that it
    has judged them; what was found goes to stderr. The last line is the verdict on all of it, and
    the exit status is as for `jepsen check`.
    """
    asked = _asked(checker or LINEARIZABLE, model, failures, WATCHED)
    refuse_files([history])
    if checker is None:
        refuse_other_workloads([history])
    from jepsen.spark.session import spark_session

    with (
        tempfile.TemporaryDirectory(prefix="jepsen-", dir=scratch) as folder,
        spark_session(master, driver_memory, scratch) as spark,
    ):
        from jepsen.spark.check import check as judge
        from jepsen.spark.live import watch as look

        question = _question(asked, time_limit, memory)
        look(spark, history, failures, question, Path(folder), say_seen, idle_s=idle)
        whole = Path(folder) / "whole"
        (verdict,) = judge(spark, [history], failures, question, whole / "kept", whole).values()
    show(history, verdict)
    raise typer.Exit(exit_status(verdict.valid))


def say_seen(seen: Seen) -> bool:
    """Prints what a part of a history shows, and asks for more."""
    show(f"{seen.operations} operations", seen.verdict)
    return True


@app.command()
def replicas(
    dumps: DumpsArgument,
    master: MasterOption = ALL_CORES,
    driver_memory: DriverMemoryOption = "2g",
    scratch: ScratchOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compares replicas as `jepsen replicas`, of any size."""
    refuse_doubles(dumps)
    refuse_files([str(dump) for dump in dumps], histories=False)
    from jepsen.spark.session import spark_session

    with (
        progress(STARTING) as now,
        tempfile.TemporaryDirectory(prefix="jepsen-", dir=scratch) as folder,
        spark_session(master, driver_memory, scratch) as spark,
    ):
        from jepsen.spark.replicas import check_dumps

        now.begin("comparing replicas on Spark")
        verdict = check_dumps(spark, dumps, Path(folder))
    show_replicas(verdict, output)


@app.command()
def generate(
    output: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create.")],
    workload: Annotated[
        str, typer.Option(metavar="|".join(WORKLOADS), help="Kind of operations.")
    ] = WORKLOADS[0],
    ops: Annotated[int, typer.Option(min=1, help="Operations in all; `log`: sends.")] = 1_000_000,
    keys: Annotated[int, typer.Option(min=1, help="Registers or logs.")] = 10_000,
    faults: Annotated[int, typer.Option(min=0, help="Number of anomalies.")] = 0,
    processes: Annotated[int, typer.Option(min=1, help="Processes on a key at a time.")] = 5,
    crashes: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of operations that end unknown.")
    ] = 0.01,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed; the same seed makes the same history.")
    ] = 0,
    barrier_every: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="K",
            help="Registers: wait for all operations on a key after every K; 0: never.",
        ),
    ] = 0,
) -> None:
    """Makes a history with known anomalies.

    Writes `DIR/operations`, which `jepsen spark check` reads, and `DIR/expected.json` with each
    anomaly that is there to be found. `register` reads, writes and compares; `unique-register`
    reads, and writes each value once; `log` sends and polls, with a fault of each kind in turn.
    """
    one_of("--workload", workload, WORKLOADS)
    if output.exists():
        raise InputError(f"{output}: exists already; name a new folder")
    recipe = Recipe(workload, ops, keys, faults, processes, crashes, seed, barrier_every)
    recipe.refuse()
    try:
        from jepsen.spark.generate import generate as make
    except ImportError as error:
        raise InputError(f"{error}: pip install '.[spark]' in a checkout") from None
    make(recipe, output)
    say(f"{output / 'operations'}")


@app.command()
def package(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to write to; created if missing.")
    ],
) -> None:
    """Writes the two files that `spark-submit` needs.

    They are `jepsen.zip` and `jepsen_spark.py`.

    `spark-submit --master URL --py-files DIR/jepsen.zip DIR/jepsen_spark.py check HISTORY` runs on
    that cluster; `--master` and `--driver-memory` of `check` do not count then.
    """
    from jepsen.spark.package import write_package

    folder.mkdir(parents=True, exist_ok=True)
    for path in write_package(folder):
        say(str(path))

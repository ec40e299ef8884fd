"""`jepsen spark`: judges histories that are too large for one process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from jepsen.checkers.registry import LINEARIZABLE, MODELS
from jepsen.checkers.verdict import merge_valid, verdict_document
from jepsen.cli.check import FAILURES, MIB, model_option, one_of, show
from jepsen.cli.output import Output, exit_status, say, say_json, word
from jepsen.errors import InputError

app = typer.Typer(help="Judges histories that are too large for one process.")
CHECKERS = (LINEARIZABLE, "kafka-log")
ALL_CORES = "local[*]"

MasterOption = Annotated[
    str, typer.Option(metavar="URL", help="Where Spark runs: `local[4]`, `spark://host:7077`.")
]
DriverMemoryOption = Annotated[
    str, typer.Option(metavar="SIZE", help="Heap of Spark's driver and of each executor: `8g`.")
]


@app.callback()
def _commands() -> None:
    """Judges histories that are too large for one process."""


@app.command()
def check(
    files: Annotated[
        list[str],
        typer.Argument(metavar="HISTORY...", help="Histories: files, runs, Parquet folders."),
    ],
    checker: Annotated[
        str, typer.Option(metavar="|".join(CHECKERS), help="What to look for.")
    ] = LINEARIZABLE,
    model: Annotated[
        str, typer.Option(metavar="|".join(MODELS), help="As for `jepsen check`.")
    ] = "cas-register",
    failures: Annotated[
        str, typer.Option(metavar="|".join(FAILURES), help="As for `jepsen check`.")
    ] = "auto",
    master: MasterOption = ALL_CORES,
    driver_memory: DriverMemoryOption = "2g",
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keeps verdicts and anomalies of all keys as Parquet."),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For what is made on the way; every worker must see it."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(min=0.0, help="Seconds for each key, then it is unknown.")
    ] = 300.0,
    memory: Annotated[
        int, typer.Option(min=1, help="MiB that the search of one key may take, roughly.")
    ] = 1024,
    shown: Annotated[
        Output, typer.Option("--print", metavar="table|json", help="How to print the result.")
    ] = Output.TABLE,
) -> None:
    """Judges histories key by key on Spark; the verdicts are those of `jepsen check`.

    Prints `HISTORY valid`, `HISTORY invalid` or `HISTORY unknown` for each; what was found goes to
    stderr, or with `--print json` all into one document. Exit status as for `jepsen check`.
    """
    one_of("--checker", checker, CHECKERS)
    one_of("--failures", failures, FAILURES)
    name, initial = model_option(model)
    if output is not None and output.exists():
        raise InputError(f"--output {output}: it is there already; name a folder to be made")
    from jepsen.spark.session import spark_session

    with (
        tempfile.TemporaryDirectory(prefix="jepsen-", dir=scratch) as folder,
        spark_session(master, driver_memory, scratch) as spark,
    ):
        from jepsen.spark.check import Question
        from jepsen.spark.check import check as judge
        from jepsen.spark.linearizable import Limits

        question = Question(checker, name, initial, Limits(time_limit, memory * MIB))
        kept = Path(folder) / "kept" if output is None else output
        verdicts = judge(spark, files, failures, question, kept, Path(folder))
    if shown is Output.JSON:
        say_json([{"file": file, **verdict_document(one)} for file, one in verdicts.items()])
    else:
        for file, verdict in verdicts.items():
            show(file, verdict)
    valid = merge_valid(one.valid for one in verdicts.values())
    if shown is Output.TABLE and len(verdicts) > 1:
        say(f"all {word(valid)}")
    raise typer.Exit(exit_status(valid))

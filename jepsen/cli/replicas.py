"""`jepsen replicas`: do the replicas of logs hold the same records?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.checkers.replication import check_replicas
from jepsen.checkers.verdict import verdict_document
from jepsen.cli._output import Output, OutputOption, exit_status, say_json
from jepsen.cli.check import show
from jepsen.errors import InputError
from jepsen.log_files import read_dump

if TYPE_CHECKING:
    from jepsen.checkers.verdict import Verdict


DumpsArgument = Annotated[
    list[str], typer.Argument(metavar="DUMP...", help="Dumps of the replicas, one file each.")
]


def replicas(dumps: DumpsArgument, output: OutputOption = Output.TABLE) -> None:
    """Compares what replicas hold: the same record at the same offset of each partition.

    A DUMP is what `raftctl log dump --output json LOG_DIR` prints for a broker, or Kafka's
    `kafka-dump-log --print-data-log` for segments. Dump when all replicas have caught up. Prints
    `N replicas valid`, `invalid`, or `unknown` where no two hold the same offset. Exit status as
    for `jepsen check`.
    """
    refuse_doubles(dumps)
    show_replicas(check_replicas({dump: read_dump(Path(dump)) for dump in dumps}), output)


def refuse_doubles(dumps: list[str]) -> None:
    """Raises InputError if there is nothing to be compared."""
    if len(set(dumps)) < max(2, len(dumps)):
        raise InputError("DUMP: name a file for each replica, two at least and none twice")


def show_replicas(verdict: Verdict, output: Output) -> None:
    """Prints the verdict, and exits with the status that tells it."""
    if output is Output.JSON:
        say_json(verdict_document(verdict))
    else:
        show(f"{verdict.statistics['replicas']} replicas", verdict)
    raise typer.Exit(exit_status(verdict.valid))

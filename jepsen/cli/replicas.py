"""`jepsen replicas`: do the replicas of logs hold the same records?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jepsen.checkers.replicas import check_replicas
from jepsen.checkers.verdict import verdict_document
from jepsen.cli.check import show
from jepsen.cli.output import Output, OutputOption, exit_status, say_json
from jepsen.dumps import read_dump
from jepsen.errors import InputError


def replicas(
    dumps: Annotated[list[str], typer.Argument(metavar="DUMP...", help="A file for each replica.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Compares what replicas hold: the same record at the same offset of each partition.

    A DUMP is what `raftctl log dump --output json LOG_DIR` prints for a broker, or Kafka's
    `kafka-dump-log --print-data-log` for segments. Dump when all replicas have caught up. Prints
    `N replicas valid`, `invalid`, or `unknown` where no two hold the same offset. Exit status as
    for `jepsen check`.
    """
    if len(set(dumps)) < max(2, len(dumps)):
        raise InputError("DUMP: name a file for each replica, two at least and none twice")
    verdict = check_replicas({dump: read_dump(Path(dump)) for dump in dumps})
    if output is Output.JSON:
        say_json(verdict_document(verdict))
    else:
        show(f"{verdict.statistics['replicas']} replicas", verdict)
    raise typer.Exit(exit_status(verdict.valid))

"""`jepsen check-servers`: is what the nodes of a cluster have on their disks as it must be?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jepsen.checkers.verdict import merge_valid, verdict_document
from jepsen.cli._output import Output, OutputOption, exit_status, say_json
from jepsen.cli.check import show
from jepsen.errors import InputError
from jepsen.runner import judge_servers_of
from jepsen.store import TEST_FILE, RunFolder

if TYPE_CHECKING:
    from jepsen.checkers.verdict import Verdict


def check_servers(
    target: Annotated[
        str, typer.Argument(metavar="DIR", help="Directory of a run or of a local cluster.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Judges what the nodes of a stopped local cluster have left on their disks.

    `metadata`: the logs of all nodes are equal; an epoch has one active controller, a partition's
    leader is in its ISR, epochs never go back. `replicas`: the replicas of each partition are
    equal, byte for byte. `jepsen test --env local` does the same at its end; below what was
    committed a run whose cluster had settled is judged more strictly than a folder with no run.
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

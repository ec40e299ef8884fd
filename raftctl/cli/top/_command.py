"""The command: which nodes it asks, and in which form it shows the answers."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raftctl.cli._arguments import DEFAULT_DIRECTORY
from raftctl.cli._controllers import Controllers
from raftctl.cli._output import Output

if TYPE_CHECKING:
    from raftctl.cli.top._nodes import Asker
    from raftctl.cli.top._view import Node, View

_TIMEOUT_S_MAX = 2.0
"""Of one answer: a node that hangs must not stop the picture."""
_WIDTH_OF_FILES = 120


def top(
    cluster: Controllers,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="ID@HOST:PORT,...",
            help="Where brokers serve HTTP (http.listener); default: those of ./raftctl-cluster.",
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=3_600, help="Between two rounds.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Prints one page and ends.")] = False,
) -> None:
    """Shows a cluster live, in the terminal.

    Quorum, brokers, partitions in trouble, topics by traffic, groups by lag. Rates are those
    between two rounds. Keys: q ends it, p pauses, i o m z n sort topics, h helps. Prints one page
    if the output is no terminal, and with `--output json`.
    """
    from raftctl.cli.top._nodes import Asker

    timeout_s = min(cluster.timeout, _TIMEOUT_S_MAX)
    asker = Asker(_find(cluster, nodes, timeout_s), timeout_s, cluster.security)
    try:
        is_json = cluster.output is Output.JSON
        if once or is_json or not sys.stdout.isatty():
            _show_once(cluster, _view_of(asker, interval))
        else:
            from raftctl.cli.top._live import show_live

            show_live(asker, interval)
    finally:
        asker.close()


def _find(cluster: Controllers, nodes: str | None, timeout_s: float) -> list[Node]:
    """The nodes to ask. KafkaError if no controller answers and none is of a local cluster."""
    from raftctl.cli.top._nodes import controllers_of, local_nodes, parse_nodes
    from raftctl.localcluster.cluster import LocalCluster

    brokers = [] if nodes is None else parse_nodes(nodes)
    directory = Path(DEFAULT_DIRECTORY)
    if nodes is None and (directory / "cluster.json").is_file():
        found = local_nodes(LocalCluster.load(directory).layout, cluster.addresses)
        if found is not None:
            return found
    cluster.ask(timeout_s)
    return [*controllers_of(cluster.addresses, timeout_s, cluster.security), *brokers]


def _view_of(asker: Asker, interval_s: float) -> View:
    from raftctl.cli.top._view import make_view

    before = asker.ask()
    time.sleep(interval_s)
    return make_view(asker.ask(), before)


def _show_once(cluster: Controllers, view: View) -> None:
    from rich.console import Console

    from raftctl.cli.top._page import Settings, render

    console = Console()
    width = console.width if sys.stdout.isatty() else _WIDTH_OF_FILES
    lines = render(view, Settings(), width, None)
    cluster.show(dataclasses.asdict(view), "\n".join(line.plain for line in lines))

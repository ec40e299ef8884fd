"""`raftctl up`, `down` and `status`: a local cluster in a directory."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raftctl.cli._arguments import DEFAULT_DIRECTORY, parse_addresses
from raftctl.cli._output import (
    DirectoryOption,
    Output,
    OutputOption,
    OverrideOption,
    counted,
    say,
    say_progress,
    show,
)
from raftctl.cli.files import parse_overrides

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from raftctl.localcluster.cluster import LocalCluster

_CLEAR_SCREEN = "\x1b[2J\x1b[H"


def up(
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    controllers: Annotated[int | None, typer.Option(help="Controllers; new: 3.")] = None,
    brokers: Annotated[int | None, typer.Option(help="Brokers; new: 3.")] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_000, help="The first port; new: any free ones.")
    ] = None,
    override: OverrideOption = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until it is ready.")] = 60.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Starts a cluster on this machine and leaves it running.

    If the directory holds a cluster already, the nodes that are not running are started.

    Prints the bootstrap address when the cluster is ready for a produce. If that fails, or on
    Ctrl-C, everything started is stopped.
    """
    from raftctl.cli._termination import terminate_as_interrupt, uninterrupted
    from raftctl.cli.local._demo_folders import warn_of_left_over
    from raftctl.cli.offline.storage import format_storage, random_uuid_text
    from raftctl.localcluster.cluster import ClusterSpec, LocalCluster
    from raftctl.localcluster.fork_server import NodeLauncher

    warn_of_left_over()
    spec = ClusterSpec(controllers, brokers, port, parse_overrides(override or ()))
    with terminate_as_interrupt(), NodeLauncher() as launcher:
        cluster = LocalCluster.open(
            Path(directory), spec, random_uuid_text, format_storage, launcher.launch
        )
        before = [node for node in cluster.layout.nodes if cluster.is_running(node)]
        try:
            cluster.start_all()
            cluster.wait_ready(timeout, say_progress)
        except BaseException:
            with uninterrupted():
                running = [node for node in cluster.layout.nodes if cluster.is_running(node)]
                cluster.kill_all(spare=before)
                if running != before:
                    say_progress("the nodes that this command started are stopped again")
            raise
    document = {
        "bootstrap_servers": cluster.layout.bootstrap,
        "cluster_id": cluster.layout.cluster_id,
        "nodes": [dataclasses.asdict(node) for node in cluster.layout.nodes],
    }
    show(output, document, f"bootstrap.servers={cluster.layout.bootstrap}")


def down(
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    grace: Annotated[float, typer.Option(help="Seconds before a node is killed.")] = 60.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stops the nodes of a local cluster; data stays. Brokers go first, then controllers."""
    from raftctl.cli.local._demo_folders import warn_of_left_over
    from raftctl.localcluster.cluster import LocalCluster

    warn_of_left_over(Path(directory))
    cluster = LocalCluster.load(Path(directory))
    running = [node.name for node in cluster.layout.nodes if cluster.is_running(node)]
    killed = [node.name for node in cluster.stop_all(grace)]
    late = f", {', '.join(killed)} killed after {grace:g} s" if killed else ""
    show(
        output,
        {"stopped": running, "killed": killed},
        f"stopped {counted(len(running), 'node')}{late}",
    )


def status(
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    controllers: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,...", help="Ask these controllers instead of --dir's."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every second.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Shows quorum, brokers and the health of topics. Exit status 1 if no controller leads."""
    from raftctl.cli.local._status_view import status_document, status_text
    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.status import ask_controllers

    cluster = LocalCluster.load(Path(directory)) if controllers is None else None
    addresses = _controller_addresses(cluster, controllers or "")
    while True:
        answers = ask_controllers(list(addresses.values()))
        stopped = None if cluster is None else cluster.stopped()
        text = status_text(addresses, answers)
        if stopped:
            text += "\n".join(["", *_stopped_lines(stopped, directory)])
        if watch and output is Output.TABLE and typer.get_text_stream("stdout").isatty():
            say(_CLEAR_SCREEN)
        show(output, status_document(addresses, answers, stopped), text)
        if not watch:
            raise typer.Exit(0 if answers.leader else 1)
        time.sleep(1.0)


def _stopped_lines(stopped: Mapping[str, str], directory: str) -> Iterator[str]:
    for name, why in stopped.items():
        yield f"{name} does not run: {why}"
    yield f"raftctl up --dir {directory} starts the nodes that do not run"


def _controller_addresses(cluster: LocalCluster | None, controllers: str) -> dict[str, str]:
    """Name -> `host:port` of each controller to ask: the cluster's, or those that are named."""
    if cluster is not None:
        return {node.name: node.address for node in cluster.layout.controllers}
    return {address: address for address in parse_addresses(controllers, "--controllers")}

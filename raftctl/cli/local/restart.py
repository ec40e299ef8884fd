"""`raftctl restart`: the nodes of a local cluster, all at once or one after the other (row A5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raftctl.cli._arguments import DEFAULT_DIRECTORY
from raftctl.cli._output import DirectoryOption, Output, OutputOption, say_progress, show, table

if TYPE_CHECKING:
    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.layout import LocalNode


def restart(
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    rolling: Annotated[
        bool,
        typer.Option("--rolling", help="One by one, each when all replicas are in sync."),
    ] = False,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this node; may be repeated. Default: all."),
    ] = None,
    grace: Annotated[float, typer.Option(help="Seconds before a node is killed.")] = 60.0,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait until all is in sync, for each node.")
    ] = 120.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Restarts nodes of a local cluster, all or some. They read their files anew.

    With --rolling clients go on meanwhile. Controllers go first, the active one last of them, then
    brokers; each waits until all voters have caught up, all brokers are active and all replicas
    are in sync. If this does not happen within --timeout, the remaining nodes are not restarted,
    and the exit status is 1.
    """
    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.fork_server import NodeLauncher

    rows: list[tuple[str, float | None, bool]]
    with NodeLauncher() as launcher:
        cluster = LocalCluster.load(Path(directory), launcher.launch)
        nodes = _chosen(cluster, node or ())
        if rolling:
            from raftctl.localcluster.rolling import RollingRestart

            done = RollingRestart(cluster, grace, timeout, say_progress).run(nodes)
            rows = [(one.node.name, round(one.seconds, 1), one.killed) for one in done]
        else:
            killed = cluster.stop_all(grace, nodes)
            cluster.start_all()
            cluster.wait_ready(timeout, say_progress)
            rows = [(one.name, None, one in killed) for one in nodes]
    document = [dict(zip(("node", "seconds", "killed"), row, strict=True)) for row in rows]
    ends = [(name, seconds, "killed" if killed else "cleanly") for name, seconds, killed in rows]
    text = table(("NODE", "SECONDS", "STOPPED"), ends)
    if not rolling:
        # Together they take one time, which is nobody's own.
        text = table(("NODE", "STOPPED"), [(name, how) for name, _, how in ends])
    show(output, document, text)


def _chosen(cluster: LocalCluster, names: list[str] | tuple[()]) -> list[LocalNode]:
    """The nodes of these names, or all; ConfigError for a name that is none."""
    named = [cluster.layout.node(name) for name in dict.fromkeys(names)]
    return named or list(cluster.layout.nodes)

"""`raftctl up`, `down`, `status` and `restart`: a local cluster in a directory (row A5)."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._arguments import DEFAULT_DIRECTORY, parse_addresses
from raftctl.cli._options import CommandConfigOption, DirectoryOption, OverrideOption, Printer
from raftctl.cli._output import Output, counted, say, say_progress, table
from raftctl.cli.files import parse_overrides

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.layout import LocalNode
    from raftctl.localcluster.status import ClusterStatus


_CLEAR_SCREEN = "\x1b[2J\x1b[H"
GraceOption = Annotated[float, typer.Option(metavar="SECONDS", help="Time until a node is killed.")]


def up(
    printer: Printer,
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    controllers: Annotated[
        int | None, typer.Option(metavar="N", help="Controllers of a new cluster; default: 3.")
    ] = None,
    brokers: Annotated[
        int | None, typer.Option(metavar="N", help="Brokers of a new cluster; default: 3.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65_000,
            help="First port of a new cluster; default: any free ports.",
        ),
    ] = None,
    override: OverrideOption = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Longest wait until the cluster is ready.")
    ] = 60.0,
) -> None:
    """Starts a cluster on this machine and leaves it running.

    If the directory holds a cluster already, the nodes that are not running are started.

    Prints the bootstrap address when the cluster is ready for a produce. If that fails, or on
    Ctrl-C, everything started is stopped.
    """
    from raftctl.cli._termination import terminate_as_interrupt, uninterrupted
    from raftctl.localcluster.fork_server import NodeLauncher

    # First, since it takes longer than all that is done here until nodes can start.
    with terminate_as_interrupt(), NodeLauncher() as launcher:
        from raftctl.cli.local._left_over import warn_of_left_over
        from raftctl.cli.offline.storage import format_storage, random_uuid_text
        from raftctl.localcluster.cluster import ClusterSpec, LocalCluster

        warn_of_left_over()
        spec = ClusterSpec(controllers, brokers, port, parse_overrides(override or ()))
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
        "nodes": [_node_document(node) for node in cluster.layout.nodes],
    }
    say_progress(f"console: http://{cluster.layout.nodes[0].http_address}/console/")
    printer.show(document, f"bootstrap.servers={cluster.layout.bootstrap}")


def _node_document(node: LocalNode) -> dict[str, Any]:
    return {**dataclasses.asdict(node), "http_address": node.http_address}


def down(
    printer: Printer,
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    grace: GraceOption = 60.0,
) -> None:
    """Stops the nodes of a local cluster; data stays. Brokers go first, then controllers."""
    from raftctl.cli.local._left_over import warn_of_left_over
    from raftctl.localcluster.cluster import LocalCluster

    warn_of_left_over(Path(directory))
    cluster = LocalCluster.load(Path(directory))
    running = [node.name for node in cluster.layout.nodes if cluster.is_running(node)]
    killed = [node.name for node in cluster.stop_all(grace)]
    late = f", {', '.join(killed)} killed after {grace:g} s" if killed else ""
    printer.show(
        {"stopped": running, "killed": killed},
        f"stopped {counted(len(running), 'node')}{late}",
    )


def status(
    printer: Printer,
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    controllers: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT,...", help="Controllers to ask instead of those of --dir."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeats every second.")] = False,
    command_config: CommandConfigOption = None,
) -> None:
    """Shows quorum, brokers and the health of topics. Exit status 1 if no controller leads."""
    from raftctl.cli.kafka.client_security import read_http_security
    from raftctl.localcluster.cluster import LocalCluster
    from raftctl.localcluster.status import ask_controllers

    cluster = LocalCluster.load(Path(directory)) if controllers is None else None
    addresses = _controller_addresses(cluster, controllers or "")
    security = read_http_security(command_config)
    while True:
        answers = ask_controllers(list(addresses.values()), 1.0, security)
        if answers.best is None and answers.refusals and not watch:
            raise answers.refusals[0]
        stopped = None if cluster is None else cluster.stopped()
        http = {} if cluster is None else _http_addresses(cluster)
        text = status_text(addresses, answers, http)
        if stopped:
            text += "\n".join(["", *_stopped_lines(stopped, directory)])
        if watch and printer.output is Output.TABLE and typer.get_text_stream("stdout").isatty():
            say(_CLEAR_SCREEN)
        document = {**status_document(addresses, answers, stopped), "http": http}
        printer.show(document, text)
        if not watch:
            raise typer.Exit(0 if answers.leader else 1)
        time.sleep(1.0)


def _stopped_lines(stopped: Mapping[str, str], directory: str) -> Iterator[str]:
    for name, why in stopped.items():
        yield f"{name} does not run: {why}"
    yield f"raftctl up --dir {directory} starts the nodes that do not run"


def _http_addresses(cluster: LocalCluster) -> dict[str, str]:
    """Name -> `host:port` of each node's signs of life and metrics."""
    nodes = cluster.layout.nodes
    return {node.name: node.http_address for node in nodes if node.http_address is not None}


def _controller_addresses(cluster: LocalCluster | None, controllers: str) -> dict[str, str]:
    """Name -> `host:port` of each controller to ask: the cluster's, or those that are named."""
    if cluster is not None:
        return {node.name: node.address for node in cluster.layout.controllers}
    return {address: address for address in parse_addresses(controllers, "--controllers")}


_QUORUM = ("cluster_id", "leader_id", "epoch", "high_watermark", "log_end_offset")
_HEALTH = ("topics", "partitions", "offline_partitions", "under_replicated_partitions")


def status_document(
    addresses: Mapping[str, str], status: ClusterStatus, stopped: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The JSON form. `quorum` and `health` are null when no controller answers.

    `stopped`: the nodes of a local cluster that do not run, and why; None if nobody can tell.
    """
    best = status.best
    return {
        "has_leader": status.leader is not None,
        "quorum": best and {name: best.get(name) for name in _QUORUM},
        "controllers": [
            _controller(name, address, status.answers.get(address))
            for name, address in addresses.items()
        ],
        "voters": best["voters"] if best else [],
        "observers": best["observers"] if best else [],
        "brokers": best["brokers"] if best else [],
        "health": best and {name: best.get(name) for name in _HEALTH},
        "stopped": None if stopped is None else dict(stopped),
    }


def status_text(
    addresses: Mapping[str, str], status: ClusterStatus, http: Mapping[str, str] | None = None
) -> str:
    """The form for people: a verdict, then controllers, brokers.

    `http`: where the nodes of a local cluster serve metrics, by their names.
    """
    best = status.best
    parts = [_verdict(status), "", _controllers_table(addresses, status)]
    if best is not None:
        parts += [_brokers_table(best, http or {})]
    return "\n".join(parts)


def _verdict(status: ClusterStatus) -> str:
    best = status.best
    answering = sum(answer is not None for answer in status.answers.values())
    reach = f"{answering}/{len(status.answers)} controllers answer"
    if best is None:
        return f"no leader, {reach}"
    leader = f"leader {best['leader_id']}" if status.leader else "no leader"
    health = (
        f"{counted(best['topics'], 'topic')}, {counted(best['partitions'], 'partition')}, "
        f"{best['offline_partitions']} offline, "
        f"{best['under_replicated_partitions']} under-replicated"
    )
    return f"{leader}, epoch {best['epoch']}, {reach}, {health}"


def _controller(name: str, address: str, answer: dict[str, Any] | None) -> dict[str, Any]:
    found = answer or {}
    keys = ("node_id", "role", "leader_id", "epoch", "high_watermark", "log_end_offset")
    return {"name": name, "address": address, **{key: found.get(key) for key in keys}}


def _controllers_table(addresses: Mapping[str, str], status: ClusterStatus) -> str:
    best = status.best or {}
    replicas = {replica["node_id"]: replica for replica in best.get("voters", ())}
    rows = []
    for name, address in addresses.items():
        answer = status.answers.get(address)
        if answer is None:
            rows.append([name, address, "down", *[None] * 6])
            continue
        seen = replicas.get(answer["node_id"], {})
        rows.append(
            [
                name,
                address,
                answer["role"],
                answer["epoch"],
                answer["high_watermark"],
                answer["log_end_offset"],
                seen.get("lag"),
                seen.get("last_fetch_age_ms"),
                seen.get("last_caught_up_age_ms"),
            ]
        )
    heads = ("CONTROLLER", "ADDRESS", "ROLE", "EPOCH", "HIGH-WATERMARK", "LOG-END", "LAG")
    ages = ("FETCHED-MS-AGO", "CAUGHT-UP-MS-AGO")
    return table((*heads, *ages), rows, optional=ages)


def _brokers_table(best: dict[str, Any], http: Mapping[str, str]) -> str:
    lags = {replica["node_id"]: replica["lag"] for replica in best["observers"]}
    rows = [
        [
            broker["broker_id"],
            ",".join(broker["endpoints"]),
            _broker_state(broker),
            broker["leaders"],
            broker["replicas"],
            lags.get(broker["broker_id"]),
            *([http.get(f"broker-{broker['broker_id']}")] if http else ()),
        ]
        for broker in best["brokers"]
    ]
    heads = ("BROKER", "ENDPOINTS", "STATE", "LEADERS", "REPLICAS", "METADATA-LAG")
    last = ("HTTP",) if http else ()
    return table((*heads, *last), rows, optional=last)


def _broker_state(broker: dict[str, Any]) -> str:
    if broker["fenced"]:
        return "fenced"
    return "shutting down" if broker["in_controlled_shutdown"] else "active"


def restart(
    printer: Printer,
    directory: DirectoryOption = DEFAULT_DIRECTORY,
    rolling: Annotated[
        bool,
        typer.Option("--rolling", help="One by one, each once all replicas are in sync."),
    ] = False,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this node; may be repeated. Default: all."),
    ] = None,
    grace: GraceOption = 60.0,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Longest wait for in-sync replicas, for each node."),
    ] = 120.0,
) -> None:
    """Restarts nodes of a local cluster, all or some. They read their files again.

    With --rolling clients go on meanwhile. Controllers go first, the active one last of them, then
    brokers. Each waits until all voters have caught up, all brokers are active and all replicas
    are in sync. If this does not happen within --timeout, the remaining nodes are not restarted,
    and the exit status is 1.
    """
    from raftctl.localcluster.cluster import LocalCluster, RollingRestart
    from raftctl.localcluster.fork_server import NodeLauncher

    rows: list[tuple[str, float | None, bool]]
    with NodeLauncher() as launcher:
        cluster = LocalCluster.load(Path(directory), launcher.launch)
        nodes = _chosen(cluster, node or ())
        if rolling:
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
    printer.show(document, text)


def _chosen(cluster: LocalCluster, names: list[str] | tuple[()]) -> list[LocalNode]:
    """The nodes of these names, or all; ConfigError for a name that is none."""
    named = [cluster.layout.node(name) for name in dict.fromkeys(names)]
    return named or list(cluster.layout.nodes)

"""All commands put together; each group is a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from raftctl.cli import (
    acls,
    bench,
    bench_clients,
    brokers,
    cluster,
    cluster_id,
    completion,
    configs,
    delete_records,
    elect_leaders,
    features,
    groups,
    info,
    kv,
    kv_locks,
    log,
    metadata_shell,
    offsets,
    partitions,
    quorum,
    quotas,
    reassign_partitions,
    restart,
    start,
    storage,
    topics,
    users,
)
from raftctl.cli.demo import command as demo

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="raftctl",
    help="A KRaft-style consensus controller with pluggable brokers that speak Kafka's protocol.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(storage.app, name="storage")
app.add_typer(bench.app, name="bench")
bench.app.command()(bench_clients.produce)
bench.app.command()(bench_clients.consume)
bench.app.command(name="end-to-end")(bench_clients.end_to_end)
app.add_typer(topics.app, name="topics")
app.add_typer(partitions.app, name="partitions")
app.add_typer(configs.app, name="configs")
app.add_typer(quotas.app, name="quotas")
app.add_typer(acls.app, name="acls")
app.add_typer(users.app, name="users")
app.add_typer(brokers.app, name="brokers")
app.add_typer(features.app, name="features")
app.add_typer(groups.app, name="groups")
app.add_typer(quorum.app, name="quorum")
app.add_typer(kv.app, name="kv")
kv.app.command(name="list")(kv_locks.list_keys)
kv.app.command()(kv_locks.watch)
kv.app.command()(kv_locks.lock)
kv.app.command()(kv_locks.elect)
app.add_typer(log.app, name="log")
app.add_typer(metadata_shell.app, name="metadata")
app.command()(delete_records.delete_records)
app.command()(elect_leaders.elect_leaders)
app.command()(reassign_partitions.reassign_partitions)
app.command()(start.start)
app.command()(cluster.up)
app.command()(cluster.down)
app.command()(restart.restart)
app.command()(cluster.status)
app.command()(offsets.offsets)
app.command()(demo.demo)
app.command()(cluster_id.cluster_id)
app.command()(completion.completion)
app.command()(info.plugins)
app.command()(info.version)


def run_app(arguments: Sequence[str]) -> int:
    """Parses and runs; returns the exit status. Raises what the command raises."""
    try:
        app(args=list(arguments), prog_name="raftctl")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0

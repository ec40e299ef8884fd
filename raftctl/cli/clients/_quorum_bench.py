"""`raftctl bench`: what raftctl does on this machine, beside its peers in the same run."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from raftctl.cli._output import Output, OutputOption, say_progress, show, table

app = typer.Typer(help="Measures throughput and latency.", no_args_is_help=True)

OUTSTANDING_MAX = 4096
VALUE_BYTES_MAX = 64 * 1024
PAIRS = (
    ("puts a second", "puts", "puts_ratio"),
    ("processor time of the voters for each put", "put_cpu", ""),
    ("fsyncs of the voters for each put", "put_fsyncs", ""),
    ("one put at a time, median", "put_latency", "put_latency_ratio"),
    ("kill -9 of the leader to the next commit", "quorum_failover", "quorum_failover_ratio"),
)


class Peer(enum.StrEnum):
    """What the quorum is compared with."""

    ETCD = "etcd"
    NONE = "none"


@app.command()
def quorum(
    peer: Annotated[
        Peer, typer.Option(metavar="etcd|none", help="What to compare with, in turns.")
    ] = Peer.ETCD,
    outstanding: Annotated[
        int,
        typer.Option(min=1, max=OUTSTANDING_MAX, metavar="N", help="Puts under way at any time."),
    ] = 256,
    value_bytes: Annotated[
        int, typer.Option(min=1, max=VALUE_BYTES_MAX, metavar="N", help="Size of a value.")
    ] = 256,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="S", help="Measured in each turn.")
    ] = 4.0,
    turns: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Turns of each quorum.")
    ] = 3,
    failovers: Annotated[
        int, typer.Option(min=0, max=1000, metavar="N", help="Leaders to kill, one by one.")
    ] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Measures a quorum of three voters on this machine. Figures: puts a second, the time of one
    put, failover.

    Every commit is synced to disk by a majority; a process apart puts values and awaits one reply
    for each. Without etcd or Go it says what is missing and measures raftctl alone. JSON has all
    turns.
    """
    # Of no use to the other commands.
    from raftctl.bench.figures import report
    from raftctl.bench.quorum import Plan, measure
    from raftctl.cli.offline.storage import format_storage, random_uuid_text

    measured = measure(
        Plan(outstanding, value_bytes, seconds, turns, failovers, peer.value),
        cluster_id=random_uuid_text(),
        format_storage=format_storage,
        say=say_progress,
    )
    document = {**report(measured.figures), "limits": measured.limits}
    show(output, document, "\n".join([_comparison(measured.figures).rstrip(), *measured.limits]))


def _comparison(figures: dict[str, dict[str, Any]]) -> str:
    """Medians of ours and the peer's side by side; for failover also the slowest."""
    rows = []
    for label, name, ratio in PAIRS:
        if f"{name}_raftctl" not in figures:
            continue
        ours, theirs = figures[f"{name}_raftctl"], figures.get(f"{name}_etcd", {})
        of = figures.get(ratio, {}).get("median")
        rows.append((label, ours["unit"], ours["median"], theirs.get("median"), of))
        if name == "quorum_failover":
            rows.append(("the same, slowest", ours["unit"], ours["max"], theirs.get("max"), None))
    return table(("FIGURE", "UNIT", "RAFTCTL", "ETCD", "RATIO"), rows)

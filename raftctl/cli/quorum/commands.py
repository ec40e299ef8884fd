"""`raftctl quorum`: who votes, who leads, who lags (the columns of `kafka-metadata-quorum`)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._controllers import TIMEOUT_S, ControllersOption, TimeoutOption, ask_leader
from raftctl.cli._output import Output, OutputOption, show, table
from raftctl.cli.quorum import _changes as quorum_changes
from raftctl.cli.quorum._force_recover import force_recover
from raftctl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

app = typer.Typer(help="Shows and changes the quorum of controllers.", no_args_is_help=True)

_COLUMNS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


@app.command()
def describe(
    controllers: ControllersOption,
    status: Annotated[
        bool, typer.Option("--status", help="The quorum as a whole; the default.")
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Every replica and its lag.")
    ] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", help="Ages instead of timestamps.")
    ] = False,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Shows the quorum as its leader sees it."""
    if status and replication:
        raise ConfigError("give either --status or --replication")
    told = ask_leader(controllers, timeout)
    if not replication:
        document = status_document(told)
        show(output, document, status_text(document))
    else:
        rows = replication_rows(told, None if human_readable else int(time.time() * 1000))
        show(output, rows, table(_COLUMNS, [list(row.values()) for row in rows]))


app.command(name="add-voter")(quorum_changes.add_voter)
app.command(name="remove-voter")(quorum_changes.remove_voter)
app.command()(quorum_changes.transfer)
app.command(name="force-recover")(force_recover)


def status_document(told: dict[str, Any]) -> dict[str, Any]:
    """The quorum as a whole, from the status of its leader."""
    followers = [one for one in told["voters"] if one["node_id"] != told["leader_id"]]
    ages = [one["last_caught_up_age_ms"] for one in followers]
    unknown = any(age is None for age in ages)
    return {
        "ClusterId": told["cluster_id"],
        "LeaderId": told["leader_id"],
        "LeaderEpoch": told["epoch"],
        "HighWatermark": told["high_watermark"],
        "MaxFollowerLag": max((one["lag"] for one in followers), default=0),
        "MaxFollowerLagTimeMs": -1 if unknown else max(ages, default=0),
        "CurrentVoters": [_voter(one, told.get("voter_set", ())) for one in told["voters"]],
        "CurrentObservers": [_replica(one) for one in told["observers"]],
    }


def _voter(one: dict[str, Any], voter_set: Iterable[dict[str, Any]]) -> dict[str, Any]:
    known = [voter for voter in voter_set if voter["node_id"] == one["node_id"] and voter["port"]]
    endpoints = [f"CONTROLLER://{voter['host']}:{voter['port']}" for voter in known]
    return _replica(one) | ({"endpoints": endpoints} if endpoints else {})


def _replica(one: dict[str, Any]) -> dict[str, Any]:
    directory_id = one.get("directory_id")
    return {"id": one["node_id"], **({"directoryId": directory_id} if directory_id else {})}


def status_text(document: dict[str, Any]) -> str:
    """A line for each item, as Apache Kafka's tool prints them."""
    width = max(map(len, document)) + 1
    return "".join(
        f"{name + ':':<{width}} {value if isinstance(value, str | int) else json.dumps(value)}\n"
        for name, value in document.items()
    )


def replication_rows(told: dict[str, Any], now_ms: int | None) -> list[dict[str, Any]]:
    """A row for each replica; times as timestamps if `now_ms` is given, else as ages in words."""
    rows = []
    for kind in ("voters", "observers"):
        for one in told[kind]:
            is_leader = one["node_id"] == told["leader_id"]
            values = (
                one["node_id"],
                one.get("directory_id"),
                one["log_end_offset"],
                one["lag"],
                _when(one["last_fetch_age_ms"], is_leader, now_ms),
                _when(one["last_caught_up_age_ms"], is_leader, now_ms),
                "Leader" if is_leader else {"voters": "Follower", "observers": "Observer"}[kind],
            )
            rows.append(dict(zip(_COLUMNS, values, strict=True)))
    return sorted(rows, key=lambda row: row["Status"] != "Leader")


def _when(age_ms: int | None, is_leader: bool, now_ms: int | None) -> int | str | None:
    age_ms = 0 if is_leader else age_ms
    if age_ms is None:
        return None if now_ms is None else -1
    return f"{age_ms} ms ago" if now_ms is None else now_ms - age_ms

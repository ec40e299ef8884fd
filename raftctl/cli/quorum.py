"""`raftctl quorum`: shows and changes the voters of the metadata quorum (row Q8).

`describe` has the columns of Kafka's `kafka-metadata-quorum`. `add-voter`, `remove-voter` and
`transfer` ask the leader (KIP-853). A request without an answer is repeated, and counts as done if
the leader finds nothing left to do. Each names the set of voters it was decided on, so that a
request delayed by the network changes nothing later (decision 0019).

`force-recover` works offline, on the disk of a stopped node, for the day when a majority of the
disks is gone. It can lose committed records. Apache Kafka has no such tool; etcd calls its own
`--force-new-cluster`.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._controllers import Controllers
from raftctl.cli._options import CommandGroup, Printer
from raftctl.cli._output import say_progress
from raftctl.cli.offline.voters import (
    parse_controllers_with_ids,
    parse_directory_id,
    voter_of,
    voter_text,
)
from raftctl.config.addresses import parse_servers
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.raft.messages import (
    AddVoterRequest,
    Epoch,
    NodeId,
    Offset,
    OffsetAndEpoch,
    RemoveVoterRequest,
    ReplicaKey,
    TransferLeadershipRequest,
    Voter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    _Change = AddVoterRequest | RemoveVoterRequest | TransferLeadershipRequest
    from raftctl.quorum import Recovery, Survivor
    from raftctl.runtime.real import RealFileSystem


app = CommandGroup("Shows and changes the quorum of controllers.")

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
    quorum: Controllers,
    status: Annotated[
        bool, typer.Option("--status", help="Shows the quorum as a whole; the default.")
    ] = False,
    replication: Annotated[
        bool, typer.Option("--replication", help="Shows every replica and its lag.")
    ] = False,
    human_readable: Annotated[
        bool, typer.Option("--human-readable", help="Shows ages instead of timestamps.")
    ] = False,
) -> None:
    """Shows the quorum as its leader sees it."""
    if status and replication:
        raise ConfigError("give either --status or --replication")
    status_of_leader = quorum.ask_leader()
    if not replication:
        document = status_document(status_of_leader)
        quorum.show(document, status_text(document))
    else:
        rows = replication_rows(
            status_of_leader, None if human_readable else int(time.time() * 1000)
        )
        quorum.show_rows(_COLUMNS, rows)


def status_document(status_of_leader: dict[str, Any]) -> dict[str, Any]:
    """The quorum as a whole, from the status of its leader."""
    followers = [
        one for one in status_of_leader["voters"] if one["node_id"] != status_of_leader["leader_id"]
    ]
    ages = [one["last_caught_up_age_ms"] for one in followers]
    unknown = any(age is None for age in ages)
    return {
        "ClusterId": status_of_leader["cluster_id"],
        "LeaderId": status_of_leader["leader_id"],
        "LeaderEpoch": status_of_leader["epoch"],
        "HighWatermark": status_of_leader["high_watermark"],
        "MaxFollowerLag": max((one["lag"] for one in followers), default=0),
        "MaxFollowerLagTimeMs": -1 if unknown else max(ages, default=0),
        "CurrentVoters": [
            _voter_row(one, status_of_leader.get("voter_set", ()))
            for one in status_of_leader["voters"]
        ],
        "CurrentObservers": [_replica_row(one) for one in status_of_leader["observers"]],
    }


def _voter_row(one: dict[str, Any], voter_set: Iterable[dict[str, Any]]) -> dict[str, Any]:
    known = [voter for voter in voter_set if voter["node_id"] == one["node_id"] and voter["port"]]
    endpoints = [f"CONTROLLER://{voter['host']}:{voter['port']}" for voter in known]
    return _replica_row(one) | ({"endpoints": endpoints} if endpoints else {})


def _replica_row(one: dict[str, Any]) -> dict[str, Any]:
    directory_id = one.get("directory_id")
    return {"id": one["node_id"], **({"directoryId": directory_id} if directory_id else {})}


def status_text(document: dict[str, Any]) -> str:
    """A line for each item, as Apache Kafka's tool prints them."""
    width = max(map(len, document)) + 1
    return "".join(
        f"{name + ':':<{width}} {value if isinstance(value, str | int) else json.dumps(value)}\n"
        for name, value in document.items()
    )


def replication_rows(status_of_leader: dict[str, Any], now_ms: int | None) -> list[dict[str, Any]]:
    """A row for each replica; times as timestamps if `now_ms` is given, else as ages in words."""
    rows = []
    for kind in ("voters", "observers"):
        for one in status_of_leader[kind]:
            is_leader = one["node_id"] == status_of_leader["leader_id"]
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


_RETRY_S = 0.1
_LOOK = "not done in time; quorum describe --status shows whether it has been done since"
_UNANSWERED = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Nobody knows yet whether it was done."""
_ASK_AGAIN = (*_UNANSWERED, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


NOT_HEARD = (
    "the leader does not hear a majority of the voters that there would be, so nothing could be "
    "committed any more; bring the others back first (quorum describe --replication)"
)


@app.command()
def add_voter(
    quorum: Controllers,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="The new voter's .properties file.")
    ] = None,
    voter: Annotated[
        str | None,
        typer.Option(metavar="ID@HOST:PORT:DIRECTORY-ID", help="The new voter, instead of a file."),
    ] = None,
) -> None:
    """Lets a running controller vote. It has to catch up first."""
    if (config is None) == (voter is None):
        raise ConfigError("give either --config or --voter")
    added = _voter_of_file(config) if config is not None else _one_voter(voter or "")
    remedies = {
        ErrorCode.DUPLICATE_VOTER: f"node {added.replica.node_id} votes already; if its disk was "
        "replaced, remove the voter with the old directory id first",
        ErrorCode.INVALID_VOTER_KEY: "another voter has this directory id: a copied disk cannot "
        "vote; format the directory again",
        ErrorCode.REQUEST_TIMED_OUT: f"node {added.replica.node_id} has not caught up, or another "
        "change is under way; see that it runs and fetches (quorum describe --replication)",
    }
    remedies[ErrorCode.NOT_ENOUGH_REPLICAS] = NOT_HEARD
    _ask(quorum, AddVoterRequest(added), remedies, ErrorCode.DUPLICATE_VOTER)
    quorum.show({"added": voter_text(added)}, f"added voter {voter_text(added)}")


@app.command()
def remove_voter(
    quorum: Controllers,
    controller_id: Annotated[int, typer.Option(metavar="ID", help="The node id of the voter.")],
    controller_directory_id: Annotated[
        str, typer.Option(metavar="ID", help="Its directory id, as quorum describe shows it.")
    ],
) -> None:
    """Takes the vote from a controller, which may be down. It goes on as an observer."""
    directory_id = parse_directory_id("--controller-directory-id", controller_directory_id)
    replica = ReplicaKey(NodeId(controller_id), directory_id)
    remedies = {
        ErrorCode.VOTER_NOT_FOUND: f"no voter {controller_id} with directory id "
        f"{controller_directory_id}; quorum describe --status shows the voters",
        ErrorCode.INVALID_REQUEST: "the last voter cannot be removed; add another one first",
        ErrorCode.REQUEST_TIMED_OUT: "another change is under way, or a majority of the remaining "
        "voters does not answer",
    }
    remedies[ErrorCode.NOT_ENOUGH_REPLICAS] = NOT_HEARD
    _ask(quorum, RemoveVoterRequest(replica), remedies, ErrorCode.VOTER_NOT_FOUND)
    document = {"removed": {"id": controller_id, "directoryId": controller_directory_id}}
    quorum.show(document, f"removed voter {controller_id} ({controller_directory_id})")


@app.command()
def transfer(
    quorum: Controllers,
    to: Annotated[int, typer.Option(metavar="ID", help="Node id of the voter to lead.")],
) -> None:
    """Hands leadership to a voter that has the whole log."""
    remedies = {
        ErrorCode.VOTER_NOT_FOUND: f"node {to} does not vote; quorum describe --status shows who",
        ErrorCode.REQUEST_TIMED_OUT: f"node {to} does not catch up, nobody is known to lead yet, "
        "or another transfer or change of voters is under way; see that it runs",
        ErrorCode.NOT_LEADER_OR_FOLLOWER: f"another one was elected instead of {to}; try again",
    }
    request = TransferLeadershipRequest(NodeId(to))
    handed = _ask(quorum, request, remedies, ErrorCode.ELECTION_NOT_NEEDED)
    text = f"leadership handed to {to}" if handed else f"node {to} leads already"
    quorum.show({"transferred_to": to, "changed": handed}, text)


def _voter_of_file(path: str) -> Voter:
    from raftctl.cli.files import read_config_file
    from raftctl.runtime.real import RealFileSystem
    from raftctl.storage import load_directories

    config = read_config_file(path)
    properties = load_directories(RealFileSystem(), config.directories, config.node_id)
    return voter_of(config, properties[config.metadata_directory].directory_id)


def _one_voter(text: str) -> Voter:
    voters = parse_controllers_with_ids("--voter", text)
    if len(voters) > 1:
        raise ConfigError("--voter: voters are added one at a time: give one")
    return voters[0]


def _ask(
    quorum: Controllers,
    request: _Change,
    remedies: dict[ErrorCode, str],
    done_already: ErrorCode,
) -> bool:
    """Ask the current leader until the change is done or refused, or time is up.

    Returns whether there was anything to do. `done_already` is the answer that shows that an
    earlier request was carried out. Raises KafkaError with the remedy for its code.
    """
    deadline = time.monotonic() + quorum.timeout
    unanswered = isinstance(request, TransferLeadershipRequest)
    asked = False
    while True:
        left_s = deadline - time.monotonic()
        error = _ask_once(quorum, max(left_s, _RETRY_S), request)
        if error is ErrorCode.NONE or (error is done_already and unanswered):
            return asked or error is ErrorCode.NONE
        unanswered = unanswered or error in _UNANSWERED
        asked = asked or error is not ErrorCode.LEADER_NOT_AVAILABLE
        if error not in _ASK_AGAIN or left_s <= _RETRY_S:
            if not asked:
                quorum.ask(_RETRY_S)  # if nobody answers, it says so
            raise KafkaError(error, remedies.get(error, _LOOK))
        time.sleep(_RETRY_S)


def _ask_once(quorum: Controllers, timeout_s: float, request: _Change) -> ErrorCode:
    leader = quorum.find_leader(timeout_s)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    address, status = leader
    if "voters_offset" in status:  # else it is of an older release, and does not look at it
        seen = OffsetAndEpoch(Offset(status["voters_offset"]), Epoch(status["epoch"]))
        request = replace(request, seen=seen)
    return asyncio.run(_call(quorum, address, status, timeout_s, request))


async def _call(
    quorum: Controllers, address: str, status: dict[str, Any], timeout_s: float, request: _Change
) -> ErrorCode:
    from raftctl.controller_channel import CLIENT_ID
    from raftctl.rpc import RpcClient, RpcError, RpcRefused
    from raftctl.runtime.real import RealRuntime
    from raftctl.security.sasl.login import NodeLogin
    from raftctl.security.tls import NodeTls

    runtime = RealRuntime(log_level="critical")
    security, tls = quorum.client_security, NodeTls(runtime, runtime.log)
    login = None if security.login is None else NodeLogin(security.login.settings, runtime)
    host, _, port = address.rpartition(":")
    client = RpcClient(
        runtime,
        host.strip("[]"),
        int(port),
        cluster_id=status["cluster_id"],
        node_id=CLIENT_ID,
        peer_id=status["node_id"],
        tls=None if security.tls is None else tls.client(security.tls, "controllers"),
        login=login,
    )
    try:
        response = await client.call(request, int(timeout_s * 1000))
        return ErrorCode(response.error)
    except RpcRefused as error:
        if error.code in (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ):
            raise KafkaError(error.code, error.message) from None
        return ErrorCode.NETWORK_EXCEPTION
    except RpcError:
        return ErrorCode.NETWORK_EXCEPTION
    finally:
        await client.close()
        tls.close()
        if login is not None:
            login.close()
        runtime.close()


@app.command()
def force_recover(
    printer: Printer,
    directory: Annotated[
        str, typer.Option("--dir", metavar="DIR", help="The data directory of the survivor.")
    ],
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Its listener, if its disk does not name it."),
    ] = None,
    understood: Annotated[
        bool,
        typer.Option(
            "--i-understand-data-loss", help="Rebuilds the quorum; without it, only shows the loss."
        ),
    ] = False,
) -> None:
    """Makes a single replica the quorum. For when a majority is lost for good.

    The node must be stopped. What was committed and is not on this disk is lost; what is on this
    disk and was never committed becomes committed. Choose the replica with the highest last epoch
    and, of those, the highest log end. The disks of all other controllers must be formatted again
    before they are started again: with the old ones they could elect a leader of their own.
    """
    from pathlib import Path

    from raftctl.runtime.real import RealFileSystem

    files, path = RealFileSystem(), str(Path(directory).absolute())
    if not files.is_directory(path):
        raise ConfigError(
            f"--dir {directory}: no such directory; name the node's metadata directory"
        )
    lock = files.lock_directory(path)
    try:
        recovery = _open(files, path)
        try:
            say_progress(survivor_text(recovery.survivor))
            if not understood:
                raise ConfigError(
                    "nothing was changed: give --i-understand-data-loss to rebuild the quorum from "
                    "this disk alone"
                )
            voter = _survivor_as_voter(recovery.survivor, endpoint)
            epoch = recovery.rebuild(voter)
        finally:
            recovery.close()
    finally:
        lock.release()
    document = survivor_document(recovery.survivor) | {"voter": voter_text(voter), "epoch": epoch}
    printer.show(document, f"{voter_text(voter)} is the only voter from epoch {epoch} on; start it")


def _open(files: RealFileSystem, path: str) -> Recovery:
    from raftctl.quorum import Recovery
    from raftctl.storage import CorruptQuorumStateError
    from raftctl.storage.log import CorruptLogError
    from raftctl.storage.snapshots import CorruptSnapshotError

    try:
        return Recovery(files, path)
    except (CorruptLogError, CorruptSnapshotError, CorruptQuorumStateError) as error:
        raise ConfigError(f"--dir {path}: not the disk to recover from: {error}") from None


def _survivor_as_voter(survivor: Survivor, endpoint: str | None) -> Voter:
    if endpoint is not None:
        try:
            (server,) = parse_servers(endpoint)
        except ValueError as error:
            raise ConfigError(f"--endpoint: {error}") from None
        return Voter(survivor.replica, server.host, server.port)
    known = survivor.voters and survivor.voters.voter(survivor.replica.node_id)
    if not known:
        raise ConfigError(
            "--endpoint: this disk does not name the listener of its node; give the HOST:PORT of "
            "its controller listener"
        )
    return Voter(survivor.replica, known.host, known.port)


def survivor_document(survivor: Survivor) -> dict[str, Any]:
    """What the disk has, and from where on it may lack something."""
    return {
        "cluster_id": survivor.cluster_id,
        "node_id": survivor.replica.node_id,
        "log_end_offset": survivor.log_end_offset,
        "last_epoch": survivor.last_epoch,
        "known_epoch": survivor.epoch,
        "known_committed_offset": survivor.committed_offset,
        "torn_bytes": survivor.torn_bytes,
        "voters": [voter_text(one) for one in survivor.voters.voters] if survivor.voters else None,
    }


def survivor_text(survivor: Survivor) -> str:
    """The same for people."""
    voters = "as configured (controller.quorum.voters)"
    if survivor.voters is not None:
        voters = ", ".join(map(voter_text, survivor.voters.voters))
    return "\n".join(
        (
            f"node {survivor.replica.node_id} of cluster {survivor.cluster_id}",
            f"log end offset:   {survivor.log_end_offset}, last record of epoch "
            f"{survivor.last_epoch}; newest epoch known: {survivor.epoch}",
            f"known committed:  below {survivor.committed_offset} (its newest snapshot; the high "
            "watermark is on no disk)",
            f"voters so far:    {voters}",
            f"may be lost:      every record from offset {survivor.log_end_offset} on, which only "
            "other voters had",
            f"may come back:    records from offset {survivor.committed_offset} on that were never "
            "acknowledged",
        )
    )

"""`raftctl quorum add-voter | remove-voter | transfer`: what an operator asks of the leader.

A request that may have been done and was not answered is asked again, and is then done if the
leader says that there is nothing left to do. Each says what was seen of the quorum, so that one
that comes late, after its repetition and what was done since, changes nothing (decision 0019).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raftctl.cli._controllers import (
    TIMEOUT_S,
    ControllersOption,
    TimeoutOption,
    ask,
    find_leader,
    parse_controllers,
)
from raftctl.cli._output import Output, OutputOption, show
from raftctl.cli.offline.voters import (
    parse_controllers_with_ids,
    parse_directory_id,
    voter_of,
    voter_text,
)
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
)

if TYPE_CHECKING:
    from raftctl.raft.messages import Voter

    _Change = AddVoterRequest | RemoveVoterRequest | TransferLeadershipRequest

_RETRY_S = 0.1
_LOOK = "not done in time; quorum describe --status shows whether it has been done since"
_UNANSWERED = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Nobody knows yet whether it was done."""
_ASK_AGAIN = (*_UNANSWERED, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


NOT_HEARD = (
    "the leader does not hear a majority of the voters that there would be, so nothing could be "
    "committed any more; bring the others back first (quorum describe --replication)"
)


def add_voter(
    controllers: ControllersOption,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="The new voter's .properties file.")
    ] = None,
    voter: Annotated[
        str | None,
        typer.Option(metavar="ID@HOST:PORT:DIRECTORY-ID", help="The new voter, instead of a file."),
    ] = None,
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Lets a running controller vote. It has to catch up first."""
    if (config is None) == (voter is None):
        raise ConfigError("give either --config or --voter")
    added = _voter_of_file(config) if config is not None else _one_voter(voter or "")
    remedies = {
        ErrorCode.DUPLICATE_VOTER: f"node {added.replica.node_id} votes already; if its disk was "
        "replaced, remove the voter with the old directory id first",
        ErrorCode.INVALID_VOTER_KEY: "another voter has this directory id: a copied disk cannot "
        "vote; format the directory anew",
        ErrorCode.REQUEST_TIMED_OUT: f"node {added.replica.node_id} has not caught up, or another "
        "change is under way; see that it runs and fetches (quorum describe --replication)",
    }
    remedies[ErrorCode.NOT_ENOUGH_REPLICAS] = NOT_HEARD
    _ask(controllers, timeout, AddVoterRequest(added), remedies, ErrorCode.DUPLICATE_VOTER)
    show(output, {"added": voter_text(added)}, f"added voter {voter_text(added)}")


def remove_voter(
    controllers: ControllersOption,
    controller_id: Annotated[int, typer.Option(help="The node id of the voter.")],
    controller_directory_id: Annotated[
        str, typer.Option(help="Its directory id; quorum describe shows it.")
    ],
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
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
    _ask(controllers, timeout, RemoveVoterRequest(replica), remedies, ErrorCode.VOTER_NOT_FOUND)
    document = {"removed": {"id": controller_id, "directoryId": controller_directory_id}}
    show(output, document, f"removed voter {controller_id} ({controller_directory_id})")


def transfer(
    controllers: ControllersOption,
    to: Annotated[int, typer.Option(help="The node id of the voter that is to lead.")],
    timeout: TimeoutOption = TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Hands leadership to a voter that has the whole log."""
    remedies = {
        ErrorCode.VOTER_NOT_FOUND: f"node {to} does not vote; quorum describe --status shows who",
        ErrorCode.REQUEST_TIMED_OUT: f"node {to} does not catch up, nobody is known to lead yet, "
        "or another transfer or change of voters is under way; see that it runs",
        ErrorCode.NOT_LEADER_OR_FOLLOWER: f"another one was elected instead of {to}; try again",
    }
    request = TransferLeadershipRequest(NodeId(to))
    handed = _ask(controllers, timeout, request, remedies, ErrorCode.ELECTION_NOT_NEEDED)
    text = f"leadership handed to {to}" if handed else f"node {to} leads already"
    show(output, {"transferred_to": to, "changed": handed}, text)


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
    controllers: str,
    timeout_s: float,
    request: _Change,
    remedies: dict[ErrorCode, str],
    done_already: ErrorCode,
) -> bool:
    """Asks the leader, whoever that is by then, until it is done or refused, or time is up.

    Tells whether there was anything to do.

    Raises KafkaError with the remedy for its code. `done_already` is what the leader answers where
    an earlier request has been done.
    """
    deadline = time.monotonic() + timeout_s
    unanswered = isinstance(request, TransferLeadershipRequest)
    asked = False
    while True:
        left_s = deadline - time.monotonic()
        error = _ask_once(parse_controllers(controllers), max(left_s, _RETRY_S), request)
        if error is ErrorCode.NONE or (error is done_already and unanswered):
            return asked or error is ErrorCode.NONE
        unanswered = unanswered or error in _UNANSWERED
        asked = asked or error is not ErrorCode.LEADER_NOT_AVAILABLE
        if error not in _ASK_AGAIN or left_s <= _RETRY_S:
            if not asked:
                ask(controllers, _RETRY_S)  # if nobody answers, it says so
            raise KafkaError(error, remedies.get(error, _LOOK))
        time.sleep(_RETRY_S)


def _ask_once(addresses: list[str], timeout_s: float, request: _Change) -> ErrorCode:
    leader = find_leader(addresses, timeout_s)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    address, status = leader
    if "voters_offset" in status:  # else it is of an older release, and does not look at it
        seen = OffsetAndEpoch(Offset(status["voters_offset"]), Epoch(status["epoch"]))
        request = replace(request, seen=seen)
    return asyncio.run(_call(address, status, timeout_s, request))


async def _call(
    address: str, status: dict[str, Any], timeout_s: float, request: _Change
) -> ErrorCode:
    from raftctl.controller_channel import CLIENT_ID
    from raftctl.rpc import RpcClient, RpcError
    from raftctl.runtime.real import RealRuntime

    runtime = RealRuntime(log_level="critical")
    host, _, port = address.rpartition(":")
    client = RpcClient(
        runtime,
        host.strip("[]"),
        int(port),
        cluster_id=status["cluster_id"],
        node_id=CLIENT_ID,
        peer_id=status["node_id"],
    )
    try:
        response = await client.call(request, int(timeout_s * 1000))
        return ErrorCode(response.error)
    except RpcError:
        return ErrorCode.NETWORK_EXCEPTION
    finally:
        await client.close()
        runtime.close()

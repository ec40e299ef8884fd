"""Voters as the command line has them: `id@host:port:directory-id` (Apache Kafka's form)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.config.addresses import parse_voters, split_list
from raftctl.errors import ConfigError
from raftctl.ids import ZERO_UUID, parse_uuid, uuid_text
from raftctl.raft.messages import NodeId, ReplicaKey, Voter

if TYPE_CHECKING:
    from uuid import UUID

    from raftctl.config import NodeConfig


def parse_controllers_with_ids(option: str, text: str) -> tuple[Voter, ...]:
    """Reads `id@host:port:directory-id,...`; ConfigError names the option and the remedy."""
    addresses, directory_ids = [], []
    for item in split_list(text):
        address, _, directory_id = item.rpartition(":")
        addresses.append(address)
        directory_ids.append(parse_directory_id(option, directory_id))
    try:
        voters = parse_voters(",".join(addresses))
    except ValueError as error:
        raise ConfigError(f"{option}: {error}, then a colon and the directory id") from None
    if len(set(directory_ids)) < len(directory_ids):
        remedy = "each voter has a disk of its own; raftctl storage random-uuid makes an id"
        raise ConfigError(f"{option}: a directory id appears twice: {remedy}")
    if not voters:
        raise ConfigError(f"{option} is empty: write id@host:port:directory-id")
    return tuple(
        Voter(ReplicaKey(NodeId(one.node_id), directory_id), one.host, one.port)
        for one, directory_id in zip(voters, directory_ids, strict=True)
    )


def parse_directory_id(option: str, text: str) -> UUID:
    """A directory id; ConfigError names the option and the remedy."""
    remedy = "raftctl storage info shows that of a disk, random-uuid makes one"
    try:
        directory_id = parse_uuid(text)
        if directory_id == ZERO_UUID:
            raise ValueError("zero stands for none")
        return directory_id
    except ValueError as error:
        raise ConfigError(f"{option}: directory id {text!r}: {error}; {remedy}") from None


def voter_of(config: NodeConfig, directory_id: UUID) -> Voter:
    """The voter that this controller is. ConfigError for a node that is only a broker."""
    endpoint = config.reachable_controller_endpoint
    if endpoint is None:
        raise ConfigError("process.roles lacks controller: only a controller can vote")
    if endpoint.port == 0:
        raise ConfigError(f"listeners: {endpoint} has no port that others could know: give one")
    return Voter(ReplicaKey(NodeId(config.node_id), directory_id), endpoint.host, endpoint.port)


def voter_text(voter: Voter) -> str:
    """The form that `parse_controllers_with_ids` reads."""
    host = f"[{voter.host}]" if ":" in voter.host else voter.host
    directory_id = voter.replica.directory_id
    identity = uuid_text(directory_id) if directory_id else "?"
    return f"{voter.replica.node_id}@{host}:{voter.port}:{identity}"

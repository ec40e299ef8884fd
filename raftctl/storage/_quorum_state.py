"""The quorum-state file: the epoch and vote that must survive a crash (row Q1).

One line of JSON with KRaft's fields and a CRC32C over the others, replaced atomically. A file that
does not match its checksum stops the node: a replica that forgot its vote could vote twice in an
epoch. Sources: Raft §5.2 and figure 2; KIP-595 and KIP-853 for the fields.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from raftctl.errors import DiskError
from raftctl.ids import parse_uuid, uuid_text
from raftctl.raft.events import QuorumState
from raftctl.raft.messages import NO_NODE, Epoch, NodeId, ReplicaKey
from raftctl.runtime.api import read_file, replace_file

if TYPE_CHECKING:
    from raftctl.runtime.api import FileSystem

QUORUM_STATE = "quorum-state"
"""The name of the file."""
VERSION = 1


class CorruptQuorumStateError(DiskError):
    """The file cannot be trusted; the message names it and says what to do."""

    def __init__(self, path: str, why: str) -> None:
        remedy = "restore the disk, or format the directory again and join as a new replica"
        super().__init__(f"{path}: {why}; {remedy}")


class QuorumStateStore:
    """The quorum-state of one replica. All methods block: call them on the directory's worker."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self.path = f"{directory}/{QUORUM_STATE}"

    def load(self) -> QuorumState | None:
        """Return the state saved last; None if none was. Raises CorruptQuorumStateError."""
        try:
            data = read_file(self._files, self.path)
        except FileNotFoundError:
            return None
        try:
            fields = json.loads(data)
            checksum = fields.pop("crc32c")
        except (ValueError, AttributeError, KeyError, TypeError):
            raise CorruptQuorumStateError(self.path, "not a quorum-state file") from None
        if checksum != _checksum(fields):
            raise CorruptQuorumStateError(self.path, "CRC32C does not match")
        if fields["version"] > VERSION:
            raise CorruptQuorumStateError(self.path, f"version {fields['version']} is not known")
        return _from_fields(fields)

    def save(self, state: QuorumState) -> None:
        """Replace the file; when it returns, the state is durable."""
        fields = _to_fields(state)
        text = json.dumps(fields | {"crc32c": _checksum(fields)}) + "\n"
        replace_file(self._files, self.path, text.encode())


def _checksum(fields: dict[str, Any]) -> int:
    return crc32c(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def _to_fields(state: QuorumState) -> dict[str, Any]:
    voted = state.voted
    directory_id = voted.directory_id if voted else None
    return {
        "version": VERSION,
        "epoch": state.epoch,
        "leader_id": state.leader_id,
        "voted_id": voted.node_id if voted else NO_NODE,
        "voted_directory_id": uuid_text(directory_id) if directory_id else None,
    }


def _from_fields(fields: dict[str, Any]) -> QuorumState:
    voted = None
    if fields["voted_id"] != NO_NODE:
        text = fields["voted_directory_id"]
        voted = ReplicaKey(NodeId(fields["voted_id"]), parse_uuid(text) if text else None)
    return QuorumState(Epoch(fields["epoch"]), NodeId(fields["leader_id"]), voted)

"""The files that the formatting of a disk writes: its identity, the first voters and records.

`meta.properties` names the cluster, the node and the directory that a log directory belongs to. The
file and its keys are Apache Kafka's, version 1 with `directory.id` (KIP-853, KIP-858). Every
complaint is a `ConfigError` of one line that names the directory and the remedy.

The voters with which a quorum begins stand in the header of a snapshot of nothing,
`00000000000000000000-0000000000.checkpoint`, like Apache Kafka's bootstrap checkpoint (KIP-853).
The first leader writes them into the log.

`bootstrap.records` holds records that the first active controller writes after those that every
cluster begins with, such as users (KIP-900). It is four bytes with their number, four with the
CRC32C of the rest, and the packed records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from crc32c import crc32c

from raftctl.errors import ConfigError
from raftctl.ids import parse_uuid, uuid_text
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch
from raftctl.runtime.api import read_file, replace_file
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.raft.voters import VoterSet
    from raftctl.runtime.api import FileSystem

FILE_NAME = "meta.properties"
METADATA_LOG_NAME = "__cluster_metadata-0"
FIRST_RECORDS_NAME = "bootstrap.records"
_FIRST_HEADER = struct.Struct(">II")
BOOTSTRAP = OffsetAndEpoch(Offset(0), Epoch(0))
"""The snapshot of nothing."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Identity that `raftctl storage format` wrote into one log directory."""

    cluster_id: str
    node_id: int
    directory_id: UUID

    @classmethod
    def load(cls, files: FileSystem, directory: str) -> MetaProperties | None:
        """Read the directory's file; None if it is not formatted. Raises ConfigError."""
        path = f"{directory}/{FILE_NAME}"
        try:
            text = read_file(files, path).decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise ConfigError(f"{path}: not a properties file; format the directory") from None
        values = _parse(text)
        try:
            if values["version"] != "1":
                raise ConfigError(f"{path}: version {values['version']} is not 1")
            node_id, directory_id = int(values["node.id"]), parse_uuid(values["directory.id"])
            return cls(values["cluster.id"], node_id, directory_id)
        except KeyError as error:
            raise ConfigError(f"{path}: {error.args[0]} is missing; restore the file") from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}; restore the file") from None

    def save(self, files: FileSystem, directory: str) -> None:
        """Write the directory's file, durably. Blocks."""
        lines = [
            "version=1",
            f"cluster.id={self.cluster_id}",
            f"node.id={self.node_id}",
            f"directory.id={uuid_text(self.directory_id)}",
        ]
        replace_file(files, f"{directory}/{FILE_NAME}", "\n".join([*lines, ""]).encode())

    def check(self, directory: str, *, node_id: int, cluster_id: str | None = None) -> None:
        """Raise ConfigError if the directory is another node's, or of another cluster."""
        if self.node_id != node_id:
            raise ConfigError(
                f"node.id: {directory} belongs to node {self.node_id}, not {node_id}; "
                "correct node.id or log.dirs"
            )
        if cluster_id is not None and self.cluster_id != cluster_id:
            raise ConfigError(
                f"log.dirs: {directory} belongs to cluster {self.cluster_id}, not {cluster_id}; "
                "name directories of one cluster"
            )


def load_directories(
    files: FileSystem, directories: Sequence[str], node_id: int
) -> dict[str, MetaProperties]:
    """Read every log directory of a node, all of which must be its own and of one cluster.

    The metadata log's comes first. Another that the disk does not let be read is left out: its
    partitions are offline, and the node serves the rest (KIP-858). Raises ConfigError for the first
    that is not formatted or belongs elsewhere, and OSError for the metadata log's.
    """
    found: dict[str, MetaProperties] = {}
    for directory in directories:
        try:
            properties = MetaProperties.load(files, directory)
        except OSError:
            if not found:
                raise
            continue
        if properties is None:
            raise ConfigError(f"log.dirs: {directory} is not formatted; run raftctl storage format")
        cluster_id = next((one.cluster_id for one in found.values()), None)
        properties.check(directory, node_id=node_id, cluster_id=cluster_id)
        found[directory] = properties
    return found


def _parse(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_initial_voters(
    files: FileSystem, metadata_directory: str, voters: VoterSet, timestamp_ms: int
) -> None:
    """Write the voters into a directory that has no metadata log yet, durably. Blocks."""
    directory = f"{metadata_directory}/{METADATA_LOG_NAME}"
    if not files.is_directory(directory):
        files.make_directories(directory)
        files.sync_directory(metadata_directory)
    SnapshotStore(files, directory).write(BOOTSTRAP, timestamp_ms, (), voters)


def write_first_records(
    files: FileSystem, metadata_directory: str, payload: bytes, count: int
) -> None:
    """Write `count` packed records with which the cluster begins, durably. Blocks."""
    header = _FIRST_HEADER.pack(count, crc32c(payload))
    replace_file(files, f"{metadata_directory}/{FIRST_RECORDS_NAME}", header + payload)


def load_first_records(files: FileSystem, metadata_directory: str) -> tuple[bytes, int]:
    """Return packed records and their number; none if the disk was formatted without any.

    ConfigError if the file is damaged. Blocks.
    """
    path = f"{metadata_directory}/{FIRST_RECORDS_NAME}"
    try:
        content = read_file(files, path)
    except FileNotFoundError:
        return b"", 0
    payload = content[_FIRST_HEADER.size :]
    try:
        count, checksum = _FIRST_HEADER.unpack_from(content)
    except struct.error:
        count, checksum = 0, -1
    if checksum != crc32c(payload):
        raise ConfigError(f"{path}: it is damaged; format the directory again, or remove the file")
    return payload, count

"""The voters with which a quorum begins, as the formatting of a disk writes them (KIP-853).

They stand in the header of a snapshot of nothing, `00000000000000000000-0000000000.checkpoint`,
like Apache Kafka's bootstrap checkpoint. The first leader writes them into the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from raftctl.raft.voters import VoterSet
    from raftctl.runtime.api import FileSystem

METADATA_LOG_NAME = "__cluster_metadata-0"
BOOTSTRAP = OffsetAndEpoch(Offset(0), Epoch(0))
"""The snapshot of nothing."""


def write_initial_voters(
    files: FileSystem, metadata_directory: str, voters: VoterSet, timestamp_ms: int
) -> None:
    """Writes the voters into a directory that has no metadata log yet, durably. Blocks."""
    directory = f"{metadata_directory}/{METADATA_LOG_NAME}"
    if not files.is_directory(directory):
        files.make_directories(directory)
        files.sync_directory(metadata_directory)
    SnapshotStore(files, directory).write(BOOTSTRAP, timestamp_ms, (), voters)

"""Makes one replica's directory a quorum of itself, when the majority is lost for good (row Q8).

What that replica has becomes the truth, committed or not; what only the lost ones had is gone.
First a new epoch is made durable, so that no vote or record of an older one counts here any more,
then a record that names this replica as the only voter. Started, the node elects itself, and all of
its log is committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError
from raftctl.quorum._replica import open_log
from raftctl.raft.batch import Batch
from raftctl.raft.events import QuorumState
from raftctl.raft.messages import NO_NODE, Epoch, NodeId, Offset, ReplicaKey, Voter
from raftctl.raft.voters import VoterHistory, VoterSet, encode_voters
from raftctl.storage import METADATA_LOG_NAME, MetaProperties, QuorumStateStore
from raftctl.storage.log import SEGMENT_BYTES
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from raftctl.runtime.api import FileSystem
    from raftctl.storage.log import RecordLog

NO_TIMESTAMP_MS = -1
EPOCHS_AHEAD = 100_000
"""By how much the new quorum's epoch is beyond the newest that its disk knows of.

The lost voters may come back after all, as a majority of their own set, and elect leaders of newer
epochs than that disk has seen. Wherever they meet the new quorum, its epoch is the newer one: they
follow it, as observers, since their directories are not in its set, and none of its nodes gives its
leader up for theirs. What they commit among themselves until then is not part of the cluster.
"""


@dataclass(frozen=True, slots=True)
class Survivor:
    """What one replica has on its disk."""

    replica: ReplicaKey
    cluster_id: str
    epoch: Epoch
    """The newest that it knows of."""
    last_epoch: Epoch
    """Of its last record."""
    log_end_offset: Offset
    torn_bytes: int
    """Of an unfinished write at the end of the log; they were never acknowledged."""
    committed_offset: Offset
    """Everything below was committed for certain: the end of its newest snapshot. The high
    watermark itself is on no disk."""
    voters: VoterSet | None
    """The newest voters on its disk; None: those of its configuration."""


class Recovery:
    """An open directory; `close` it. Its lock must be held. All methods block."""

    def __init__(self, files: FileSystem, data_directory: str) -> None:
        """Raise ConfigError where there is no replica, and what damage on the disk raises."""
        directory = f"{data_directory}/{METADATA_LOG_NAME}"
        properties = MetaProperties.load(files, data_directory)
        if properties is None or not files.is_directory(directory):
            raise ConfigError(
                f"--dir {data_directory}: no replica of the metadata log here; name the directory "
                "of a controller that holds meta.properties"
            )
        snapshots = SnapshotStore(files, directory)
        self._states = QuorumStateStore(files, directory)
        state = self._states.load() or QuorumState(Epoch(0), NO_NODE, None)
        ids = snapshots.ids()
        if ids:
            snapshots.read(ids[-1])  # The node begins with it; nothing changes if it is damaged.
        self._log = open_log(files, directory, snapshots, SEGMENT_BYTES)
        self.survivor = Survivor(
            replica=ReplicaKey(NodeId(properties.node_id), properties.directory_id),
            cluster_id=properties.cluster_id,
            epoch=Epoch(max(state.epoch, self._log.last_epoch)),
            last_epoch=self._log.last_epoch,
            log_end_offset=self._log.end_offset,
            torn_bytes=self._log.torn_bytes,
            committed_offset=ids[-1].offset if ids else Offset(0),
            voters=_newest_voters(snapshots, self._log),
        )

    def rebuild(self, voter: Voter) -> Epoch:
        """Make the replica the only voter; return the epoch that says so. Durable on return."""
        survivor = self.survivor
        epoch = Epoch(survivor.epoch + EPOCHS_AHEAD)
        # In this order: a crash in between leaves an epoch that nobody leads, and can be repeated.
        self._states.save(QuorumState(epoch, NO_NODE, survivor.replica))
        payload = encode_voters(VoterSet([voter], dynamic=True))
        record = Batch(self._log.end_offset, epoch, 1, NO_TIMESTAMP_MS, True, payload)
        self._log.append(record)
        self._log.flush_now()
        return epoch

    def close(self) -> None:
        """Close the files."""
        self._log.close()


def _newest_voters(snapshots: SnapshotStore, log: RecordLog) -> VoterSet | None:
    at_start = snapshots.read(log.start).voters if log.start in snapshots.ids() else None
    history = VoterHistory(at_start or VoterSet((), dynamic=True))
    for batch in log.voter_batches:
        history.appended(batch)
    return history.newest if len(history.newest) else None

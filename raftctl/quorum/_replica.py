"""Opens this node's replica of the metadata log: locks, checks and recovers its directories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from raftctl.errors import ConfigError
from raftctl.loader import image_of
from raftctl.metadata.codec import pack_records
from raftctl.metadata.image import EMPTY_IMAGE, MetadataImage
from raftctl.metadata.records import LeaderChangeRecord
from raftctl.raft import RaftConfig, RaftCore, ReplicaLog
from raftctl.raft.batch import Batch
from raftctl.raft.events import QuorumState
from raftctl.raft.messages import NO_NODE, Epoch, NodeId, Offset, OffsetAndEpoch, ReplicaKey, Voter
from raftctl.raft.voters import NOT_KNOWN, VoterHistory, VoterSet, encode_voters
from raftctl.runtime.api import DirectoryLock
from raftctl.storage import (
    METADATA_LOG_NAME,
    CorruptQuorumStateError,
    MetaProperties,
    QuorumStateStore,
    load_directories,
)
from raftctl.storage.log import LOG_START, SEGMENT_BYTES, RecordLog, damaged_note, segment_bases
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from raftctl.config import NodeConfig
    from raftctl.config.addresses import Server
    from raftctl.runtime.api import FileSystem, Runtime
    from raftctl.storage.snapshots import Snapshot

BOOTSTRAP_ID = -2
"""The first of the stand-ins for servers whose ids are not known, counted downwards."""


@dataclass(frozen=True, slots=True)
class Replica:
    """State on this node's disks, recovered and locked."""

    cluster_id: str
    local: ReplicaKey
    log_directory_ids: dict[str, UUID]
    """Path to id, without the directories that could not be read."""
    log: RecordLog
    snapshots: SnapshotStore
    snapshot_id: OffsetAndEpoch | None
    """The newest snapshot."""
    image: MetadataImage
    """The metadata that the snapshot holds."""
    state_hash: str | None
    """The hash of that state; None if the snapshot bears none."""
    voters: VoterSet | None
    """The voters at the start of the log, if a snapshot names them; None: those configured."""
    states: QuorumStateStore
    state: QuorumState
    damaged_note: str | None
    """The path of the note of what was durable, if it could not be read; it was written again."""
    locks: tuple[DirectoryLock, ...]

    def release(self) -> None:
        """Give the directories free for another process."""
        for lock in self.locks:
            lock.release()


def open_replica(config: NodeConfig, runtime: Runtime) -> Replica:
    """Recover the replica. Blocks: call it on a worker.

    Raises ConfigError for directories that are not this node's, in use, or not formatted; nothing
    is changed then. Raises CorruptQuorumStateError or CorruptSnapshotError before recovery cuts
    anything, and CorruptLogError for damage that is more than a torn tail.
    """
    files = runtime.files
    properties = load_directories(files, config.directories, config.node_id)
    locks: list[DirectoryLock] = []
    try:
        locks.extend(files.lock_directory(path) for path in properties)
        directory = f"{config.metadata_directory}/{METADATA_LOG_NAME}"
        snapshots = SnapshotStore(files, directory)
        states = QuorumStateStore(files, directory)
        saved = states.load()
        snapshot_ids = snapshots.ids()
        snapshot_id = snapshot_ids[-1] if snapshot_ids else None
        snapshot = None if snapshot_id is None else snapshots.read(snapshot_id)
        if files.is_directory(directory):
            snapshots.remove_unfinished()
        note = damaged_note(files, directory)
        log = open_log(files, directory, snapshots, config.metadata_log_segment_bytes)
        voters = _voters_at_start(snapshots, snapshot_ids, log.start, snapshot)
        state = _state(states, saved, log.last_epoch)
    except BaseException:
        for lock in locks:
            lock.release()
        raise
    own = properties[config.metadata_directory]
    local = ReplicaKey(NodeId(config.node_id), own.directory_id)
    return Replica(
        cluster_id=own.cluster_id,
        local=local,
        log_directory_ids={
            path: properties[path].directory_id for path in config.log_dirs if path in properties
        },
        log=log,
        snapshots=snapshots,
        snapshot_id=snapshot_id,
        image=EMPTY_IMAGE if snapshot is None else image_of(snapshot),
        state_hash=None if snapshot is None else snapshot.state_hash,
        voters=voters,
        states=states,
        state=state,
        damaged_note=note,
        locks=tuple(locks),
    )


def _state(states: QuorumStateStore, saved: QuorumState | None, last_epoch: Epoch) -> QuorumState:
    """What was saved, which it was before the first record came.

    Without it this replica could vote a second time in the newest epoch.
    """
    if saved is None and last_epoch > 0:
        why = f"is missing, though the log has records of epoch {last_epoch}"
        raise CorruptQuorumStateError(states.path, why)
    return saved or QuorumState(Epoch(0), NO_NODE, None)


def open_log(
    files: FileSystem, directory: str, snapshots: SnapshotStore, segment_bytes: int
) -> RecordLog:
    """Open the log where its snapshots say that it starts; the newest must be whole. Blocks.

    The log starts with offset 0 or at the end of a snapshot. A log that does not hold the end of
    the newest snapshot was about to be replaced by it when the node stopped: that is done now.
    """
    ids = snapshots.ids()
    bases = segment_bases(files, directory) if files.is_directory(directory) else []
    start = LOG_START
    if ids and not bases:
        start = ids[-1]
    elif ids and bases[0] > 0:
        start = next((one for one in ids if one.offset >= bases[0]), ids[-1])
    log = RecordLog.open(files, directory, segment_bytes=segment_bytes, start=start)
    if ids and not log.contains(ids[-1]):
        log.reset(ids[-1])
        log.flush_now()
    return log


def _voters_at_start(
    snapshots: SnapshotStore,
    ids: list[OffsetAndEpoch],
    start: OffsetAndEpoch,
    newest: Snapshot | None,
) -> VoterSet | None:
    """The voters with which the log starts, from the snapshot that it goes on from."""
    if newest is None or start not in ids:
        return None
    at_start = newest if newest.snapshot_id == start else snapshots.read(start)
    return at_start.voters


def static_voters(config: NodeConfig) -> VoterSet:
    """Return the voters of `controller.quorum.voters`; unknown voters if there are none."""
    voters = [
        Voter(ReplicaKey(NodeId(one.node_id), None), one.host, one.port)
        for one in config.controller_quorum_voters
    ]
    return VoterSet(voters) if voters else NOT_KNOWN


def bootstrap_servers(config: NodeConfig) -> dict[NodeId, Server]:
    """Return `controller.quorum.bootstrap.servers` under the ids that stand for them."""
    servers = config.controller_quorum_bootstrap_servers
    return {NodeId(BOOTSTRAP_ID - place): server for place, server in enumerate(servers)}


def make_core(config: NodeConfig, replica: Replica, runtime: Runtime) -> RaftCore:
    """Return the quorum core on what was recovered."""
    log = replica.log
    return RaftCore(
        raft_config(config),
        replica.local,
        replica.voters or static_voters(config),
        replica.state,
        ReplicaLog(log.start_offset, log.end_offset, log.epoch_starts, log.start.epoch),
        runtime.random,
        _leader_change_payload,
        replica.snapshot_id,
        log.voter_batches,
    )


def raft_config(config: NodeConfig) -> RaftConfig:
    """Return the quorum's part of a node's configuration."""
    return RaftConfig(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        bootstrap_ids=tuple(bootstrap_servers(config)),
    )


def _leader_change_payload(
    leader_id: NodeId, voters: tuple[NodeId, ...], granting: tuple[NodeId, ...]
) -> bytes:
    return pack_records([LeaderChangeRecord(leader_id, voters, granting)])[0]


NO_TIMESTAMP_MS = -1
EPOCHS_AHEAD = 100_000
"""The distance of the new quorum's epoch from the newest that its disk knows of. The lost voters
may come back after all, as a majority of their own set, and elect leaders of newer epochs than that
disk has seen. Wherever they meet the new quorum, its epoch is the newer one: they follow it, as
observers, since their directories are not in its set, and no node of it leaves its leader for
theirs. Records that they commit among themselves until then are not part of the cluster."""


@dataclass(frozen=True, slots=True)
class Survivor:
    """State that one replica has on its disk."""

    replica: ReplicaKey
    cluster_id: str
    epoch: Epoch
    """The newest that it knows of."""
    last_epoch: Epoch
    """The epoch of its last record."""
    log_end_offset: Offset
    torn_bytes: int
    """The size of an unfinished write at the end of the log, which was never acknowledged."""
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

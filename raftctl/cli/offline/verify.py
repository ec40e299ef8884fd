"""`raftctl storage verify`: is what a node has on its disks whole? Changes nothing.

Reads every byte that recovery would read and more: the identity of each directory, the vote, every
snapshot, every batch of the metadata log, whether its records can be replayed, and whether the
states that come of it hash to what snapshots and log say (row Q13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.cli.offline.log_files import DamagedLogError, log_files, read_batches, records_of
from raftctl.codec import CodecError
from raftctl.errors import ConfigError, InvariantViolation
from raftctl.loader import StateDivergedError, image_of
from raftctl.metadata.codec import pack_records
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.records import StateHashRecord
from raftctl.raft.voters import VotersRecord
from raftctl.runtime.real import RealFileSystem
from raftctl.storage import (
    METADATA_LOG_NAME,
    CorruptQuorumStateError,
    MetaProperties,
    QuorumStateStore,
)
from raftctl.storage.log import damaged_note
from raftctl.storage.snapshots import (
    STATE_HASH_VERSION,
    CorruptSnapshotError,
    SnapshotStore,
    state_hash_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.config import NodeConfig
    from raftctl.raft.batch import Batch
    from raftctl.raft.messages import OffsetAndEpoch
    from raftctl.runtime.api import DirectoryLock

OK, TORN, UNKNOWN, DAMAGED = "ok", "torn tail", "unknown", "damaged"


class Finding(NamedTuple):
    """The verdict on one thing."""

    what: str
    state: str
    """OK, TORN (the node cuts it off when it starts: nothing is lost), UNKNOWN or DAMAGED."""
    detail: str


def verify(config: NodeConfig) -> list[Finding]:
    """Looks at all directories of the node. ConfigError if the node is running."""
    files = RealFileSystem()
    locks: list[DirectoryLock] = []
    try:
        # One after the other: what is locked must be given free should the next one fail.
        present = (path for path in config.directories if files.is_directory(path))
        locks.extend(files.lock_directory(path) for path in present)
        return list(_findings(files, config))
    finally:
        for lock in locks:
            lock.release()


def _findings(files: RealFileSystem, config: NodeConfig) -> Iterator[Finding]:
    for directory in config.directories:
        yield _identity(files, directory, config.node_id)
    log_directory = f"{config.metadata_directory}/{METADATA_LOG_NAME}"
    yield _vote(files, log_directory)
    store = SnapshotStore(files, log_directory)
    replay = _Replay()
    for snapshot_id in store.ids():
        yield _snapshot(store, snapshot_id, replay)
    if not files.is_directory(log_directory) or not any(
        name.endswith(".log") for name in files.names(log_directory)
    ):
        yield Finding(log_directory, OK, "no log yet")
    else:
        note = damaged_note(files, log_directory)
        if note is not None:
            why = "damaged, so batches that are missing at the end of the log are not missed"
            yield Finding(note, UNKNOWN, why)
        yield from _log(log_directory, replay)


def _identity(files: RealFileSystem, directory: str, node_id: int) -> Finding:
    try:
        found = MetaProperties.load(files, directory)
        if found is None:
            return Finding(directory, DAMAGED, "not formatted")
        found.check(directory, node_id=node_id)
    except ConfigError as error:
        return Finding(directory, DAMAGED, str(error))
    return Finding(directory, OK, f"node {found.node_id} of cluster {found.cluster_id}")


def _vote(files: RealFileSystem, directory: str) -> Finding:
    store = QuorumStateStore(files, directory)
    try:
        state = store.load()
    except CorruptQuorumStateError as error:
        return Finding(store.path, DAMAGED, str(error))
    if state is not None:
        return Finding(store.path, OK, f"epoch {state.epoch}")
    names = files.names(directory) if files.is_directory(directory) else []
    if any(name.endswith(".log") for name in names):
        return Finding(store.path, DAMAGED, "missing, though there is a log")
    return Finding(store.path, OK, "no vote yet")


def _snapshot(store: SnapshotStore, snapshot_id: OffsetAndEpoch, replay: _Replay) -> Finding:
    path = store.path(snapshot_id)
    try:
        snapshot = store.read(snapshot_id)
        image = image_of(snapshot)
    except CorruptSnapshotError as error:
        return Finding(path, DAMAGED, str(error))
    except (CodecError, InvariantViolation) as error:
        return Finding(path, DAMAGED, f"cannot be replayed: {error}")
    found = replay.know(image)
    if snapshot.state_hash is None:
        return Finding(path, OK, f"hashes to {found}, which it does not say itself")
    if snapshot.state_hash != found:
        return Finding(path, DAMAGED, f"hashes to {found}, and should to {snapshot.state_hash}")
    return Finding(path, OK, f"hashes to {found}")


def _log(directory: str, replay: _Replay) -> Iterator[Finding]:
    batches = records = 0
    end_offset = 0
    try:
        for place, batch in read_batches(log_files(directory)):
            batches, records = batches + 1, records + batch.count
            end_offset = batch.end_offset
            try:
                replay.add(batch)
            except (CodecError, InvariantViolation) as error:
                why = f"byte {place.position}: cannot be replayed: {error}"
                yield Finding(place.path, DAMAGED, why)
                return
            except StateDivergedError as error:
                yield Finding(place.path, DAMAGED, f"byte {place.position}: {error}")
    except DamagedLogError as error:
        why = f"byte {error.place.position}: {error.why}"
        yield Finding(error.place.path, TORN if error.torn else DAMAGED, why)
    yield Finding(directory, OK, f"{records} records in {batches} batches, to offset {end_offset}")
    if replay.hashes_found:
        compared = (
            f"{replay.equal} of {replay.hashes_found} state hashes were compared, and are equal"
        )
        yield Finding(directory, OK if replay.equal == replay.hashes_found else UNKNOWN, compared)


class _Replay:
    """Replays the log from the first batch at which some state is known, and compares hashes."""

    def __init__(self) -> None:
        self._known: dict[int, MetadataImage] = {EMPTY_IMAGE.offset: EMPTY_IMAGE}
        """By the offset of the last record that they hold."""
        self._image: MetadataImage | None = None
        self._transaction: MetadataDelta | None = None
        self._hashes: dict[int, str] = {}
        self.hashes_found = 0
        """State hashes in the log."""
        self.equal = 0

    def know(self, image: MetadataImage) -> str:
        """A state from which the log may go on; returns its hash."""
        self._known[image.offset] = image
        found = self._hashes[image.offset] = state_hash_of(pack_records(image.records()))
        return found

    def add(self, batch: Batch) -> None:
        """The next batch. Raises CodecError, InvariantViolation, StateDivergedError."""
        if self._image is None:
            self._image = self._known.get(batch.base_offset - 1)
        delta = self._transaction or MetadataDelta(self._image or EMPTY_IMAGE)
        self._transaction = None
        for offset, record in enumerate(records_of(batch), batch.base_offset):
            if isinstance(record, VotersRecord):
                continue  # no part of the metadata
            if self._image is not None or isinstance(record, StateHashRecord):
                delta.replay(record, offset)
        if delta.in_transaction:
            self._transaction = delta
        elif self._image is not None:
            self._image = delta.apply(batch.end_offset - 1, batch.epoch, batch.timestamp_ms)
            if delta.snapshot_marked:
                self.know(self._image)
        for record in delta.state_hashes or ():
            self._compare(record)

    def _compare(self, record: StateHashRecord) -> None:
        self.hashes_found += 1
        own = self._hashes.get(record.offset)
        if own is None or record.version != STATE_HASH_VERSION:
            return
        if own != record.state_hash:
            raise StateDivergedError(record.offset, own, record.state_hash, "this log")
        self.equal += 1


def replayed(delta: MetadataDelta, batch: Batch) -> MetadataDelta:
    """What is to be gone on with after a batch: a delta from the image at its end, or, while a
    transaction has not ended, from the image before it. Raises CodecError, InvariantViolation.
    """
    for offset, record in enumerate(records_of(batch), batch.base_offset):
        if not isinstance(record, VotersRecord):
            delta.replay(record, offset)
    if delta.in_transaction:
        return delta
    before = delta.image
    return MetadataDelta(delta.apply(batch.end_offset - 1, before.epoch, before.timestamp_ms))

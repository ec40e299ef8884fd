"""`raftctl storage verify`: is what a node has on its disks whole? Changes nothing.

Reads every byte that recovery would read and more: the identity of each directory, the vote, every
batch of the metadata log, and whether its records can be replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raftctl.cli.log_files import METADATA_LOG_NAME, DamagedLogError, log_files, read_batches
from raftctl.codec import CodecError
from raftctl.errors import ConfigError, InvariantViolation
from raftctl.metadata.delta import MetadataDelta
from raftctl.metadata.image import EMPTY_IMAGE, MetadataImage
from raftctl.metadata.record_codec import unpack_records
from raftctl.runtime.real import RealFileSystem
from raftctl.storage.meta_properties import MetaProperties
from raftctl.storage.quorum_state import CorruptQuorumStateError, QuorumStateStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.config import NodeConfig
    from raftctl.runtime.api import DirectoryLock

OK, TORN, DAMAGED = "ok", "torn tail", "damaged"


class Finding(NamedTuple):
    """The verdict on one thing."""

    what: str
    state: str
    """OK, TORN (the node cuts it off when it starts: nothing is lost) or DAMAGED."""
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
    if not files.is_directory(log_directory) or not any(
        name.endswith(".log") for name in files.names(log_directory)
    ):
        yield Finding(log_directory, OK, "no log yet")
    else:
        yield from _log(log_directory)


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
    return Finding(store.path, OK, "no vote yet" if state is None else f"epoch {state.epoch}")


def _log(directory: str) -> Iterator[Finding]:
    batches = records = 0
    end_offset = 0
    image: MetadataImage | None = EMPTY_IMAGE
    try:
        for place, batch in read_batches(log_files(directory)):
            batches, records = batches + 1, records + batch.count
            end_offset = batch.end_offset
            if image is EMPTY_IMAGE and batch.base_offset > 0:
                image = None  # The log goes on from a snapshot, which has the rest.
            if image is not None:
                try:
                    image = replayed(image, batch.payload, batch.count, batch.base_offset)
                except (CodecError, InvariantViolation) as error:
                    why = f"byte {place.position}: cannot be replayed: {error}"
                    yield Finding(place.path, DAMAGED, why)
                    return
    except DamagedLogError as error:
        why = f"byte {error.place.position}: {error.why}"
        yield Finding(error.place.path, TORN if error.torn else DAMAGED, why)
    yield Finding(directory, OK, f"{records} records in {batches} batches, to offset {end_offset}")


def replayed(image: MetadataImage, payload: bytes, count: int, base_offset: int) -> MetadataImage:
    """The image after a batch. Raises CodecError, InvariantViolation."""
    delta = MetadataDelta(image)
    for offset, record in enumerate(unpack_records(payload, count), base_offset):
        delta.replay(record, offset)
    return delta.apply(base_offset + count - 1, image.epoch, image.timestamp_ms)

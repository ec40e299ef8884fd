"""Reads a metadata log from its files without changing anything, as far as it is whole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from raftctl.errors import ConfigError
from raftctl.metadata.codec import unpack_records
from raftctl.raft.batch import CorruptBatchError
from raftctl.raft.messages import Offset
from raftctl.raft.voters import VotersRecord, decode_voters
from raftctl.runtime.real import RealFileSystem
from raftctl.storage import METADATA_LOG_NAME
from raftctl.storage.log import batch_bytes, read_recovery_point, scan, why_not_torn
from raftctl.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metadata.records import Record
    from raftctl.raft.batch import Batch
    from raftctl.storage.snapshots import Snapshot

_SEGMENT = re.compile(r"[0-9]{20}\.log")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch stands."""

    path: str
    position: int


class DamagedLogError(Exception):
    """What stands in a file is no batch, or not the one that belongs there."""

    def __init__(self, place: Place, why: str, *, torn: bool) -> None:
        self.place = place
        self.why = why
        self.torn = torn
        """True for a tail that a crash has cut short: it was never acknowledged."""
        super().__init__(f"{place.path}: byte {place.position}: {why}")


def log_files(target: str) -> list[str]:
    """The file itself, or the segments of a log directory (or of the directory above it)."""
    if Path(target).is_file():
        return [target]
    found = segments(metadata_directory(target))
    if not found:
        raise ConfigError(f"{target}: no metadata log there; name a segment or its directory")
    return found


def metadata_directory(target: str) -> str:
    """The directory of the metadata log, which this is or is the one above."""
    below = Path(target) / METADATA_LOG_NAME
    return str(below) if below.is_dir() else target


def segments(directory: str) -> list[str]:
    """The files of the log in a directory, in order."""
    return sorted(str(p) for p in Path(directory).glob("*.log") if _SEGMENT.fullmatch(p.name))


def read_snapshot(path: str) -> Snapshot:
    """A snapshot, named by its file, and checked. ConfigError if there is none."""
    store = SnapshotStore(RealFileSystem(), str(Path(path).parent))
    snapshot_id = store.find(Path(path).name)
    if snapshot_id is None or not Path(path).is_file():
        raise ConfigError(f"{path}: no snapshot; name one that is there")
    return store.read(snapshot_id)


def read_batches(paths: list[str]) -> Iterator[tuple[Place, Batch]]:
    """Every batch, checked: CRC, offsets without gaps, epochs that never go back.

    Raises DamagedLogError at the first that is not as it must be.
    """
    previous: Batch | None = None
    durable = _durable_end(Path(paths[-1]))
    for path in paths:
        for position, batch in _read_file(path, durable, last=path == paths[-1]):
            place = Place(path, position)
            if previous is not None and batch.base_offset != previous.end_offset:
                why = f"offset {batch.base_offset} after {previous.end_offset - 1}"
                raise DamagedLogError(place, why, torn=False)
            if previous is not None and batch.epoch < previous.epoch:
                why = f"epoch {batch.epoch} after {previous.epoch}"
                raise DamagedLogError(place, why, torn=False)
            previous = batch
            yield place, batch
    _check_end(paths[-1], previous, durable)


def _durable_end(newest: Path) -> Offset | None:
    """What the note beside a log says, which concerns its last segment. Read before the log is:

    a node that runs may add to it meanwhile.
    """
    segments = sorted(path.name for path in newest.parent.glob("*.log"))
    if not _SEGMENT.fullmatch(newest.name) or segments[-1:] != [newest.name]:
        return None
    return read_recovery_point(RealFileSystem(), str(newest.parent))


def _check_end(path: str, newest: Batch | None, durable: Offset | None) -> None:
    """As recovery does: batches that are missing as a whole leave no damage to be seen."""
    if durable is None:
        return
    end_offset = newest.end_offset if newest else int(Path(path).name[:20])
    if end_offset < durable:
        why = f"the log ends with offset {end_offset}, though all below {durable} was durable"
        raise DamagedLogError(Place(path, Path(path).stat().st_size), why, torn=False)


def _read_file(path: str, durable: Offset | None, *, last: bool) -> Iterator[tuple[int, Batch]]:
    try:
        file = RealFileSystem().open(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    name = Path(path).name
    end_offset = Offset(int(name[:20]) if _SEGMENT.fullmatch(name) else 0)
    try:
        size = file.size()
        for position, batch in scan(file, 0, size):
            if position == 0 and _SEGMENT.fullmatch(name) and batch.base_offset != end_offset:
                why = f"begins with offset {batch.base_offset}"
                raise DamagedLogError(Place(path, 0), why, torn=False)
            end_offset = batch.end_offset
            yield position, batch
    except CorruptBatchError as error:
        damage = why_not_torn(file, error, end_offset, last=last, recovery_point=durable)
        place = Place(path, error.position)
        raise DamagedLogError(place, damage or error.why, torn=damage is None) from None
    finally:
        file.close()


def records_of(batch: Batch) -> list[Record | VotersRecord]:
    """The records of a batch, those of the quorum itself among them. Raises CodecError."""
    voters = decode_voters(batch.payload) if batch.control else None
    if voters is not None:
        return [VotersRecord(voters.voters)]
    return [*unpack_records(batch.payload, batch.count)]


def size_of(batch: Batch) -> int:
    """The bytes that the batch takes in its file."""
    return batch_bytes(batch)

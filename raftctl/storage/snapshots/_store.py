"""Snapshots of the metadata on disk: the image written as records (KIP-630, row Q6).

A file `<20-digit end offset>-<10-digit epoch>.checkpoint` holds batches like the log's: a control
batch with the header, the records, a control batch with the footer. Offsets count from zero within
the file. Every batch has its CRC. The footer proves that nothing is missing, and holds the hash of
the records; their order is fixed, so that is the hash of the state.

A file appears under its name only when it is whole and durable: it is written as
`.checkpoint.part`, synced, renamed, and the directory synced. All methods block: call them on a
worker, one at a time.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from raftctl.codec import Codec, CodecError
from raftctl.errors import DiskError
from raftctl.raft.batch import (
    PREFIX_BYTES,
    Batch,
    CorruptBatchError,
    decode_batches,
    encode_batch,
    encoded_bytes,
)
from raftctl.raft.messages import Epoch, Offset, OffsetAndEpoch, Voter
from raftctl.raft.voters import VoterSet
from raftctl.storage.log import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from raftctl.runtime.api import File, FileSystem

BATCH_RECORDS_BYTES = 256 * 1024
"""Records share a batch up to this size."""
_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_PART = ".part"
VERSION = 1
STATE_HASH_VERSION = 3
"""Version of the hash of a state. Raise it whenever the packed records of a state change."""
_HASH_BYTES = 16
Piece = tuple[int, bytes]
"""(number of records, their bytes one after the other)."""


class CorruptSnapshotError(DiskError):
    """Damage of a snapshot file, with the file and the position. It stops the node."""

    def __init__(self, path: str, position: int, why: str) -> None:
        self.path = path
        self.position = position
        self.why = why
        super().__init__(
            f"{path}: corrupt at byte {position}: {why}; "
            "restore the disk, or format the directory again and join as a new replica"
        )


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The first record of a snapshot."""

    TYPE_ID: ClassVar[int] = 2
    version: int
    end_offset: int
    epoch: int
    timestamp_ms: int
    """Time of the last record that the snapshot stands for."""
    voters: tuple[Voter, ...] = ()
    """Voters at its end; empty if they were those of the configuration."""


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """The last record of a snapshot."""

    TYPE_ID: ClassVar[int] = 3
    record_count: int
    """Number of records between header and footer."""
    state_hash_version: int = 0
    state_hash: str = ""
    """Hash of their bytes, in hexadecimal digits."""


_CODEC: Codec[SnapshotHeader | SnapshotFooter] = Codec.tagged(SnapshotHeader, SnapshotFooter)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole snapshot as read."""

    snapshot_id: OffsetAndEpoch
    timestamp_ms: int
    batches: tuple[Batch, ...]
    """Batches of records, without header and footer."""
    state_hash: str | None
    """Hash of the state; None if the file holds none of this version."""
    voters: VoterSet | None = None
    """Voters at its end; None if they were those of the configuration."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A snapshot on disk."""

    snapshot_id: OffsetAndEpoch
    size: int
    timestamp_ms: int


class WrittenSnapshot(NamedTuple):
    """A snapshot just written, and the hash of its state."""

    file: SnapshotFile
    state_hash: str


class StateHash:
    """The hash of a state, over its packed records in the order that an image has.

    It depends on the state alone, neither on the records that led to it nor on the hash seed of the
    process. So replicas that took snapshots of one offset can compare their states.
    """

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=_HASH_BYTES)
        self.count = 0
        """Number of records so far."""

    def over(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Hash each piece and yield it."""
        for count, records in pieces:
            self._hash.update(records)
            self.count += count
            yield count, records

    def hex(self) -> str:
        """Return the hash in hexadecimal digits."""
        return self._hash.hexdigest()


def state_hash_of(records: Iterable[bytes]) -> str:
    """Return the hash of a state, given as packed records, one or more in each piece."""
    state = StateHash()
    for _ in state.over((1, one) for one in records):
        pass
    return state.hex()


class SnapshotStore:
    """The snapshots in the directory of the metadata log."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._pieces = SnapshotPieces()

    def path(self, snapshot_id: OffsetAndEpoch) -> str:
        """Return the path of the snapshot's file."""
        return f"{self._directory}/{snapshot_id.offset:020}-{snapshot_id.epoch:010}.checkpoint"

    def ids(self) -> list[OffsetAndEpoch]:
        """Return the ids of whole snapshots, the oldest first."""
        if not self._files.is_directory(self._directory):
            return []
        names = (_NAME.fullmatch(name) for name in self._files.names(self._directory))
        return [OffsetAndEpoch(Offset(int(n[1])), Epoch(int(n[2]))) for n in names if n]

    def remove_unfinished(self) -> None:
        """Remove files of snapshots that a crash interrupted, written or fetched."""
        for name in self._files.names(self._directory):
            if name.endswith(_PART) and _NAME.fullmatch(name.removesuffix(_PART)):
                self._files.remove(f"{self._directory}/{name}")

    def write(
        self,
        snapshot_id: OffsetAndEpoch,
        timestamp_ms: int,
        pieces: Iterable[Piece],
        voters: VoterSet | None = None,
    ) -> WrittenSnapshot:
        """Write a snapshot of packed records, durably; `voters` are those at its end.

        Each piece is a batch, so it is small beside the largest of those.
        """
        file = self._begin(snapshot_id)
        state = StateHash()
        try:
            for batch in _batches(snapshot_id, timestamp_ms, state.over(pieces), voters):
                file.append([encode_batch(batch)])
            file.append([encode_batch(_footer(snapshot_id, timestamp_ms, state))])
            size = file.size()
            self._finish(snapshot_id, file)
        finally:
            file.close()
        return WrittenSnapshot(SnapshotFile(snapshot_id, size, timestamp_ms), state.hex())

    def write_chunk(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Write a fetched piece; position 0 begins the file again.

        Raises CorruptSnapshotError if the bytes before the piece are missing: another snapshot may
        have been begun meanwhile, which removed them.
        """
        path = self.path(snapshot_id) + _PART
        if position and not self._files.exists(path):
            raise CorruptSnapshotError(path, 0, f"the first {position} bytes are gone")
        file = self._files.open(path) if position else self._begin(snapshot_id)
        try:
            if file.size() < position:
                raise CorruptSnapshotError(path, file.size(), f"less than {position} bytes")
            file.truncate(position)
            file.append([data])
        finally:
            file.close()

    def finish_fetched(self, snapshot_id: OffsetAndEpoch) -> Snapshot:
        """Check a fetched snapshot as a whole and make it durable.

        Raises CorruptSnapshotError if it is damaged. It gets no name then, so that a restart does
        not take it for the state of the log.
        """
        path = self.path(snapshot_id) + _PART
        file = self._files.open(path)
        try:
            snapshot = _read(path, file, snapshot_id)
            self._finish(snapshot_id, file)
        finally:
            file.close()
        return snapshot

    def _begin(self, snapshot_id: OffsetAndEpoch) -> File:
        self.remove_unfinished()  # an earlier fetch may have been abandoned for this snapshot
        return self._files.open(self.path(snapshot_id) + _PART, create=True)

    def _finish(self, snapshot_id: OffsetAndEpoch, file: File) -> None:
        file.sync()
        path = self.path(snapshot_id)
        self._files.rename(path + _PART, path)
        self._files.sync_directory(self._directory)

    def read(self, snapshot_id: OffsetAndEpoch) -> Snapshot:
        """Read a snapshot and check all of it. Raises CorruptSnapshotError."""
        path = self.path(snapshot_id)
        file = self._files.open(path)
        try:
            return _read(path, file, snapshot_id)
        finally:
            file.close()

    def find(self, name: str) -> OffsetAndEpoch | None:
        """Return the snapshot whose file has this name; None if it is no snapshot's name."""
        found = _NAME.fullmatch(name)
        return OffsetAndEpoch(Offset(int(found[1])), Epoch(int(found[2]))) if found else None

    def stat(self, snapshot_id: OffsetAndEpoch) -> SnapshotFile:
        """Return size and time of a snapshot, from its header. Raises CorruptSnapshotError."""
        path = self.path(snapshot_id)
        file = self._files.open(path)
        try:
            _, first = next(scan(file, 0, file.size()))
            header = _header(path, first, snapshot_id)
            return SnapshotFile(snapshot_id, file.size(), header.timestamp_ms)
        except (CorruptBatchError, StopIteration):
            raise CorruptSnapshotError(path, 0, "no header") from None
        finally:
            file.close()

    def read_chunk(
        self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int
    ) -> tuple[int, bytes] | None:
        """Return (size of the file, bytes from the position); None without such a snapshot.

        Raises CorruptSnapshotError if the bytes are not those that were written.
        """
        path = self.path(snapshot_id)
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            return None
        try:
            return file.size(), self._pieces.read(path, file, position, max_bytes)
        except CorruptBatchError as error:
            raise CorruptSnapshotError(path, error.position, error.why) from None
        finally:
            file.close()

    def remove(self, snapshot_ids: Sequence[OffsetAndEpoch]) -> None:
        """Delete snapshots, durably."""
        for snapshot_id in snapshot_ids:
            self._files.remove(self.path(snapshot_id))
        self._files.sync_directory(self._directory)


# --- the format -----------------------------------------------------------------------------------


def _batches(
    snapshot_id: OffsetAndEpoch,
    timestamp_ms: int,
    pieces: Iterable[Piece],
    voters: VoterSet | None,
) -> Iterator[Batch]:
    epoch, at = snapshot_id.epoch, Offset(0)
    known = voters.voters if voters is not None and voters.dynamic else ()
    header = SnapshotHeader(VERSION, snapshot_id.offset, epoch, timestamp_ms, known)
    yield Batch(at, epoch, 1, timestamp_ms, True, _CODEC.pack(header))
    at = Offset(1)
    for count, records in pieces:
        yield Batch(at, epoch, count, timestamp_ms, False, records)
        at = Offset(at + count)


def _footer(snapshot_id: OffsetAndEpoch, timestamp_ms: int, state: StateHash) -> Batch:
    footer = SnapshotFooter(state.count, STATE_HASH_VERSION, state.hex())
    at = Offset(state.count + 1)
    return Batch(at, snapshot_id.epoch, 1, timestamp_ms, True, _CODEC.pack(footer))


def grouped(records: Iterable[bytes]) -> Iterator[Piece]:
    """Yield packed records in pieces, each large enough for a batch."""
    group: list[bytes] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record)
        if size >= BATCH_RECORDS_BYTES:
            yield len(group), b"".join(group)
            group, size = [], 0
    if group:
        yield len(group), b"".join(group)


def _read(path: str, file: File, snapshot_id: OffsetAndEpoch) -> Snapshot:
    batches: list[Batch] = []
    position, at = 0, 0
    try:
        for position, batch in scan(file, 0, file.size()):
            if batch.base_offset != at or batch.epoch != snapshot_id.epoch:
                raise CorruptSnapshotError(path, position, f"offset {batch.base_offset}")
            at = batch.end_offset
            batches.append(batch)
    except CorruptBatchError as error:
        raise CorruptSnapshotError(path, error.position, error.why) from None
    if not batches:
        raise CorruptSnapshotError(path, 0, "no header")
    header = _header(path, batches[0], snapshot_id)
    footer = _control(path, position, batches[-1])
    if not isinstance(footer, SnapshotFooter) or footer.record_count != at - 2:
        raise CorruptSnapshotError(path, position, "no footer: the end is missing")
    state_hash = _checked_hash(path, position, footer, batches[1:-1])
    voters = VoterSet(header.voters, dynamic=True) if header.voters else None
    return Snapshot(snapshot_id, header.timestamp_ms, tuple(batches[1:-1]), state_hash, voters)


def _checked_hash(
    path: str, position: int, footer: SnapshotFooter, batches: Sequence[Batch]
) -> str | None:
    if footer.state_hash_version != STATE_HASH_VERSION:
        return None
    found = state_hash_of(batch.payload for batch in batches)
    if found != footer.state_hash:
        why = f"its records hash to {found}, the footer says {footer.state_hash}"
        raise CorruptSnapshotError(path, position, why)
    return found


def _header(path: str, batch: Batch, snapshot_id: OffsetAndEpoch) -> SnapshotHeader:
    header = _control(path, 0, batch)
    if not isinstance(header, SnapshotHeader) or header.version > VERSION:
        raise CorruptSnapshotError(path, 0, "no header that is known")
    if (header.end_offset, header.epoch) != (snapshot_id.offset, snapshot_id.epoch):
        raise CorruptSnapshotError(path, 0, "the header is another snapshot's")
    return header


def _control(path: str, position: int, batch: Batch) -> SnapshotHeader | SnapshotFooter | None:
    try:
        return _CODEC.unpack(batch.payload) if batch.control else None
    except CodecError as error:
        raise CorruptSnapshotError(path, position, str(error)) from None


# --- pieces for other replicas --------------------------------------------------------------------


class SnapshotPieces:
    """Pieces of a snapshot's file for other replicas, none with a byte that no CRC covers.

    A piece begins and ends anywhere, so the batches that it touches are read and checked each time
    it is asked for. Where batches begin is found once for the file that was asked for last. Damage
    since a snapshot was written is found here, at a replica that has the image to write another.
    Used by one thread at a time.
    """

    def __init__(self) -> None:
        self._of = ("", 0)
        """Path and size of the file that `_starts` is about."""
        self._starts = array("q")

    def read(self, path: str, file: File, position: int, max_bytes: int) -> bytes:
        """Return bytes from the position on; none at the end. Raises CorruptBatchError."""
        size = file.size()
        starts = self._starts_in(path, file, size)
        end = min(size, position + max_bytes)
        if not 0 <= position < end:
            return b""
        begin = starts[bisect_right(starts, position) - 1]
        after = bisect_left(starts, end)
        data = file.read_at(begin, (starts[after] if after < len(starts) else size) - begin)
        _check_piece(data, begin)
        return data[position - begin : end - begin]

    def _starts_in(self, path: str, file: File, size: int) -> array[int]:
        if self._of != (path, size):
            self._starts = _batch_starts(file, size)
            self._of = path, size
        return self._starts


def _batch_starts(file: File, size: int) -> array[int]:
    """Return the position of each batch, from the lengths that they give.

    Raises CorruptBatchError unless the last one is the footer: a file that was cut would otherwise
    be sent as if it were whole, and only the fetching replica could notice.
    """
    starts = array("q")
    position = 0
    while position < size:
        starts.append(position)
        try:
            position += encoded_bytes(file.read_at(position, PREFIX_BYTES))
        except CorruptBatchError as error:
            raise CorruptBatchError(position, error.why, torn=error.torn) from None
    # The header is one, too.
    if len(starts) < 2 or not _check_piece(file.read_at(starts[-1], size - starts[-1]), starts[-1]):
        raise CorruptBatchError(size, "no footer: the end is missing", torn=True)
    return starts


def _check_piece(data: bytes, begin: int) -> bool:
    """Return whether the last of the batches is a control batch. Raises CorruptBatchError."""
    control = False
    try:
        for _, batch in decode_batches(data):
            control = batch.control
    except CorruptBatchError as error:
        raise CorruptBatchError(begin + error.position, error.why, torn=error.torn) from None
    return control


# --- retention ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Rule for deleting snapshots, and with them the prefix of the log that they hold (row Q6).

    Kafka's rules (KIP-630): only what a newer snapshot holds may go, so the newest always stays.
    The oldest goes first, while log and snapshots are larger than `metadata.max.retention.bytes` or
    while it is older than `metadata.max.retention.ms`. -1 stands for no limit.
    """

    max_bytes: int
    max_ms: int

    def expired(
        self,
        snapshots: Sequence[SnapshotFile],
        log_bytes_from: Callable[[Offset], int],
        wall_ms: int,
    ) -> list[SnapshotFile]:
        """Return the snapshots to delete; `snapshots` are in order, the oldest first.

        The log then starts at the end of the first one that is left, if any is expired.
        """
        gone = 0
        while gone < len(snapshots) - 1:
            size = sum(snapshot.size for snapshot in snapshots[gone:])
            size += log_bytes_from(snapshots[gone].snapshot_id.offset if gone else Offset(0))
            too_large = 0 <= self.max_bytes < size
            too_old = 0 <= self.max_ms < wall_ms - snapshots[gone].timestamp_ms
            if not (too_large or too_old):
                break
            gone += 1
        return list(snapshots[:gone])

"""Reads the files of a partition log for people: what stands in them, and whether it is whole.

The offline view for `raftctl log dump|verify`; it changes nothing and opens files one at a time, so
a broker may be running. A problem names the file and the byte at which it begins.

It trusts nothing that it reads: each file is walked from its start, and what follows the first
problem is not looked at. Past a batch of a wrong length every byte would look damaged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.log import checkpoints
from broker.log.batches import records
from broker.log.batches.compression import NAMES
from broker.log.batches.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    crc_matches,
    parse_header,
    shape_problem,
)
from broker.log.producers import producer_snapshot
from broker.log.segments import LazyFile, OffsetIndex, TimeIndex, aborted_index, segment_path
from raftctl.errors import ErrorCode, KafkaError
from raftctl.plugins import LogProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.runtime.api import FileSystem

Document = dict[str, Any]
_PARTITION_DIRECTORY = re.compile(r"[a-zA-Z0-9._-]+-\d+")
_METADATA_DIRECTORY = re.compile(r"__cluster_metadata-\d+")
_SEGMENT_FILE = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)")
_INDEX_BYTES_MAX = 1 << 31


class _Batch(NamedTuple):
    position: int
    header: BatchHeader
    data: bytes


def recognises(path: str) -> bool:
    """Return whether an absolute path is a partition's directory, or a file in one.

    The metadata log is none: its batches are of another format, which `raftctl` reads itself.
    """
    folder, _, name = path.rpartition("/")
    directory = folder.rpartition("/")[2] if _is_ours(name) else name
    return _is_partition(directory)


def _is_partition(directory: str) -> bool:
    is_metadata = _METADATA_DIRECTORY.fullmatch(directory) is not None
    return not is_metadata and _PARTITION_DIRECTORY.fullmatch(directory) is not None


def partition_files(files: FileSystem, path: str) -> list[str]:
    """Return the files to look at: one, a partition's, or all partitions' in a log directory."""
    if not files.is_directory(path):
        return [path]
    names = files.names(path)
    ours = [f"{path}/{name}" for name in names if _is_ours(name)]
    if ours:
        return ours
    directories = [
        name for name in names if _is_partition(name) and files.is_directory(f"{path}/{name}")
    ]
    return [one for name in directories for one in partition_files(files, f"{path}/{name}")]


def _is_ours(name: str) -> bool:
    others = (checkpoints.LEADER_EPOCHS, checkpoints.PARTITION_METADATA)
    return _SEGMENT_FILE.fullmatch(name) is not None or name in others


# --- dump -----------------------------------------------------------------------------------------


def dump(files: FileSystem, path: str, *, with_records: bool) -> Iterator[Document | LogProblem]:
    """Yield the entries of a file in order, and last the problem if it cannot be read on.

    An entry is a document for JSON: a batch, an index entry, a producer, an aborted transaction or
    a leader epoch. `with_records` adds the records of each batch, unpacked.
    """
    kind = path.rpartition(".")[2]
    try:
        if kind == "log":
            yield from _dump_segment(files, path, with_records=with_records)
        elif kind in ("index", "timeindex"):
            yield from _dump_index(files, path, kind)
        elif kind == aborted_index.SUFFIX:
            yield from _dump_aborted(files, path)
        elif kind == producer_snapshot.SUFFIX:
            yield from _dump_snapshot(files, path)
        elif path.endswith(checkpoints.LEADER_EPOCHS):
            for epoch, start in checkpoints.read_epochs(files, path):
                yield {"file": path, "leader_epoch": epoch, "start_offset": start}
        else:
            topic_id = checkpoints.read_topic_id(files, path.rpartition("/")[0])
            yield {"file": path, "topic_id": str(topic_id)}
    except KafkaError as error:
        yield LogProblem(path, 0, error.message)


def _dump_segment(
    files: FileSystem, path: str, *, with_records: bool
) -> Iterator[Document | LogProblem]:
    for one in _batches(files, path):
        if isinstance(one, LogProblem):
            yield one
            return
        # The CRC of the batch held, so records that cannot be read were produced so.
        document = _batch_document(path, one)
        if with_records:
            try:
                document["records"] = _record_documents(one)
            except KafkaError as error:
                document["records"] = [{"unreadable": error.message}]
        yield document


def _batch_document(path: str, batch: _Batch) -> Document:
    header = batch.header
    return {
        "file": path,
        "position": batch.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "codec": NAMES.get(header.codec, str(header.codec)),
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "control": header.is_control,
        "transactional": header.is_transactional,
        "delete_horizon_ms": header.delete_horizon_ms,
        "bytes": header.size,
        "crc": header.crc,
    }


def _record_documents(batch: _Batch) -> list[Document]:
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _text(record.key),
            "value": _text(records.value_of(record)),
        }
        for record in records.opened(batch.data, batch.header)
    ]


def _text(data: bytes | None) -> str | None:
    """Return bytes as text that JSON takes; bytes that are not UTF-8 are escaped."""
    return None if data is None else data.decode(errors="backslashreplace")


def _dump_index(files: FileSystem, path: str, kind: str) -> Iterator[Document]:
    names = ("offset", "position") if kind == "index" else ("timestamp", "offset")
    for number, entry in enumerate(_entries(files, path, kind)):
        yield {"file": path, "entry": number, names[0]: entry[0], names[1]: entry[1]}


def _dump_snapshot(files: FileSystem, path: str) -> Iterator[Document]:
    for producer_id, producer in producer_snapshot.read(files, path).items():
        yield {
            "file": path,
            "producer_id": producer_id,
            "epoch": producer.epoch,
            "last": [one._asdict() for one in producer.batches],
            "coordinator_epoch": producer.coordinator_epoch,
            "open_from": producer.open_from,
        }


def _dump_aborted(files: FileSystem, path: str) -> Iterator[Document | LogProblem]:
    index = aborted_index.AbortedIndex(files, path, _base_offset(path))
    try:
        for one in index.entries():
            yield {"file": path, **one._asdict()}
        if index.is_damaged:
            yield LogProblem(
                path, index.size, "this is no aborted transaction after the one before"
            )
    finally:
        index.close()


# --- verify ---------------------------------------------------------------------------------------


def verify(files: FileSystem, path: str) -> Iterator[LogProblem]:
    """Yield the problems of a file.

    A segment is opened to its records. An index is compared with the batches of its segment: an
    entry that leads to another place costs a look-up time, or leads past what it looks for.
    """
    kind = path.rpartition(".")[2]
    if kind == "log":
        yield from _verify_segment(files, path)
    elif kind in ("index", "timeindex"):
        yield from _verify_index(files, path, kind)
    else:
        yield from (
            one for one in dump(files, path, with_records=False) if isinstance(one, LogProblem)
        )


def _verify_segment(files: FileSystem, path: str) -> Iterator[LogProblem]:
    for one in _batches(files, path):
        if isinstance(one, LogProblem):
            yield one
            return
        try:
            found = records.opened(one.data, one.header)
        except KafkaError as error:
            yield LogProblem(path, one.position, error.message)
            continue
        offsets = [record.offset for record in found]
        if offsets != sorted(set(offsets)) or (offsets and offsets[-1] > one.header.last_offset):
            yield LogProblem(path, one.position, "offsets of records are out of order")


def _verify_index(files: FileSystem, path: str, kind: str) -> Iterator[LogProblem]:
    base = int(path.rpartition("/")[2].partition(".")[0])
    segment = segment_path(path.rpartition("/")[0], base, "log")
    if not files.exists(segment):
        yield LogProblem(path, 0, f"{segment} is missing")
        return
    try:
        entries = _entries(files, path, kind)
    except KafkaError as error:
        yield LogProblem(path, 0, error.message)
        return
    batches = [one for one in _batches(files, segment) if isinstance(one, _Batch)]
    # The bytes of an entry: two numbers of 32 bits, or a timestamp of 64 and an offset of 32.
    size = 8 if kind == "index" else 12
    positions = {one.header.last_offset: one.position for one in batches}
    newest: dict[int, int] = {}
    # The time index has the largest timestamp up to an offset, not that of the batch itself: else a
    # batch with older records would hide newer ones before it.
    largest = -1
    for one in batches:
        largest = max(largest, one.header.max_timestamp)
        newest[one.header.last_offset] = largest
    for number, (first, second) in enumerate(entries):
        if kind == "index" and positions.get(first) != second:
            yield LogProblem(path, number * size, f"no batch at {second} ends with offset {first}")
        elif kind == "timeindex" and newest.get(second) != first:
            why = f"up to offset {second} the newest record is of {newest.get(second)}, not {first}"
            yield LogProblem(path, number * size, why)


# --- reading --------------------------------------------------------------------------------------


def _batches(files: FileSystem, path: str) -> Iterator[_Batch | LogProblem]:
    """Yield each batch up to the first that is not whole, and then its problem.

    The file is read batch by batch, so that a caller that keeps none needs little memory.
    """
    file, position, next_offset = files.open(path), 0, 0
    try:
        size = file.size()
        while position < size:
            head = file.read_at(position, HEADER_BYTES)
            if len(head) < HEADER_BYTES:
                yield LogProblem(path, position, f"{len(head)} bytes are no batch header")
                return
            header = parse_header(head)
            data = b"" if shape_problem(header) else file.read_at(position, header.size)
            why = _batch_problem(header, data, next_offset)
            if why is not None:
                yield LogProblem(path, position, why)
                return
            yield _Batch(position, header, data)
            position, next_offset = position + header.size, header.next_offset
    finally:
        file.close()


def _batch_problem(header: BatchHeader, data: bytes, next_offset: int) -> str | None:
    shape = shape_problem(header)
    if shape is not None:
        return shape
    if len(data) < header.size:
        return f"the batch has {header.size} bytes, {len(data)} are left"
    if not crc_matches(data, header):
        return "the CRC32C is wrong"
    # Holes are as they should be: compaction leaves them.
    if header.base_offset < next_offset:
        return f"offset {header.base_offset} after {next_offset - 1}"
    return None


def _entries(files: FileSystem, path: str, kind: str) -> list[tuple[int, int]]:
    """Return all entries. Raises KafkaError(KAFKA_STORAGE_ERROR) if they are not in order."""
    file = LazyFile(files, path, exists=True)
    index_type = OffsetIndex if kind == "index" else TimeIndex
    index = index_type(file, _base_offset(path), _INDEX_BYTES_MAX)
    try:
        problem = index.problem()
        if problem is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem)
        return [(entry[0], entry[1]) for entry in index.entries()]
    finally:
        index.close()


def _base_offset(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0])

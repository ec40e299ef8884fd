"""The small text files beside the segments, in Apache Kafka's formats.

A checkpoint is a version line, a count line and a line for each entry. All are replaced
atomically (`raftctl.runtime.api.replace_file`), so a malformed one is damage, not a crash. An empty
one counts as none, as with Apache Kafka.

For each log directory:

- high watermarks: where readers may read after a start, before followers have reported;
- recovery points: everything below is durable, so a start after a crash checks what is above;
- log starts: records below are deleted, though their segment is still there;
- cleaned offsets: up to where each compacted log is clean.

For each partition: the start offset of each leader epoch, and the topic id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.types import TopicPartition
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.ids import parse_uuid, uuid_text
from raftctl.runtime.api import read_file, replace_file, replace_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from raftctl.runtime.api import FileSystem

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
_VERSION = "0"


def write_offsets(files: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint that has an offset for each partition; blocks.

    The partitions are sorted, so that two checkpoints can be compared by eye.
    """
    # Apache Kafka's tools refuse the whole file for one negative offset.
    invariant(min(offsets.values(), default=0) >= 0, "an offset is not negative")
    lines = (f"{key.topic} {key.partition} {offsets[key]}" for key in sorted(offsets))
    _write(files, path, lines)


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Read such a checkpoint; empty if there is none.

    Raises KafkaError(KAFKA_STORAGE_ERROR) if it is damaged.
    """
    offsets = {}
    for fields in _read(files, path):
        topic, partition, offset = _columns(path, fields, 3)
        offsets[TopicPartition(topic, _integer(path, partition))] = _integer(path, offset)
    return offsets


def write_epochs(files: FileSystem, path: str, entries: Iterable[tuple[int, int]]) -> None:
    """Replace the leader epochs of one partition, (leader epoch, start offset); blocks."""
    _write(files, path, (f"{epoch} {start}" for epoch, start in entries))


def read_epochs(files: FileSystem, path: str) -> list[tuple[int, int]]:
    """Return (leader epoch, start offset), oldest first; otherwise like `read_offsets`."""
    entries = []
    for fields in _read(files, path):
        epoch, start = _columns(path, fields, 2)
        entries.append((_integer(path, epoch), _integer(path, start)))
    return entries


def write_topic_ids(files: FileSystem, topic_ids: Mapping[str, UUID]) -> None:
    """Write `partition.metadata`, the topic id of a directory's partition; blocks."""
    replace_files(
        files,
        {
            f"{directory}/{PARTITION_METADATA}": (
                f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}\n".encode()
            )
            for directory, topic_id in topic_ids.items()
        },
    )


def read_topic_id(files: FileSystem, directory: str) -> UUID | None:
    """Return the topic id of a directory; None if it was never written.

    Raises KafkaError(KAFKA_STORAGE_ERROR) if the file is damaged. The log then counts as unknown:
    it may be of a deleted topic of the same name, whose records must not come back.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        lines = _text(files, path).splitlines()
    except FileNotFoundError:
        return None
    fields = dict(line.partition(": ")[::2] for line in lines)
    try:
        return parse_uuid(fields["topic_id"])
    except (KeyError, ValueError):
        raise _damaged(path, "no topic id in it") from None


def _write(files: FileSystem, path: str, lines: Iterable[str]) -> None:
    body = list(lines)
    text = "\n".join([_VERSION, str(len(body)), *body]) + "\n"
    replace_file(files, path, text.encode())


def _read(files: FileSystem, path: str) -> list[list[str]]:
    try:
        lines = _text(files, path).splitlines()
    except FileNotFoundError:
        return []
    if not lines:
        return []
    # The count shows a file that ends early, though at the end of a line.
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        raise _damaged(path, "version or count is wrong")
    return [line.split(" ") for line in lines[2:]]


def _text(files: FileSystem, path: str) -> str:
    try:
        return read_file(files, path).decode()
    except UnicodeDecodeError:
        raise _damaged(path, "it is not text") from None


def _columns(path: str, fields: list[str], count: int) -> list[str]:
    if len(fields) != count:
        raise _damaged(path, f"{' '.join(fields)!r} has not {count} columns")
    return fields


def _integer(path: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _damaged(path, f"{text!r} is no number") from None


def _damaged(path: str, why: str) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is damaged: {why}")

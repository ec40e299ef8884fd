"""Batches and records of logs, read from files or from dumps of them.

`batch_headers` reads record batches from bytes. `read_dump` reads what `raftctl log dump` or
Kafka's `kafka-dump-log` prints, and recognizes the form line by line.

The package follows the published format, not a broker's code, so a bug of the broker stays
visible. It must not import raftctl or broker, and it decides nothing about correctness: the
checkers of `jepsen.checkers.replication` compare what is read here.

Invariants: a batch that is cut short at the end is not returned. Whether a batch's checksum
matches is for its caller to ask (`BatchHeader.is_right`).

Source: Kafka's record batch, magic 2 (KIP-98).
"""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from crc32c import crc32c

from jepsen.checkers.replication.trace import METADATA_LOG
from jepsen.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_HEADER = struct.Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
_PREFIX_BYTES = 12
"""Of base offset and length, which the length leaves out."""
_CHECKED_FROM = 21
"""What the CRC is of begins here."""


class BatchHeader(NamedTuple):
    """The header of a batch."""

    position: int
    """Its first byte."""
    size: int
    """All its bytes."""
    base_offset: int
    end_offset: int
    """Behind its last record."""
    epoch: int
    """Of the leader that appended it."""
    crc: int

    def is_right(self, data: bytes) -> bool:
        """Return whether these bytes, all of the batch, are as they were written."""
        return bool(crc32c(memoryview(data)[_CHECKED_FROM:]) == self.crc)


def batch_headers(data: bytes) -> Iterator[BatchHeader]:
    """Return the headers of consecutive batches, up to the first incomplete one."""
    position = 0
    while len(data) - position >= _HEADER.size:
        base, length, epoch, _magic, crc, _attributes, delta = _HEADER.unpack_from(data, position)
        size = _PREFIX_BYTES + length
        if length < _HEADER.size - _PREFIX_BYTES or len(data) - position < size:
            return
        yield BatchHeader(position, size, base, base + delta + 1, epoch, crc)
        position += size


_FILE = re.compile(r"Dumping (.+)")
_BATCH = re.compile(r"baseOffset: (\d+) .*partitionLeaderEpoch: (-?\d+)")
_RECORD = re.compile(r"(?:\| )?offset: (\d+) (.+)")
_SEGMENT = ".log"


class Held(NamedTuple):
    """A record as a replica has it."""

    partition: str
    """`topic-0`."""
    offset: int
    record: str
    """All of it, as text: what equal records have in common."""


def read_dump(path: Path) -> Iterator[Held]:
    """Return the records of a dump, in its order. Raises InputError, naming file and line."""
    reader = _Reader()
    try:
        with path.open(encoding="utf-8", errors="backslashreplace") as file:
            for line in file:
                yield from reader.read(line)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: line {reader.lines}: not a dump of a log: {_why(error)}"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _why(error: Exception) -> str:
    return f"it has no field {error}" if isinstance(error, KeyError) else str(error)


class _Reader:
    """Reads lines, some of which say to what those behind them belong."""

    def __init__(self) -> None:
        self.lines = 0
        self._partition = ""
        self._epoch = ""

    def read(self, line: str) -> Iterator[Held]:
        """The records of the next line. Raises ValueError and others if it is no line of a dump."""
        self.lines += 1
        if line.startswith("{"):
            yield from held_of(json.loads(line))
        elif found := _FILE.match(line):
            self._partition = _partition(found[1].strip())
        elif found := _BATCH.match(line):
            self._epoch = found[2]
        elif found := _RECORD.match(line):
            if not self._partition:
                raise ValueError("a record before the name of its file")
            yield Held(self._partition, int(found[1]), f"epoch {self._epoch} {found[2].rstrip()}")


def held_of(document: dict[str, Any]) -> Iterator[Held]:
    """Return the records of a batch in a segment; documents of other files hold none.

    Nor do those of the metadata log, which stands in the same data directory (it is judged by
    `jepsen check-servers`).
    """
    file = document.get("file")
    if not isinstance(file, str):
        raise ValueError("it names no `file`: print dumps with `raftctl log dump --output json`")
    partition = _partition(file)
    if partition == METADATA_LOG or not file.endswith(_SEGMENT):
        return
    if "leader_epoch" not in document:
        raise ValueError(f"a batch of {file} has no `leader_epoch`")
    epoch = document["leader_epoch"]
    if "records" not in document:
        last, crc = document["last_offset"], document["crc"]
        yield Held(partition, document["base_offset"], f"epoch {epoch} to {last} crc {crc}")
        return
    for record in document["records"]:
        text = json.dumps(record | {"control": document["control"]}, sort_keys=True)
        yield Held(partition, record["offset"], f"epoch {epoch} {text}")


def _partition(file: str) -> str:
    """The partition whose directory the file is in."""
    return file.rpartition("/")[0].rpartition("/")[2]

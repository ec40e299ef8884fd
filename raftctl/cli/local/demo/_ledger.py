"""What was written and acknowledged, what was read, and how they compare. Pure, no client.

A million lines are kept as arrays of numbers, about 40 bytes a line: a line's hash, its key, where
the cluster said it put it. Hashes are those of this process, which does both sides.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

PENDING, ACKNOWLEDGED, FAILED = 0, 1, 2
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many acknowledged lines are missing, how many records are too many or misplaced."""

    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0

    def __str__(self) -> str:
        return f"lost {self.lost}, duplicated {self.duplicated}, out of order {self.out_of_order}"

    @property
    def is_clean(self) -> bool:
        """Whether nothing at all is wrong."""
        return self == Verdict()

    def worse(self, other: Verdict) -> Verdict:
        """The larger of each number."""
        return Verdict(
            max(self.lost, other.lost),
            max(self.duplicated, other.duplicated),
            max(self.out_of_order, other.out_of_order),
        )


@dataclass(slots=True)
class Ledger:
    """The lines in the order they were given to the producer."""

    hashes: array[int] = field(default_factory=lambda: array("q"))
    keys: array[int] = field(default_factory=lambda: array("i"))
    partitions: array[int] = field(default_factory=lambda: array("i"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    states: bytearray = field(default_factory=bytearray)
    acknowledged: int = 0
    failed: int = 0
    _key_numbers: dict[bytes, int] = field(default_factory=dict)

    def add(self, key: bytes, value: bytes) -> int:
        """Notes a line before it is sent; its number."""
        self.hashes.append(hash((key, value)))
        self.keys.append(self._key_numbers.setdefault(key, len(self._key_numbers)))
        self.partitions.append(-1)
        self.offsets.append(NO_OFFSET)
        self.states.append(PENDING)
        return len(self.states) - 1

    def acknowledge(self, line: int, partition: int, offset: int | None) -> None:
        """The cluster has the line; a resent batch may be acknowledged without an offset."""
        self.states[line] = ACKNOWLEDGED
        self.partitions[line] = partition
        self.offsets[line] = NO_OFFSET if offset is None or offset < 0 else offset
        self.acknowledged += 1

    def fail(self, line: int) -> None:
        """The producer gave up: the cluster may have the line or not."""
        self.states[line] = FAILED
        self.failed += 1

    @property
    def settled(self) -> int:
        """Lines whose fate the producer has told."""
        return self.acknowledged + self.failed

    def __len__(self) -> int:
        return len(self.states)


@dataclass(slots=True)
class PartitionRecords:
    """The records of one partition, in the order of their offsets."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    hashes: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class ReadBack:
    """What one reader found."""

    partitions: dict[int, PartitionRecords] = field(default_factory=dict)
    count: int = 0
    repeated: int = 0
    """Records whose offset did not grow: given twice by the reader."""

    def add(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Notes a record."""
        records = self.partitions.get(partition)
        if records is None:
            records = self.partitions[partition] = PartitionRecords()
        self.count += 1
        if records.offsets and offset <= records.offsets[-1]:
            self.repeated += 1
            return
        records.offsets.append(offset)
        records.hashes.append(hash((key, value)))


def compare(ledger: Ledger, read: ReadBack) -> Verdict:
    """Judges one reader's view.

    An acknowledged line is lost unless the record at its offset is that line. Records that no line
    claims are duplicates, except that a line acknowledged without an offset, or given up, may
    claim an equal one.
    """
    claimed = {number: bytearray(len(one.offsets)) for number, one in read.partitions.items()}
    lost, unplaced = _claim(ledger, read, claimed)
    surplus = _unclaimed(read, claimed)
    for line in unplaced:
        if surplus[ledger.hashes[line]] > 0:
            surplus[ledger.hashes[line]] -= 1
        elif ledger.states[line] == ACKNOWLEDGED:
            lost += 1
    return Verdict(lost, surplus.total() + read.repeated, _out_of_order(ledger))


def _claim(ledger: Ledger, read: ReadBack, claimed: dict[int, bytearray]) -> tuple[int, list[int]]:
    """Marks what lines claim; the number of lines lost, and the lines with no place to look."""
    lost = 0
    unplaced = []
    nothing = PartitionRecords()
    places = zip(ledger.partitions, ledger.offsets, ledger.hashes, ledger.states, strict=True)
    for line, (partition, offset, of_line, state) in enumerate(places):
        if state != ACKNOWLEDGED or offset == NO_OFFSET:
            unplaced.append(line)
            continue
        records = read.partitions.get(partition, nothing)
        index = bisect_left(records.offsets, offset)
        is_there = index < len(records.offsets) and records.offsets[index] == offset
        if is_there and records.hashes[index] == of_line and not claimed[partition][index]:
            claimed[partition][index] = True
        else:
            lost += 1
    return lost, unplaced


def _unclaimed(read: ReadBack, claimed: dict[int, bytearray]) -> Counter[int]:
    """The hashes of the records that nobody claimed."""
    return Counter(
        of_record
        for partition, records in read.partitions.items()
        for of_record, is_claimed in zip(records.hashes, claimed[partition], strict=True)
        if not is_claimed
    )


def _out_of_order(ledger: Ledger) -> int:
    """Lines placed before an earlier line of their key, or in another partition than it."""
    last: dict[int, tuple[int, int]] = {}
    misplaced = 0
    places = zip(ledger.keys, ledger.partitions, ledger.offsets, ledger.states, strict=True)
    for key, partition, offset, state in places:
        if state != ACKNOWLEDGED or offset == NO_OFFSET:
            continue
        home, highest = last.get(key, (partition, NO_OFFSET))
        if partition != home or offset <= highest:
            misplaced += 1
        last[key] = home, max(highest, offset)
    return misplaced

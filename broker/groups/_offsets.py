"""The offsets that consumer groups commit: kept, fetched, deleted, forgotten when they are old.

A coordinator may have millions. They are kept as they stand in the log, and read when somebody asks
for them: that takes less than half of the memory, loads quicker, and leaves the garbage collector
nothing to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.coordinator import in_batches
from broker.coordinator.core import NOBODY, KeyValue
from broker.groups._records import (
    NO_EXPIRY,
    OFFSET_KEYS,
    OffsetKey,
    check_offset,
    is_plain,
    key_head,
    offset_key,
    offset_of,
    offset_record,
    offset_value,
    owner_of,
    read_partition,
)
from broker.log.batches.record_batch import NO_PRODUCER
from raftctl.errors import ErrorCode, KafkaError, invariant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from broker.coordinator.core import Journal, LogRecord
    from broker.groups._records import CommittedOffset
    from broker.types import TopicPartition

Committed = Sequence[tuple["TopicPartition", "CommittedOffset"]]
Owner = tuple[str, "TopicPartition"]
"""A group, and a partition that it reads."""


class GroupOffsets:
    """The offsets of one partition of `__consumer_offsets`.

    Those of a transaction wait in `_pending` until its marker comes. The marker says nothing of the
    order in which the log has them: an offset that the group committed by itself, after the one of
    the transaction, must not be undone by an earlier one that becomes valid later. So places in the
    log are kept while a transaction is open, and the later place wins (KIP-447).
    """

    def __init__(self, journal: Journal, metadata_bytes_max: int) -> None:
        self._journal = journal
        self._metadata_bytes_max = metadata_bytes_max
        self._groups: dict[str, dict[TopicPartition, bytes]] = {}
        """The values of the records."""
        self._pending: dict[int, dict[Owner, tuple[int, bytes]]] = {}
        """Producer id to the offsets that its open transaction writes, each with its place in the
        log."""
        self._places: dict[Owner, int] = {}
        """The places in the log of offsets that pending ones may overtake."""
        self._replayed = 0

    def invariants(self) -> None:
        """Stop the program if the indexes of offsets contradict each other."""
        invariant(all(self._groups.values()), "a group without offsets is not listed")
        invariant(all(self._pending.values()), "a producer without offsets is not waited for")
        invariant(bool(self._pending) or not self._places, "places are kept for open transactions")
        places = [*self._places.values()]
        places += [place for one in self._pending.values() for place, _ in one.values()]
        invariant(max(places, default=0) <= self._replayed, "a place is one that was replayed")

    def replay(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Take a record of the log; ValueError if it is none of an offset."""
        owner = group, partition = owner_of(key)
        if value is not None:
            check_offset(value)
        # Counts records, not offsets of the log: only their order matters.
        self._replayed += 1
        if producer_id != NO_PRODUCER:
            if value is not None:
                self._pending.setdefault(producer_id, {})[owner] = self._replayed, value
            return
        if self._pending:
            self._places[owner] = self._replayed
        offsets = self._groups.get(group)
        if value is None:
            self._remove(group, partition)
        elif offsets is None:
            self._groups[group] = {partition: value}
        else:
            offsets[partition] = value

    def replay_plain(self, records: Iterator[LogRecord]) -> LogRecord | None:
        """Take records of the log as `replay` does, in a third of the time, up to one that is not
        as nearly all are; return that one, or None after the last.

        Plain are offsets in the version that is written, without metadata; neighbours mostly are of
        one group.
        """
        if self._pending:
            # The places of offsets count then.
            return next(records, None)
        head, offsets = b"", None
        for record in records:
            key, value = record
            if key is None or value is None or not is_plain(value):
                return record
            try:
                if offsets is not None and key.startswith(head):
                    offsets[read_partition(key[len(head) :])] = value
                elif key[:2] in OFFSET_KEYS:
                    group, partition = owner_of(key)
                    offsets = self._groups.setdefault(group, {})
                    offsets[partition] = value
                    head = key_head(key)
                else:
                    return record
            except ValueError:
                return record
        return None

    def ended(self, producer_id: int, *, commit: bool) -> None:
        """Take the offsets of a transaction, unless others were written after them."""
        pending = self._pending.pop(producer_id, {})
        for owner, (place, value) in pending.items() if commit else ():
            if place >= self._places.get(owner, 0):
                group, partition = owner
                self._groups.setdefault(group, {})[partition] = value
                self._places[owner] = place
        if not self._pending:
            self._places.clear()

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Return whether an open transaction writes this offset."""
        owner = group_id, partition
        return any(owner in one for one in self._pending.values())

    def _remove(self, group: str, partition: TopicPartition) -> None:
        offsets = self._groups.get(group, {})
        offsets.pop(partition, None)
        if not offsets:
            self._groups.pop(group, None)

    def group_ids(self) -> list[str]:
        """Return the groups that have offsets."""
        return list(self._groups)

    def partitions(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions in which the group has an offset."""
        return self._groups.get(group_id, {}).keys()

    def of(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offsets in these partitions."""
        values = self._groups.get(group_id, {})
        found = ((one, values.get(one)) for one in partitions)
        return {one: None if value is None else offset_of(value) for one, value in found}

    def commit(
        self,
        group_id: str,
        offsets: Committed,
        producer: tuple[int, int] = NOBODY,
    ) -> dict[TopicPartition, ErrorCode]:
        """Write the offsets whose metadata is not too large; return each partition's error.

        `producer` is the id and epoch of a transaction, with which they count or not. Raises the
        KafkaError of the log, but not MESSAGE_TOO_LARGE: that is INVALID_COMMIT_OFFSET_SIZE here.
        """
        errors, records = self._records(group_id, offsets)
        try:
            if records:
                self._journal.append(records, producer)
        except KafkaError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            return {one: found or too_large for one, found in errors.items()}
        known = self.partitions(group_id)
        kept = producer != NOBODY or all(one in known for one, found in errors.items() if not found)
        invariant(kept, "what a group has committed is found")
        return errors

    def commit_together(
        self, commits: Sequence[tuple[str, Committed]]
    ) -> list[dict[TopicPartition, ErrorCode] | KafkaError]:
        """Write the offsets of several groups as one batch, or each one's if that is too large;
        what `commit` says of each.
        """
        made = [self._records(*one) for one in commits]
        records = [record for _, of_one in made for record in of_one]
        try:
            if records:
                self._journal.append(records)
        except KafkaError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                return [self._attempt(*one) for one in commits]
            return [error if of_one else errors for errors, of_one in made]
        return [errors for errors, _ in made]

    def _attempt(
        self, group_id: str, offsets: Committed
    ) -> dict[TopicPartition, ErrorCode] | KafkaError:
        try:
            return self.commit(group_id, offsets)
        except KafkaError as error:
            return error

    def _records(
        self, group_id: str, offsets: Committed
    ) -> tuple[dict[TopicPartition, ErrorCode], list[KeyValue]]:
        """Each partition's error, and the records of those without an error.

        OFFSET_METADATA_TOO_LARGE beyond `offset.metadata.max.bytes`: the text is the client's, and
        every byte of it is loaded by each coordinator to come.
        """
        errors: dict[TopicPartition, ErrorCode] = {}
        records: list[KeyValue] = []
        for partition, committed in offsets:
            errors[partition] = ErrorCode.NONE
            if len(committed.metadata.encode()) > self._metadata_bytes_max:
                errors[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            records.append(KeyValue(offset_key(group_id, *partition), offset_value(committed)))
        return errors, records

    def delete(
        self, group_id: str, partitions: Iterable[TopicPartition], last: Sequence[KeyValue] = ()
    ) -> None:
        """Write tombstones of the offsets that there are, in batches, and the `last` records.

        Raises the KafkaError of the log; batches before it have been written. The last records come
        after all tombstones, so a group is not gone while it has offsets.
        """
        known = self.partitions(group_id)
        keys = [OffsetKey(group_id, *one) for one in partitions if one in known]
        records = [*(offset_record(key, None) for key in keys), *last]
        for batch in in_batches(records):
            self._journal.append(batch)
        left = self.partitions(group_id)
        invariant(
            all((key.topic, key.partition) not in left for key in keys), "a tombstone deletes"
        )

    def expired(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        kept: tuple[set[str] | None, int],
        wall_ms: int,
        retention_ms: int,
    ) -> list[TopicPartition]:
        """Which of these partitions have offsets that are old enough to be forgotten, but for what
        the group keeps.

        Of a group without members all, some time after the last has left; of one that commits
        only, and of topics that nobody in the group reads any more, some time after the commit.
        """
        subscribed, since = kept
        if subscribed is None:
            return []
        values = self._groups.get(group_id, {})
        return [
            one
            for one in partitions
            if one.topic not in subscribed
            and (value := values.get(one)) is not None
            and wall_ms >= _expires(offset_of(value), since, retention_ms)
        ]

    def committed_before(
        self, group_id: str, partitions: Iterable[TopicPartition], topics: Mapping[str, int]
    ) -> list[TopicPartition]:
        """Which of these partitions belong to the topics and have offsets that are not newer than
        the time of their topic.
        """
        values = self._groups.get(group_id, {})
        return [
            one
            for one in partitions
            if one.topic in topics
            and (value := values.get(one)) is not None
            and offset_of(value).commit_timestamp <= topics[one.topic]
        ]


def _expires(committed: CommittedOffset, since_ms: int, retention_ms: int) -> int:
    """The wall clock time at which an offset may be forgotten.

    Clients before KIP-211 gave each commit a time of its own. Else it is
    `offsets.retention.minutes` after the commit, or after the group became empty: a consumer that
    commits rarely must not lose its place while it runs.
    """
    if committed.expire_timestamp != NO_EXPIRY:
        return committed.expire_timestamp
    return max(committed.commit_timestamp, since_ms) + retention_ms

"""What loads a coordinator's partition quickly reads as its plain form does (row G1)."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.coordinator._batches import batch_of
from broker.coordinator._cooperative import TurnQueue
from broker.coordinator._shard import STEP_RECORDS, replay_log
from broker.coordinator.core import KeyValue
from broker.groups import NO_EXPIRY, CommittedOffset
from broker.groups._offsets import GroupOffsets
from broker.groups._records import (
    OFFSET_KEY,
    OFFSET_KEYS,
    OFFSET_VALUE,
    OffsetKey,
    OffsetValue,
    check_offset,
    offset_key_of,
    offset_of,
    offset_record,
)
from broker.log.batches.record_batch import HEADER_BYTES, NO_PRODUCER, parse_header
from broker.log.batches.records import keys_and_values, opened, value_of
from broker.types import FetchResult, OffsetResult, TopicPartition
from raftctl.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.coordinator.core import Journal

LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
KEYS = st.builds(OffsetKey, st.text(max_size=5), st.text(max_size=5), INT)
OFFSETS = st.builds(CommittedOffset, LONG, INT, st.text(max_size=5), LONG, st.just(NO_EXPIRY))
CHANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=2)
BYTES = st.none() | st.binary(max_size=200)
NO_JOURNAL: Journal = cast("Journal", None)
"""Nothing is written here."""


def changed(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    """The bytes with some of them replaced."""
    found = bytearray(data)
    for position, byte in changes:
        if found:
            found[position % len(found)] = byte
    return bytes(found)


def result_of(call: Callable[[], Any], *errors: type[Exception]) -> Any:
    """What a call returns, or that it refuses."""
    try:
        return call()
    except errors:
        return "refused"


@given(key=KEYS, committed=OFFSETS)
def test_offsets_are_encoded_as_the_tables_say(key: OffsetKey, committed: CommittedOffset) -> None:
    record = offset_record(key, committed)
    assert record.key == OFFSET_KEY.encode(key._asdict())
    if committed.expire_timestamp == NO_EXPIRY:
        fields: OffsetValue = {
            "offset": committed.offset,
            "leader_epoch": committed.leader_epoch,
            "metadata": committed.metadata,
            "commit_timestamp": committed.commit_timestamp,
        }
        assert record.value == OFFSET_VALUE.encode(fields)
    assert offset_record(key, None) == (record.key, None)


@given(key=KEYS, committed=OFFSETS, changes=CHANGES)
def test_offsets_are_decoded_as_the_tables_say(
    key: OffsetKey, committed: CommittedOffset, changes: list[tuple[int, int]]
) -> None:
    record = offset_record(key, committed)
    assert record.value is not None
    key_bytes, value = changed(record.key, changes), changed(record.value, changes)
    found = result_of(lambda: offset_key_of(key_bytes), ValueError)
    if found != "refused":
        assert found._asdict() == OFFSET_KEY.decode(b"\0\1" + key_bytes[2:])
    plain = result_of(lambda: OFFSET_VALUE.decode(value), ValueError)
    offset = result_of(lambda: offset_of(value), ValueError)
    checked = result_of(lambda: check_offset(value), ValueError)
    assert (offset == "refused") == (checked == "refused") == (plain == "refused")
    if offset != "refused":
        missing = {"leader_epoch": -1, "expire_timestamp": NO_EXPIRY}
        plain.pop("topic_id", None)
        assert offset._asdict() == {**missing, **plain}
    if not changes:
        assert (found, offset) == (key, committed)


@example(records=[(None, b"\x00")], changes=[(5, 5)])  # a value of -3 bytes
@given(records=st.lists(st.tuples(BYTES, BYTES), min_size=1, max_size=4), changes=CHANGES)
def test_keys_and_values_are_those_of_the_opened_records(
    records: list[tuple[bytes | None, bytes | None]], changes: list[tuple[int, int]]
) -> None:
    batch = bytes(batch_of([KeyValue(key or b"", value) for key, value in records], 1))
    header = parse_header(batch, 0)
    damaged = batch[:HEADER_BYTES] + changed(batch[HEADER_BYTES:], changes)

    def plain() -> list[tuple[bytes | None, bytes | None]]:
        return [(one.key, value_of(one)) for one in opened(damaged, header)]

    expected = result_of(plain, KafkaError)
    assert result_of(lambda: keys_and_values(damaged, header), KafkaError) == expected


@given(
    runs=st.lists(st.tuples(BYTES, BYTES, st.integers(1, 150)), min_size=1, max_size=4),
    changes=CHANGES,
)
def test_records_with_the_layout_of_the_one_before_are_read_as_all_others(
    runs: list[tuple[bytes | None, bytes | None, int]], changes: list[tuple[int, int]]
) -> None:
    records = [KeyValue(key or b"", value) for key, value, count in runs for _ in range(count)]
    batch = bytes(batch_of(records, 1))
    header = parse_header(batch, 0)
    damaged = batch[:HEADER_BYTES] + changed(batch[HEADER_BYTES:], changes)

    def plain() -> list[tuple[bytes | None, bytes | None]]:
        return [(one.key, value_of(one)) for one in opened(damaged, header)]

    expected = result_of(plain, KafkaError)
    assert result_of(lambda: keys_and_values(damaged, header), KafkaError) == expected


RECORDS = st.one_of(
    st.builds(offset_record, KEYS, st.none() | OFFSETS),
    st.builds(
        offset_record,
        st.builds(OffsetKey, st.sampled_from("gh"), st.sampled_from("tu"), st.integers(0, 3)),
        st.builds(CommittedOffset, LONG, INT, st.just(""), LONG, st.just(NO_EXPIRY)),
    ),
    st.tuples(BYTES, BYTES),
)


@given(
    parts=st.lists(
        st.tuples(st.lists(RECORDS, max_size=8), st.sampled_from([-1, -1, 5])), max_size=6
    ),
    changes=CHANGES,
    ended=st.booleans(),
)
def test_records_of_offsets_are_replayed_together_as_one_by_one(
    parts: list[tuple[list[tuple[bytes | None, bytes | None]], int]],
    changes: list[tuple[int, int]],
    ended: bool,
) -> None:
    together, single = GroupOffsets(NO_JOURNAL, 100), GroupOffsets(NO_JOURNAL, 100)
    for records, producer_id in parts:
        damaged = [
            (key and changed(key, changes), value and changed(value, changes))
            for key, value in records
        ]
        left = iter(damaged)
        while producer_id == NO_PRODUCER and (other := together.replay_plain(left)) is not None:
            result_of(partial(replay_one, together, *other, producer_id), ValueError)
        for one in left:
            result_of(partial(replay_one, together, *one, producer_id), ValueError)
        for one in damaged:
            result_of(partial(replay_one, single, *one, producer_id), ValueError)
        for offsets in (together, single):
            if ended:
                offsets.ended(5, commit=True)
            offsets.invariants()
        assert all_of(together) == all_of(single)


def replay_one(
    offsets: GroupOffsets, key: bytes | None, value: bytes | None, producer_id: int
) -> None:
    """What a core does with a record of the log."""
    if key is not None and key[:2] in OFFSET_KEYS:
        offsets.replay(key, value, producer_id)


def all_of(offsets: GroupOffsets) -> dict[str, dict[TopicPartition, CommittedOffset | None]]:
    """Every offset of every group."""
    return {group: offsets.of(group, offsets.partitions(group)) for group in offsets.group_ids()}


@pytest.mark.parametrize("position", [4, 5])
def test_a_key_or_value_of_less_than_no_bytes_is_refused(position: int) -> None:
    batch = bytes(batch_of([KeyValue(b"", b"v")], 1))
    header = parse_header(batch, 0)
    damaged = batch[:HEADER_BYTES] + changed(batch[HEADER_BYTES:], [(position, 5)])
    for read in (opened, keys_and_values):
        with pytest.raises(KafkaError) as refused:
            read(damaged, header)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


class OneBatch:
    """A log of one large batch."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.batch = bytes(batch_of([KeyValue(b"key", b"value")] * count, 1))

    def fetch(self, params: Any, partitions: Any) -> list[FetchResult]:
        """Part of `LogReader`."""
        del params
        assert len(partitions) == 1
        return [FetchResult(ErrorCode.NONE, records=(self.batch,))]

    def list_offsets(self, lookups: Any, replica_id: int) -> list[OffsetResult]:
        """Part of `LogReader`."""
        del replica_id
        (asked,) = lookups
        return [OffsetResult(ErrorCode.NONE, offset=0 if asked.timestamp == -2 else self.count)]


@pytest.mark.req("G1")
async def test_others_have_their_turn_while_a_partition_is_loaded(
    slice_steps: Callable[[int], None],
) -> None:
    slice_steps(5)
    seen = 0
    turns: list[int] = []

    def replay(records: Sequence[tuple[bytes | None, bytes | None]], producer_id: int) -> None:
        nonlocal seen
        assert ({*records}, producer_id) == ({(b"key", b"value")}, -1)
        seen += len(records)

    async def others() -> None:
        while True:
            turns.append(seen)
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    count = 50 * STEP_RECORDS + 1
    partition = TopicPartition("__consumer_offsets", 0)
    log = OneBatch(count)
    assert (
        await replay_log(log, partition, 1, 1_000, replay, lambda *_: None, TurnQueue())
        == count
        == seen
    )
    task.cancel()
    gaps = [after - before for before, after in pairwise(turns)]
    assert max(gaps) <= 5 * STEP_RECORDS

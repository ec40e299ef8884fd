"""What compaction keeps, drops and never touches, and that a crash at any step is harmless."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import LogManager
from broker.log import _cleaner as compaction
from broker.log._cleaner import Cleaning, OffsetMap
from broker.log.batches import records
from broker.log.batches.record_batch import DELETE_HORIZON, parse_header
from broker.log.partition_log.retention import SegmentFacts
from broker.log.settings import LogSettings
from broker.types import TopicPartition
from jepsen.simulator.disk import SimDisk
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import TopicConfig
from tests.unit.broker.log.batches import keyed_batch, make_batch
from tests.unit.broker.log.fake_files import FakeFiles, FakeRuntime
from tests.unit.broker.log.logs import headers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from broker.log.batches.record_batch import BatchHeader
    from broker.log.batches.records import Record
    from broker.log.partition_log import PartitionLog
    from raftctl.runtime.api import FileSystem

T = TypeVar("T")

PARTITION = TopicPartition("t", 0)
CONFIG = TopicConfig(
    segment_bytes=600,
    index_interval_bytes=150,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=1_000,
    file_delete_delay_ms=0,
)


def never(error: BaseException) -> None:
    raise AssertionError(error)


class World:
    """A manager with one compacted log. Its clock stands still unless a test moves it."""

    def __init__(self, files: FileSystem, config: TopicConfig = CONFIG) -> None:
        self.files = files
        self.runtime = FakeRuntime()
        self.runtime.files = files
        self.config = config
        # Long intervals: the tests themselves say when something is done.
        settings = LogSettings(checkpoint_interval_ms=10**9, cleaner_backoff_ms=10**9)
        self.manager = LogManager(self.runtime, ["/d"], config, never, settings)

    async def start(self) -> PartitionLog:
        await self.manager.start()
        found = self.manager.get(PARTITION)
        return found or self.manager.create(PARTITION, UUID(int=1), self.config)

    async def clean(self) -> None:
        await self.manager.housekeeping.cleaner.clean()

    async def stop(self) -> None:
        await self.manager.stop()


def append(
    log: PartitionLog, *pairs: tuple[bytes, bytes | None], codec: int = 0, timestamp: int = 1_000
) -> None:
    log.append_as_leader(keyed_batch(list(pairs), codec=codec, timestamp=timestamp), 0, 0)
    log.high_watermark = log.log_end_offset


def contents(log: PartitionLog) -> list[Record]:
    found: list[Record] = []
    for header in headers(log):
        if header.last_offset >= log.log_start_offset:
            found += records.opened(batch_at(log, header), header)
    return found


def batch_at(log: PartitionLog, header: BatchHeader) -> bytes:
    offset = max(header.base_offset, log.log_start_offset)
    (data,) = log.read(offset, max_bytes=1, up_to_offset=2**62, min_one=True)
    return bytes(data)


def view(found: list[Record]) -> dict[bytes, tuple[int, bool]]:
    """What a consumer that reads all of it knows in the end."""
    return {r.key: (r.offset, r.has_value) for r in found if r.key is not None}


def fill(log: PartitionLog, keys: int, rounds: int, codec: int = 0) -> None:
    for number in range(rounds):
        for key in range(keys):
            append(log, (b"key-%d" % key, b"value-%d" % number), codec=codec)


@pytest.mark.req("L6")
@pytest.mark.parametrize("codec", range(5))
async def test_the_newest_value_of_each_key_stays_at_its_offset(codec: int) -> None:
    world = World(FakeFiles())
    log = await world.start()
    fill(log, 5, 20, codec)
    before, end = contents(log), log.log_end_offset
    active = log.segment_facts()[-1].base_offset
    await world.clean()
    after = contents(log)
    assert view(after) == view(before)
    assert len([one for one in after if one.offset < active]) <= 5
    assert {one.offset for one in after if one.offset >= active} == set(range(active, end))
    assert log.log_end_offset == end
    assert log.log_start_offset == 0
    for header in headers(log):
        assert header.codec == (codec if header.record_count else 0)
    # Whoever reads from anywhere gets the next record that is left.
    for offset in range(end):
        (data,) = log.read(offset, max_bytes=1, up_to_offset=end, min_one=True)
        assert parse_header(data).last_offset >= offset
    await world.stop()


@pytest.mark.req("L6", "L5")
async def test_with_both_policies_what_is_compacted_also_goes_by_its_age() -> None:
    both = dataclasses.replace(CONFIG, cleanup_policy=("compact", "delete"), retention_ms=5_000)
    world = World(FakeFiles(), both)
    log = await world.start()
    for number in range(20):
        append(log, (b"old-%d" % number, b"only value"), timestamp=1_000)
    young = log.log_end_offset
    for _ in range(10):
        for key in range(3):
            append(log, (b"key-%d" % key, b"value"), timestamp=10_000)
    before = view(contents(log))
    await world.clean()
    assert view(contents(log)) == before, "nothing is old yet"
    active = log.segment_facts()[-1].base_offset
    assert len([one for one in contents(log) if young <= one.offset < active]) <= 3
    assert log.expire(6_001) > 0
    left = view(contents(log))
    assert {key for key in left if key.startswith(b"key")} == {b"key-0", b"key-1", b"key-2"}
    assert len(left) < len(before)
    assert log.log_start_offset > 0
    await world.stop()


@pytest.mark.req("L6")
async def test_what_compaction_left_small_is_put_together_by_the_next() -> None:
    world = World(FakeFiles())
    log = await world.start()
    fill(log, 5, 20)
    await world.clean()
    small = len(log.segment_facts())
    append(log, *[(b"filler", b"v" * 50)] * 8)
    append(log, *[(b"filler", b"v" * 50)] * 8)
    before = view(contents(log))
    await world.clean()
    assert len(log.segment_facts()) < small / 2
    assert view(contents(log)) == before
    await world.stop()


@pytest.mark.req("L6")
async def test_a_restart_finds_the_compacted_log_and_where_it_is_clean() -> None:
    files = FakeFiles()
    world = World(files)
    log = await world.start()
    fill(log, 5, 20)
    await world.clean()
    expected = contents(log)
    await world.stop()
    active = log.segment_facts()[-1].base_offset
    checkpoint = bytes(files.file("/d/cleaner-offset-checkpoint").seen)
    assert checkpoint == b"0\n1\nt 0 %d\n" % active
    again = World(files)
    log = await again.start()
    assert contents(log) == expected
    syncs = files.syncs
    await again.clean()
    assert files.syncs == syncs
    await again.stop()


@pytest.mark.req("L6")
async def test_tombstones_stay_until_their_horizon() -> None:
    world = World(FakeFiles())
    log = await world.start()
    append(log, (b"gone", b"value"), (b"stays", b"value"))
    append(log, (b"gone", None))
    fill(log, 3, 8)
    await world.clean()
    stones = [h for h in headers(log) if h.attributes & DELETE_HORIZON]
    assert [h.delete_horizon_ms for h in stones] == [world.runtime.now_ms + 1_000]
    found = [one for one in contents(log) if one.key == b"gone"]
    assert [(one.offset, one.has_value, one.timestamp) for one in found] == [(2, False, 1_000)]
    world.runtime.now_ms += 999
    fill(log, 3, 8)
    await world.clean()
    assert view(contents(log))[b"gone"] == (2, False)
    world.runtime.now_ms += 1
    fill(log, 3, 8)
    await world.clean()
    assert b"gone" not in view(contents(log))
    assert view(contents(log))[b"stays"] == (1, True)
    await world.stop()


@pytest.mark.req("L6", "T1")
async def test_a_producers_last_batch_leaves_its_sequence_behind() -> None:
    files = FakeFiles()
    world = World(files)
    log = await world.start()
    for sequence in range(3):
        batch = keyed_batch([(b"k", b"v")], producer=(7, 0, sequence))
        log.append_as_leader(batch, 0, 0)
    fill(log, 1, 30)
    append(log, (b"k", b"newer"))
    fill(log, 1, 10)
    await world.clean()
    (left,) = [h for h in headers(log) if h.producer_id == 7]
    assert (left.base_offset, left.base_sequence, left.record_count) == (2, 2, 0)
    await world.stop()
    for name in files.names("/d/t-0"):
        if name.endswith(".snapshot"):
            files.remove(f"/d/t-0/{name}")
    log = await World(files).start()
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(keyed_batch([(b"k", b"v")], producer=(7, 0, 9)), 0, 0)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append_as_leader(keyed_batch([(b"k", b"v")], producer=(7, 0, 3)), 0, 0)


@pytest.mark.req("L6")
async def test_control_batches_stay() -> None:
    world = World(FakeFiles())
    log = await world.start()
    fill(log, 2, 3)
    control = make_batch([b"marker"], attributes=0x30, base_offset=log.log_end_offset)
    log.append_as_follower(control)
    fill(log, 2, 20)
    await world.clean()
    assert [h.base_offset for h in headers(log) if h.is_control] == [6]
    await world.stop()


@pytest.mark.req("L6")
async def test_what_is_young_or_not_committed_waits() -> None:
    world = World(FakeFiles(), dataclasses.replace(CONFIG, min_compaction_lag_ms=500))
    log = await world.start()
    fill(log, 3, 10)
    world.runtime.now_ms = 1_200
    before = contents(log)
    await world.clean()
    assert contents(log) == before
    world.runtime.now_ms = 2_000
    log.high_watermark = 0
    await world.clean()
    assert contents(log) == before
    log.high_watermark = log.log_end_offset
    await world.clean()
    assert len(contents(log)) < len(before)
    await world.stop()


@pytest.mark.req("L6")
async def test_the_dirtiest_goes_first_and_a_clean_one_not_at_all() -> None:
    facts = dirt_of(cleaned_to=0)
    assert (facts.ratio, facts.overdue) == (1.0, False)
    assert dirt_of(cleaned_to=20).ratio == 0.5
    assert dirt_of(cleaned_to=40).ratio == 0.0
    assert dirt_of(cleaned_to=20, high_watermark=35).ratio == pytest.approx(1 / 3)
    late = TopicConfig(max_compaction_lag_ms=100)
    assert dirt_of(cleaned_to=20, config=late, now_ms=135).overdue
    assert not dirt_of(cleaned_to=20, config=late, now_ms=129).overdue


def dirt_of(
    *,
    cleaned_to: int,
    high_watermark: int = 100,
    config: TopicConfig = CONFIG,
    now_ms: int = 100,
) -> compaction.Dirt:
    """Of four segments of ten records and an active one; timestamps are offsets."""
    facts = [SegmentFacts(base, base + 10, 100, base + 9) for base in range(0, 50, 10)]
    return compaction.dirt(
        facts, config, cleaned_to=cleaned_to, stable_offset=high_watermark, now_ms=now_ms
    )


@pytest.mark.req("L6")
async def test_few_keys_at_a_time_are_learnt_when_memory_is_small() -> None:
    world = World(FakeFiles())
    log = await world.start()
    fill(log, 40, 5)
    before = view(contents(log))
    cleaner = world.manager.housekeeping.cleaner
    cleaner._settings = LogSettings(cleaner_dedupe_buffer_bytes=24 * 7)
    await world.clean()
    assert view(contents(log)) == before
    active = log.segment_facts()[-1].base_offset
    assert len([one for one in contents(log) if one.offset < active]) <= 40
    await world.stop()


def test_a_key_that_the_map_does_not_know_stays() -> None:
    latest = OffsetMap(1 << 20)
    header = parse_header(keyed_batch([(b"a", b"1"), (b"b", b"2")]))
    found = records.opened(keyed_batch([(b"a", b"1"), (b"b", b"2")]), header)
    latest.learn(header, found[:1])
    assert [latest.is_latest(one) for one in found] == [True, True]
    assert not latest.is_latest(found[0]._replace(key=None, offset=0))


@pytest.mark.req("L6")
async def test_a_log_that_changes_meanwhile_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(FakeFiles())
    log = await world.start()
    fill(log, 3, 20)
    cleaner = world.manager.housekeeping.cleaner
    submit = cleaner._worker.submit
    steps = 0

    def interfere(call: Callable[[], T]) -> asyncio.Future[T]:
        nonlocal steps
        steps += 1
        if steps == 1:
            log.truncate_to(3)
        return submit(call)

    monkeypatch.setattr(cleaner._worker, "submit", interfere)
    await world.clean()
    assert log.log_end_offset == 3
    assert [one.offset for one in contents(log)] == [0, 1, 2]
    assert not any(name.endswith(".cleaned") for name in world.files.names("/d/t-0"))
    await world.stop()


@pytest.mark.req("L6")
async def test_records_that_cannot_be_read_stop_the_compaction_of_their_log_only() -> None:
    world = World(FakeFiles())
    log = await world.start()
    log.append_as_follower(make_batch([b"not zstd at all"], attributes=4))
    log.high_watermark = 1
    fill(log, 3, 20)
    before = headers(log)
    await world.clean()
    assert headers(log) == before
    assert world.runtime.events[-1][0] == "log_not_compacted"
    await world.stop()


@pytest.mark.req("L6")
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
async def test_whatever_was_written_the_last_value_of_each_key_is_what_it_was(seed: int) -> None:
    chance = random.Random(seed)
    world = World(FakeFiles())
    log = await world.start()
    for _ in range(chance.randrange(5)):
        for _ in range(chance.randrange(40)):
            pairs = [
                (b"%d" % chance.randrange(6), None if chance.random() < 0.2 else b"v" * 20)
                for _ in range(chance.randrange(1, 6))
            ]
            append(log, *pairs, codec=chance.randrange(5))
        if chance.random() < 0.3 and log.log_end_offset:
            log.delete_records(chance.randrange(log.log_end_offset))
        start = log.log_start_offset
        before = {k: v for k, v in view(contents(log)).items() if v[0] >= start}
        end = log.log_end_offset
        world.runtime.now_ms += chance.randrange(1_500)
        await world.clean()
        after = {k: v for k, v in view(contents(log)).items() if v[0] >= start}
        gone = [key for key in before if key not in after]
        assert all(not before[key][1] for key in gone)
        assert after == {key: before[key] for key in before if key not in gone}
        assert log.log_end_offset == end
        facts = log.segment_facts()
        for one, following in itertools.pairwise(facts):
            assert one.next_offset == following.base_offset
    await world.stop()


class Crash(BaseException):
    """The power fails within a disk operation."""


def compact_at_once(files: FileSystem, log: PartitionLog) -> None:
    """All that the cleaner and the rounds after it do, in one go."""
    dirt = compaction.dirt(
        log.segment_facts(), CONFIG, cleaned_to=0, stable_offset=log.high_watermark, now_ms=1_000
    )
    cleaning = Cleaning(files, log, dirt, now_ms=1_000, buffer_bytes=1 << 20)
    steps = cleaning.steps()
    try:
        for step in steps:
            if step is not None:
                assert log.replace_segments(step.replaced, step.segment)
    finally:
        with contextlib.suppress(Crash):
            steps.close()
    plan = log.flush_plan(rolled_only=True)
    assert plan is not None
    plan.run()
    for finish in log.take_retired():
        finish()


@pytest.mark.req("L6", "Q12")
@pytest.mark.parametrize("where", ["header", "key", "value", "offset"])
async def test_a_bit_that_flipped_is_never_given_a_checksum_that_is_right(where: str) -> None:
    """The cleaner packs records anew: it would hide the damage for ever."""
    disk = SimDisk(random.Random(1), lambda _detail: None)
    disk.make_directories("/d")
    world = World(disk)
    log = await world.start()
    for number in range(30):
        append(log, (b"key-%d" % (number % 3), b"value-%d" % number), (b"other", None))
    first = log.segment_facts()[0].base_offset
    path = f"/d/t-0/{first:020}.log"
    data = bytes(disk.byte(path, at) for at in range(disk.size(path)))
    at = {"header": 30, "key": data.index(b"key-"), "value": data.index(b"value-"), "offset": 0}
    bit = at[where] * 8 + 3
    disk.flip(path, bit)
    damaged = bytes(disk.byte(path, at) for at in range(disk.size(path)))
    await world.clean()
    assert bytes(disk.byte(path, at) for at in range(disk.size(path))) == damaged
    assert not [name for name in disk.names("/d/t-0") if name.endswith(".cleaned")]
    # When the bytes are right again, and more is complete, it is compacted.
    disk.flip(path, bit)
    expected = view(contents(log)) | {b"key-0": (log.log_end_offset, True)}
    for _ in range(9):
        append(log, (b"key-0", b"last"))
    expected[b"key-0"] = (log.log_end_offset - 1, True)
    await world.clean()
    assert view(contents(log)) == expected
    assert disk.size(path) < len(data)
    await world.stop()


@pytest.mark.req("L6")
@pytest.mark.parametrize("seed", range(24))
async def test_a_crash_at_any_step_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)
    disk = SimDisk(chance, lambda _detail: None)
    disk.make_directories("/d")
    disk.sync_directory("/")
    world = World(disk)
    log = await world.start()
    fill(log, 4, 15)
    append(log, (b"key-1", None))
    fill(log, 3, 5)
    before = view(contents(log))
    home = world.manager._directories[0]
    await home.flush(log, rolled_only=False)
    await home.write_checkpoints()
    operations, doomed = 0, chance.randrange(1, 120)

    def fail(operation: str, _path: str) -> None:
        nonlocal operations
        operations += operation not in ("read", "size")
        if operations >= doomed:
            raise Crash

    disk.fault = fail
    with contextlib.suppress(Crash):
        compact_at_once(disk, log)
    disk.fault = lambda _operation, _path: None
    disk.crash()
    again = World(disk)
    log = await again.start()
    assert view(contents(log)) == before
    assert not [n for n in disk.names("/d/t-0") if n.endswith((".cleaned", ".swap", ".deleted"))]
    await again.clean()
    assert view(contents(log)) == before
    await again.stop()

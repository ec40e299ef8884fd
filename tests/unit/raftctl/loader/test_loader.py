"""Images depend on the log alone, not on how it was read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import msgpack
import pytest
from immutables import Map

from raftctl.errors import InvariantViolation, KafkaError
from raftctl.loader import MetadataLoader
from raftctl.loader import _loader as loader
from raftctl.metadata.codec import pack_payload, pack_records
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.image import _delta as difference
from raftctl.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FeatureRange,
    NoOpRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from raftctl.raft.batch import Batch
from raftctl.raft.messages import Epoch, Offset

if TYPE_CHECKING:
    from collections.abc import Callable

NO_OP = b"".join(pack_records([NoOpRecord()]))
LOG = [
    Batch(Offset(0), Epoch(1), 1, -1, True, b""),
    Batch(Offset(1), Epoch(1), 1, 5_000, False, NO_OP),
    Batch(Offset(2), Epoch(2), 1, -1, True, b""),
]


class Driver:
    """A replica that has read so many batches at a time."""

    def __init__(self, at_a_time: int, log: list[Batch] = LOG) -> None:
        self.at_a_time = at_a_time
        self.log = log
        self.high_watermark = log[-1].end_offset

    def read(self, offset: int, max_bytes: int) -> list[Batch]:
        there = [one for one in self.log if offset < one.end_offset <= self.high_watermark]
        return there[: self.at_a_time]


class Publisher:
    """Notes the images."""

    def __init__(self, images: list[MetadataImage]) -> None:
        self.images = images

    def publish(self, delta: object, image: MetadataImage) -> None:
        self.images.append(image)


def batches(*groups: list[Record] | None) -> list[Batch]:
    """A batch each; None for a control batch."""
    found, offset = [], 0
    for number, records in enumerate(groups):
        count = 1 if records is None else len(records)
        payload = b"".join(pack_records(records or []))
        place = (Offset(offset), Epoch(number), count, -1 if records is None else number)
        found.append(Batch(*place, records is None, payload))
        offset += count
    return found


@pytest.mark.req("C11")
def test_what_another_release_wrote_is_refused_by_name() -> None:
    """A record that is not known, or a level that is above what this release can work with."""
    known = batches([NoOpRecord()], [FeatureLevelRecord("metadata.version", 9)])
    ranges = (FeatureRange("metadata.version", 1, 6),)
    node = MetadataLoader(cast("Any", Driver(2, known)), features=ranges)
    why = "metadata.version is 9, and this node supports levels 1 to 6: upgrade it"
    with pytest.raises(KafkaError, match=why):
        node.on_committed(2)

    unknown = Batch(Offset(1), Epoch(1), 1, 5_000, False, msgpack.packb((99, "new")))
    node = MetadataLoader(cast("Any", Driver(2, [known[0], unknown])), features=ranges)
    with pytest.raises(KafkaError, match=r"does not know.*unknown type id 99.*upgrade this node"):
        node.on_committed(2)
    with pytest.raises(KafkaError, match=why):
        MetadataLoader(
            cast("Any", None), MetadataImage(features=Map({"metadata.version": 9})), features=ranges
        )


def named(name: str) -> Record:
    return ConfigRecord(4, "", name, "1")


ENDED = [
    [named("a")],
    [BeginTransactionRecord(), named("b")],
    None,
    [named("c"), named("d")],
    [named("e"), EndTransactionRecord()],
    [named("f")],
]
ABORTED = [
    [named("a")],
    [BeginTransactionRecord(), named("b")],
    [named("c")],
    None,
    [AbortTransactionRecord(), named("d")],
    [named("e")],
]


@pytest.mark.req("C1", "Q5")
@pytest.mark.parametrize("at_a_time", range(1, 8))
@pytest.mark.parametrize(
    ("log", "seen"),
    [(ENDED, {"", "a", "abcde", "abcdef"}), (ABORTED, {"", "a", "ad", "ade"})],
    ids=["ended", "aborted"],
)
async def test_a_transaction_is_seen_as_a_whole_or_not_at_all(
    log: list[list[Record] | None], seen: set[str], at_a_time: int
) -> None:
    driver = Driver(at_a_time, batches(*log))
    loader = MetadataLoader(cast("Any", driver))
    images: list[MetadataImage] = []
    loader.add_publisher(cast("Any", Publisher(images)))
    for batch in driver.log:
        driver.high_watermark = batch.end_offset
        loader.on_committed(batch.end_offset)
        assert loader.next_offset == batch.end_offset
        assert loader.caught_up
        assert loader.in_transaction == (loader.image.offset + 1 < batch.end_offset)
    found = ["".join(sorted(image.config(4, ""))) for image in images]
    assert set(found) <= seen
    assert found[-1] == max(seen, key=len)
    last = driver.log[-1]
    end = (loader.image.offset, loader.image.epoch, loader.image.timestamp_ms)
    assert end == (last.end_offset - 1, last.epoch, last.timestamp_ms)
    whole = MetadataLoader(cast("Any", driver))
    whole.on_committed(last.end_offset)
    assert whole.image == loader.image


@pytest.mark.req("C1", "Q5")
@pytest.mark.parametrize("at_a_time", [1, 2, 3])
async def test_an_image_has_the_time_of_the_newest_record(at_a_time: int) -> None:
    loader = MetadataLoader(cast("Any", Driver(at_a_time)))
    loader.on_committed(len(LOG))
    assert (loader.image.offset, loader.image.epoch, loader.image.timestamp_ms) == (2, 2, 5_000)


@pytest.mark.req("C13")
def test_garbage_is_looked_for_after_so_many_partitions_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic_id = UUID(int=1)
    pair: list[Record] = [PartitionRecord(topic_id, n, (1,), (1,), 1, 0, 0) for n in (0, 1)]
    log = batches([TopicRecord("t", topic_id)], *[pair] * 6)
    following = MetadataLoader(cast("Any", Driver(1, log)))
    looked_at: list[int] = []
    monkeypatch.setattr(loader, "CHANGES_MAX", 5)
    monkeypatch.setattr(loader, "look_now", lambda: looked_at.append(following.image.offset))
    following.on_committed(log[-1].end_offset)
    assert looked_at == [log[3].end_offset - 1, log[6].end_offset - 1]


@pytest.mark.req("C13")
def test_a_whole_image_is_neither_copied_nor_looked_at_for_garbage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records: list[Record] = [TopicRecord("t", UUID(int=1))]
    records += [PartitionRecord(UUID(int=1), n, (1,), (1,), 1, 0, 0) for n in range(9)]
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(records, 0)
    image = delta.apply(9, 1, 0)
    monkeypatch.setattr(loader, "CHANGES_MAX", 5)
    monkeypatch.setattr(loader, "look_now", lambda: pytest.fail("nothing was replaced"))
    whole = MetadataDelta.between_empty_and(image)
    MetadataLoader(cast("Any", Driver(1))).publish(whole, image)
    assert all(topic.whole is not None for topic in whole.changed_topics.values())


# --- much to replay -------------------------------------------------------------------------------

MUCH = batches(*[[named(f"{number:02}")] for number in range(12)])
TURN_BATCHES = 3


@pytest.fixture
def much(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Three batches are what is replayed in a turn of the event loop."""
    monkeypatch.setattr(loader, "TURN_BYTES_MAX", TURN_BATCHES * len(MUCH[0].payload))
    return Driver(1, MUCH)


@pytest.mark.req("C13", "Q5")
async def test_of_much_a_part_is_replayed_in_each_turn(much: Driver) -> None:
    behind = MetadataLoader(cast("Any", much))
    behind.on_committed(len(MUCH))
    for turn in range(1, 4):
        assert behind.next_offset == turn * TURN_BATCHES
        assert not behind.caught_up
        behind.on_committed(len(MUCH))  # to be told again makes it no quicker
        await asyncio.sleep(0)
    assert behind.caught_up
    await behind.wait_caught_up()
    assert len(behind.image.config(4, "")) == len(MUCH)


@pytest.mark.req("C1", "C13")
async def test_who_waits_for_the_rest_is_told_after_the_last_part(much: Driver) -> None:
    behind = MetadataLoader(cast("Any", much))
    told_at: list[int] = []
    behind.on_committed(len(MUCH))
    behind.when_replayed(lambda: told_at.append(behind.next_offset))
    for _ in range(3):
        assert told_at == []
        await asyncio.sleep(0)
    behind.when_replayed(lambda: told_at.append(-behind.next_offset))
    assert told_at == [len(MUCH), -len(MUCH)]
    behind.on_committed(len(MUCH))
    assert len(told_at) == 2


@pytest.mark.req("C13")
async def test_what_fails_in_a_later_turn_ends_the_node(much: Driver) -> None:
    failures: list[BaseException] = []
    behind = MetadataLoader(cast("Any", much), fail=failures.append)
    behind.on_committed(len(MUCH))
    much.log = MUCH[:TURN_BATCHES]
    await asyncio.sleep(0)
    assert [type(one) for one in failures] == [InvariantViolation]


@pytest.mark.req("C13")
async def test_nothing_is_read_after_the_end(much: Driver) -> None:
    behind = MetadataLoader(cast("Any", much))
    behind.on_committed(len(MUCH))
    behind.stop()
    await asyncio.sleep(0)
    assert behind.next_offset == TURN_BATCHES


# --- snapshots ------------------------------------------------------------------------------------

PARTITION = (1, 2), (1, 2), 1, 0, 0, (), ()


def topics(count: int, *, leader_epoch: int, offset: int) -> MetadataImage:
    """An image of topics with two partitions each."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for number in range(count):
        delta.replay(TopicRecord(f"t{number}", UUID(int=number + 1)), offset)
        for partition_id in range(2):
            fields = (*PARTITION[:3], leader_epoch, *PARTITION[4:])
            delta.replay(PartitionRecord(UUID(int=number + 1), partition_id, *fields), offset)
    return delta.apply(offset, 1, 0)


@pytest.mark.req("C13", "Q6")
async def test_what_a_snapshot_changes_is_found_a_part_in_each_turn(
    monkeypatch: pytest.MonkeyPatch, slice_steps: Callable[[int], None]
) -> None:
    slice_steps(1)
    monkeypatch.setattr(difference, "PIECE_PARTITIONS", 4)
    old, new = topics(6, leader_epoch=0, offset=3), topics(6, leader_epoch=1, offset=9)
    log = [Batch(Offset(10), Epoch(1), 1, 5_000, False, pack_payload([named("after")]))]
    follower = MetadataLoader(cast("Any", Driver(1, log)), old)
    heard: list[tuple[int, int]] = []

    class Hears:
        def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
            heard.append((image.offset, len(delta.changed_topics)))

    follower.add_publisher(Hears())
    heard.clear()
    follower.on_snapshot(topics(1, leader_epoch=5, offset=8))
    follower.on_snapshot(new)  # a newer one takes its place
    follower.on_committed(11)
    turns = 0
    while not follower.caught_up:
        assert follower.image is old
        assert heard == []
        turns += 1
        await asyncio.sleep(0)
        if follower.image is new:
            break
    assert turns >= 3
    await follower.wait_caught_up()
    assert heard == [(9, 6), (10, 0)]
    assert follower.image.topics == new.topics
    assert follower.next_offset == 11


@pytest.mark.req("C13", "Q6")
async def test_a_snapshot_with_little_in_it_is_published_at_once() -> None:
    follower = MetadataLoader(cast("Any", Driver(1)), topics(1, leader_epoch=0, offset=3))
    image = topics(2, leader_epoch=0, offset=9)
    follower.on_snapshot(image)
    assert follower.image is image

"""Replicas compare hashes of their states at the marks; what cannot be compared is unknown."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from raftctl.loader import MetadataLoader, Snapshotter, StateDivergedError, StateHashes
from raftctl.loader._snapshots import id_of
from raftctl.metadata.codec import pack_records
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.records import (
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    KvRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    SnapshotMarkRecord,
    StateHashRecord,
    TopicRecord,
)
from raftctl.storage.snapshots import STATE_HASH_VERSION, state_hash_of
from tests.unit.raftctl.quorum.parts import Member, TestRuntime

if TYPE_CHECKING:
    from raftctl.config import NodeConfig

pytestmark = pytest.mark.req("Q13")

TOPIC, OTHER = UUID(int=5), UUID(int=1 << 100)
RECORDS: list[Record] = [
    FeatureLevelRecord("metadata.version", 1),
    RegisterBrokerRecord(7, UUID(int=9), (Endpoint("A", "h", 1),), "r", (OTHER,), False, True, 3),
    TopicRecord("t", TOPIC),
    PartitionRecord(TOPIC, 0, (7, 8), (7,), 7, 1, 2, (3,), (4,), (5,), True),
    TopicRecord("a", OTHER),
    ConfigRecord(2, "t", "retention.ms", "5"),
    ConfigRecord(4, "", "num.partitions", "3"),
    ProducerIdsRecord(-1, -1, 1000),
    KvRecord("k", b"\xff", 4),
    KvRecord("b", b"", 5),
]


def state(records: list[Record]) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in records:
        delta.replay(record, 99)
    return delta.apply(99, 1, 0)


def hash_of(image: MetadataImage) -> str:
    return state_hash_of(pack_records(image.records()))


def image_at(offset: int) -> MetadataImage:
    return MetadataImage(offset=offset)


# --- the hash -------------------------------------------------------------------------------------


def test_the_hash_is_pinned_and_depends_on_content_alone() -> None:
    """Whoever has to change this value has to raise STATE_HASH_VERSION.

    Nodes of the two versions would take each other for diverged otherwise.
    """
    assert (STATE_HASH_VERSION, hash_of(state(RECORDS))) == (3, PINNED)
    topics = RECORDS[2:6]
    others = [record for record in RECORDS if record not in topics]
    for seed in range(20):
        Random(seed).shuffle(others)
        at = Random(seed).randint(0, len(others))
        assert hash_of(state([*others[:at], *topics, *others[at:]])) == PINNED


def test_the_hash_does_not_depend_on_the_hash_seed() -> None:
    program = f"from {__name__} import *\nprint(hash_of(state(RECORDS)))"
    for seed in ("0", "1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == PINNED


def test_every_part_of_the_state_is_in_the_hash() -> None:
    hashes = {hash_of(state([r for r in RECORDS if r is not left_out])) for left_out in _parts()}
    assert len(hashes | {PINNED}) == len(_parts()) + 1


def _parts() -> list[Record]:
    """Of the records those that others do not refer to."""
    return [record for record in RECORDS if record != TopicRecord("t", TOPIC)]


PINNED = "e5b8086405cb0b4a946b0795679ba974"


# --- comparing ------------------------------------------------------------------------------------


class Replica:
    """The hashes of one replica, whose snapshots are taken when the test says so."""

    def __init__(self, *, active: bool = False) -> None:
        self.active = active
        self.appended: list[Record] = []
        self.marked: list[int] = []
        self.hashes = StateHashes(TestRuntime().as_runtime)
        self.hashes.append_with(self._append)
        self.hashes.marks_go_to(self)

    def _append(self, record: Record) -> bool:
        if self.active:
            self.appended.append(record)
        return self.active

    def take_marked(self, image: MetadataImage) -> None:
        self.marked.append(image.offset)

    def hear(self, offset: int, *records: Record) -> None:
        delta = MetadataDelta(EMPTY_IMAGE)
        for record in records:
            delta.replay(record, offset)
        self.hashes.publish(delta, image_at(offset))

    def take(self, offset: int, state_hash: str) -> None:
        self.hashes.taken(offset, state_hash, f"/data/{offset}")

    @property
    def verdict(self) -> tuple[str, int, int]:
        verdict, equal, missed = self.hashes.status().values()
        return verdict, equal, missed


def told(offset: int, state_hash: str, version: int = STATE_HASH_VERSION) -> StateHashRecord:
    return StateHashRecord(offset, version, state_hash)


def test_the_active_controller_marks_once_and_records_its_own_hash() -> None:
    replica = Replica(active=True)
    assert replica.hashes.mark()
    assert replica.hashes.mark()
    assert replica.appended == [SnapshotMarkRecord()]
    replica.hear(5, SnapshotMarkRecord())
    assert replica.marked == [5]
    replica.take(5, "ab")
    assert replica.appended[1:] == [told(5, "ab")]
    replica.hear(6, told(5, "ab"))
    assert replica.verdict == ("equal", 5, 0)
    assert replica.hashes.mark()
    assert replica.appended[2:] == [SnapshotMarkRecord()]


def test_whoever_does_not_lead_neither_marks_nor_records() -> None:
    replica = Replica()
    assert not replica.hashes.mark()
    replica.hear(5, SnapshotMarkRecord())
    replica.take(5, "ab")
    assert replica.appended == []


@pytest.mark.parametrize("told_first", [True, False])
def test_a_replica_that_differs_ends_and_names_offset_hashes_and_evidence(
    told_first: bool,
) -> None:
    replica = Replica()
    replica.hear(5, SnapshotMarkRecord())
    first, second = partial(replica.hear, 9, told(5, "ab")), partial(replica.take, 5, "cd")
    if not told_first:
        first, second = second, first
    first()
    assert replica.verdict[0] == "unknown"
    why = r"offset 5 hashes to cd here and to ab at .*keep /data/5 .*format the directory"
    with pytest.raises(StateDivergedError, match=why):
        second()
    assert replica.verdict == ("unknown", -1, 0)


def test_what_cannot_be_compared_is_unknown_also_after_an_equal_one() -> None:
    replica = Replica()
    replica.hear(5, SnapshotMarkRecord())
    replica.take(5, "ab")
    replica.hear(6, told(5, "ab"))
    replica.hear(9, told(8, "cd"))
    assert replica.verdict == ("unknown", 5, 1)
    replica.hear(12, SnapshotMarkRecord())
    replica.take(12, "ab")
    replica.hear(13, told(12, "ef", version=STATE_HASH_VERSION + 1))
    assert replica.verdict == ("unknown", 5, 2)
    replica.hear(20, SnapshotMarkRecord())
    replica.hear(21, told(20, "ab"))
    replica.hashes.skipped(20)
    assert replica.verdict == ("unknown", 5, 3)


def test_a_new_active_controller_records_what_the_old_one_has_not() -> None:
    replica = Replica()
    replica.hear(5, SnapshotMarkRecord())
    replica.take(5, "ab")
    replica.active = True
    replica.hashes.on_leader_changed(2, 1)
    assert replica.appended == [told(5, "ab")]
    replica.hear(6, told(5, "ab"))
    replica.hashes.on_leader_changed(3, 1)
    assert replica.appended == [told(5, "ab")]


def test_a_mark_that_was_lost_with_the_leadership_is_made_again() -> None:
    replica = Replica(active=True)
    replica.hashes.mark()
    replica.hashes.on_leader_changed(2, 1)
    replica.hashes.mark()
    assert replica.appended == [SnapshotMarkRecord()] * 2


# --- in a node ------------------------------------------------------------------------------------


class Node:
    """One voter with a loader, its snapshots and hashes; whoever leads appends through it."""

    def __init__(self) -> None:
        self.member = member = Member()
        self.loader = MetadataLoader(member.driver)
        self.hashes = StateHashes(member.runtime.as_runtime)
        self.hashes.append_with(self.append)
        member.driver.add_listener(self.loader)
        values = {
            "metadata_log_max_record_bytes_between_snapshots": 400,
            "metadata_log_max_snapshot_interval_ms": 0,
            "metadata_max_retention_bytes": -1,
            "metadata_max_retention_ms": -1,
        }
        self.snapshotter = Snapshotter(
            member.driver,
            self.loader,
            member.snapshots,
            self.hashes,
            member.runtime.as_runtime,
            cast("NodeConfig", SimpleNamespace(**values)),
            member.failures.append,
        )
        self.hashes.marks_go_to(self.snapshotter)
        self.loader.add_publisher(self.hashes)
        member.driver.add_listener(self.hashes)
        member.driver.add_listener(self.snapshotter)

    def append(self, record: Record) -> bool:
        self.member.driver.append(pack_records([record]))
        return True

    async def write(self, count: int) -> None:
        for number in range(count):
            self.append(ConfigRecord(4, "", f"key {number % 5}", f"value {number}"))
            await self.member.until(partial(self._has, self.member.log.end_offset))

    def _has(self, offset: int) -> bool:
        return self.loader.image.offset >= offset

    async def stop(self) -> None:
        await self.snapshotter.stop()
        await self.member.stop()


async def test_a_snapshot_is_taken_at_the_mark_and_its_hash_is_in_the_log() -> None:
    node = Node()
    await node.member.lead()
    await node.write(30)
    await node.member.until(lambda: node.hashes.status()["verdict"] == "equal")
    ids = [one.offset for one in node.member.store.ids()]
    offset = node.hashes.status()["equal_offset"]
    assert offset + 1 in ids
    assert node.hashes.status()["not_compared"] == 0
    await node.stop()
    assert node.member.failures == []


async def test_a_node_that_has_diverged_handles_nothing_more() -> None:
    node = Node()
    await node.member.lead()
    node.hashes.append_with(lambda _: False)
    node.append(SnapshotMarkRecord())
    mark = node.member.log.end_offset
    await node.member.until(lambda: node.loader.image.offset >= mark)
    node.append(told(node.loader.image.offset, "00"))
    await node.member.until(lambda: node.member.failures)
    (error,) = node.member.failures
    assert isinstance(error, StateDivergedError)
    assert node.member.driver._stopped
    evidence = node.member.store.path(id_of(image_at(error.offset)))
    assert evidence.rpartition("-")[0] in str(error)
    await node.stop()


async def test_a_mark_during_a_snapshot_is_taken_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    await node.member.lead()
    await node.write(1)
    taken: list[Any] = []
    skipped: list[int] = []
    monkeypatch.setattr(node.hashes, "taken", lambda offset, *_: taken.append(offset))
    monkeypatch.setattr(node.hashes, "skipped", skipped.append)
    images = [node.loader.image]
    node.snapshotter.take_marked(images[0])
    for _ in range(2):
        await_end = node.loader.image.offset + 1
        node.append(ConfigRecord(4, "", "key", f"{await_end}"))
        while node.loader.image.offset < await_end:
            await node.member.worker.run_all()
        images.append(node.loader.image)
        node.snapshotter.take_marked(images[-1])
    await node.member.until(lambda: len(taken) == 2)
    assert taken == [images[0].offset, images[2].offset]
    assert skipped == [images[1].offset]
    await node.stop()

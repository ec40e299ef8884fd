"""A node takes snapshots, starts from them, and replaces its image by one that it fetched."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from raftctl.errors import ErrorCode
from raftctl.loader import MetadataLoader, Snapshotter, StateHashes, image_of
from raftctl.loader._snapshots import id_of, pack_image
from raftctl.metadata.codec import pack_records
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.records import ConfigRecord
from raftctl.raft.messages import (
    BeginQuorumEpochRequest,
    Epoch,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    NodeId,
    Offset,
    ReplicaKey,
    UpdateVoterRequest,
    Voter,
)
from raftctl.raft.voters import VoterSet
from raftctl.storage.snapshots import SnapshotStore
from tests.kit.disk import FakeDisk
from tests.unit.raftctl.quorum.parts import DIRECTORY, Member

if TYPE_CHECKING:
    from raftctl.config import NodeConfig


class Published:
    """Notes what is published."""

    def __init__(self) -> None:
        self.heard: list[tuple[MetadataDelta, MetadataImage]] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.heard.append((delta, image))


def with_loader(member: Member, **settings: int) -> tuple[MetadataLoader, Snapshotter]:
    """A loader, from the newest snapshot, and a snapshotter."""
    ids = member.store.ids()
    loader = MetadataLoader(
        member.driver, image_of(member.store.read(ids[-1])) if ids else EMPTY_IMAGE
    )
    member.driver.add_listener(loader)
    values = {
        "metadata_log_max_record_bytes_between_snapshots": 500,
        "metadata_log_max_snapshot_interval_ms": 0,
        "metadata_max_retention_bytes": -1,
        "metadata_max_retention_ms": -1,
    }
    config = cast("NodeConfig", SimpleNamespace(**{**values, **settings}))
    hashes = StateHashes(member.runtime.as_runtime)
    snapshotter = Snapshotter(
        member.driver,
        loader,
        member.snapshots,
        hashes,
        member.runtime.as_runtime,
        config,
        member.failures.append,
    )
    member.driver.add_listener(snapshotter)
    return loader, snapshotter


async def write(member: Member, first: int, count: int) -> None:
    for number in range(first, first + count):
        record = ConfigRecord(4, "", f"key {number % 7}", f"value {number}")
        last = member.driver.append(pack_records([record]))
        await member.until(partial(_committed, member, last))


def _committed(member: Member, offset: int) -> bool:
    return member.driver.high_watermark > offset


@pytest.mark.req("Q6")
async def test_snapshots_are_taken_by_size_and_a_restart_begins_with_the_newest() -> None:
    member = Member()
    loader, snapshotter = with_loader(member)
    await member.lead()
    await write(member, 0, 30)
    await member.until(lambda: len(member.store.ids()) >= 2)
    for snapshot_id in member.store.ids():
        assert id_of(image_of(member.store.read(snapshot_id))) == snapshot_id
    image = loader.image
    await snapshotter.stop()
    await member.stop()
    assert member.failures == []

    again = Member(disk=member.disk)
    loader, snapshotter = with_loader(again)
    assert again.core.high_watermark == again.store.ids()[-1].offset == loader.image.offset + 1
    assert not loader.caught_up
    await again.lead()
    await again.until(lambda: loader.caught_up)
    assert loader.image.configs == image.configs
    await snapshotter.stop()
    await again.stop()


@pytest.mark.req("Q6")
async def test_snapshots_are_taken_by_time() -> None:
    member = Member()
    _, snapshotter = with_loader(
        member,
        metadata_log_max_record_bytes_between_snapshots=1 << 30,
        metadata_log_max_snapshot_interval_ms=30,
    )
    await member.lead()
    await write(member, 0, 1)
    await member.until(lambda: member.driver._now_ms() - snapshotter._taken_ms > 40)
    await write(member, 1, 1)
    await member.until(lambda: member.store.ids())
    await snapshotter.stop()
    await member.stop()


@pytest.mark.req("Q6")
async def test_retention_deletes_old_snapshots_and_the_log_before_them() -> None:
    member = Member()
    _, snapshotter = with_loader(member, metadata_max_retention_bytes=0)
    await member.lead()
    await write(member, 0, 40)
    await member.until(lambda: member.log.start_offset > 10)
    await member.until(lambda: len(member.store.ids()) == 1)
    assert member.core.log.start == member.log.start
    start = member.log.start
    await snapshotter.stop()
    await member.stop()
    assert member.failures == []
    again = Member(disk=member.disk)
    assert again.log.end_offset >= start.offset
    assert again.log.contains(again.store.ids()[-1])
    await again.stop()


async def hand_out(
    follower: Member, source: SnapshotStore, image: MetadataImage, damage_at: int = -1
) -> None:
    """As the leader: the snapshot of an image, piece by piece, perhaps with a bit flipped."""
    calls, size = follower.peers[2].calls, source.stat(id_of(image)).size
    await follower.until(lambda: calls and isinstance(calls[-1][0], FetchRequest))
    request, answer = calls.pop()
    assert isinstance(request, FetchRequest)
    told = FetchResponse(
        ErrorCode.NONE, Epoch(4), NodeId(2), Offset(0), Offset(100), None, id_of(image),
        Offset(100), b"", request.fetch_id,
    )  # fmt: skip
    answer.set_result(told)
    position = 0
    while position < size:
        await follower.until(lambda: calls and isinstance(calls[-1][0], FetchSnapshotRequest))
        request, answer = calls.pop()
        assert isinstance(request, FetchSnapshotRequest)
        assert request.position == position
        chunk = source.read_chunk(id_of(image), position, 60)
        assert chunk is not None
        data = bytearray(chunk[1])
        if position <= damage_at < position + len(data):
            data[damage_at - position] ^= 4
        position += len(data)
        piece = FetchSnapshotResponse(
            ErrorCode.NONE, Epoch(4), NodeId(2), request.position, size, bytes(data),
            request.fetch_id,
        )  # fmt: skip
        answer.set_result(piece)
    await follower.until(lambda: calls and isinstance(calls[-1][0], FetchRequest))


@pytest.mark.req("Q6", "Q12")
async def test_a_follower_installs_a_snapshot_and_publishes_what_changed() -> None:
    """Not one that is damaged, which it names and fetches anew."""
    source = SnapshotStore(FakeDisk(), DIRECTORY)
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(ConfigRecord(4, "", "new", "1"), 0)
    image = delta.apply(99, 3, 1_000)
    size = source.write(id_of(image), 1_000, pack_image(image)).file.size

    follower = Member(voters=2)
    loader, snapshotter = with_loader(follower)
    published = Published()
    loader.add_publisher(published)
    follower.driver.start()
    follower.driver.receive(BeginQuorumEpochRequest(Epoch(4), NodeId(2)))
    await hand_out(follower, source, image, damage_at=size // 2)
    assert loader.image.offset == -1
    told = follower.runtime.logged.getvalue()
    assert "fetched_snapshot_refused" in told
    assert re.search(r"00000000000000000100-0000000003\.checkpoint\.part: byte \d+: ", told)
    await hand_out(follower, source, image)
    await follower.until(lambda: loader.image.offset == 99)
    assert follower.log.start == id_of(image)
    ((change, newest),) = published.heard
    assert change.changed_configs == {(4, ""): {"new": "1"}}
    assert newest == image
    await snapshotter.stop()
    await follower.stop()
    assert follower.failures == []
    again = Member(voters=2, disk=follower.disk)
    assert (again.log.end_offset, again.core.high_watermark) == (100, 100)
    await again.stop()


@pytest.mark.req("Q6")
async def test_a_piece_of_a_snapshot_is_read_off_the_loop_or_refused() -> None:
    member = Member()
    _, snapshotter = with_loader(member)
    await member.lead()
    await write(member, 0, 30)
    await member.until(lambda: member.store.ids())
    request = FetchSnapshotRequest(
        Epoch(member.driver.epoch), ReplicaKey(NodeId(9), None),
        member.store.ids()[0], 0, 100,
    )  # fmt: skip
    cases: list[tuple[dict[str, Any], ErrorCode]] = [
        ({}, ErrorCode.NONE),
        ({"position": 1 << 40}, ErrorCode.POSITION_OUT_OF_RANGE),
        ({"snapshot_id": id_of(EMPTY_IMAGE)}, ErrorCode.SNAPSHOT_NOT_FOUND),
    ]
    for change, error in cases:
        future = member.driver.receive(replace(request, **change))
        await member.until(future.done)
        response = future.result()
        assert isinstance(response, FetchSnapshotResponse)
        assert response.error is error
        assert len(response.data) == (100 if error is ErrorCode.NONE else 0)
    await snapshotter.stop()
    await member.stop()


@pytest.mark.req("Q6", "Q12", "C13")
@pytest.mark.parametrize("more", [0, 1], ids=["the same state", "a later state"])
async def test_a_damaged_snapshot_is_not_handed_out_but_replaced(more: int) -> None:
    """By one that the leader takes, whose end the log then starts with if need be."""
    member = Member()
    loader, snapshotter = with_loader(member, metadata_max_retention_bytes=0)
    await member.lead()
    await write(member, 0, 40)
    await member.until(lambda: member.log.start_offset > 10 and snapshotter._task is None)
    snapshotter._begin(loader.image)
    await member.until(lambda: snapshotter._task is None)
    (damaged,) = member.store.ids()
    assert member.log.start == damaged
    await write(member, 40, more)
    member.disk.file(member.store.path(damaged)).seen[70] ^= 4
    request = FetchSnapshotRequest(
        Epoch(member.driver.epoch), ReplicaKey(NodeId(9), None), damaged, 0, 1_000
    )
    future = member.driver.receive(request)
    await member.until(future.done)
    response = future.result()
    assert isinstance(response, FetchSnapshotResponse)
    assert (response.error, response.data) == (ErrorCode.SNAPSHOT_NOT_FOUND, b"")
    told = member.runtime.logged.getvalue()
    assert re.search(r"CRC32C does not match.*snapshot_damaged", told)
    assert f'"path": "{member.store.path(damaged)}"' in told

    await member.until(lambda: snapshotter._task is None)
    (newest,) = member.store.ids()
    assert (newest == damaged) == (more == 0)
    assert member.log.start == newest
    future = member.driver.receive(replace(request, snapshot_id=newest))
    await member.until(future.done)
    response = future.result()
    assert isinstance(response, FetchSnapshotResponse)
    assert response.error is ErrorCode.NONE
    assert image_of(member.store.read(newest)) == loader.image
    assert member.core._replica.snapshot == newest
    await snapshotter.stop()
    await member.stop()
    assert member.failures == []


@pytest.mark.req("Q6", "Q12")
async def test_an_old_snapshot_that_is_damaged_goes_when_there_is_a_newer_one() -> None:
    """The node lives on: it has just written what it needs."""
    member = Member()
    loader, snapshotter = with_loader(
        member, metadata_log_max_record_bytes_between_snapshots=1 << 30
    )
    await member.lead()
    await write(member, 0, 5)
    snapshotter._begin(loader.image)
    await member.until(lambda: snapshotter._task is None)
    (old,) = member.store.ids()
    await write(member, 5, 5)
    member.disk.file(member.store.path(old)).seen[20] ^= 4
    snapshotter._begin(loader.image)
    await member.until(lambda: snapshotter._task is None)
    assert member.failures == []
    (newest,) = member.store.ids()
    assert newest.offset > old.offset
    assert image_of(member.store.read(newest)) == loader.image
    assert member.log.start == newest
    told = member.runtime.logged.getvalue()
    assert re.search(r"snapshot_damaged", told)
    assert f'"path": "{member.store.path(old)}"' in told
    await snapshotter.stop()
    await member.stop()


@pytest.mark.req("Q6", "Q7")
async def test_a_snapshot_names_the_voters_at_its_end_and_not_the_newest() -> None:
    """Who starts from it replays what follows, and would take a later set for the first one."""
    member = Member()
    loader, snapshotter = with_loader(
        member, metadata_log_max_record_bytes_between_snapshots=1 << 30
    )
    await member.lead()
    await write(member, 0, 3)
    before = loader.image
    moved = Voter(ReplicaKey(NodeId(1), None), "here", 9093)
    changed = member.driver.receive(UpdateVoterRequest(moved))
    await member.until(changed.done)
    await write(member, 3, 3)
    after = loader.image
    for image in (before, after):
        snapshotter._begin(image)
        await member.until(lambda: snapshotter._task is None)
    assert member.store.read(id_of(before)).voters is None, "those of the configuration, then"
    assert member.store.read(id_of(after)).voters == VoterSet([moved], dynamic=True)
    await snapshotter.stop()
    await member.stop()

"""Snapshots on disks are read as they come, and held against images and voters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.cluster import DATA, SimCluster
from jepsen.simulator.liveness import every_node_follows
from jepsen.simulator.properties import Properties, Violation
from jepsen.simulator.properties._invariants import QuorumHistory
from jepsen.simulator.properties._snapshot_invariants import SnapshotReader, SnapshotView
from jepsen.simulator.world import World
from raftctl.loader import _snapshots as snapshots
from raftctl.storage import METADATA_LOG_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metadata.image import MetadataImage

pytestmark = pytest.mark.req("J1", "Q6", "Q13")

OLD = ((1, "a"), (2, "b"))
NEW = ((1, "a"), (2, "b"), (3, "c"))
SMALL = {"metadata.log.max.record.bytes.between.snapshots": "300"}


def properties() -> Properties:
    found = Properties(QuorumHistory((), lambda _: {}, lambda _: (0, -1)))
    found.images.images |= {9: "nine", 10: "ten"}
    found.quorum.voter_sets |= {5: OLD, 10: OLD, 12: NEW, 20: NEW}
    return found


@pytest.mark.parametrize(
    "view",
    [
        SnapshotView(1, 10, "nine", OLD),
        SnapshotView(1, 8, "nobody has seen it", OLD),
        SnapshotView(1, 11, "ten", OLD),
        SnapshotView(1, 11, "ten", NEW),
        SnapshotView(1, 15, "", (NEW[2], *OLD)),
        SnapshotView(1, 30, "", NEW),
        SnapshotView(1, 10, "nine", ()),
    ],
)
def test_what_may_be_so_is_left_alone(view: SnapshotView) -> None:
    properties().snapshot_found(view)


def test_a_snapshot_that_is_not_what_a_replay_comes_to() -> None:
    with pytest.raises(Violation, match="snapshot_is_the_image_at_its_end"):
        properties().snapshot_found(SnapshotView(1, 11, "nine", OLD))


@pytest.mark.parametrize(("end", "voters"), [(10, NEW), (7, NEW), (15, OLD), (12, OLD)])
def test_a_snapshot_with_other_voters(end: int, voters: tuple[tuple[int, str], ...]) -> None:
    found = properties()
    found.images.images.clear()
    with pytest.raises(Violation, match="snapshot_names_the_voters_at_its_end"):
        found.snapshot_found(SnapshotView(1, end, "", voters))


def run(world: World) -> list[SnapshotView]:
    """The snapshots of one controller after a few seconds of a cluster that takes many."""
    cluster = SimCluster(world, brokers=2, overrides=SMALL)

    async def scenario() -> None:
        cluster.start_all()
        await every_node_follows(cluster)
        for _ in range(3):
            world.kill("broker-1")
            await asyncio.sleep(2.0)
            cluster.start("broker-1")
            await asyncio.sleep(2.0)

    world.run(scenario())
    disk = world.node("controller-101").disk
    reader = SnapshotReader(101, disk, f"{DATA}/{METADATA_LOG_NAME}")
    found = list(reader.new())
    assert list(reader.new()) == []
    return found


def test_snapshots_of_a_cluster_are_found_and_are_right() -> None:
    with World(1) as world:
        found = run(world)
    assert found
    assert all(len(view.voters) == 3 for view in found)


def test_a_snapshot_that_lacks_a_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = snapshots.pack_image

    def without_the_last(image: MetadataImage) -> Iterator[tuple[int, bytes]]:
        yield from list(pack(image))[:-1]

    monkeypatch.setattr(snapshots, "pack_image", without_the_last)
    with World(1) as world, pytest.raises(Violation, match="snapshot_is_the_image_at_its_end"):
        run(world)

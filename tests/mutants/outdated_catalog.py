"""Bugs planted into whole nodes: answers, snapshots and proposals of what is true no more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.controller.partitions import _replication_control as replication_control
from raftctl.errors import ErrorCode, KafkaError
from raftctl.loader import Snapshots
from raftctl.loader._snapshots import id_of
from raftctl.metadata.codec import pack_records
from raftctl.quorum import RaftDriver
from raftctl.storage.snapshots import grouped
from tests.mutants.mutant import Patch, node_mutant

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage
    from raftctl.raft.messages import Offset
    from raftctl.raft.voters import VoterSet
    from raftctl.storage.snapshots import WrittenSnapshot


def _snapshot_without_tail(
    snapshots: Snapshots, image: MetadataImage, timestamp_ms: int, voters: VoterSet | None
) -> WrittenSnapshot:
    records = [pack_records([record])[0] for record in image.records()]
    return snapshots._store.write(id_of(image), timestamp_ms, grouped(records[:-1]), voters)


def _no_barrier(driver: RaftDriver) -> asyncio.Future[Offset]:
    future: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
    if driver.is_leader:
        future.set_result(driver.high_watermark)
    else:
        future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
    return future


def _any_epoch_will_do(image: MetadataImage, broker_id: int, broker_epoch: int) -> bool:
    return _is_eligible(image, broker_id, replication_control.ANY_BROKER_EPOCH)


_is_eligible = replication_control._is_eligible

OUTDATED = (
    node_mutant(
        "snapshot_misses_its_tail",
        "a snapshot lacks the last record of the image",
        ("images_agree", "snapshot_is_the_image_at_its_end"),
        Patch(Snapshots, "_write", _snapshot_without_tail),
        scenario="snapshots_bring_back_who_was_away",
    ),
    node_mutant(
        "stale_read_after_losing_leadership",
        "a controller answers reads without asking whether it still leads",
        ("keys_are_linearizable",),
        Patch(RaftDriver, "read_barrier", _no_barrier),
        scenario="keys_stay_linearizable",
    ),
    node_mutant(
        "isr_of_another_broker_epoch",
        "the controller does not compare the broker epochs of a proposed ISR (KIP-903)",
        ("new_isr_member_has_all_committed",),
        Patch(replication_control, "_is_eligible", _any_epoch_will_do),
        scenario="replica_returns_empty_while_it_is_proposed",
    ),
)

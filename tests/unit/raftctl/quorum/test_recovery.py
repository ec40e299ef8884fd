"""A directory that is made a quorum of itself: what is written, and what a crash leaves of it."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from raftctl.errors import ConfigError
from raftctl.ids import uuid_text
from raftctl.quorum import Recovery
from raftctl.quorum._replica import EPOCHS_AHEAD
from raftctl.raft.messages import NodeId, Offset, ReplicaKey, Voter
from raftctl.raft.voters import VoterSet
from raftctl.storage import METADATA_LOG_NAME, MetaProperties
from tests.kit.disk import Crash, FakeDisk
from tests.unit.raftctl.quorum import parts
from tests.unit.raftctl.quorum.parts import Member

DATA = "/data"
ME = ReplicaKey(NodeId(1), UUID(int=7))
VOTER = Voter(ME, "here", 9093)


@pytest.fixture(autouse=True)
def _in_the_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "DIRECTORY", f"{DATA}/{METADATA_LOG_NAME}")


async def disk_with_a_log() -> tuple[FakeDisk, Offset]:
    member = Member()
    await member.lead()
    end_offset = Offset(member.driver.append([b"\x91\x3c"]) + 1)
    await member.until(lambda: member.driver.high_watermark == end_offset)
    await member.stop()
    MetaProperties(uuid_text(UUID(int=1)), 1, UUID(int=7)).save(member.disk, DATA)
    return member.disk, end_offset


@pytest.mark.req("Q8")
async def test_the_log_goes_on_with_one_voter_in_a_new_epoch() -> None:
    disk, end_offset = await disk_with_a_log()
    recovery = Recovery(disk, DATA)
    survivor = recovery.survivor
    assert (survivor.replica, survivor.log_end_offset, survivor.voters) == (ME, end_offset, None)
    epoch = recovery.rebuild(VOTER)
    recovery.close()
    assert epoch == survivor.epoch + EPOCHS_AHEAD > survivor.last_epoch
    again = Recovery(disk, DATA)
    assert again.survivor.voters == VoterSet([VOTER], dynamic=True)
    assert (again.survivor.log_end_offset, again.survivor.epoch) == (end_offset + 1, epoch)
    again.close()
    member = Member(disk=disk)
    assert member.core.voters == VoterSet([VOTER], dynamic=True)
    assert member.log.batches(Offset(0), 1 << 20)[1].payload == b"\x91\x3c"
    member.log.close()


@pytest.mark.req("Q8")
async def test_what_a_crash_interrupts_can_be_done_again() -> None:
    disk, end_offset = await disk_with_a_log()
    before = Recovery(disk, DATA).survivor
    finished = False
    for operations in range(1, 40):
        broken = disk.after_crash(random.Random(operations))
        recovery = Recovery(broken, DATA)
        broken.operations_left = operations
        try:
            recovery.rebuild(VOTER)
            finished = True
            break
        except Crash:
            left = Recovery(broken.after_crash(random.Random(operations)), DATA)
        rebuilt = left.survivor.log_end_offset > end_offset
        assert not rebuilt or left.survivor.epoch == before.epoch + EPOCHS_AHEAD, (
            "the epoch is durable first"
        )
        assert left.rebuild(VOTER) > before.epoch
    assert finished


@pytest.mark.req("Q8")
def test_a_directory_without_a_replica_is_refused() -> None:
    disk = FakeDisk()
    disk.make_directories(DATA)
    with pytest.raises(ConfigError, match="no replica of the metadata log"):
        Recovery(disk, DATA)

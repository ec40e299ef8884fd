"""Replicas that diverged agree again: the two classic failures and random histories (row R4).

One fetch after another without a network: `copy` is what a fetcher does with an answer.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.partition_log import _opening as opening
from broker.metrics import TopicCounts
from broker.replication.partition import Fetched, Partition, PartitionState
from broker.types import FetchParams, FetchPartition, TopicPartition
from raftctl.errors import ErrorCode
from raftctl.metadata.configs.topic import TopicConfig
from raftctl.metadata.image import PartitionImage
from tests.kit.pieces import as_bytes
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.fake_files import FakeFiles
from tests.unit.broker.log.logs import headers

if TYPE_CHECKING:
    from broker.log.partition_log import PartitionLog

PARTITION = TopicPartition("t", 0)
DIRECTORY = "/logs/t-0"
CONFIG = TopicConfig(segment_bytes=400, index_interval_bytes=100)


class Replica:
    """A replica and the disk below it."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.files = FakeFiles()
        log = opening.create_log(self.files, DIRECTORY, PARTITION, CONFIG)
        self._host(log)

    def restart(self, *, high_watermark: int) -> None:
        """After kill -9: what was written is there, the high watermark is the checkpointed one."""
        log = opening.open_log(
            self.files, DIRECTORY, PARTITION, CONFIG, recovery_point=0, clean=False
        )
        log.high_watermark = high_watermark
        self._host(log)

    def _host(self, log: PartitionLog) -> None:
        state = PartitionState(
            self.broker_id,
            high_watermark=log.high_watermark,
            lag_time_max_ms=30_000,
            may_join=lambda _broker, _epoch: True,
        )
        self.replica = Partition(PARTITION, UUID(int=1), state, log, TopicCounts())

    def enter(self, image: PartitionImage) -> None:
        end = self.replica.log.log_end_offset
        if image.leader != self.broker_id:
            self.replica.state.become_follower(image)
        elif self.replica.state.become_leader(image, log_end_offset=end, now_ms=0):
            self.replica.log.epochs.assign(image.leader_epoch, self.replica.log.log_end_offset)

    def write(self, value: bytes) -> None:
        result, _ = self.replica.append(make_batch([value]), 1, 0, 0)
        assert result.error is ErrorCode.NONE

    def copy(self, leader: Replica, max_bytes: int = 1 << 20) -> ErrorCode:
        """One round of a follower's fetch."""
        own = self.replica
        wanted = FetchPartition(
            PARTITION,
            own.topic_id,
            own.state.leader_epoch,
            own.log.log_end_offset,
            own.log.epochs.latest,
            own.log.log_start_offset,
            max_bytes,
        )
        params = FetchParams(self.broker_id, -1, 0, 1, max_bytes, read_committed=False)
        leader.replica.follower_fetched(wanted, params, 0)
        found = leader.replica.fetch(wanted, params, max_bytes=max_bytes, min_one=True)
        if found.error:
            return found.error
        if found.diverging is not None:
            own.truncate_to_agree(found.diverging)
        else:
            records = as_bytes(found.records)
            own.append_fetched(Fetched(records, found.high_watermark, found.log_start_offset))
        return ErrorCode.NONE

    @property
    def content(self) -> list[tuple[int, int, int]]:
        """(offset, leader epoch, CRC) of each batch."""
        return [(h.base_offset, h.leader_epoch, h.crc) for h in headers(self.replica.log)]

    @property
    def high_watermark(self) -> int:
        return self.replica.state.high_watermark


def state(leader: int, epoch: int, *replicas: int, isr: tuple[int, ...] = ()) -> PartitionImage:
    return PartitionImage(replicas, isr or replicas, leader, epoch, epoch)


@pytest.mark.req("R4")
def test_a_restarted_follower_that_then_leads_has_what_was_acknowledged() -> None:
    """Truncating to its own high watermark would lose the second record (KIP-101, scenario 1)."""
    a, b = Replica(1), Replica(2)
    for replica in (a, b):
        replica.enter(state(1, 0, 1, 2))
    a.write(b"m1")
    b.copy(a)
    b.copy(a)
    a.write(b"m2")
    b.copy(a)
    # B's next fetch commits m2 at A, but B dies before it reads the answer.
    commits_only = Replica(2)
    commits_only.replica.log.append_as_follower(
        b"".join(b.replica.log.read(0, max_bytes=1 << 20, up_to_offset=2, min_one=True))
    )
    commits_only.enter(state(1, 0, 1, 2))
    commits_only.copy(a)
    assert (a.high_watermark, b.high_watermark) == (2, 1)
    b.restart(high_watermark=1)
    b.enter(state(1, 0, 1, 2))
    b.enter(state(2, 1, 1, 2))
    acknowledged = a.content
    assert b.content == acknowledged
    a.restart(high_watermark=2)
    a.enter(state(2, 1, 1, 2))
    a.copy(b)
    b.write(b"m3")
    for _ in range(3):
        a.copy(b)
    assert a.content == b.content
    assert a.content[:2] == acknowledged


@pytest.mark.req("R4")
def test_two_replicas_never_keep_different_records_at_one_offset() -> None:
    """Truncating to the high watermark would keep m2 beside m3 (KIP-101, scenario 2)."""
    a, b = Replica(1), Replica(2)
    for replica in (a, b):
        replica.enter(state(1, 0, 1, 2))
    a.write(b"m1")
    b.copy(a)
    b.copy(a)
    # Both go down; m2 was on A only, and A even believes it committed.
    a.write(b"m2")
    a.restart(high_watermark=2)
    b.restart(high_watermark=1)
    b.enter(state(2, 1, 1, 2))
    b.write(b"m3")
    a.enter(state(2, 1, 1, 2))
    for _ in range(4):
        a.copy(b)
    assert a.content == b.content
    assert [epoch for _, epoch, _ in a.content] == [0, 1]


@pytest.mark.req("R4")
def test_an_epoch_that_the_leader_never_saw_is_cut_step_by_step() -> None:
    """Fast leader failover with more than one divergence (KIP-279)."""
    a, b = Replica(1), Replica(2)
    for replica in (a, b):
        replica.enter(state(1, 0, 1, 2))
    for value in (b"1", b"2", b"3"):
        a.write(value)
        b.copy(a)
    a.enter(state(1, 1, 1, 2))
    a.write(b"4")
    a.enter(state(1, 3, 1, 2))
    a.write(b"5")
    b.enter(state(2, 2, 1, 2))
    b.write(b"6")
    b.enter(state(2, 4, 1, 2))
    a.enter(state(2, 4, 1, 2))
    for _ in range(6):
        a.copy(b)
    assert a.content == b.content


IDS = (1, 2, 3)


class History:
    """A random past of three replicas: elections of anyone, crashes, writes, copying."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.replicas = {broker: Replica(broker) for broker in IDS}
        self.epoch = 0
        self._written = 0

    def step(self) -> None:
        self.chance.choice([self._elect, self._restart, self._write, self._copy, self._copy])()

    def _elect(self) -> None:
        """Any replica may be elected, in sync or not, and not all hear of it at once."""
        leader, self.epoch = self.chance.choice(IDS), self.epoch + 1
        for broker in IDS:
            if broker == leader or self.chance.random() < 0.7:
                self.replicas[broker].enter(state(leader, self.epoch, *IDS))

    def _restart(self) -> None:
        replica = self.replicas[self.chance.choice(IDS)]
        known = replica.replica.state
        replica.restart(high_watermark=0)
        replica.enter(state(known.leader_id, known.leader_epoch, *IDS))

    def _write(self) -> None:
        for replica in self.replicas.values():
            if replica.replica.state.is_leader:
                for _ in range(self.chance.randrange(1, 4)):
                    self._written += 1
                    replica.write(b"%d" % self._written)

    def _copy(self) -> None:
        replica = self.replicas[self.chance.choice(IDS)]
        source = replica.replica.state.leader_id
        if source not in (-1, replica.broker_id):
            max_bytes = self.chance.choice([1, 1 << 20])
            replica.copy(self.replicas[source], max_bytes=max_bytes)


def epochs_with_records(replica: Replica) -> list[tuple[int, int]]:
    log = replica.replica.log
    return [entry for entry in log.epochs.entries if entry[1] < log.log_end_offset]


@pytest.mark.req("R4")
@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_whatever_happened_before_all_end_up_with_the_leaders_log(seed: int) -> None:
    history = History(seed)
    for _ in range(25):
        history.step()
    final = state(history.chance.choice(IDS), history.epoch + 1, *IDS)
    for replica in history.replicas.values():
        replica.enter(final)
    leader = history.replicas.pop(final.leader)
    for follower in history.replicas.values():
        for _ in range(60):
            assert follower.copy(leader) is ErrorCode.NONE
        assert follower.content == leader.content
        assert epochs_with_records(follower) == epochs_with_records(leader)
    assert leader.high_watermark == leader.replica.log.log_end_offset

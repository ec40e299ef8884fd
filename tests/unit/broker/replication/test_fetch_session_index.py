"""A Fetch of a session touches the partitions with news and no others; nothing is missed by it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from broker.replication.fetcher._fetcher import Fetcher
from broker.replication.fetcher._followings import FollowerSession
from broker.replication.partition import FetchSessionIndex, Partition
from broker.replication.reads import Reads
from broker.types import FetchParams, FetchPartition, FetchResult, TopicPartition
from raftctl.errors import ErrorCode
from raftctl.metadata.records import RemoveTopicRecord
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.replication.world import (
    P0,
    TOPIC_ID,
    Node,
    World,
    eventually,
    params,
    wanted,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BATCH = make_batch([b"v"])
MANY = 40
CONSUMER, FOLLOWER = -1, 2


class Session:
    """A client with a fetch session, and what it is told in each Fetch."""

    def __init__(self, node: Node, replica: int, partitions: int = 1) -> None:
        self.dirty = FetchSessionIndex()
        self.replica = replica
        self._node = node
        self._wanted: dict[TopicPartition, FetchPartition] = {}
        for number in range(partitions):
            self.want(TopicPartition("t", number), 0)

    def want(self, partition: TopicPartition, offset: int) -> None:
        self._wanted[partition] = one = wanted(offset, partition=partition)
        self.dirty.want(one.key)

    def begin(
        self, how: FetchParams | None = None
    ) -> tuple[list[FetchPartition], list[FetchResult] | asyncio.Future[list[FetchResult]]]:
        """What is read, and the results."""
        asked = [self._wanted[TopicPartition(str(k.topic), k.partition)] for k in self.dirty]
        found = self._node.replicas.fetch(how or params(self.replica), asked, self.dirty)
        return asked, found

    def fetch(self) -> dict[int, FetchResult]:
        """The results by partition, of a Fetch that does not wait."""
        asked, found = self.begin()
        assert isinstance(found, list)
        return {a.partition.partition: r for a, r in zip(asked, found, strict=True)}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that were read, or of which a follower told, one after the other."""
    seen: list[int] = []
    read_one, follower_fetched = Reads._read_one, Partition.follower_fetched

    def spy(
        reads: Reads, params: FetchParams, one: FetchPartition, max_bytes: int, min_one: bool
    ) -> FetchResult:
        seen.append(one.partition.partition)
        return read_one(reads, params, one, max_bytes, min_one)

    def told(
        replica: Partition, one: FetchPartition, params: FetchParams, now_ms: int
    ) -> tuple[ErrorCode, bool]:
        seen.append(one.partition.partition)
        return follower_fetched(replica, one, params, now_ms)

    monkeypatch.setattr(Reads, "_read_one", spy)
    monkeypatch.setattr(Partition, "follower_fetched", told)
    return seen


def replicate(leader: Node, offset: int, *partitions: int) -> None:
    """The follower says that it has all below `offset`."""
    for number in partitions or range(len(leader.replicas.partitions)):
        one = wanted(offset, partition=TopicPartition("t", number))
        leader.replicas.fetch(params(FOLLOWER), [one])


@asynccontextmanager
async def leading(partitions: int = 1) -> AsyncIterator[tuple[World, Node]]:
    """A leader whose follower has all of its partitions."""
    async with World(2) as world:
        world.create_topic(partitions=partitions)
        leader = world.nodes[1]
        await eventually(lambda: len(leader.replicas.partitions) == partitions)
        replicate(leader, 0)
        yield world, leader


@pytest.mark.req("R1", "R10")
@pytest.mark.parametrize("replica", [CONSUMER, FOLLOWER])
async def test_only_partitions_with_news_are_touched(replica: int, read: list[int]) -> None:
    async with leading(MANY) as (_, leader):
        session = Session(leader, replica, MANY)
        assert list(session.fetch()) == list(range(MANY))
        read.clear()
        assert session.fetch() == {}
        asked, waits = session.begin(params(replica, wait_ms=5_000))
        assert isinstance(waits, asyncio.Future)
        assert (asked, read) == ([], [])
        assert leader.replicas._fetches._watchers == {}
        moved = TopicPartition("t", 7)
        leader.replicas.append(1, 0, [(moved, BATCH)])
        replicate(leader, 1, 7)
        (result,) = await waits
        assert [one.partition for one in asked] == [moved]
        assert result.size == len(BATCH)
        assert set(read) == {7}


@pytest.mark.req("R10")
async def test_who_had_records_is_read_after_those_that_got_news_meanwhile() -> None:
    async with leading(3) as (_, leader):
        session = Session(leader, CONSUMER, 3)
        session.fetch()
        for number in (2, 0):
            leader.replicas.append(1, 0, [(TopicPartition("t", number), BATCH)])
            replicate(leader, 1, number)
        assert list(session.fetch()) == [2, 0]
        session.dirty.had_records(wanted(0, partition=TopicPartition("t", 2)).key)
        leader.replicas.append(1, 0, [(TopicPartition("t", 1), BATCH)])
        replicate(leader, 1, 1)
        assert list(session.fetch()) == [0, 2, 1], "each waits for its turn"


@pytest.mark.req("R10")
async def test_whatever_readers_see_is_news() -> None:
    async with leading() as (world, leader):
        consumer, follower = Session(leader, CONSUMER), Session(leader, FOLLOWER)

        def told(session: Session) -> tuple[ErrorCode, int, int]:
            found = session.fetch()[0]
            assert session.fetch() == {} or found.error or found.size
            return found.error, found.high_watermark, found.log_start_offset

        assert told(consumer) == told(follower) == (ErrorCode.NONE, 0, 0)
        leader.append(BATCH)
        assert told(consumer) == told(follower) == (ErrorCode.NONE, 0, 0)
        follower.want(P0, 1)
        assert told(follower) == told(consumer) == (ErrorCode.NONE, 1, 0)
        consumer.want(P0, 1)
        assert told(consumer) == (ErrorCode.NONE, 1, 0)
        leader.replicas.delete_records(0, [(P0, 1)])
        assert told(consumer) == told(follower) == (ErrorCode.NONE, 1, 1)
        leader.replicas.log_start_moved(P0)
        assert told(consumer) == told(follower) == (ErrorCode.NONE, 1, 1)
        world.elect(2)
        for session in (consumer, follower):
            for _ in range(2):
                assert session.fetch()[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.elect(1)
        follower.want(P0, 1)
        assert told(follower)[0] is told(consumer)[0] is ErrorCode.NONE
        world.controller.commit(RemoveTopicRecord(TOPIC_ID))
        assert consumer.fetch()[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.req("R3")
async def test_a_follower_outside_the_isr_does_not_rest(read: list[int]) -> None:
    async with leading() as (world, leader):
        world.fence(2)
        world.set_isr(1)
        session = Session(leader, FOLLOWER)
        for _ in range(3):
            read.clear()
            session.fetch()
            assert read == [0, 0], "each Fetch may be the one that lets it join"


@pytest.mark.req("R3")
async def test_a_resting_follower_was_caught_up_when_its_session_last_fetched() -> None:
    async with leading() as (_, leader):
        session = Session(leader, FOLLOWER)
        session.fetch()
        state = leader.replica().state
        follower, lag = state.followers[FOLLOWER], state._lag_time_max_ms
        rested_ms = follower.had_all_ms
        session.dirty.begin([], rested_ms + 10 * lag)
        assert follower.had_all_ms == rested_ms + 10 * lag
        leader.append(BATCH)
        assert not state.propose_shrinking(1, rested_ms + 11 * lag)
        session.dirty.begin([], rested_ms + 20 * lag)
        assert follower.had_all_ms == follower.fetched_ms == rested_ms + 10 * lag, (
            "it lacks a record"
        )
        assert state.propose_shrinking(1, rested_ms + 11 * lag + 1)


@pytest.mark.req("R3")
@pytest.mark.parametrize("end", ["forget", "close"])
async def test_what_a_session_leaves_it_says_nothing_of(end: str) -> None:
    async with leading() as (_, leader):
        session = Session(leader, FOLLOWER)
        session.fetch()
        replica = leader.replica()
        state = replica.state.followers[FOLLOWER]
        assert (len(replica.idle_sessions), state.session is None) == (1, False)
        if end == "forget":
            session.dirty.forget(wanted(0).key)
        else:
            session.dirty.close()
        known_ms = state.had_all_ms
        session.dirty.begin([], known_ms + 1_000)
        assert (replica.idle_sessions, state.session, state.had_all_ms) == ({}, None, known_ms)


@pytest.mark.req("R3")
async def test_another_incarnation_does_not_rest_on_what_the_first_one_said() -> None:
    async with leading() as (_, leader):
        first, second = Session(leader, FOLLOWER), Session(leader, FOLLOWER)
        first.begin(params(FOLLOWER)._replace(replica_epoch=5))
        second.begin(params(FOLLOWER)._replace(replica_epoch=6))
        state = leader.replica().state.followers[FOLLOWER]
        known_ms = state.had_all_ms
        first.dirty.begin([], known_ms + 1_000)
        assert state.had_all_ms == known_ms
        late = Session(leader, FOLLOWER)
        late.begin(params(FOLLOWER)._replace(replica_epoch=5))
        assert list(late.dirty) == [wanted(0).key]


@pytest.mark.req("R8")
async def test_a_client_that_has_left_is_not_waited_with() -> None:
    async with leading() as (_, leader):
        session = Session(leader, CONSUMER)
        session.fetch()
        _, waits = session.begin(params(CONSUMER, wait_ms=5_000))
        assert isinstance(waits, asyncio.Future)
        waits.cancel()
        await asyncio.sleep(0)
        leader.append(BATCH)
        replicate(leader, 1)
        assert leader.replicas._fetches._watchers == {}
        assert session.fetch()[0].size == len(BATCH)


async def test_news_while_a_fetch_is_answered_are_for_the_next_one() -> None:
    async with leading() as (_, leader):
        session = Session(leader, CONSUMER)
        session.fetch()
        asked, waits = session.begin(params(CONSUMER, wait_ms=1))
        assert isinstance(waits, asyncio.Future)
        assert await waits == []
        leader.append(BATCH)
        replicate(leader, 1)
        assert asked == []
        assert session.fetch()[0].size == len(BATCH)


@pytest.mark.req("R1")
async def test_a_follower_looks_at_what_an_answer_spoke_of(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    want = FollowerSession.want

    def spy(session: FollowerSession[Any, Any], key: Any, fields: dict[str, Any]) -> None:
        looked.append(key[1])
        want(session, key, fields)

    monkeypatch.setattr(FollowerSession, "want", spy)
    async with World(2, listen=True, replica_fetch_wait_max_ms="20") as world:
        world.create_topic(partitions=MANY)
        leader = world.nodes[1]
        await eventually(lambda: len(set(looked)) == MANY)
        while looked:
            looked.clear()
            await _fetches(leader, 3)
        done = leader.append(BATCH, acks=-1)
        assert isinstance(done, asyncio.Future)
        await done
        assert set(looked) == {0}


async def _fetches(leader: Node, count: int) -> None:
    """Waits until so many Fetches have come."""

    def epoch() -> int:
        return max((one.epoch for one in leader.sessions._sessions.values()), default=0)

    begun = epoch()
    await eventually(lambda: epoch() >= begun + count)


@pytest.mark.req("R1")
async def test_partitions_that_arrive_together_end_a_fetch_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[Fetcher] = []
    interrupt = Fetcher._interrupt

    def spy(fetcher: Fetcher) -> None:
        ended.append(fetcher)
        interrupt(fetcher)

    monkeypatch.setattr(Fetcher, "_interrupt", spy)
    async with World(2, listen=True, replica_fetch_wait_max_ms="20000") as world:
        world.create_topic(partitions=MANY)
        follower = world.nodes[2]
        await eventually(lambda: len(follower.replicas.partitions) == MANY)
        (fetcher,) = follower.replicas.fetchers._fetchers.values()
        await eventually(lambda: fetcher._is_waiting and fetcher._gathering.at_s is None)
        ended.clear()
        for _ in range(3):
            for replica in follower.replicas.partitions.values():
                fetcher.follow(replica)
        await eventually(lambda: fetcher._is_waiting and len(ended) == 1)
        await eventually(lambda: all(one.fetch_offset == 0 for one in fetcher._followings))

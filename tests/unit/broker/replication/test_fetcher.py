"""Brokers that copy from each other over loopback: production code but for disk and controller."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from typing import Any

import pytest

from broker.replication.fetcher import _connection as connection
from broker.types import AppendResult, TopicPartition
from raftctl.errors import ErrorCode, KafkaError
from tests.unit.broker.log.batches import make_batch
from tests.unit.broker.log.logs import headers
from tests.unit.broker.replication.world import P0, Node, World, eventually


async def produced(node: Node, count: int, *, size: int = 10) -> list[int]:
    """Appends with acks=all, all in flight at once; returns the offsets acknowledged."""
    done = [node.append(make_batch([b"%d" % i + b"x" * size]), acks=-1) for i in range(count)]
    offsets = []
    for one in done:
        result = one if isinstance(one, AppendResult) else (await one)[0]
        assert result.error is ErrorCode.NONE
        offsets.append(result.base_offset)
    return offsets


def content(node: Node, partition: TopicPartition = P0) -> list[tuple[int, int, int]]:
    return [(h.base_offset, h.leader_epoch, h.crc) for h in headers(node.replica(partition).log)]


@pytest.mark.req("R1", "R2", "R5")
async def test_three_replicas_acknowledge_and_hold_the_same() -> None:
    async with World(listen=True) as world:
        world.create_topic()
        one, two, three = world.nodes.values()
        assert await produced(one, 50) == list(range(50))
        assert content(one) == content(two) == content(three)
        await eventually(lambda: two.replica().state.high_watermark == 50)
        assert [two.replica().log.high_watermark, one.replica().log.high_watermark] == [50, 50]


@pytest.mark.req("R1")
async def test_large_batches_and_many_partitions() -> None:
    async with World(listen=True, replica_fetch_max_bytes="20000") as world:
        world.create_topic(partitions=5)
        one, two = world.nodes[1], world.nodes[2]
        batch = make_batch([random.Random(1).randbytes(100_000)])
        partitions = [TopicPartition("t", number) for number in range(5)]
        done = one.replicas.append(-1, 5_000, [(p, batch) for p in partitions for _ in range(3)])
        assert isinstance(done, asyncio.Future)
        assert [r.error for r in await done] == [ErrorCode.NONE] * 15
        for partition in partitions:
            assert content(one, partition) == content(two, partition)


@pytest.mark.req("R3", "R5")
async def test_killed_followers_leave_and_come_back() -> None:
    async with World(listen=True, replica_lag_time_max_ms="300", min_insync_replicas="2") as world:
        world.create_topic()
        one, two, three = world.nodes.values()
        await produced(one, 5)
        await three.kill()
        await produced(one, 5)
        assert world.isr() == (1, 2)
        await three.start()
        await eventually(lambda: world.isr() == (1, 2, 3))
        await eventually(lambda: content(three) == content(one))
        assert content(two) == content(one)


@pytest.mark.req("R4", "R6")
async def test_after_failover_the_old_leaders_own_records_are_gone() -> None:
    async with World(listen=True) as world:
        world.create_topic()
        one, two, three = world.nodes.values()
        await produced(one, 10)
        # Cut off: it appends what nobody copies, and the others go on without it.
        one.deaf = True
        for node in (two, three):
            node.replicas.fetchers.unfollow(P0)
        for _ in range(5):
            one.append(make_batch([b"lost"]))
        world.elect(2, isr=(2, 3))
        await produced(two, 5)
        one.deaf = False
        world.set_isr(2, 3)
        await eventually(lambda: content(one) == content(two) == content(three))
        assert [epoch for _, epoch, _ in content(one)] == [0] * 10 + [1] * 5
        await eventually(lambda: world.isr() == (1, 2, 3))


@pytest.mark.req("R4", "T1")
async def test_a_retry_across_a_killed_leader_is_not_appended_twice() -> None:
    async with World(listen=True) as world:
        world.create_topic()
        one, two, three = world.nodes.values()

        def batch(sequence: int) -> bytes:
            return make_batch(
                [b"%d" % sequence], producer_id=7, producer_epoch=0, sequence=sequence
            )

        for sequence in range(4):
            one.append(batch(sequence))
        await eventually(lambda: len(content(two)) == len(content(three)) == 4)
        await one.kill()
        world.elect(2, isr=(2, 3))
        repeated = two.append(batch(3), acks=-1)
        assert isinstance(repeated, asyncio.Future)
        assert (await repeated)[0].base_offset == 3
        await two.kill()
        await two.start()
        world.elect(2, isr=(2, 3))
        again = two.append(batch(2))
        assert isinstance(again, AppendResult)
        assert (again.error, again.base_offset) == (ErrorCode.NONE, 2)
        assert two.replica().log.log_end_offset == 4


@pytest.mark.req("R1")
async def test_a_follower_left_behind_starts_where_the_leader_does() -> None:
    async with World(listen=True) as world:
        world.create_topic()
        one, two, three = world.nodes.values()
        await three.kill()
        world.fence(3)
        world.set_isr(1, 2)
        await produced(one, 10)
        await eventually(lambda: one.replica().state.high_watermark == 10)
        one.replicas.delete_records(0, [(P0, 6)])
        await eventually(lambda: two.replica().log.log_start_offset == 6)
        await three.start()
        await eventually(lambda: content(three) == content(one)[6:])
        assert three.replica().log.log_start_offset == 6


async def test_a_leader_on_a_new_port_is_found() -> None:
    async with World(listen=True) as world:
        world.create_topic()
        one, two = world.nodes[1], world.nodes[2]
        await produced(one, 3)
        await one.kill()
        await one.start()
        world.elect(1)
        await produced(one, 3)
        assert content(one) == content(two)


async def test_a_new_partition_does_not_wait_for_the_fetch_in_flight() -> None:
    async with World(listen=True, replica_fetch_wait_max_ms="20000") as world:
        world.create_topic()
        await asyncio.sleep(0.1)
        async with asyncio.timeout(5):
            world.elect(2)
            await produced(world.nodes[2], 3)


@pytest.mark.req("R1", "R10")
async def test_a_follower_names_only_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[int] = []
    send = connection.BrokerConnection.send

    def spy(link: Any, key: int, version: int, message: dict[str, Any], *rest: Any) -> None:
        if key == 1:
            named.append(sum(len(topic["partitions"]) for topic in message["topics"]))
        send(link, key, version, message, *rest)

    monkeypatch.setattr(connection.BrokerConnection, "send", spy)
    async with World(brokers=2, listen=True) as world:
        world.create_topic(partitions=20)
        one, two = world.nodes.values()
        await produced(one, 5)
        await eventually(lambda: two.replica().state.high_watermark == 5)
        # All of them once for the session; since then only the one that moves.
        assert named.count(20) == 1
        assert set(named[named.index(20) + 1 :]) <= {0, 1}
        assert len(one.sessions) == 1


@pytest.mark.req("R1")
@pytest.mark.parametrize("slots", ["0", "1"])
async def test_replication_goes_on_without_room_for_sessions(slots: str) -> None:
    async with World(listen=True, max_incremental_fetch_session_cache_slots=slots) as world:
        world.create_topic(partitions=3)
        one, two, three = world.nodes.values()
        assert await produced(one, 20) == list(range(20))
        assert content(one) == content(two) == content(three)
        assert len(one.sessions) == int(slots)


@pytest.mark.req("R1")
async def test_a_session_that_the_leader_has_lost_begins_anew() -> None:
    async with World(listen=True) as world:
        world.create_topic()
        one = world.nodes[1]
        await produced(one, 3)
        for session in list(one.sessions._sessions):
            one.sessions._remove(session)
        assert await produced(one, 3) == [3, 4, 5]
        assert len(one.sessions) == 2


@pytest.mark.req("R1")
async def test_several_fetchers_share_the_partitions_of_a_leader() -> None:
    async with World(brokers=2, listen=True, num_replica_fetchers="3") as world:
        world.create_topic(partitions=7)
        one, two = world.nodes.values()
        partitions = [TopicPartition("t", number) for number in range(7)]
        done = one.replicas.append(-1, 5_000, [(p, make_batch([b"v"])) for p in partitions])
        assert isinstance(done, asyncio.Future)
        assert [r.error for r in await done] == [ErrorCode.NONE] * 7
        shares = [len(f._followings) for f in two.replicas.fetchers._fetchers.values()]
        assert sorted(shares) == [2, 2, 3]
        world.elect(2)
        shares = [len(f._followings) for f in two.replicas.fetchers._fetchers.values()]
        assert sum(shares) == 6


@pytest.mark.req("R1")
async def test_a_partition_that_is_refused_waits_and_the_others_do_not() -> None:
    async with World(brokers=2, listen=True, replica_fetch_backoff_ms="60000") as world:
        world.create_topic(partitions=2)
        one, two = world.nodes.values()
        one.deaf = True
        world.elect(1)
        (fetcher,) = two.replicas.fetchers._fetchers.values()
        other = TopicPartition("t", 1)
        known = {following.replica.partition: following for following in fetcher._followings}
        refused, served = known[P0], known[other]
        await eventually(lambda: refused.failures >= 3)
        done = one.replicas.append(-1, 5_000, [(other, make_batch([b"v"]))])
        assert isinstance(done, asyncio.Future)
        assert (await done)[0].error is ErrorCode.NONE
        assert served.failures == 0
        one.deaf = False
        world.elect(1)
        await produced(one, 2)
        assert content(one) == content(two)


async def test_other_peers_are_hung_up_on() -> None:
    answers = [b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\x05\0\0\0\x09x"]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(answers.pop(0))
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    message = {"replica_id": -1, "isolation_level": 0, "topics": []}
    while answers:
        link = await connection.connect(
            "127.0.0.1", port, client_id="x", response_bytes_max=1_000, timeout_ms=1_000
        )
        with pytest.raises(KafkaError) as raised:
            await link.call(2, 8, message, 1_000)
        assert raised.value.code is ErrorCode.NETWORK_EXCEPTION
    server.close()
    await server.wait_closed()
    with pytest.raises(KafkaError) as raised:
        await connection.connect(
            "127.0.0.1", port, client_id="x", response_bytes_max=1_000, timeout_ms=1_000
        )
    assert raised.value.code is ErrorCode.NETWORK_EXCEPTION


@pytest.mark.req("R1")
async def test_a_lost_connection_to_a_broker_is_freed_at_once() -> None:
    async with World(brokers=1, listen=True) as world:
        port, own = world.nodes[1].port, {"client_software_name": "", "client_software_version": ""}
        link = await connection.connect(
            "127.0.0.1", port, client_id="x", response_bytes_max=1 << 20, timeout_ms=5_000
        )
        await link.call(18, 0, own, 5_000)
        gone = weakref.ref(link)
        gc.disable()
        try:
            link.close()
            del link
            await eventually(lambda: gone() is None, seconds=1)
        finally:
            gc.enable()

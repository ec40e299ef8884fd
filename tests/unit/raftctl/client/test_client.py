"""The client with whole controllers in the deterministic world: short stories."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

import pytest

from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.world import World
from raftctl.client import Entry, Event, OutcomeUnknownError, RefusedError, connect
from raftctl.client._transport import refusal
from raftctl.controller.kv._kv_control import VALUE_BYTES_MAX
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from tests.unit.raftctl.client.programs import addresses, kill_leader, program, run_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from raftctl.client import Client, Holder

T = TypeVar("T")
pytestmark = pytest.mark.req("Q10")

SMALL_LOG = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.max.retention.bytes": "1",
    "metadata.log.segment.bytes": "1000",
}
FENCED = ErrorCode.FENCED_MEMBER_EPOCH


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=5) as made:
        yield made


@pytest.fixture
def cluster(world: World) -> SimCluster:
    return SimCluster(world, brokers=0)


async def first(events: AsyncIterator[Event], count: int) -> list[Event]:
    async with asyncio.timeout(60):
        return [event async for event in up_to(events, count)]


async def up_to(items: AsyncIterator[T], count: int) -> AsyncIterator[T]:
    async for item in items:
        yield item
        count -= 1
        if count == 0:
            return


async def put_once(client: Client, key: str, value: bytes) -> int:
    """Asks again until it is known to be done, which it is once; returns the version."""
    while True:
        try:
            return await client.put(key, value)
        except OutcomeUnknownError:
            entry = await client.get(key)
            if entry is not None:
                return entry.version


def test_keys_are_read_written_compared_and_removed(world: World, cluster: SimCluster) -> None:
    async def story(client: Client) -> None:
        assert await client.get("k") is None
        version = await client.put("k", b"1")
        assert await client.get("k") == Entry("k", b"1", version)
        assert await client.cas("k", b"2", absent=True) is None
        assert await client.cas("k", b"2", version=version - 1) is None
        assert await client.cas("k", b"\xff", expected=b"1", version=version) == version + 1
        assert await client.cas("k", b"3", expected=b"\xff") == version + 2
        assert await client.delete("k") == version + 3
        assert await client.delete("k") is None
        with pytest.raises(KafkaError, match="key"):
            await client.put("", b"")
        largest = b"\xff" * VALUE_BYTES_MAX
        await client.put("k", largest)
        entry = await client.get("k")
        assert entry is not None
        assert entry.value == largest
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await client.put("k", largest + b"x")

    run_program(world, cluster, story)


def test_keys_are_listed_in_pages(world: World, cluster: SimCluster) -> None:
    async def story(client: Client) -> None:
        names = [f"a/{number:03}" for number in range(130)]
        for name in reversed(names):
            await client.put(name, b"")
        await client.put("b", b"")
        last = await client.put("a", b"")
        assert [entry.key async for entry in client.list("a/")] == names
        page = await client.page(limit=2)
        assert [entry.key for entry in page.entries] == ["a", "a/000"]
        assert page.next == "a/000"
        assert page.offset >= last, "it shows every write that was answered before"
        end = await client.page("a/", after="a/127")
        assert ([entry.key for entry in end.entries], end.next) == (["a/128", "a/129"], None)

    run_program(world, cluster, story)


def test_a_watch_misses_nothing_when_controllers_die(world: World, cluster: SimCluster) -> None:
    async def story(client: Client) -> None:
        start = await client.put("w/0", b"0")
        events = client.watch(prefix="w/", start=start)
        killed: list[str] = []
        versions = [start]
        for number in range(1, 40):
            if number % 10 == 5:
                for name in killed:
                    cluster.start(name)
                killed = [await kill_leader(world, cluster)]
            versions.append(await put_once(client, f"w/{number}", b"%d" % number))
            await put_once(client, f"other/{number}", b"")
        assert await first(events, 40) == [
            Event(f"w/{number}", b"%d" % number, version) for number, version in enumerate(versions)
        ]

    run_program(world, cluster, story)


def test_a_watch_of_a_key_sees_it_set_and_removed(world: World, cluster: SimCluster) -> None:
    async def story(client: Client) -> None:
        start = await client.put("other", b"")
        put, removed = await client.put("k", b"1"), await client.delete("k")
        assert removed is not None
        expected = [Event("k", b"1", put), Event("k", None, removed)]
        assert await first(client.watch("k", start=start), 2) == expected
        assert await first(client.watch("k", start=removed), 1) == expected[1:]
        now = client.watch("k")
        watching = asyncio.ensure_future(first(now, 1))
        await asyncio.sleep(1)
        version = await client.put("k", b"2")
        assert await watching == [Event("k", b"2", version)]

    run_program(world, cluster, story)


def test_a_watch_from_before_the_log_is_told_to_list_anew(world: World) -> None:
    cluster = SimCluster(world, brokers=0, overrides=SMALL_LOG)

    async def story(client: Client) -> None:
        start = await client.put("k", b"first")
        for number in range(200):
            await client.put("k", b"%d" % number)
        with pytest.raises(RefusedError, match="compacted") as raised:
            await first(client.watch("k", start=start), 1)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert raised.value.start_offset > start
        page = await client.page("k")
        assert page.entries[0].value == b"199"
        last = await client.put("k", b"last")
        (event,) = await first(client.watch("k", start=page.offset + 1), 1)
        assert event == Event("k", b"last", last)

    run_program(world, cluster, story)


def test_ephemeral_keys_live_as_long_as_their_session(world: World, cluster: SimCluster) -> None:
    """Longer than its timeout, while it is kept; and through a failover."""

    async def story(client: Client) -> None:
        async with client.session(2) as session:
            await client.put("e", b"1", session=session)
            await asyncio.sleep(5)
            cluster.start(await kill_leader(world, cluster))
            await asyncio.sleep(5)
            assert await client.get("e") is not None
            assert not session.lost.is_set()
        assert await client.get("e") is None
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
            await client.put("e", b"", session=session)

    run_program(world, cluster, story)


def test_a_session_that_nobody_answers_is_lost_before_the_controllers_end_it(
    world: World, cluster: SimCluster
) -> None:
    async def story(client: Client) -> None:
        async with client.session(3) as session:
            await client.put("e", b"", session=session)
            for name in cluster.controller_names:
                world.partition("program", name)
            await asyncio.wait_for(session.lost.wait(), 3.5)
            with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
                session.check()
            world.heal()
        assert await client.get("e") is not None, "this end is not the last to know"
        (event,) = await first(client.watch("e"), 1)
        assert event.value is None

    run_program(world, cluster, story)


def test_a_program_that_was_held_up_believes_nothing(world: World, cluster: SimCluster) -> None:
    """Not even in the moment before it notices."""

    async def story(client: Client) -> None:
        async with client.session(2) as session:
            session.check()
            session.open_until -= 2
            with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
                session.check()

    run_program(world, cluster, story)


def test_a_session_is_counted_from_the_question(world: World, cluster: SimCluster) -> None:
    """The controllers may have had it at once, however long their answer takes."""
    late_s = 0.4

    async def story(client: Client) -> None:
        loop = asyncio.get_running_loop()
        for name in cluster.controller_names:
            world.network.link(name, "program").latency_min_ms = late_s * 1000
        async with client.session(3) as session:
            for _ in range(60):
                left_s = session.open_until - loop.time()
                assert left_s <= 3 * 0.9 - late_s, "less than the controllers still give it"
                await asyncio.sleep(0.1)
            session.check()

    run_program(world, cluster, story)


def test_a_session_goes_on_to_end_while_the_machine_is_suspended(
    world: World, cluster: SimCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's time stands still then, so no timer tells; the lock is not believed in."""

    async def story(client: Client) -> None:
        loop = asyncio.get_running_loop()
        async with client.session(2) as session, client.lock("l", session=session) as lock:
            await asyncio.sleep(1)
            slept_s = 1.9
            monkeypatch.setattr(loop, "lease_time", lambda: loop.time() + slept_s)
            assert not session.is_open()
            with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
                await client.put("k", b"", guard=lock)
            await asyncio.wait_for(lock.lost.wait(), 2)

    run_program(world, cluster, story)


def test_a_paused_holder_does_not_count_on_an_answer_that_waited(
    world: World, cluster: SimCluster
) -> None:
    """The lock has gone to another while the process stood still, and the answer came."""
    sure: list[bool] = []

    async def holder(client: Client) -> None:
        async with client.session(2) as session, client.lock("l", session=session):
            while len(sure) < 40:
                sure.append(session.is_open())
                await asyncio.sleep(0.1)

    async def story(client: Client) -> None:
        world.start("holder", program(cluster, holder))
        await asyncio.sleep(1)
        for name in cluster.controller_names:
            world.network.link(name, "holder").latency_min_ms = 700
        await asyncio.sleep(0.9)
        world.pause("holder")
        async with client.lock("l"):
            assert sure
            assert all(sure)
            world.resume("holder")
            before = len(sure)
            await asyncio.sleep(2)
            assert sure[before:]
            assert not any(sure[before:]), "another holds the lock"

    run_program(world, cluster, story)


def test_a_lock_goes_round_in_order_and_one_at_a_time(world: World, cluster: SimCluster) -> None:
    async def story(client: Client) -> None:
        held: list[int] = []
        inside = 0

        async def worker() -> None:
            nonlocal inside
            async with client.lock("l", value=b"me") as lock:
                inside += 1
                assert inside == 1
                held.append(lock.token)
                assert await client.put("n", b"%d" % lock.token, guard=lock) > lock.token
                holder = await client.holder("l")
                assert holder is not None
                assert (holder.token, holder.value) == (lock.token, b"me")
                await asyncio.sleep(0.3)
                inside -= 1

        await asyncio.gather(*[worker() for _ in range(6)])
        assert held == sorted(held)
        assert len(held) == 6
        assert await client.holder("l") is None

    run_program(world, cluster, story)


def test_who_gives_up_waiting_gives_its_place_back(world: World, cluster: SimCluster) -> None:
    async def story(client: Client) -> None:
        async with client.session() as one, client.session() as other:
            async with client.lock("l", session=one):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1), client.lock("l", session=other):
                        raise AssertionError("it is held")
            assert await client.holder("l") is None, "both places are given back"
            async with client.lock("l", session=other) as lock:
                assert lock.token > 0
        assert await client.holder("l") is None

    run_program(world, cluster, story)


def test_a_rolling_restart_loses_no_session_lock_or_event(
    world: World, cluster: SimCluster
) -> None:
    """Controllers that stop in order send away who waits for them, rather than wait for it."""

    async def story(client: Client) -> None:
        start = await client.put("w", b"")
        async with client.session(3) as session, client.lock("l", session=session) as lock:
            waiting = asyncio.ensure_future(held_once(client))
            events = asyncio.ensure_future(first(client.watch("w", start=start), 7))
            await asyncio.sleep(1)
            for number, name in enumerate(cluster.controller_names):
                stopped_at = world.elapsed_s
                process = world.node(name).process
                assert process is not None
                world.terminate(name)
                await asyncio.wait([process.done])
                assert world.elapsed_s - stopped_at < 1, "who waits is sent to another"
                await put_once(client, f"other/{number}", b"")
                await client.put("w", b"%d" % number, guard=lock)
                cluster.start(name)
                await asyncio.sleep(3)
                await client.put("w", b"%d" % number, guard=lock)
            assert not lock.lost.is_set()
            assert not waiting.done()
        assert await waiting > lock.token
        assert [event.value for event in await events] == [b"", b"0", b"0", b"1", b"1", b"2", b"2"]

    run_program(world, cluster, story)


async def held_once(client: Client) -> int:
    """The token with which the lock was held in its turn."""
    async with client.lock("l") as lock:
        return lock.token


@pytest.mark.req("Q10", "Q11")
def test_a_killed_holder_loses_the_lock_and_its_token_is_refused(
    world: World, cluster: SimCluster
) -> None:
    taken: asyncio.Queue[int] = asyncio.Queue()

    async def hold(client: Client) -> None:
        async with client.lock("l", session_timeout_s=2) as lock:
            await client.put("k", b"old", guard=lock)
            taken.put_nowait(lock.token)
            await asyncio.sleep(1_000)

    async def story(client: Client) -> None:
        world.start("holder", program(cluster, hold))
        stale_token = await taken.get()
        world.kill("holder")
        async with client.lock("l") as lock:
            assert lock.token > stale_token
            await client.put("k", b"new", guard=lock)
            current, lock.token = lock.token, stale_token
            with pytest.raises(RefusedError) as raised:
                await client.put("k", b"stale", guard=lock)
            lock.token = current
            assert (raised.value.code, raised.value.version) == (FENCED, current)
        entry = await client.get("k")
        assert entry is not None
        assert entry.value == b"new"

    run_program(world, cluster, story)


def test_an_election_is_followed(world: World, cluster: SimCluster) -> None:
    async def story(client: Client) -> None:
        seen: list[Holder | None] = []

        async def observe(holders: AsyncIterator[Holder | None]) -> None:
            seen.extend([holder async for holder in up_to(holders, 5)])

        watching = asyncio.ensure_future(observe(client.holders("e")))
        await asyncio.sleep(1)
        for name in (b"a", b"b"):
            async with client.elect("e", value=name):
                await asyncio.sleep(15)
        await watching
        assert [holder and holder.value for holder in seen] == [None, b"a", None, b"b", None]

    run_program(world, cluster, story)


def test_a_write_whose_answer_is_lost_is_not_repeated(world: World, cluster: SimCluster) -> None:
    async def story(client: Client) -> None:
        await client.put("k", b"1")
        for name in cluster.controller_names:
            world.block(name, "program")
        with pytest.raises(OutcomeUnknownError):
            await client.put("k", b"2")
        world.heal()
        entry = await client.get("k")
        assert entry is not None
        assert entry.value == b"2", "it was done once; the client did not know"

    run_program(world, cluster, story)


def test_without_controllers_a_call_ends_in_time(world: World, cluster: SimCluster) -> None:
    async def story(client: Client) -> None:
        await client.put("k", b"")
        for name in cluster.controller_names:
            world.kill(name)
        with pytest.raises(KafkaError, match="NOT_CONTROLLER: not within 10 s"):
            await client.get("k")
        with pytest.raises(KafkaError, match="NOT_CONTROLLER: not within 10 s"):
            await client.put("k", b"")

    run_program(world, cluster, story)


@pytest.mark.parametrize("text", ["", "host", ":1", "host:0", "host:65536", "a:1,b"])
def test_addresses_are_checked(text: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        connect(text)


async def test_a_client_is_entered_first() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await connect(addresses(["a"])).get("k")


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"error": "NOT_CONTROLLER", "message": "m"}, RefusedError),
        ({"error": "REQUEST_TIMED_OUT", "message": "m", "done": "unknown"}, OutcomeUnknownError),
        ({"error": "UNKNOWN_SERVER_ERROR", "message": "m"}, OutcomeUnknownError),
        ({"error": "AN_ERROR_OF_LATER", "message": "m"}, OutcomeUnknownError),
        ({}, OutcomeUnknownError),
    ],
)
def test_what_is_not_said_to_be_refused_is_not_told_as_not_done(
    document: dict[str, str], kind: type[KafkaError]
) -> None:
    assert type(refusal(document)) is kind


def test_a_change_whose_answers_were_lost_is_told_as_unknown(
    world: World, cluster: SimCluster
) -> None:
    """Also one that may be asked twice: after an answer that was lost others only refuse."""

    async def story(client: Client) -> None:
        await client.put("k", b"")
        for name in cluster.controller_names:
            world.block(name, "program")
        with pytest.raises(OutcomeUnknownError):
            await client.session(2).__aenter__()
        with pytest.raises(KafkaError) as read:
            await client.get("k")
        assert not isinstance(read.value, OutcomeUnknownError), "a read leaves nothing open"

    run_program(world, cluster, story)

"""Virtual time, order, executors, and the guards against worlds that hang or spin."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.kernel._loop import Livelock, WorldStuck
from jepsen.simulator.world import World
from jepsen.simulator.world._world import WorldFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jepsen.simulator.world import SimRuntime


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as made:
        yield made


def test_an_hour_of_sleep_takes_no_time(world: World) -> None:
    async def scenario() -> float:
        start_s = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time() - start_s

    real_start_s = time.monotonic()
    assert world.run(scenario()) == pytest.approx(3600)
    assert time.monotonic() - real_start_s < 5


def test_a_delay_smaller_than_the_clock_can_tell_lets_time_pass(world: World) -> None:
    async def scenario() -> bool:
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        tiny_s = 1e-18
        assert begin_s + tiny_s == begin_s
        await asyncio.sleep(tiny_s)
        return loop.time() > begin_s

    assert world.run(scenario())


def test_equal_timers_fire_in_the_order_they_were_made(world: World) -> None:
    seen: list[int] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + 1
        for number in range(100):
            loop.call_at(when, seen.append, number)
        loop.call_at(when, seen.append, -1).cancel()
        await asyncio.sleep(2)

    world.run(scenario())
    assert seen == list(range(100))


def test_timeouts_task_groups_and_queues_work(world: World) -> None:
    async def scenario() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
        received: list[int] = []

        async def produce() -> None:
            for number in range(10):
                await queue.put(number)

        async def consume() -> None:
            while len(received) < 10:
                received.append(await queue.get())

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return received

    assert world.run(scenario()) == list(range(10))


def test_cancelled_timers_are_swept_away(world: World) -> None:
    async def scenario() -> None:
        for _ in range(5000):
            async with asyncio.timeout(1_000_000):
                await asyncio.sleep(0.001)

    world.run(scenario())
    assert len(world.loop._timers) < 2500


def test_tasks_and_futures_hash_by_serial_number(world: World) -> None:
    async def scenario() -> list[int]:
        tasks = {asyncio.create_task(asyncio.sleep(0)) for _ in range(50)}
        await asyncio.wait(tasks)
        return [hash(task) for task in tasks]

    hashes = world.run(scenario())
    assert hashes is not None
    assert len(set(hashes)) == 50
    assert max(hashes) < 1000
    with World(seed=2) as other:
        assert other.run(scenario()) == hashes


def test_executor_calls_run_inline_and_bring_their_exceptions(world: World) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        assert await loop.run_in_executor(None, divmod, 7, 2) == (3, 1)
        assert await asyncio.to_thread(int, "42") == 42
        assert loop.time() > start_s
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, divmod, 1, 0)

    world.run(scenario())


def test_a_deadlock_is_an_error(world: World) -> None:
    async def scenario() -> None:
        await asyncio.Event().wait()

    with pytest.raises(WorldStuck):
        world.run(scenario())


def test_spinning_without_time_passing_is_an_error(world: World) -> None:
    async def scenario() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="without time passing"):
        world.run(scenario())


def test_a_world_has_a_budget_of_handles() -> None:
    async def scenario() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0.001)

    with World(seed=1, handles_max=10_000) as world, pytest.raises(Livelock, match="more than"):
        world.run(scenario())


def test_failures_of_living_processes_fail_the_run(world: World) -> None:
    async def main(runtime: SimRuntime) -> None:
        async def background() -> None:
            raise LookupError("in the background")

        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        del task
        await asyncio.sleep(1)

    async def scenario() -> None:
        await world.start("a", main).done

    with pytest.raises(WorldFailed, match="in the background") as caught:
        world.run(scenario())
    assert caught.value.failures[0].node == "a"


def test_tolerated_failures_do_not_fail_the_run() -> None:
    async def main(runtime: SimRuntime) -> None:
        asyncio.get_running_loop().call_soon(_raise, ConnectionResetError("gone"))
        await asyncio.sleep(1)

    with World(seed=1, tolerated=(ConnectionError,)) as world:
        world.start("a", main)
        world.run(3)
        assert any("failure ConnectionResetError" in line for line in world.trace.recent)


def _raise(error: Exception) -> None:
    raise error


def test_a_process_that_fails_ends_with_its_error(world: World) -> None:
    async def main(runtime: SimRuntime) -> None:
        raise ValueError("no")

    async def scenario() -> None:
        process = world.start("a", main)
        with pytest.raises(ValueError, match="no"):
            await process.done
        assert world.node("a").process is None

    with pytest.raises(WorldFailed):
        world.run(scenario())

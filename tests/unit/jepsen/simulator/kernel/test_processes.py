"""Killing, pausing, powering off and restarting nodes; what their peers see of it."""

from __future__ import annotations

import asyncio
import functools
import gc
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.kernel.process import ProcessKilled
from jepsen.simulator.world import World
from raftctl.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from jepsen.simulator.world import SimRuntime

PORT = 9000


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=5) as made:
        made.node("server")
        made.node("client")
        yield made


async def serve_echo(runtime: SimRuntime) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async with await asyncio.start_server(echo, port=PORT) as server:
        await server.serve_forever()


def test_a_killed_process_runs_nothing_more_not_even_finally(world: World) -> None:
    ran: list[str] = []

    async def main(runtime: SimRuntime) -> None:
        async def background() -> None:
            try:
                await asyncio.sleep(1)
                ran.append("background")
            finally:
                ran.append("finally of a task")

        asyncio.get_running_loop().call_later(1, ran.append, "timer")
        task = asyncio.create_task(background())
        call = runtime.worker("disk").submit(lambda: ran.append("worker"))
        try:
            ran.append("started")
            world.kill("a")
            await asyncio.wait([task, call])
        finally:
            ran.append("finally of main")

    async def scenario() -> None:
        process = world.start("a", main)
        with pytest.raises(ProcessKilled):
            await process.done
        await asyncio.sleep(10)

    world.run(scenario())
    world.close()
    gc.collect()
    assert ran == ["started"]


def test_peers_of_a_killed_process_get_what_was_sent_then_the_end(world: World) -> None:
    async def server(runtime: SimRuntime) -> None:
        async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"last words")
            world.kill("server")

        async with await asyncio.start_server(talk, port=PORT) as listening:
            await listening.serve_forever()

    async def client(runtime: SimRuntime) -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        assert await reader.read() == b"last words"
        writer.write(b"anybody?")
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            await writer.drain()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", PORT)

    async def scenario() -> None:
        world.start("server", server)
        await asyncio.sleep(0.1)
        await world.start("client", client).done

    world.run(scenario())


@pytest.mark.parametrize("power", [False, True])
def test_a_silent_death_is_noticed_only_after_the_restart(world: World, power: bool) -> None:
    async def client(runtime: SimRuntime) -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        if power:
            world.power_off("server")
        else:
            world.kill("server", silent=True)
        writer.write(b"anybody?\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await reader.readline()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.open_connection("server", PORT)
        world.start("server", serve_echo)
        with pytest.raises(ConnectionResetError):
            await reader.readline()
        reader, writer = await asyncio.open_connection("server", PORT)
        writer.write(b"again\n")
        assert await reader.readline() == b"again\n"
        writer.close()

    async def scenario() -> None:
        world.start("server", serve_echo)
        await asyncio.sleep(0.1)
        await world.start("client", client).done

    world.run(scenario())


def test_a_paused_process_stands_still_and_catches_up_in_order(world: World) -> None:
    ticks: list[float] = []

    async def main(runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        for number in range(6):
            loop.call_at(start_s + number, lambda: ticks.append(round(loop.time() - start_s, 2)))
        await asyncio.sleep(100)

    async def scenario() -> None:
        world.start("a", main)
        await asyncio.sleep(1.5)
        world.pause("a")
        await asyncio.sleep(2)
        assert ticks == [0, 1]
        world.resume("a")
        await asyncio.sleep(10)

    world.run(scenario())
    assert ticks == [0, 1, 3.5, 3.5, 4, 5]


def test_the_machine_of_a_paused_process_still_takes_connections(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        world.pause("server")
        reader, writer = await asyncio.open_connection("server", PORT)
        writer.write(b"hello\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await reader.readline()
        world.resume("server")
        assert await reader.readline() == b"hello\n"
        writer.close()

    async def scenario() -> None:
        world.start("server", serve_echo)
        await asyncio.sleep(0.1)
        await world.start("client", client).done

    world.run(scenario())


def test_a_process_can_be_killed_while_paused(world: World) -> None:
    async def scenario() -> None:
        process = world.start("server", serve_echo)
        await asyncio.sleep(0.1)
        world.pause("server")
        world.kill("server")
        with pytest.raises(ProcessKilled):
            await process.done
        with pytest.raises(RuntimeError, match="runs no process"):
            world.resume("server")
        world.start("server", serve_echo)
        with pytest.raises(RuntimeError, match="already runs"):
            world.start("server", serve_echo)

    world.run(scenario())


async def show_runtime(runtime: SimRuntime) -> tuple[int, float, UUID]:
    return runtime.wall_ms(), runtime.random.random(), runtime.uuid()


def test_clocks_ids_and_randomness_belong_to_the_node_and_its_life(world: World) -> None:
    async def scenario(world: World) -> list[tuple[int, float, UUID]]:
        world.node("b").clock_offset_ms = -60_000
        return [await world.start(name, show_runtime).done for name in ("a", "b", "a")]

    shown = world.run(scenario(world))
    assert shown is not None
    walls, numbers, identifiers = zip(*shown, strict=True)
    assert walls[0] - walls[1] in range(59_990, 60_001)
    assert walls[2] >= walls[0] > 1_767_225_600_000
    assert len(set(numbers)) == len(set(identifiers)) == 3
    assert {identifier.version for identifier in identifiers} == {4}
    with World(seed=5) as again:
        assert again.run(scenario(again)) == shown
    with World(seed=6) as other:
        assert other.run(scenario(other)) != shown


def test_the_worker_runs_calls_in_order_and_takes_time_for_syncs(world: World) -> None:
    async def main(runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        worker = runtime.worker("log")
        order: list[int] = []
        runtime.files.make_directories("/data")
        file = runtime.files.open("/data/log", create=True)

        def write(number: int) -> int:
            file.append([b"record"])
            file.sync()
            order.append(number)
            return number

        start_s = loop.time()
        futures = [worker.submit(functools.partial(write, number)) for number in range(20)]
        failing = worker.submit(lambda: 1 // 0)
        worker.close()
        assert await asyncio.gather(*futures) == list(range(20))
        assert 0.002 < loop.time() - start_s < 0.05
        with pytest.raises(ZeroDivisionError):
            await failing
        with pytest.raises(KafkaError, match="takes no calls"):
            worker.submit(lambda: None)

    async def scenario() -> None:
        await world.start("a", main).done

    world.run(scenario())
    assert sum(" a sync /data/log " in line for line in world.trace.recent) == 20


def test_log_lines_go_into_the_trace_with_their_context(world: World) -> None:
    async def main(runtime: SimRuntime) -> None:
        runtime.log.bind(part="raft").info("leader_elected", epoch=3)
        try:
            raise LookupError("why")
        except LookupError:
            runtime.log.exception("it_failed", thing=object())

    async def scenario() -> None:
        await world.start("a", main).done

    world.run(scenario())
    story = "".join(world.trace.recent)
    assert " a log info leader_elected part='raft' epoch=3\n" in story
    assert "LookupError: why" in story
    assert "<object object at 0x>" in story

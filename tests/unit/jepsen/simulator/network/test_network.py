"""Connections between nodes: streams, protocols, flow control, refusal, partitions."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from jepsen.simulator.world import SimRuntime

PORT = 9000


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=3) as made:
        made.node("server")
        made.node("client")
        yield made


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()


async def serve_echo(runtime: SimRuntime) -> None:
    server = await asyncio.start_server(echo, "0.0.0.0", PORT)
    async with server:
        await server.serve_forever()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bytes:
    writer.write(text + b"\n")
    return await reader.readline()


def run_client(world: World, client: Callable[[SimRuntime], Coroutine[None, None, None]]) -> None:
    async def scenario() -> None:
        world.start("server", serve_echo)
        await asyncio.sleep(0.1)
        await world.start("client", client).done

    world.run(scenario())


def test_streams_echo_between_two_nodes(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("server", PORT)
        assert writer.get_extra_info("peername") == (world.node("server").address, PORT)
        assert writer.get_extra_info("sockname")[0] == world.node("client").address
        assert writer.get_extra_info("socket") is None
        for number in range(100):
            before_s = loop.time()
            assert await ask(reader, writer, b"hello %d" % number) == b"HELLO %d\n" % number
            assert loop.time() > before_s
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    run_client(world, client)


def test_names_addresses_and_loopback_resolve(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        address = world.node("server").address
        for host in ("server", address):
            [(family, kind, _, _, where)] = await loop.getaddrinfo(host, PORT)
            assert (family, kind, where) == (socket.AF_INET, socket.SOCK_STREAM, (address, PORT))
        assert await loop.getnameinfo((address, PORT)) == (address, str(PORT))
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("nowhere", PORT)
        server = await asyncio.start_server(echo, "localhost", 0)
        port = server.sockets[0].getsockname()[1]
        assert port != 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await ask(reader, writer, b"me") == b"ME\n"
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("client", port)  # It listens on loopback only.
        server.close()
        await server.wait_closed()
        assert not server.is_serving()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("localhost", port)

    run_client(world, client)


def test_a_taken_port_and_a_foreign_address_are_refused(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        await asyncio.start_server(echo, None, PORT)
        with pytest.raises(OSError, match="Address already in use"):
            await asyncio.start_server(echo, "0.0.0.0", PORT)
        with pytest.raises(OSError, match="Cannot assign"):
            await asyncio.start_server(echo, "server", PORT)

    run_client(world, client)


class Sink(asyncio.BufferedProtocol):
    """Takes bytes into a small buffer of its own, pausing itself now and then."""

    def __init__(self) -> None:
        self.received = hashlib.sha256()
        self.count = 0
        self.buffer = bytearray(1000)
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport.is_reading()
        self.received.update(self.buffer[:nbytes])
        self.count += nbytes
        if self.count % 7 == 0:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0.01, self.transport.resume_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


class Source(asyncio.Protocol):
    """Writes while it may and counts how often it was told to stop."""

    def __init__(self) -> None:
        self.pauses = 0
        self.free = asyncio.Event()
        self.free.set()

    def pause_writing(self) -> None:
        self.pauses += 1
        self.free.clear()

    def resume_writing(self) -> None:
        self.free.set()


def test_buffered_protocol_and_flow_control(world: World) -> None:
    sinks: list[Sink] = []
    expected = hashlib.sha256()

    async def server(runtime: SimRuntime) -> None:
        def make() -> Sink:
            sinks.append(Sink())
            return sinks[-1]

        await asyncio.get_running_loop().create_server(make, port=PORT)
        await asyncio.sleep(1000)

    async def client(runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        transport, source = await loop.create_connection(Source, "server", PORT)
        for number in range(200):
            await source.free.wait()
            parts: list[bytes | bytearray | memoryview]
            parts = [bytes([number]) * 10_000, bytearray(b"x" * number), memoryview(b"end")]
            expected.update(b"".join(parts))
            transport.writelines(parts)
        assert source.pauses > 0
        assert transport.get_write_buffer_size() > 0
        transport.close()
        assert transport.is_closing()
        await asyncio.sleep(900)

    async def scenario() -> None:
        world.start("server", server)
        await asyncio.sleep(0.1)
        world.start("client", client)
        await asyncio.sleep(500)

    world.run(scenario())
    assert sinks[0].received.digest() == expected.digest()
    assert sinks[0].lost.result() is None


def test_a_reader_that_never_reads_stops_the_writer(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        transport, source = await loop.create_connection(Source, "server", PORT)
        written = 0
        while source.free.is_set():
            transport.write(b"x" * 10_000)
            written += 10_000
        await asyncio.sleep(60)
        assert not source.free.is_set()
        assert written < 1_000_000
        transport.abort()

    async def deaf(runtime: SimRuntime) -> None:
        class Deaf(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                transport.pause_reading()

        await asyncio.get_running_loop().create_server(Deaf, port=PORT)
        await asyncio.sleep(1000)

    async def scenario() -> None:
        world.start("server", deaf)
        await asyncio.sleep(0.1)
        await world.start("client", client).done

    world.run(scenario())


def test_nobody_listening_refuses(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", PORT + 1)

    run_client(world, client)


def test_a_partition_stalls_and_the_heal_delivers_in_order(world: World) -> None:
    async def client(runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("server", PORT)
        assert await ask(reader, writer, b"before") == b"BEFORE\n"
        world.partition("client", "server")
        for number in range(20):
            writer.write(b"%d\n" % number)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await reader.readline()
        start_s = loop.time()
        with pytest.raises(TimeoutError):
            await asyncio.open_connection("server", PORT)
        assert loop.time() - start_s == pytest.approx(127)
        world.heal()
        assert [await reader.readline() for _ in range(20)] == [b"%d\n" % n for n in range(20)]
        writer.close()
        reader, writer = await asyncio.open_connection("server", PORT)
        assert await ask(reader, writer, b"after") == b"AFTER\n"
        writer.close()

    run_client(world, client)


def test_one_way_block_stops_one_direction(world: World) -> None:
    heard: list[bytes] = []

    async def server(runtime: SimRuntime) -> None:
        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                heard.append(line)
                writer.write(b"got it\n")

        async with await asyncio.start_server(hear, port=PORT) as listening:
            await listening.serve_forever()

    async def client(runtime: SimRuntime) -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        world.block("server", "client")
        writer.write(b"one\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await reader.readline()
        assert heard == [b"one\n"]
        world.heal()
        assert await reader.readline() == b"got it\n"
        writer.close()

    async def scenario() -> None:
        world.start("server", server)
        await asyncio.sleep(0.1)
        await world.start("client", client).done

    world.run(scenario())


def test_a_cut_resets_both_ends(world: World) -> None:
    lost: list[str] = []

    async def server(runtime: SimRuntime) -> None:
        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.read()
            except ConnectionResetError:
                lost.append("server")

        async with await asyncio.start_server(hear, port=PORT) as listening:
            await listening.serve_forever()

    async def client(runtime: SimRuntime) -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        await asyncio.sleep(1)
        world.partition("server", "client", cut=True)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        lost.append("client")
        assert writer.is_closing()
        await asyncio.sleep(1)

    async def scenario() -> None:
        world.start("server", server)
        await asyncio.sleep(0.1)
        await world.start("client", client).done

    world.run(scenario())
    assert sorted(lost) == ["client", "server"]


def test_bandwidth_and_latency_take_virtual_time(world: World) -> None:
    link = world.network.link("client", "server")
    link.bytes_per_s = 1_000_000
    link.latency_min_ms = 50

    async def client(runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection("server", PORT)
        start_s = loop.time()
        assert len(await ask(reader, writer, b"x" * 60_000)) == 60_001
        assert 0.11 < loop.time() - start_s < 0.2
        writer.close()

    run_client(world, client)


def test_a_protocol_that_raises_loses_its_connection(world: World) -> None:
    class Broken(asyncio.Protocol):
        lost: Exception | None = None

        def data_received(self, data: bytes) -> None:
            raise LookupError("broken")

        def connection_lost(self, exc: Exception | None) -> None:
            Broken.lost = exc

    async def server(runtime: SimRuntime) -> None:
        await asyncio.get_running_loop().create_server(Broken, port=PORT)
        await asyncio.sleep(1000)

    async def client(runtime: SimRuntime) -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        writer.write(b"boom")
        with pytest.raises(ConnectionResetError):
            await reader.read()

    async def scenario() -> None:
        world.start("server", server)
        await asyncio.sleep(0.1)
        await world.start("client", client).done
        assert [failure.node for failure in world.failures] == ["server"]
        world.failures.clear()

    world.run(scenario())
    assert isinstance(Broken.lost, LookupError)


@pytest.mark.req("J1")
@pytest.mark.parametrize("late", [False, True])
def test_what_a_watcher_finds_as_bytes_arrive_ends_the_run(world: World, *, late: bool) -> None:
    received: list[bytes] = []

    class Noting(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            received.append(data)

    def watch() -> None:
        if received:
            raise LookupError("found")

    async def serve(runtime: SimRuntime) -> None:
        server = await asyncio.get_running_loop().create_server(Noting, "0.0.0.0", PORT)
        await server.serve_forever()

    async def client(runtime: SimRuntime) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, "server", PORT)
        if late:
            world.block("client", "server")
        transport.write(b"x")
        await asyncio.sleep(1)
        world.heal()
        await asyncio.sleep(60)

    async def scenario() -> None:
        world.start("server", serve).watch = watch
        await asyncio.sleep(0.1)
        await world.start("client", client).done

    with pytest.raises(LookupError, match="found"):
        world.run(scenario())
    assert received == [b"x"]
    assert world.elapsed_s < 10

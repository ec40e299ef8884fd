"""Scenarios with unmodified libraries, run with a seed by `python -m jepsen.simulator run`."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import struct
import time
import uuid
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import BaseConnector
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

if TYPE_CHECKING:
    from jepsen.simulator.world import SimRuntime, World

PORT = 8080
KAFKA_PORT = 9092
CALLS = 1000


class LoopConnector(BaseConnector):
    """Connects through the event loop instead of through sockets of its own."""

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: Any, timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        host, port = req.url.raw_host, req.url.port
        assert host is not None
        assert port is not None
        _, protocol = await self._loop.create_connection(self._factory, host, port)
        assert isinstance(protocol, ResponseHandler)
        return protocol


async def serve_websocket(runtime: SimRuntime) -> None:
    """Answers every binary frame with its reverse, after writing it to disk."""
    worker = runtime.worker("log")
    file = runtime.files.open("/log", create=True)

    async def talk(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            file.append([message.data])
            await worker.submit(file.sync)
            await socket.send_bytes(message.data[::-1])
        return socket

    application = web.Application()
    application.router.add_get("/talk", talk)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", PORT).start()
    runtime.log.info("ready", port=PORT)
    await asyncio.Event().wait()


async def call_websocket(host: str, calls: int) -> None:
    """Makes calls one after the other over one WebSocket."""
    async with (
        aiohttp.ClientSession(connector=LoopConnector()) as session,
        session.ws_connect(f"http://{host}:{PORT}/talk") as socket,
    ):
        for number in range(calls):
            frame = b"call %d" % number
            await socket.send_bytes(frame)
            assert await socket.receive_bytes() == frame[::-1]


async def websocket(world: World) -> None:
    """One client makes a thousand calls to one server."""

    async def client(runtime: SimRuntime) -> None:
        await call_websocket("server", CALLS)

    world.start("server", serve_websocket)
    await asyncio.sleep(0.1)
    await world.start("client", client).done


async def chaos(world: World) -> None:
    """Several clients, a pause, a kill, a restart: all of it a function of the seed."""

    async def client(runtime: SimRuntime) -> None:
        done = 0
        while done < 40:
            try:
                async with asyncio.timeout(5):
                    await call_websocket("server", 20)
                done += 1
            except (OSError, TimeoutError, aiohttp.ClientError, TypeError) as error:
                runtime.log.info("call_failed", error=type(error).__name__)
                await asyncio.sleep(runtime.random.uniform(0.05, 0.2))

    world.start("server", serve_websocket)
    clients = [world.start(f"client-{number}", client) for number in range(4)]
    for action in (world.pause, world.resume, world.kill):
        await asyncio.sleep(world.random.uniform(0.1, 0.3))
        action("server")
    await asyncio.sleep(0.3)
    world.start("server", serve_websocket)
    world.partition("client-1", "server", cut=True)
    await asyncio.sleep(1)
    world.heal()
    for process in clients:
        await process.done


async def chance(world: World) -> None:
    """Draws from every source of chance and time a library can reach."""

    async def main(runtime: SimRuntime) -> None:
        await asyncio.sleep(1.5)
        drawn = (random.random(), random.Random().random(), os.urandom(4), uuid.uuid4())
        clocks = (time.time(), time.monotonic(), time.perf_counter_ns())
        runtime.log.info("drawn", drawn=drawn, clocks=clocks, names={"a", "b", "c", "d"})

    world.node("a").clock_offset_ms = 500
    await world.start("a", main).done


async def failing(world: World) -> None:
    """Fails, so that the runner has something to report."""
    raise LookupError("as planned")


async def endless(world: World) -> None:
    """Never gives the loop a turn."""
    while True:
        signal.pause()


def text(value: str) -> bytes:
    """A Kafka STRING."""
    return struct.pack(">h", len(value)) + value.encode()


def metadata_response() -> bytes:
    """A Metadata response (version 1): three brokers, one topic of two partitions."""
    brokers = [struct.pack(">i", number) + text(f"broker-{number}") for number in range(3)]
    rows = b"".join(broker + struct.pack(">ih", KAFKA_PORT, -1) for broker in brokers)
    partitions = [
        struct.pack(">hiiiiii", 0, index, index, 1, index, 1, index) for index in range(2)
    ]
    topic = struct.pack(">h", 0) + text("events") + struct.pack(">?i", False, len(partitions))
    topics = struct.pack(">i", 1) + topic + b"".join(partitions)
    return struct.pack(">i", len(brokers)) + rows + struct.pack(">i", 0) + topics


async def kafka(world: World) -> None:
    """An aiokafka producer and consumer start against brokers that know two APIs."""
    versions = struct.pack(">hi", 0, 4) + b"".join(
        struct.pack(">hhh", *entry) for entry in ((0, 0, 3), (1, 0, 4), (3, 0, 1), (18, 0, 0))
    )
    answers = {3: metadata_response(), 18: versions}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := await reader.read(4):
            request = await reader.readexactly(int.from_bytes(size))
            api_key, _, correlation_id = struct.unpack_from(">hhi", request)
            answer = struct.pack(">i", correlation_id) + answers[api_key]
            writer.write(struct.pack(">i", len(answer)) + answer)
        writer.close()

    async def broker(runtime: SimRuntime) -> None:
        async with await asyncio.start_server(talk, port=KAFKA_PORT) as server:
            await server.serve_forever()

    async def client(runtime: SimRuntime) -> None:
        bootstrap = [f"broker-{number}:{KAFKA_PORT}" for number in range(3)]
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, metadata_max_age_ms=100)
        await producer.start()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        partitions = await producer.partitions_for("events")
        runtime.log.info("started", partitions=sorted(partitions))
        await asyncio.sleep(2)
        await consumer.stop()
        await producer.stop()

    for number in range(3):
        world.start(f"broker-{number}", broker)
    await asyncio.sleep(0.1)
    await world.start("client", client).done

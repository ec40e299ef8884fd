"""What a cluster of somebody else answers: whether it can be tested, and whether a fault struck."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Any

from jepsen.errors import InputError

CONNECT_S = 3.0
ANSWER_S = 5.0
READ_S = 15.0
GRACE_S, SILENCE_S, AGAIN_S = 2.0, 1.0, 0.1
"""How long a fault may take to strike, when silence counts, and when a broker is asked again."""
API_VERSIONS = 18
CORRELATION = 4711
ANSWER_BYTES_MAX = 1 << 20


async def check_cluster(bootstrap_servers: str, topic: str, *, keys: int, replication: int) -> None:
    """Verify that a cluster can be tested with a topic of so many partitions and replicas.

    `bootstrap_servers`: HOST:PORT, separated by commas. InputError if no address answers, too few
    brokers serve, or the topic has too few partitions or any record.
    """
    option = f"--bootstrap-servers {bootstrap_servers}"
    found = await asyncio.gather(*(_asked(one) for one in bootstrap_servers.split(",") if one))
    if "" not in found:
        why = "; ".join(dict.fromkeys(found)) or "it names no address"
        raise InputError(f"{option}: no broker answers ({why}): is the address right?")
    try:
        async with asyncio.timeout(READ_S):
            await _check_topic(bootstrap_servers, topic, keys, replication)
    except (TimeoutError, OSError) as error:
        why = str(error) or f"no answer within {READ_S:g} s"
        raise InputError(f"{option}: the cluster does not serve: {why}") from None


async def _asked(address: str) -> str:
    """Asks for the versions of its requests, as every client of Kafka does; why that fails."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 1 << 16):
        return f"{address}: write HOST:PORT, with a port below 65536"
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return f"{address}: no connection within {CONNECT_S:g} s"
    except OSError as error:
        return f"{address}: {error.strerror or error}"
    try:
        answers = await answers_kafka(reader, writer, ANSWER_S)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return "" if answers else f"{address}: it does not speak Kafka's protocol"


async def answers_kafka(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience_s: float
) -> bool:
    """Whether an ApiVersions request of version 0 is answered in time, and wholly."""
    request = struct.pack(">hhih", API_VERSIONS, 0, CORRELATION, -1)
    try:
        async with asyncio.timeout(patience_s):
            writer.write(struct.pack(">i", len(request)) + request)
            size, correlation = struct.unpack(">ii", await reader.readexactly(8))
            if not (4 < size < ANSWER_BYTES_MAX and correlation == CORRELATION):
                return False
            await reader.readexactly(size - 4)
            return True
    except (TimeoutError, OSError, asyncio.IncompleteReadError):
        return False


async def broker_addresses(bootstrap: str) -> dict[int, tuple[str, int]]:
    """By id, the host and port of each broker that serves; none if nobody answers in time."""
    from jepsen.environments.admin import ASK_S, ERRORS, open_admin

    with contextlib.suppress(*ERRORS):
        async with asyncio.timeout(ASK_S), open_admin(bootstrap) as admin:
            brokers = (await admin.describe_cluster())["brokers"]
        return {one["node_id"]: (str(one["host"]), int(one["port"])) for one in brokers}
    return {}


class Witness:
    """A connection to a broker, opened before a fault: it tells whether the fault has struck.

    A process that ended has broken its connections, even if it was started again at once. One
    that stands still keeps them, and answers nothing.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> Witness | None:
        """None where nobody answers now, so that silence later shows nothing."""
        try:
            async with asyncio.timeout(CONNECT_S):
                found = cls(*await asyncio.open_connection(host, port))
        except (TimeoutError, OSError):
            return None
        if await answers_kafka(found._reader, found._writer, SILENCE_S):
            return found
        await found.close()
        return None

    async def still_answers(self) -> bool:
        """Whether the broker answers on, `GRACE_S` after it should have stopped."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GRACE_S
        while await answers_kafka(self._reader, self._writer, SILENCE_S):
            if loop.time() >= end_s:
                return True
            await asyncio.sleep(AGAIN_S)
        return False

    async def close(self) -> None:
        """Ends the connection."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def _check_topic(bootstrap: str, topic: str, keys: int, replication: int) -> None:
    """Raises InputError, TimeoutError or OSError."""
    # Loaded here: nobody who cannot connect needs a client.
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.errors import KafkaError

    from jepsen.environments.admin import open_admin

    try:
        async with open_admin(bootstrap) as admin:
            cluster = await admin.describe_cluster()
            topics = {one["topic"]: one for one in await admin.describe_topics()}
        brokers = len(cluster["brokers"])
        if replication > brokers:
            told = "1 broker serves" if brokers == 1 else f"{brokers} brokers serve"
            raise InputError(f"--replication {replication}: {told}; give a lower one")
        if topic not in topics:
            return
        parts = [TopicPartition(topic, one["partition"]) for one in topics[topic]["partitions"]]
        consumer: Any = AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            ends = await consumer.end_offsets(parts)
            begins = await consumer.beginning_offsets(parts)
        finally:
            await consumer.stop()
    except (KafkaError, AttributeError) as error:
        raise OSError(repr(error)) from error
    if len(parts) < keys:
        raise InputError(
            f"--topic {topic}: it has {len(parts)} partitions, not {keys} (--keys): "
            "choose another, or leave --topic out"
        )
    if records := sum(ends[one] - begins[one] for one in parts):
        raise InputError(
            f"--topic {topic}: it has {records} records, which a test would take for its own: "
            "choose another, or leave --topic out"
        )
    if written := sum(ends[one] for one in parts):
        raise InputError(
            f"--topic {topic}: it had {written} records, so that its offsets do not begin "
            "at 0: choose another, or leave --topic out"
        )

"""Who plays which part in a cluster now, asked as any client asks; works in every environment."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator

ASK_S = 3.0
REQUEST_TIMEOUT_MS = 1_500
ERRORS = (KafkaError, OSError, TimeoutError, AttributeError)
"""The last is how aiokafka takes it that a broker knows of no other."""
GROUP, TRANSACTION = 0, 1


class Roles:
    """Of the partitions of one topic, and of the coordinators of who uses it."""

    def __init__(self, bootstrap: str, topic: str, rng: random.Random) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._random = rng

    async def broker(self, role: str) -> int | None:
        """The id of a `partition-leader`, or of a `coordinator`; None if nobody says."""
        with contextlib.suppress(*ERRORS):
            async with asyncio.timeout(ASK_S), _admin(self._bootstrap) as admin:
                if role == "coordinator":
                    return await self._coordinator(admin)
                partition = self._random.choice(await self._partitions(admin))
                return None if partition["leader"] < 0 else int(partition["leader"])
        return None

    async def _coordinator(self, admin: AIOKafkaAdminClient) -> int:
        kind = self._random.choice((GROUP, TRANSACTION))
        name = f"{self._topic}-readers" if kind == GROUP else f"{self._topic}-0"
        return int(await admin.find_coordinator(name, kind))

    async def reassign(self) -> list[Any] | None:
        """Gives a partition other replicas, or another order: [partition, ids]; None: refused."""
        with contextlib.suppress(*ERRORS):
            async with asyncio.timeout(ASK_S), _admin(self._bootstrap) as admin:
                partition = self._random.choice(await self._partitions(admin))
                brokers = sorted(
                    one["node_id"] for one in (await admin.describe_cluster())["brokers"]
                )
                count = min(len(partition["replicas"]), len(brokers))
                replicas = self._random.sample(brokers, count)
                number = partition["partition"]
                return [number, replicas] if await self._move(admin, number, replicas) else None
        return None

    async def _move(self, admin: AIOKafkaAdminClient, number: int, replicas: list[int]) -> bool:
        topics: Any = [(self._topic, [(number, replicas, {})], {})]
        request = AlterPartitionReassignmentsRequest(REQUEST_TIMEOUT_MS, topics, {})
        answer: Any = await admin._send_to_controller(request)
        codes = [code for _, parts, _ in answer.responses for _, code, _, _ in parts]
        return answer.error_code == 0 and not any(codes)

    async def _partitions(self, admin: AIOKafkaAdminClient) -> list[dict[str, Any]]:
        """At least one; KafkaError if the topic is unknown."""
        found = [one for one in await admin.describe_topics() if one["topic"] == self._topic]
        partitions = [part for one in found for part in one["partitions"]]
        if not partitions:
            raise KafkaError(f"nobody knows the topic {self._topic}")
        return partitions


async def all_in_sync(bootstrap: str, brokers: int) -> bool:
    """Whether so many brokers serve, and each partition has all its replicas in sync."""
    with contextlib.suppress(*ERRORS):
        async with asyncio.timeout(ASK_S), _admin(bootstrap) as admin:
            if len((await admin.describe_cluster())["brokers"]) < brokers:
                return False
            topics = await admin.describe_topics()
            return all(
                len(part["isr"]) == len(part["replicas"])
                for topic in topics
                for part in topic["partitions"]
            )
    return False


@contextlib.asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()

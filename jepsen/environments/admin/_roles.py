"""Who plays which part in a cluster now, asked as any client asks; works in every environment."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError

from jepsen.environments.admin._requests import ASK_S, ERRORS, broker_ids, open_admin, reassign

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from aiokafka.admin import AIOKafkaAdminClient

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
            async with asyncio.timeout(ASK_S), open_admin(self._bootstrap) as admin:
                if role == "coordinator":
                    return await self._coordinator(admin)
                partition = self._random.choice(await self._partitions(admin))
                return None if partition["leader"] < 0 else int(partition["leader"])
        return None

    async def _coordinator(self, admin: AIOKafkaAdminClient) -> int:
        kind = self._random.choice((GROUP, TRANSACTION))
        name = f"{self._topic}-readers" if kind == GROUP else f"{self._topic}-0"
        return int(await admin.find_coordinator(name, kind))

    async def reassign(self, wanted: Sequence[Any] | None = None) -> list[Any] | None:
        """Give a partition other replicas, or another order: [partition, ids]; None: refused.

        `wanted`: the partition and its replicas; by default both are chosen by chance.
        """
        with contextlib.suppress(*ERRORS):
            async with asyncio.timeout(ASK_S), open_admin(self._bootstrap) as admin:
                number, replicas = wanted or await self._other_replicas(admin)
                refused = await reassign(admin, {(self._topic, number): replicas})
                return None if refused else [number, replicas]
        return None

    async def _other_replicas(self, admin: AIOKafkaAdminClient) -> tuple[int, list[int]]:
        """A partition by chance, and as many brokers as it has replicas, in any order."""
        partition = self._random.choice(await self._partitions(admin))
        brokers = await broker_ids(admin)
        count = min(len(partition["replicas"]), len(brokers))
        return partition["partition"], self._random.sample(brokers, count)

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
        async with asyncio.timeout(ASK_S), open_admin(bootstrap) as admin:
            if len(await broker_ids(admin)) < brokers:
                return False
            topics = await admin.describe_topics()
            return all(
                len(part["isr"]) == len(part["replicas"])
                for topic in topics
                for part in topic["partitions"]
            )
    return False

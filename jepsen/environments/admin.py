"""Administration of a cluster over Kafka's protocol, in every environment.

`BrokerRoles` finds partition leaders and coordinators, and moves replicas. `BrokerMembership`
removes brokers and adds them again, one at a time. `FeatureLevels` lowers and raises the levels of
finalized features. `open_admin` opens the client that all of them use.

The module reaches a cluster by its bootstrap servers and by `Environment` only, so a broker of
any origin can be tested. It imports aiokafka and is loaded only by tests that need it.

Invariants: each call is bounded in time and raises one of ERRORS. A removed broker hosts no
replica before it stops, and returns under its id with an empty disk.

Sources: KIP-455 (reassignment), KIP-584 (features), KIP-631 (unregistration of brokers).
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import groupby
from typing import TYPE_CHECKING, Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from jepsen.environments._base import Environment
    from jepsen.environments._entrance import Entrance


REQUEST_TIMEOUT_MS = 1_500
ERRORS = (KafkaError, OSError, TimeoutError, AttributeError)
"""The last is how aiokafka takes it that a broker knows of no other."""
_UPGRADE, _SAFE_DOWNGRADE = 1, 2
BROKER_ID_NOT_REGISTERED = 102
INVALID_UPDATE_VERSION = 95
ASK_S = 3.0
POLL_S = 0.2

Partition = tuple[str, int]
"""Topic and number."""


@contextlib.asynccontextmanager
async def open_admin(entrance: Entrance) -> AsyncIterator[AIOKafkaAdminClient]:
    """Open a client for a few requests, and close it afterwards."""
    admin = AIOKafkaAdminClient(**entrance.aiokafka(), request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def asked(
    entrance: Entrance, ask: Callable[[AIOKafkaAdminClient], Awaitable[bool]], patience_s: float
) -> bool:
    """Ask until it is so; false if it is not in time. Whatever has no answer is asked again."""

    async def once() -> bool:
        with contextlib.suppress(*ERRORS):
            async with asyncio.timeout(ASK_S), open_admin(entrance) as admin:
                return await ask(admin)
        return False

    return await until(once, patience_s)


async def until(holds: Callable[[], Awaitable[bool]], patience_s: float) -> bool:
    """Wait until it is so; false if it is not in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while True:
                if await holds():
                    return True
                await asyncio.sleep(POLL_S)
    return False


async def broker_ids(admin: AIOKafkaAdminClient) -> list[int]:
    """Return the brokers that serve."""
    return sorted(one["node_id"] for one in (await admin.describe_cluster())["brokers"])


async def all_replicas(admin: AIOKafkaAdminClient) -> dict[Partition, list[int]]:
    """Return the ids of the replicas of each partition, internal topics included."""
    return {
        (topic["topic"], part["partition"]): list(part["replicas"])
        for topic in await admin.describe_topics()
        for part in topic["partitions"]
    }


async def reassign(
    admin: AIOKafkaAdminClient, wanted: Mapping[Partition, Sequence[int]]
) -> dict[Partition, int]:
    """Give partitions other replicas; the error code of each that was refused. KafkaError."""
    by_topic: Any = [
        (topic, [(number, list(wanted[topic, number]), {}) for _, number in keys], {})
        for topic, keys in groupby(sorted(wanted), key=lambda one: one[0])
    ]
    request = AlterPartitionReassignmentsRequest(REQUEST_TIMEOUT_MS, by_topic, {})
    answer: Any = await admin._send_to_controller(request)
    if answer.error_code:
        raise for_code(answer.error_code)(answer.error_message)
    return {
        (topic, number): code
        for topic, parts, _ in answer.responses
        for number, code, _, _ in parts
        if code
    }


async def unregister(admin: AIOKafkaAdminClient, broker_id: int) -> None:
    """Have the cluster forget a broker, if it knows it. KafkaError."""
    answer: Any = await admin._send_to_controller(_UnregisterBroker(broker_id))
    if answer.error_code not in (0, BROKER_ID_NOT_REGISTERED):
        raise for_code(answer.error_code)(answer.error_message)


async def update_features(
    admin: AIOKafkaAdminClient, levels: Mapping[str, int], *, lower: bool
) -> bool:
    """Lower features to these levels, or raise them; return whether the cluster can.

    Raises aiokafka's KafkaError for every refusal but INVALID_UPDATE_VERSION.
    """
    answer: Any = await admin._send_to_controller(_UpdateFeatures(levels, lower=lower))
    if answer.error_code not in (0, INVALID_UPDATE_VERSION):
        raise for_code(answer.error_code)(answer.error_message)
    return not answer.error_code


# Requests that aiokafka does not have.


class _UnregisterBrokerResponse(Response):
    API_KEY = 64
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", CompactString("utf-8")),
        ("tags", TaggedFields),
    )


class _UnregisterBrokerStruct(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 64
    API_VERSION = 0
    RESPONSE_TYPE = _UnregisterBrokerResponse
    SCHEMA = Schema(("broker_id", Int32), ("tags", TaggedFields))


class _UnregisterBroker(Request[_UnregisterBrokerStruct]):
    """UnregisterBroker (KIP-500)."""

    API_KEY = 64

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id

    def build(self, request_struct_class: type[_UnregisterBrokerStruct]) -> _UnregisterBrokerStruct:
        """The request as it is sent."""
        return request_struct_class(self._broker_id, {})


class _UpdateFeaturesResponse(Response):
    API_KEY = 57
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("error_message", CompactString("utf-8")),
        (
            "results",
            CompactArray(
                ("feature", CompactString("utf-8")),
                ("error_code", Int16),
                ("error_message", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _UpdateFeaturesStruct(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 57
    API_VERSION = 1
    RESPONSE_TYPE = _UpdateFeaturesResponse
    SCHEMA = Schema(
        ("timeout_ms", Int32),
        (
            "feature_updates",
            CompactArray(
                ("feature", CompactString("utf-8")),
                ("max_version_level", Int16),
                ("upgrade_type", Int8),
                ("tags", TaggedFields),
            ),
        ),
        ("validate_only", Boolean),
        ("tags", TaggedFields),
    )


class _UpdateFeatures(Request[_UpdateFeaturesStruct]):
    """UpdateFeatures (KIP-584)."""

    API_KEY = 57

    def __init__(self, levels: Mapping[str, int], *, lower: bool) -> None:
        kind = _SAFE_DOWNGRADE if lower else _UPGRADE
        self._updates: Any = [(name, level, kind, {}) for name, level in sorted(levels.items())]

    def build(self, request_struct_class: type[_UpdateFeaturesStruct]) -> _UpdateFeaturesStruct:
        """The request as it is sent."""
        return request_struct_class(REQUEST_TIMEOUT_MS, self._updates, False, {})


LEVELS_PATIENCE_S = 10.0


class FeatureLevels:
    """The levels of features, in the ranges that the environment gives."""

    def __init__(self, environment: Environment, rng: random.Random) -> None:
        self._environment = environment
        self._random = rng

    async def lower(self, feature: str, level: int | None = None) -> list[Any]:
        """Lower to that level, else to a random one: [feature, level]; [] if that failed."""
        low, high = self._environment.features[feature]
        level = self._random.randrange(low, high) if level is None else level
        return [feature, level] if await self._done({feature: level}, lower=True) else []

    async def raise_all(self) -> dict[str, int]:
        """Raise every feature to its highest level; return the levels, or {} without an answer."""
        levels = {name: high for name, (_, high) in self._environment.features.items()}
        return levels if await self._done(levels, lower=False) else {}

    async def _done(self, levels: dict[str, int], *, lower: bool) -> bool:
        possible = True

        async def ask(admin: AIOKafkaAdminClient) -> bool:
            nonlocal possible
            possible = await update_features(admin, levels, lower=lower)
            return True

        heard = await asked(self._environment.operator, ask, LEVELS_PATIENCE_S)
        return heard and possible


IN_SYNC_S = 5.0
PATIENCE_S = 15.0


class BrokerMembership:
    """Brokers that leave a cluster and join it again, one at a time, as an operator has them do it.

        serves ──remove──▶ drained ──▶ stopped ──▶ unregistered, its disk replaced ──add──▶

    The replicas of the broker, those of internal topics included, are moved to others first. Where
    no other can take one, the partition goes on with fewer. The broker joins under its old id with
    an empty disk, and gets its replicas back.
    """

    def __init__(self, environment: Environment, rng: random.Random) -> None:
        self._environment = environment
        self._random = rng
        self.absent: str | None = None
        """The name of the node that has left; None if all are members."""
        self._lent: dict[Partition, list[int]] = {}
        """The replicas of the partitions that were moved, as they were before."""

    async def remove(self, broker_id: int | None) -> list[str]:
        """Remove a broker from the cluster, any if none is named; return its name.

        Return [] if all is not well at first, or if it cannot be drained in time: then it stays.
        """
        if self.absent is not None or not await until(self._environment.is_in_sync, IN_SYNC_S):
            return []
        if broker_id is None:
            broker_id = await self._any()
        node = None if broker_id is None else self._environment.broker_name(broker_id)
        if broker_id is None or node is None:
            return []
        if not await self._asked(lambda admin: self._drained(admin, broker_id)):
            return []
        self.absent = node
        await self._environment.terminate(node)
        await self._asked(lambda admin: _unregistered(admin, broker_id))
        await self._environment.replace_disk(node)
        return [node]

    async def add(self) -> list[str]:
        """Let the broker that has left join; moved partitions get their replicas back, or later."""
        node, self.absent = self.absent, None
        if node is not None:
            await self._environment.start_node(node)
        if self._lent:
            await self._asked(self._returned)
        return [] if node is None else [node]

    async def _any(self) -> int | None:
        """One of those that serve, if another is left."""
        ids: list[int] = []

        async def ask(admin: AIOKafkaAdminClient) -> bool:
            ids.extend(await broker_ids(admin))
            return True

        await self._asked(ask)
        return self._random.choice(ids) if len(ids) > 1 else None

    async def _drained(self, admin: AIOKafkaAdminClient, broker_id: int) -> bool:
        """Return whether nothing is on the broker any more; what is, is asked to move."""
        ids = await broker_ids(admin)
        replicas = await all_replicas(admin)
        held = {key: ids for key, ids in replicas.items() if broker_id in ids}
        if not held:
            return await self._environment.is_in_sync()
        self._lent = held | self._lent
        moves = {key: self._elsewhere(key, broker_id, have, ids) for key, have in held.items()}
        await reassign(admin, {key: wanted for key, wanted in moves.items() if wanted})
        return False

    def _elsewhere(
        self, key: Partition, broker_id: int, have: Sequence[int], ids: Sequence[int]
    ) -> list[int]:
        """The replicas without the broker: as many as before, if others can have one."""
        stay = [one for one in have if one != broker_id]
        free = [one for one in ids if one not in have]
        if free and len(stay) < len(self._lent[key]):
            stay.append(self._random.choice(free))
        return stay

    async def _returned(self, admin: AIOKafkaAdminClient) -> bool:
        """Return whether the controller has accepted to move every partition back that exists."""
        replicas = await all_replicas(admin)
        left = {key: ids for key, ids in self._lent.items() if key in replicas}
        refused = await reassign(admin, left) if left else {}
        self._lent = {key: ids for key, ids in left.items() if key in refused}
        return not refused

    async def _asked(self, ask: Callable[[AIOKafkaAdminClient], Awaitable[bool]]) -> bool:
        return await asked(self._environment.operator, ask, PATIENCE_S)


async def _unregistered(admin: AIOKafkaAdminClient, broker_id: int) -> bool:
    await unregister(admin, broker_id)
    return True


GROUP, TRANSACTION = 0, 1


class BrokerRoles:
    """The leaders of one topic's partitions, and the coordinators of its clients."""

    def __init__(self, entrance: Entrance, topic: str, rng: random.Random) -> None:
        self._entrance = entrance
        self._topic = topic
        self._random = rng

    async def broker(self, role: str) -> int | None:
        """Return the id of a `partition-leader` or a `coordinator`; None without an answer."""
        with contextlib.suppress(*ERRORS):
            async with asyncio.timeout(ASK_S), open_admin(self._entrance) as admin:
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
            async with asyncio.timeout(ASK_S), open_admin(self._entrance) as admin:
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


async def all_in_sync(entrance: Entrance, brokers: int) -> bool:
    """Return whether so many brokers serve, and each partition has all its replicas in sync."""
    with contextlib.suppress(*ERRORS):
        async with asyncio.timeout(ASK_S), open_admin(entrance) as admin:
            if len(await broker_ids(admin)) < brokers:
                return False
            topics = await admin.describe_topics()
            return all(
                len(part["isr"]) == len(part["replicas"])
                for topic in topics
                for part in topic["partitions"]
            )
    return False

"""What an administrator asks of a cluster, over the Kafka protocol; works in every environment."""

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
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

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
async def open_admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A client for a few requests."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def asked(
    bootstrap: str, ask: Callable[[AIOKafkaAdminClient], Awaitable[bool]], patience_s: float
) -> bool:
    """Asks until it is so; false if it is not in time. Whatever has no answer is asked again."""

    async def once() -> bool:
        with contextlib.suppress(*ERRORS):
            async with asyncio.timeout(ASK_S), open_admin(bootstrap) as admin:
                return await ask(admin)
        return False

    return await until(once, patience_s)


async def until(holds: Callable[[], Awaitable[bool]], patience_s: float) -> bool:
    """Waits until it is so; false if it is not in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while True:
                if await holds():
                    return True
                await asyncio.sleep(POLL_S)
    return False


async def broker_ids(admin: AIOKafkaAdminClient) -> list[int]:
    """The brokers that serve."""
    return sorted(one["node_id"] for one in (await admin.describe_cluster())["brokers"])


async def all_replicas(admin: AIOKafkaAdminClient) -> dict[Partition, list[int]]:
    """Of each partition of every topic, internal ones too: the ids of who has a replica."""
    return {
        (topic["topic"], part["partition"]): list(part["replicas"])
        for topic in await admin.describe_topics()
        for part in topic["partitions"]
    }


async def reassign(
    admin: AIOKafkaAdminClient, wanted: Mapping[Partition, Sequence[int]]
) -> dict[Partition, int]:
    """Gives partitions other replicas; the error code of each that was refused. KafkaError."""
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
    """Has the cluster forget a broker, if it knows it. KafkaError."""
    answer: Any = await admin._send_to_controller(_UnregisterBroker(broker_id))
    if answer.error_code not in (0, BROKER_ID_NOT_REGISTERED):
        raise for_code(answer.error_code)(answer.error_message)


async def update_features(
    admin: AIOKafkaAdminClient, levels: Mapping[str, int], *, lower: bool
) -> bool:
    """Lowers features to these levels, or raises them; whether the cluster can. KafkaError."""
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

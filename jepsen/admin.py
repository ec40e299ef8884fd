"""What an administrator asks of a cluster, over the Kafka protocol; works in every environment."""

from __future__ import annotations

import contextlib
from itertools import groupby
from typing import TYPE_CHECKING, Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactString, Int16, Int32, Schema, TaggedFields

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

REQUEST_TIMEOUT_MS = 1_500
ERRORS = (KafkaError, OSError, TimeoutError, AttributeError)
"""The last is how aiokafka takes it that a broker knows of no other."""
BROKER_ID_NOT_REGISTERED = 102

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
    """UnregisterBroker (KIP-500), which aiokafka does not have."""

    API_KEY = 64

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id

    def build(self, request_struct_class: type[_UnregisterBrokerStruct]) -> _UnregisterBrokerStruct:
        """The request as it is sent."""
        return request_struct_class(self._broker_id, {})

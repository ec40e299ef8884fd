"""Topics that are created, given more partitions and deleted, by several administrators at once."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError, StaleMetadata, for_code
from aiokafka.protocol.metadata import MetadataRequest

from jepsen.checkers import ABSENT, TOPICS, check_availability, check_topics
from jepsen.client import Client, Completion, failed, ok, unknown
from jepsen.environments import Rule
from jepsen.generator import ConcurrentKeys
from jepsen.generator.combinators import (
    Cycle,
    Limit,
    UntilOk,
    once,
    reserve,
)
from jepsen.generator.core import NOTHING, Endless, Todo
from jepsen.workloads._base import Workload, WorkloadOptions
from jepsen.workloads.sessions import REQUEST_TIMEOUT_MS

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from jepsen.environments import Entrance, Environment
    from jepsen.generator.core import Context, Generator
    from jepsen.history import Op

PARTITIONS_MAX = 4
OPS_PER_TOPIC = 30
THREADS_PER_TOPIC = 3
READ_S = 10.0
PAUSE_S = 0.2
REFUSALS = frozenset(
    {
        "TopicAlreadyExistsError",
        "UnknownTopicOrPartitionError",
        "InvalidPartitionsError",
        "InvalidReplicationFactorError",
        "InvalidRequestError",
        "PolicyViolationError",
    }
)
"""What a controller says that has decided against it; after any other answer nobody knows."""
OPERATIONS = ("create", "alter", "delete", "describe")
"""What the administrators have to be allowed on a secured cluster."""
UNSENT = (NodeNotReadyError, StaleMetadata, TimeoutError, AttributeError)
"""No broker was found to send it to; the last: aiokafka knew no other broker."""


class TopicsClient(Client):
    """`create`, `grow` and `delete` of a topic; `topics` of all, once all brokers agree."""

    def __init__(self, entrance: Entrance, prefix: str, replication: int) -> None:
        self._admin = AIOKafkaAdminClient(
            **entrance.aiokafka(), request_timeout_ms=REQUEST_TIMEOUT_MS
        )
        self._entrance = entrance
        self._prefix = prefix
        self._replication = replication
        self._ends = 0
        self._does: dict[str, Callable[[Op], Awaitable[Completion]]] = {
            "create": self._create,
            "grow": self._grow,
            "delete": self._delete,
            TOPICS: self._topics,
        }

    async def open(self) -> None:
        await self._admin.start()

    async def close(self) -> None:
        with contextlib.suppress(KafkaError, OSError):
            await self._admin.close()

    async def invoke(self, op: Op) -> Completion:
        try:
            return await self._does[op.f](op)
        except UNSENT as error:
            return failed(op.value, repr(error))
        except KafkaError as error:
            return completion_of(op, type(error))

    def _name(self, op: Op) -> str:
        return f"{self._prefix}-{op.key}"

    async def _create(self, op: Op) -> Completion:
        new = NewTopic(self._name(op), op.value, self._replication)
        answer: Any = await self._admin.create_topics([new])
        return completion_of(op, for_code(answer.topic_errors[0][1]))

    async def _grow(self, op: Op) -> Completion:
        await self._admin.create_partitions({self._name(op): NewPartitions(op.value)})
        return ok(op.value)

    async def _delete(self, op: Op) -> Completion:
        answer: Any = await self._admin.delete_topics([self._name(op)])
        return completion_of(op, for_code(answer.topic_error_codes[0][1]))

    async def _topics(self, op: Op) -> Completion:
        """What all brokers show once they show a topic that is created now.

        Each broker sees changes in their order, so it then shows all that was acknowledged before.
        """
        self._ends += 1
        end = f"{self._prefix}-end-{op.process}-{self._ends}"
        answer: Any = await self._admin.create_topics([NewTopic(end, 1, self._replication)])
        if answer.topic_errors[0][1]:
            return failed(None, for_code(answer.topic_errors[0][1]).__name__)
        for _ in range(int(READ_S / PAUSE_S)):
            views = await _views(self._entrance)
            if all(end in view for view in views) and all(view == views[0] for view in views):
                return ok(self._mine(views[0]))
            await asyncio.sleep(PAUSE_S)
        return failed(None, "brokers do not agree on the topics")

    def _mine(self, view: dict[str, int]) -> dict[str, int]:
        """By key, without the topics of others."""
        prefix = f"{self._prefix}-"
        found = {name.removeprefix(prefix): count for name, count in view.items()}
        return {key: count for key, count in found.items() if key.isdecimal()}


async def _views(entrance: Entrance) -> list[dict[str, int]]:
    """The topics with their numbers of partitions, as each broker that is known shows them."""
    client = AIOKafkaClient(**entrance.aiokafka(), request_timeout_ms=REQUEST_TIMEOUT_MS)
    views = []
    try:
        await client.bootstrap()
        for node in sorted(broker.nodeId for broker in client.cluster.brokers()):
            answer: Any = await client.send(node, MetadataRequest())
            topics = answer.to_object()["topics"]
            views.append({one["topic"]: len(one["partitions"]) for one in topics})
    finally:
        await client.close()
    return views


def completion_of(op: Op, error: type[Exception]) -> Completion:
    """Return the completion for an answer; a refusal is a fail without an error, since it was
    judged.
    """
    if getattr(error, "errno", -1) == 0:
        return ok(op.value)
    name = error.__name__
    return failed(name) if name in REFUSALS else unknown(op.value, name)


def _any_change(context: Context) -> Todo:
    f = context.random.choice(("create", "create", "create", "grow", "delete", "delete"))
    if f == "delete":
        return Todo(f)
    lowest = ABSENT + 1 if f == "create" else ABSENT + 2
    return Todo(f, context.random.randint(lowest, PARTITIONS_MAX))


def _of_topic(key: int) -> Generator:
    return Limit(OPS_PER_TOPIC, Endless(_any_change))


def _client(
    options: WorkloadOptions, environment: Environment, process: int, rng: random.Random
) -> Client:
    return TopicsClient(environment.entrance, options.topic, options.replication)


def topics(options: WorkloadOptions) -> Workload:
    """Change each topic from a few threads; at the end one asks all brokers what there is."""
    threads = min(THREADS_PER_TOPIC, options.concurrency)
    return Workload(
        "topics",
        partial(_client, options),
        ConcurrentKeys(threads, _of_topic),
        {"topics": check_topics, "availability": check_availability},
        final=reserve(1, UntilOk(Cycle(once(TOPICS))), NOTHING),
        rules=[Rule("topic", f"{options.topic}-", one, prefixed=True) for one in OPERATIONS],
    )

"""A session for a process, and the topic that a test uses."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, NoError, TopicAlreadyExistsError, for_code

from jepsen.errors import ClusterError
from jepsen.workloads.sessions._aio import AioSession
from jepsen.workloads.sessions._base import REQUEST_TIMEOUT_MS, LogSession, SessionOptions

if TYPE_CHECKING:
    from jepsen.environments import Environment
    from jepsen.workloads._base import WorkloadOptions

PREPARE_S = 60.0
PAUSE_S = 0.2
CREATED: tuple[type[Exception], ...] = (NoError, TopicAlreadyExistsError)


def session(
    environment: Environment,
    options: WorkloadOptions,
    *,
    transactional_id: str = "",
    group: str = "",
) -> LogSession:
    """By the library that the options name."""
    asked = SessionOptions(
        environment.bootstrap_servers, options.topic, options.acks, transactional_id, group
    )
    if options.client == "librdkafka":
        # Not imported in the simulation, where it has no part.
        from jepsen.workloads.sessions._librdkafka import LibrdkafkaSession

        return LibrdkafkaSession(asked)
    return AioSession(asked)


def transactional(environment: Environment, options: WorkloadOptions, process: int) -> LogSession:
    """With the transactional id of the process' thread, so that it fences the one before it."""
    thread = process % options.concurrency
    return session(environment, options, transactional_id=f"{options.topic}-{thread}")


async def create_topic(environment: Environment, options: WorkloadOptions) -> None:
    """Creates the topic; raises ClusterError, with the last answer, if that does not succeed."""
    insync = str(max(1, options.replication - 1))
    configs = {"min.insync.replicas": insync}
    topic = NewTopic(options.topic, options.keys, options.replication, topic_configs=configs)
    answer: type[Exception] = TimeoutError
    for _ in range(int(PREPARE_S / PAUSE_S)):
        answer = await _created(environment.bootstrap_servers, topic)
        if answer in CREATED:
            return
        await asyncio.sleep(PAUSE_S)
    wanted = f"{options.replication} replicas (--replication)"
    raise ClusterError(f"no topic {options.topic} of {wanted}: {answer.__name__}")


async def _created(bootstrap: str, topic: NewTopic) -> type[Exception]:
    """What the creation was answered with, or what hindered it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await admin.start()
        answer = await admin.create_topics([topic])
        found: type[Exception] = for_code(answer.topic_errors[0][1])
    except (KafkaError, OSError, TimeoutError, AttributeError) as error:
        # The last is how aiokafka takes it that a broker knows of no other yet.
        found = type(error)
    finally:
        with contextlib.suppress(KafkaError, OSError):
            await admin.close()
    return found

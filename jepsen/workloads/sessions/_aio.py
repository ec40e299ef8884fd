"""Sessions on aiokafka, which runs on the event loop, and so in every environment."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    MessageSizeTooLargeError,
    NoError,
    RebalanceInProgressError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    for_code,
)

from jepsen.errors import ClusterError
from jepsen.workloads.sessions._base import (
    HEARTBEAT_MS,
    POLL_MS,
    POLL_RECORDS,
    REQUEST_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    Batch,
    GroupMembership,
    LogSession,
    SessionError,
    SessionOptions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from aiokafka.client import AIOKafkaClient

    from jepsen.environments import Entrance, Environment
    from jepsen.workloads._base import WorkloadOptions

STOP_S = 2.0
ERRORS = (KafkaError, ConsumerStoppedError, OSError, TimeoutError)
REFUSED = (MessageSizeTooLargeError,)
"""What a broker says of a record it has certainly not appended, in no attempt.

TopicAuthorizationFailedError is not among them: a rule may have gone after an attempt that was
appended but not answered.
"""
NOT_COMMITTED = (
    CommitFailedError,
    IllegalGenerationError,
    IllegalStateError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
"""Errors of a commit that no coordinator has kept."""


@contextlib.contextmanager
def _session_errors(certain: tuple[type[BaseException], ...] = ERRORS) -> Iterator[None]:
    """What the library raises, as what it means for the call."""
    try:
        yield
    except ERRORS as error:
        raise SessionError(repr(error), certain=isinstance(error, certain)) from error


class AioSession(LogSession):
    """See `LogSession`."""

    def __init__(self, options: SessionOptions) -> None:
        ConsumerRebalanceListener.register(AioSession)
        self._options = options
        self._producer: AIOKafkaProducer | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._member: GroupMembership | None = None

    async def close(self) -> None:
        await self.renew_producer()
        await self.leave()

    async def renew_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stopped(producer)

    # --- the producer -----------------------------------------------------------------------------

    async def begin(self) -> None:
        with _session_errors():
            await (await self._started_producer()).begin_transaction()

    async def send(self, key: str, value: bytes) -> int:
        with _session_errors():
            producer = await self._started_producer()
            # Until here the record waits in the client, also for the topic's metadata.
            sent = await producer.send(self._options.topic, value, partition=int(key))
        with _session_errors(REFUSED):
            at = await sent
        return int(at.offset)

    async def commit(self) -> None:
        with _session_errors(()):
            await (await self._started_producer()).commit_transaction()

    async def abort(self) -> None:
        with _session_errors(()):
            await (await self._started_producer()).abort_transaction()

    async def _started_producer(self) -> AIOKafkaProducer:
        if self._producer is not None and self._producer._sender.sender_task.done():
            # Some refusals end the task that sends; nothing leaves this producer any more.
            await self.renew_producer()
        self._take_password(None if self._producer is None else self._producer.client)
        if self._producer is None:
            options = self._options
            transactional: dict[str, Any] = {
                "transactional_id": options.transactional_id,
                "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            }
            producer = AIOKafkaProducer(
                **options.entrance.aiokafka(),
                acks=options.acks if options.acks == "all" else int(options.acks),
                enable_idempotence=options.acks == "all",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                retry_backoff_ms=50,
                **(transactional if options.transactional_id else {}),
            )
            await _started(producer)
            self._producer = producer
        return self._producer

    # --- the consumer -----------------------------------------------------------------------------

    async def assign(self, positions: Mapping[str, int]) -> None:
        with _session_errors():
            consumer = await self._started_consumer()
            consumer.assign([self._partition(key) for key in positions])
            for key, position in positions.items():
                consumer.seek(self._partition(key), position)

    async def subscribe(self) -> None:
        await self.leave()
        with _session_errors():
            consumer = await self._started_consumer(subscribed=True)
            consumer.subscribe([self._options.topic], listener=self)

    async def leave(self) -> None:
        consumer, self._consumer, self._member = self._consumer, None, None
        if consumer is not None:
            await _stopped(consumer)

    async def poll(self) -> Batch:
        with _session_errors():
            consumer = await self._started_consumer()
            batches = await consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
        return {
            str(where.partition): [(one.offset, one.value) for one in records]
            for where, records in batches.items()
        }

    async def positions(self, keys: Sequence[str]) -> dict[str, int]:
        with _session_errors():
            consumer = await self._started_consumer()
            return {key: await consumer.position(self._partition(key)) for key in keys}

    def membership(self) -> GroupMembership | None:
        return self._member

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Part of the listener."""
        del revoked
        self._member = None

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Part of the listener; only the library's coordinator knows the generation."""
        known: Any = getattr(self._consumer, "_coordinator", None)
        if known is not None:
            keys = tuple(str(number) for number in sorted(one.partition for one in assigned))
            self._member = GroupMembership(known.member_id, known.generation, keys)

    async def ends(self, keys: Sequence[str], *, committed_only: bool) -> dict[str, int]:
        where = [self._partition(key) for key in keys]
        with _session_errors():
            if committed_only == self._options.committed_only:
                found = await (await self._started_consumer()).end_offsets(where)
            else:
                found = await self._ends_elsewhere(where, committed_only=committed_only)
        return {str(one.partition): end for one, end in found.items()}

    async def _ends_elsewhere(
        self, where: list[TopicPartition], *, committed_only: bool
    ) -> dict[TopicPartition, int]:
        """As a consumer of the other isolation level sees it."""
        consumer = await self._new_consumer(committed_only=committed_only)
        try:
            ends: dict[TopicPartition, int] = await consumer.end_offsets(where)
        finally:
            await _stopped(consumer)
        return ends

    async def commit_offsets(self, offsets: Mapping[str, int]) -> None:
        with _session_errors(NOT_COMMITTED):
            wanted = {self._partition(key): offset for key, offset in offsets.items()}
            await (await self._started_consumer()).commit(wanted)

    async def committed(self, keys: Sequence[str]) -> dict[str, int | None]:
        with _session_errors():
            consumer = await self._started_consumer()
            return {key: await consumer.committed(self._partition(key)) for key in keys}

    def _take_password(self, client: AIOKafkaClient | None) -> None:
        """Let connections that a client opens from now on log in with the newest password.

        Those that are open stay. The library has no way to change it.
        """
        if client is not None and self._options.entrance.generation:
            client._sasl_plain_password = self._options.entrance.aiokafka()["sasl_plain_password"]

    async def _started_consumer(self, *, subscribed: bool = False) -> AIOKafkaConsumer:
        self._take_password(None if self._consumer is None else self._consumer._client)
        if self._consumer is None:
            self._consumer = await self._new_consumer(
                committed_only=self._options.committed_only, subscribed=subscribed
            )
        return self._consumer

    async def _new_consumer(
        self, *, committed_only: bool, subscribed: bool = False
    ) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            **self._options.entrance.aiokafka(),
            group_id=self._options.group or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest" if subscribed else "none",
            isolation_level="read_committed" if committed_only else "read_uncommitted",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=50,
        )
        await _started(consumer)
        return consumer

    def _partition(self, key: str) -> TopicPartition:
        return TopicPartition(self._options.topic, int(key))


async def _started(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    try:
        await client.start()
    except BaseException:
        await _stopped(client)
        raise


async def _stopped(client: AIOKafkaProducer | AIOKafkaConsumer) -> None:
    """Ends it, as well as that succeeds in a short time."""
    with contextlib.suppress(*ERRORS):
        async with asyncio.timeout(STOP_S):
            await client.stop()


# --- topics ---------------------------------------------------------------------------------------

PREPARE_S = 60.0
PAUSE_S = 0.2
CREATED: tuple[type[Exception], ...] = (NoError, TopicAlreadyExistsError)


async def create_topic(environment: Environment, options: WorkloadOptions) -> None:
    """Creates the topic; raises ClusterError, with the last answer, if that does not succeed."""
    insync = str(max(1, options.replication - 1))
    configs = {"min.insync.replicas": insync}
    topic = NewTopic(options.topic, options.keys, options.replication, topic_configs=configs)
    answer: type[Exception] = TimeoutError
    for _ in range(int(PREPARE_S / PAUSE_S)):
        answer = await _created(environment.operator, topic)
        if answer in CREATED:
            return
        await asyncio.sleep(PAUSE_S)
    wanted = f"{options.replication} replicas (--replication)"
    raise ClusterError(f"no topic {options.topic} of {wanted}: {answer.__name__}")


async def _created(entrance: Entrance, topic: NewTopic) -> type[Exception]:
    """What the creation was answered with, or what hindered it."""
    admin = AIOKafkaAdminClient(**entrance.aiokafka(), request_timeout_ms=REQUEST_TIMEOUT_MS)
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

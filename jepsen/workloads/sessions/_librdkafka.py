"""Sessions on librdkafka, the library of most programs, by confluent-kafka.

Its calls block, so each runs on a thread, one at a time. It has threads and clocks of its own,
which is why it has no part in the simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from jepsen.workloads.sessions._base import (
    DELIVERY_MS,
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
    from collections.abc import Callable, Iterator, Mapping, Sequence

SLACK_S = 2.0
WAIT_S = REQUEST_TIMEOUT_MS / 1000
METADATA_MAGIC = b"CGMDv2:"
REFUSED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError._QUEUE_FULL,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""Errors of a send after which no broker has appended the record, in no attempt.

TOPIC_AUTHORIZATION_FAILED is not among them: a rule may have gone after an attempt that was
appended but not answered.
"""
NOT_COMMITTED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._STATE,
    }
)
"""Errors of a commit that no coordinator has kept."""
Found = TypeVar("Found")


def error_of(code: int | None, why: str, certain: frozenset[int] | None) -> SessionError:
    """Return the meaning of an error; with None for `certain`, each one shows that nothing
    happened.
    """
    return SessionError(why, certain=certain is None or code in certain)


@contextlib.contextmanager
def _session_errors(certain: frozenset[int] | None = None) -> Iterator[None]:
    """What the library raises, as what it means for the call."""
    try:
        yield
    except KafkaException as error:
        raise error_of(error.args[0].code(), repr(error), certain) from error
    except (BufferError, RuntimeError, OSError) as error:
        raise SessionError(repr(error), certain=True) from error


class LibrdkafkaSession(LogSession):
    """See `LogSession`."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None
        self._member: GroupMembership | None = None
        self._positions: dict[str, int] = {}

    async def _run(self, function: Callable[..., Found], *arguments: Any) -> Found:
        """On a thread; also what was given up is over before the next call begins."""

        def alone() -> Found:
            with self._lock:
                return function(*arguments)

        return await asyncio.to_thread(alone)

    async def close(self) -> None:
        await self.renew_producer()
        await self.leave()

    async def renew_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    # --- the producer -----------------------------------------------------------------------------

    async def begin(self) -> None:
        await self._run(self._begin)

    def _begin(self) -> None:
        with _session_errors():
            self._made_producer().begin_transaction()

    async def send(self, key: str, value: bytes) -> int:
        return await self._run(self._send, key, value)

    def _send(self, key: str, value: bytes) -> int:
        answers: list[tuple[Any, Any]] = []
        with _session_errors():
            producer = self._made_producer()
            try:
                producer.produce(
                    self._options.topic,
                    value,
                    partition=int(key),
                    on_delivery=lambda *report: answers.append(report),
                )
            except KafkaException as error:
                if error.args[0].code() == KafkaError._FATAL:
                    # It never takes a record again.
                    self._producer = None
                raise
        with _session_errors(frozenset()):
            producer.flush(DELIVERY_MS / 1000 + SLACK_S)
        problem, message = answers[0] if answers else (None, None)
        if message is None or problem is not None:
            code = None if problem is None else problem.code()
            raise error_of(code, repr(problem or "no word of its delivery"), REFUSED)
        return int(message.offset())

    async def commit(self) -> None:
        await self._run(self._end, "commit_transaction")

    async def abort(self) -> None:
        await self._run(self._end, "abort_transaction")

    def _end(self, how: str) -> None:
        with _session_errors(frozenset()):
            getattr(self._made_producer(), how)(DELIVERY_MS / 1000)

    def _take_password(self, client: Producer | Consumer | None) -> None:
        """Let connections that a client opens from now on log in with the newest password."""
        if client is not None and self._options.entrance.generation:
            with self._options.entrance.librdkafka() as settings:
                client.set_sasl_credentials(settings["sasl.username"], settings["sasl.password"])

    def _made_producer(self) -> Producer:
        self._take_password(self._producer)
        if self._producer is None:
            options = self._options
            transactional = {
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
            with options.entrance.librdkafka() as entrance:
                producer = Producer(
                    {
                        **entrance,
                        "acks": options.acks,
                        "enable.idempotence": options.acks == "all",
                        "delivery.timeout.ms": DELIVERY_MS,
                        "linger.ms": 0,
                        "retry.backoff.ms": 50,
                        "log_level": 0,
                        **(transactional if options.transactional_id else {}),
                    }
                )
            if options.transactional_id:
                producer.init_transactions(DELIVERY_MS / 1000)
            self._producer = producer
        return self._producer

    # --- the consumer -----------------------------------------------------------------------------

    async def assign(self, positions: Mapping[str, int]) -> None:
        await self._run(self._assign, dict(positions))

    def _assign(self, positions: Mapping[str, int]) -> None:
        where = [self._partition(key, offset) for key, offset in positions.items()]
        self._positions = dict(positions)
        with _session_errors():
            self._made_consumer().assign(where)

    async def subscribe(self) -> None:
        await self.leave()
        await self._run(self._subscribe)

    def _subscribe(self) -> None:
        with _session_errors():
            self._made_consumer(subscribed=True).subscribe([self._options.topic])

    async def leave(self) -> None:
        consumer, self._consumer, self._member = self._consumer, None, None
        if consumer is not None:
            await self._run(consumer.close)

    async def poll(self) -> Batch:
        return await self._run(self._poll)

    def _poll(self) -> Batch:
        found: Batch = {}
        with _session_errors():
            consumer = self._made_consumer()
            messages = consumer.consume(POLL_RECORDS, POLL_MS / 1000)
            self._member = self._membership(consumer)
        for message in messages:
            key, problem = str(message.partition()), message.error()
            offset, value = message.offset() or 0, message.value() or b""
            if problem is None:
                found.setdefault(key, []).append((offset, value))
                self._positions[key] = offset + 1
            elif problem.code() == KafkaError._PARTITION_EOF:
                self._positions[key] = offset
            else:
                raise error_of(problem.code(), repr(problem), None)
        return found

    def _membership(self, consumer: Consumer) -> GroupMembership | None:
        """Called after a poll, when the library has handed over what it was assigned."""
        if not self._options.group:
            return None
        keys = tuple(str(n) for n in sorted(one.partition for one in consumer.assignment()))
        metadata = bytes(consumer.consumer_group_metadata() or b"")
        member_id = consumer.memberid()
        if not (keys and member_id and metadata.startswith(METADATA_MAGIC)):
            return None
        (generation,) = struct.unpack_from("=i", metadata, len(METADATA_MAGIC))
        return None if generation < 0 else GroupMembership(member_id, generation, keys)

    async def positions(self, keys: Sequence[str]) -> dict[str, int]:
        return {key: self._positions[key] for key in keys}

    def membership(self) -> GroupMembership | None:
        return self._member

    async def ends(self, keys: Sequence[str], *, committed_only: bool) -> dict[str, int]:
        return await self._run(self._ends, keys, committed_only)

    def _ends(self, keys: Sequence[str], committed_only: bool) -> dict[str, int]:
        consumer = self._new_consumer(committed_only=committed_only)
        try:
            with _session_errors():
                return {
                    key: consumer.get_watermark_offsets(self._partition(key), timeout=WAIT_S)[1]
                    for key in keys
                }
        finally:
            consumer.close()

    async def commit_offsets(self, offsets: Mapping[str, int]) -> None:
        await self._run(self._commit_offsets, dict(offsets))

    def _commit_offsets(self, offsets: Mapping[str, int]) -> None:
        where = [self._partition(key, offset) for key, offset in offsets.items()]
        with _session_errors(NOT_COMMITTED):
            answers = self._made_consumer().commit(offsets=where, asynchronous=False)
        for one in answers or ():
            if one.error is not None:
                raise error_of(one.error.code(), repr(one.error), NOT_COMMITTED)

    async def committed(self, keys: Sequence[str]) -> dict[str, int | None]:
        return await self._run(self._committed, keys)

    def _committed(self, keys: Sequence[str]) -> dict[str, int | None]:
        where = [self._partition(key) for key in keys]
        with _session_errors():
            found = self._made_consumer().committed(where, timeout=WAIT_S)
        for one in found:
            if one.error is not None:
                raise error_of(one.error.code(), repr(one.error), None)
        return {
            str(one.partition): None if one.offset == OFFSET_INVALID else one.offset
            for one in found
        }

    def _made_consumer(self, *, subscribed: bool = False) -> Consumer:
        self._take_password(self._consumer)
        if self._consumer is None:
            self._consumer = self._new_consumer(
                # A member asks for stable offsets (KIP-447) only if it reads what is committed:
                # others get an older offset where a coordinator has just begun (Apache Kafka).
                committed_only=self._options.committed_only or bool(self._options.group),
                subscribed=subscribed,
            )
        return self._consumer

    def _new_consumer(self, *, committed_only: bool, subscribed: bool = False) -> Consumer:
        with self._options.entrance.librdkafka() as entrance:
            return Consumer(
                {
                    **entrance,
                    # Wanted by the library, also of consumers that commit nothing.
                    "group.id": self._options.group or self._options.topic,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest" if subscribed else "error",
                    "isolation.level": "read_committed" if committed_only else "read_uncommitted",
                    "session.timeout.ms": SESSION_TIMEOUT_MS,
                    "heartbeat.interval.ms": HEARTBEAT_MS,
                    # The only word of markers, which are not handed over.
                    "enable.partition.eof": True,
                    "log_level": 0,
                }
            )

    def _partition(self, key: str, offset: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self._options.topic, int(key), offset)

"""A broker without disk or peers: logs in memory, a controller in the same process."""

from __future__ import annotations

import asyncio
import io
import random
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID, uuid4

from structlog.testing import LogCapture

from broker.apis import dispatch
from broker.apis.handler import ApiContext, InternalTopics, MetadataCache, ProducerIds
from broker.apis.handler.fetch_sessions import FetchSessions
from broker.authentication import Authenticator, Verifiers
from broker.coordinator import Coordinator
from broker.envelopes import Envelopes, LocalBroker
from broker.groups._core import GroupCore
from broker.log.batches.record_batch import HEADER_BYTES, parse_header
from broker.protocol import codec
from broker.quotas import ClientQuotas, StoredQuotas
from broker.replication.fetcher import Connector
from broker.server import ConnectionLimits, ListenerConfigs, Listeners
from broker.telemetry import ClientTelemetry
from broker.transactions import TransactionCoordinator, TransactionVerifier
from broker.turns import Turn
from broker.types import (
    AppendResult,
    DeletedRecords,
    EpochEndOffset,
    FetchParams,
    FetchPartition,
    FetchResult,
    LogDirectoryFacts,
    LogFacts,
    OffsetLookup,
    OffsetResult,
    OwnBatch,
    Prepared,
    ProducerFacts,
    TopicPartition,
)
from raftctl.config import make_config
from raftctl.errors import ErrorCode, KafkaError
from raftctl.loggers import Level, LogLevels
from raftctl.metadata.image import MetadataDelta
from raftctl.metadata.records import (
    ConfigRecord,
    Endpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    TopicResult,
)
from raftctl.metrics import Metrics
from raftctl.runtime.real import RealRuntime, make_sender
from raftctl.security.delegation_tokens import TokenSecret
from raftctl.security.tls import NodeTls
from tests.unit.broker.server.memory_log import LAST_OFFSET_DELTA_AT, MemoryLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from broker.apis import Response, Serve
    from broker.apis.handler import Reply
    from broker.protocol.codec import Frame
    from broker.replication.partition import Partition
    from broker.request_context import RequestContext
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.runtime.api import Buffer


class Publishing(MetadataCache):
    """Hands images on to the coordinators and to the quotas, as the plug-in does."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: Coordinator | None = None
        self.transactions: TransactionCoordinator | None = None
        self.quotas: ClientQuotas | None = None
        self.limits: ConnectionLimits | None = None
        self.listener_configs: ListenerConfigs | None = None

    def publish(self, image: MetadataImage) -> None:
        """Takes a newer image."""
        super().publish(image)
        if self.groups is not None:
            self.groups.publish(image)
        if self.transactions is not None:
            self.transactions.publish(image)
        if self.quotas is not None:
            self.quotas.publish(image)
        if self.listener_configs is not None:
            self.listener_configs.publish(image)
        if self.limits is not None:
            self.limits.publish(image)


class FakeReplicas:
    """Leads every partition of the topics it is given. `hold` makes acks=all wait."""

    def __init__(self, metadata: MetadataCache) -> None:
        self.metadata = metadata
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.hold = False
        self.held: list[tuple[asyncio.Future[list[AppendResult]], list[AppendResult]]] = []
        self.appended: list[bytes] = []
        self.fetches: list[tuple[FetchParams, list[FetchPartition]]] = []
        self._polls: list[asyncio.Future[None]] = []

    def prepare(self, entries: Sequence[tuple[TopicPartition, Any]]) -> list[Any]:
        """Takes every batch as it is."""
        return [
            Prepared(batch, parse_header(batch)) if len(batch) >= HEADER_BYTES else batch
            for _, batch in entries
        ]

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Sequence[tuple[TopicPartition, Any]],
        request: RequestContext | None = None,
    ) -> list[AppendResult] | asyncio.Future[list[AppendResult]]:
        """Appends at once; with `hold` the answer waits for `release`."""
        results = [self._append_one(*entry) for entry in entries]
        self.appended += [bytes(_data(records)) for _, records in entries]
        for poll in self._polls:
            if not poll.done():
                poll.set_result(None)
        self._polls.clear()
        if not (self.hold and acks == -1):
            return results
        future: asyncio.Future[list[AppendResult]] = asyncio.get_running_loop().create_future()
        self.held.append((future, results))
        return future

    def release(self, index: int = 0) -> None:
        """Lets one waiting produce be answered."""
        future, results = self.held.pop(index)
        future.set_result(results)

    def fetch(
        self, params: FetchParams, partitions: Sequence[FetchPartition], dirty: object = None
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        """Waits for `max_wait_ms` if there is nothing."""
        self.fetches.append((params, list(partitions)))
        results = [self._fetch_one(p) for p in partitions]
        enough = sum(r.size for r in results) >= params.min_bytes or params.max_wait_ms == 0
        if enough or any(r.error for r in results):
            return results
        return asyncio.ensure_future(self._poll(params, partitions))

    async def _poll(
        self, params: FetchParams, partitions: Sequence[FetchPartition]
    ) -> list[FetchResult]:
        poll: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._polls.append(poll)
        await asyncio.wait([poll], timeout=params.max_wait_ms / 1000)
        return [self._fetch_one(p) for p in partitions]

    def note_answered(self, *answer: object) -> None:
        """Counts nothing."""

    def list_offsets(self, lookups: Sequence[OffsetLookup], replica_id: int) -> list[OffsetResult]:
        """Earliest is 0; a time's is that of the first batch with a record so new."""
        del replica_id
        results = []
        for lookup in lookups:
            log = self._log(lookup.partition)
            if log is None:
                results.append(OffsetResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                offset = log.offset_of(lookup.timestamp)
                results.append(OffsetResult(ErrorCode.NONE, offset, max(lookup.timestamp, -1), 0))
        return results

    def offsets_for_leader_epoch(
        self, lookups: Sequence[tuple[TopicPartition, int, int]]
    ) -> list[tuple[ErrorCode, EpochEndOffset]]:
        """There is one epoch, 0."""
        results = []
        for partition, _, _ in lookups:
            log = self._log(partition)
            unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, EpochEndOffset(-1, -1))
            results.append((ErrorCode.NONE, EpochEndOffset(0, log.end)) if log else unknown)
        return results

    def delete_records(
        self, timeout_ms: int, entries: Sequence[tuple[TopicPartition, int]]
    ) -> list[DeletedRecords]:
        """Nothing is forgotten here."""
        del timeout_ms
        known = [self._log(partition) is not None for partition, _ in entries]
        return [
            DeletedRecords(ErrorCode.NONE if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
            for there in known
        ]

    def producers(self, partition: TopicPartition) -> tuple[ErrorCode, list[ProducerFacts]]:
        """Nobody."""
        known = self._log(partition) is not None
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []

    def move_log(self, partition: TopicPartition, path: str) -> ErrorCode:
        """There is one directory."""
        return ErrorCode.NONE if path == "/nowhere" else ErrorCode.LOG_DIR_NOT_FOUND

    async def log_directories(self) -> list[LogDirectoryFacts]:
        """One, with everything."""
        logs = tuple(LogFacts(partition, 0, 0) for partition in sorted(self.logs))
        return [LogDirectoryFacts(ErrorCode.NONE, "/nowhere", logs)]

    def _log(self, partition: TopicPartition) -> MemoryLog | None:
        topic = self.metadata.image.topics.by_name(partition.topic)
        if topic is None or partition.partition not in topic.partitions:
            return None
        return self.logs.setdefault(partition, MemoryLog())

    def _append_one(self, partition: TopicPartition, records: Any) -> AppendResult:
        log = self._log(partition)
        if log is None:
            return AppendResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return AppendResult(ErrorCode.NONE, log.append(_data(records)), -1, 0)

    def _fetch_one(self, asked: FetchPartition) -> FetchResult:
        log = self._log(asked.partition)
        if log is None:
            return FetchResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        records = log.read(asked.fetch_offset)
        return FetchResult(ErrorCode.NONE, log.end, log.end, 0, records)


def _data(records: Buffer | OwnBatch | Prepared) -> Buffer:
    if isinstance(records, Prepared):
        return records.batch
    return records.data if isinstance(records, OwnBatch) else records


class FakeController:
    """Applies requests to the image at once and publishes it."""

    def __init__(self, metadata: MetadataCache) -> None:
        self.metadata = metadata
        self.requests: list[ControllerRequest] = []
        self.error: ErrorCode = ErrorCode.NONE
        self._topics = 0
        self._next_producer_id = 0

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """As the active controller would."""
        del timeout_ms
        self.requests.append(request)
        await asyncio.sleep(0)
        match request:
            case CreateTopicsRequest():
                results = tuple(self._create(t.name, request) for t in request.topics)
                return CreateTopicsResponse(self.error, results)
            case DeleteTopicsRequest():
                return DeleteTopicsResponse(self.error, tuple(map(self._delete, request.topics)))
            case AllocateProducerIdsRequest():
                first, self._next_producer_id = self._next_producer_id, self._next_producer_id + 10
                return AllocateProducerIdsResponse(self.error, first, 10)
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST)

    def _create(self, name: str, request: CreateTopicsRequest) -> TopicResult:
        if self.metadata.image.topics.by_name(name) is not None:
            return TopicResult(name, ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")
        new = next(t for t in request.topics if t.name == name)
        self._topics += 1
        topic_id, partitions = UUID(int=100 + self._topics), max(new.partitions, 1)
        if not request.validate_only:
            records = topic_records(name, topic_id, partitions)
            configs = [ConfigRecord(2, name, key, value) for key, value in new.configs]
            publish(self.metadata, [*records, *configs])
        return TopicResult(name, ErrorCode.NONE, "", topic_id, partitions, 1)

    def _delete(self, key: tuple[str | None, UUID | None]) -> TopicResult:
        name, topic_id = key
        topics = self.metadata.image.topics
        topic = topics.by_name(name) if name else topics.by_id(topic_id or UUID(int=0))
        if topic is None:
            return TopicResult(name or "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        publish(self.metadata, [RemoveTopicRecord(topic.topic_id)])
        return TopicResult(topic.name, ErrorCode.NONE, "", topic.topic_id)


def topic_records(name: str, topic_id: UUID, partitions: int, leader: int = 1) -> list[Record]:
    """A topic whose partitions live on broker 1."""
    return [
        TopicRecord(name, topic_id),
        *(PartitionRecord(topic_id, i, (1,), (1,), leader, 0, 0) for i in range(partitions)),
    ]


def broker_record(broker_id: int, port: int, *, fenced: bool = False) -> Record:
    """A broker on loopback."""
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", port)
    incarnation = UUID(int=broker_id + 1)
    return RegisterBrokerRecord(broker_id, incarnation, (endpoint,), "rack", (), fenced)


def publish(metadata: MetadataCache, records: Sequence[Record]) -> MetadataImage:
    """The next image, with these records."""
    delta = MetadataDelta(metadata.image)
    offset = metadata.image.offset
    for record in records:
        offset += 1
        delta.replay(record, offset)
    image = delta.apply(offset, 1, 0)
    metadata.publish(image)
    return image


KEYS = {
    "process.roles": "broker",
    "node.id": "1",
    "log.dirs": "/nowhere",
    "controller.quorum.voters": "0@127.0.0.1:1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
}


class FakeBroker:
    """Everything above the logs, as the plug-in puts it together."""

    wall_ms = 1_700_000_000_000
    has_session = True

    def __init__(self, **keys: str) -> None:
        """Keys of the configuration; one without a dot has underscores in their place."""
        self.config = make_config({**KEYS, **{_dotted(key): keys[key] for key in keys}})
        self.contexts: list[RequestContext] = []
        self.sent: list[RequestContext] = []  # Of `contexts`, those whose answers have left.
        self.logged = LogCapture()
        self.log = LogLevels(Level.INFO).logger(None, [self.logged])
        self.metadata = Publishing()
        self.replicas = FakeReplicas(self.metadata)
        self.controller = FakeController(self.metadata)
        self.failures: list[BaseException] = []
        config, ids, fail = self.config, random.Random(6), self.failures.append
        self.metadata.groups = self.groups = Coordinator(
            "__consumer_offsets",
            1,
            lambda journal, _: GroupCore(journal, config, lambda: f"{ids.getrandbits(64):x}"),
            self.replicas,
            config,
            lambda: self.wall_ms,
            self.failures.append,
            self.log,
        )
        connector = Connector(config)
        self.metadata.transactions = self.transactions = TransactionCoordinator(
            self.config,
            self.replicas,
            lambda: self.wall_ms,
            self.failures.append,
            self.log,
            connector,
        )
        self.replica: dict[TopicPartition, Partition] = {}
        """Partitions whose transactions are asked about."""
        self.verifier = TransactionVerifier(
            config, lambda: self.metadata.image, self.replica, self.transactions, fail, connector
        )
        self.metadata.quotas = self.quotas = ClientQuotas(StoredQuotas())
        self.context = ApiContext(
            config=self.config,
            cluster_id="a-cluster",
            listener="PLAINTEXT",
            replicas=self.replicas,
            prepare=self.replicas.prepare,
            metadata=self.metadata,
            controller=self.controller,
            producer_ids=ProducerIds(self.controller, 1, lambda: 7),
            sessions=FetchSessions(
                self.config.max_incremental_fetch_session_cache_slots, random.Random(5)
            ),
            internal_topics=InternalTopics(self.config, self.controller, self.metadata),
            transactions=self.transactions,
            verifier=self.verifier,
            groups=self.groups,
            wall_ms=lambda: self.wall_ms,
            log=self.log,
            aside=lambda call: asyncio.ensure_future(asyncio.to_thread(call)),
            has_session=lambda: self.has_session,
            quotas=self.quotas,
            token_secret=TokenSecret.of(self.config),
            telemetry=ClientTelemetry(config, Metrics(), uuid4, self.log, lambda: self.wall_ms),
        )
        self.metadata.limits = self.limits = ConnectionLimits(
            self.config, self.failures.append, Turn()
        )
        self.runtimes: list[RealRuntime] = []
        self.port = 0
        self.other_ports: list[int] = []
        """Of the listeners after the first."""

    @property
    def address(self) -> str:
        """What a client is given."""
        return f"127.0.0.1:{self.port}"

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        return [dict(entry) for entry in self.logged.entries if entry["event"] == name]

    def serve_on(self, listener: str) -> Serve:
        """The function that serves a listener, as the plug-in makes it."""
        settings = self.config.listener_security(listener).sasl
        if settings is None:
            return self.serve
        runtime = RealRuntime(io.StringIO())
        self.runtimes.append(runtime)
        verifiers = Verifiers(
            self.config, settings, lambda: self.metadata.image, runtime, "a-cluster"
        )
        return Authenticator(
            settings,
            verifiers,
            self.serve,
            wall_ms=lambda: self.wall_ms,
            failure_delay_ms=self.config.connection_failed_authentication_delay_ms,
            on_login=self.limits.counts[listener].logged_in,
        ).serve

    def serve(self, frame: Frame, context: RequestContext) -> Response | Reply[Response]:
        """Dispatch, or open an envelope, and keep the context."""
        return Envelopes(self.local, self.context.authorizer).serve(frame, context)

    @property
    def local(self) -> LocalBroker:
        """The broker as requesters of other connections meet it."""
        return LocalBroker(self.dispatch, "PLAINTEXT", "PLAINTEXT", self.context.aside)

    def dispatch(self, frame: Frame, context: RequestContext) -> Response | Reply[Response]:
        """Dispatch, and keep the context."""
        self.contexts.append(context)
        return dispatch(self.context, frame, context)


def _dotted(key: str) -> str:
    return key if "." in key else key.replace("_", ".")


@asynccontextmanager
async def running(*topics: str, opened: bool = True, **keys: str) -> AsyncIterator[FakeBroker]:
    """A broker that listens on a free port and leads one partition of each topic."""
    async with running_with(keys, *topics, opened=opened) as broker:
        yield broker


@asynccontextmanager
async def running_with(
    keys: Mapping[str, str], *topics: str, opened: bool = True
) -> AsyncIterator[FakeBroker]:
    """The same, with keys that need not be Python's names."""
    broker = FakeBroker(**keys)
    tls = NodeTls(RealRuntime(), broker.log)
    sent = broker.sent.append
    listeners = Listeners(broker.config, broker.limits, broker.log, make_sender, tls, sent)
    configs = ListenerConfigs(broker.config, tls, listeners.reconfigure, broker.log)
    broker.metadata.listener_configs = configs
    broker.context = replace(broker.context, listener_configs=configs)
    endpoint, *others = await listeners.bind(broker.serve_on)
    broker.port = endpoint.port
    broker.other_ports = [other.port for other in others]
    records: list[Record] = [broker_record(1, endpoint.port)]
    for number, name in enumerate(topics, start=1):
        records += topic_records(name, UUID(int=number), 1)
    publish(broker.metadata, records)
    if opened:
        broker.limits.begin()
    try:
        yield broker
    finally:
        await close(listeners)
        for runtime in broker.runtimes:
            runtime.close()
        broker.context.producer_ids.close()
        broker.context.internal_topics.close()
        await broker.groups.stop()
        await broker.verifier.stop()
        await broker.transactions.stop()
        await asyncio.sleep(0)


async def close(listeners: Listeners) -> None:
    """Closes them, and waits until a connection that they accepted last is refused and gone.

    asyncio loses a connection whose server is closed between the accepting and the making of it
    (CPython's gh-109564): its socket stays open until it is collected.
    """
    while True:
        if not any("_accept_connection2" in repr(task) for task in asyncio.all_tasks()):
            break
        await asyncio.sleep(0)
    listeners.close()
    # The connection is made, and refused, and its socket closed.
    for _ in range(3):
        await asyncio.sleep(0)


class Client:
    """A client that writes and reads frames one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._next_id = 0

    def send(self, api_key: int, version: int, message: dict[str, Any]) -> int:
        """Writes a request; returns its correlation id."""
        self._next_id += 1
        frame = codec.encode_request(api_key, version, self._next_id, "test", message)
        self.writer.write(frame)
        return self._next_id

    async def receive(self, api_key: int, version: int) -> tuple[int, dict[str, Any]]:
        """(correlation id, message) of the next answer."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return codec.decode_response(api_key, version, await self.reader.readexactly(size))

    async def ask(self, api_key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
        """Request and answer."""
        correlation_id = self.send(api_key, version, message)
        answered, answer = await self.receive(api_key, version)
        assert answered == correlation_id
        return answer

    async def ended(self) -> bool:
        """Waits until the broker closes the connection."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True


class Listening(Protocol):
    """Whatever has a port on loopback."""

    port: int


@asynccontextmanager
async def connected(broker: Listening, port: int | None = None) -> AsyncIterator[Client]:
    """A connection to the broker."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port or broker.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await asyncio.wait_for(writer.wait_closed(), timeout=5)


def batch(count: int = 1, filler: bytes = b"x") -> bytes:
    """Bytes that look like a record batch where the fake log looks at them."""
    header = bytearray(61)
    header[16] = 2
    struct.pack_into(">i", header, LAST_OFFSET_DELTA_AT, count - 1)
    return bytes(header) + filler


def produce_message(topic: str, records: bytes, acks: int = -1) -> dict[str, Any]:
    """A Produce with one batch for partition 0."""
    partition = {"index": 0, "records": records}
    topics = [{"name": topic, "partition_data": [partition]}]
    return {"acks": acks, "timeout_ms": 1000, "topic_data": topics}


def fetch_message(
    topic: str, offset: int = 0, max_wait_ms: int = 0, **fields: Any
) -> dict[str, Any]:
    """A Fetch of partition 0."""
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        **fields,
    }

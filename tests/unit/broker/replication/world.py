"""Brokers of one cluster in one event loop: real replicas and fetchers, a controller in memory.

With `listen` they copy from each other over loopback, through the broker's own connections.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from broker.apis import dispatch
from broker.apis.handler import ApiContext, InternalTopics, MetadataCache, ProducerIds
from broker.apis.handler.fetch_sessions import FetchSessions
from broker.envelopes import Envelopes, LocalBroker
from broker.groups import group_coordinator
from broker.log import LogManager
from broker.quotas import ClientQuotas, StoredQuotas
from broker.replication import ReplicaManager
from broker.request_context import ClientConnection
from broker.server import ConnectionLimits
from broker.server._connection import Connection
from broker.telemetry import ClientTelemetry
from broker.transactions import TransactionCoordinator, TransactionVerifier
from broker.types import (
    AppendResult,
    FetchParams,
    FetchPartition,
    FetchResult,
    OffsetLookup,
    OffsetResult,
    TopicPartition,
)
from raftctl.config import NodeConfig, make_config
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.configs.topic import topic_defaults
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage, PartitionImage
from raftctl.metadata.records import (
    LEADER_UNCHANGED,
    BrokerRegistrationChangeRecord,
    Endpoint,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftctl.metadata.requests.cluster import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from raftctl.metrics import Metrics
from raftctl.plugins import BrokerContext
from tests.unit.broker.log.fake_files import FakeFiles, FakeRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.replication.partition import Partition
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse

TOPIC_ID = UUID(int=11)
P0 = TopicPartition("t", 0)


def config(node_id: int, **keys: str) -> NodeConfig:
    """A broker's configuration; keys with underscores for dots."""
    values = {
        "process.roles": "broker",
        "node.id": str(node_id),
        "controller.quorum.voters": "100@127.0.0.1:9",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": "/logs",
        "replica.fetch.backoff.ms": "50",
        "replica.fetch.wait.max.ms": "100",
        **{key.replace("_", "."): value for key, value in keys.items()},
    }
    return make_config(values)


def directory_id(node_id: int, path: str) -> UUID:
    """The id of a log directory of a broker."""
    return UUID(bytes=f"{node_id}{path}".encode().rjust(16)[-16:])


CLOSING_TURNS = 5
"""Of the loop, until a connection is closed that was being accepted when its server was closed."""


class FakeController:
    """Holds the image and commits what it is asked for."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.requests: list[ControllerRequest] = []
        self.refuse: list[ErrorCode] = []
        """Errors for the next requests, instead of answers."""
        self.publish: Callable[[MetadataDelta, MetadataImage], None] = lambda _delta, _image: None

    def commit(self, *records: Record) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record, self.image.offset + 1)
        self.image = delta.apply(self.image.offset + len(records), 1, 0)
        self.publish(delta, self.image)

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        await asyncio.sleep(0)
        self.requests.append(request)
        if self.refuse:
            raise KafkaError(self.refuse.pop(0))
        if isinstance(request, AssignReplicasToDirsRequest):
            return AssignReplicasToDirsResponse(ErrorCode.NONE, self._assign(request))
        assert isinstance(request, AlterPartitionRequest)
        results = tuple(self._alter(request.broker_id, item) for item in request.partitions)
        return AlterPartitionResponse(ErrorCode.NONE, results)

    def _assign(self, request: AssignReplicasToDirsRequest) -> tuple[ErrorCode, ...]:
        for one in request.assignments:
            partition = self.partition(one.topic_id, one.partition_id)
            directories = tuple(
                one.directory_id
                if replica == request.broker_id
                else partition.directory_of(replica)
                for replica in partition.replicas
            )
            self.commit(
                PartitionChangeRecord(one.topic_id, one.partition_id, directories=directories)
            )
        return (ErrorCode.NONE,) * len(request.assignments)

    def partition(self, topic_id: UUID, partition_id: int) -> PartitionImage:
        topic = self.image.topics.by_id(topic_id)
        assert topic is not None
        return topic.partitions[partition_id]

    def _alter(self, leader: int, item: AlterPartitionItem) -> AlterPartitionResult:
        now = self.partition(item.topic_id, item.partition_id)
        error = ErrorCode.NONE
        if item.leader_epoch < now.leader_epoch or leader != now.leader:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif item.partition_epoch < now.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif any(not self._eligible(*member) for member in item.new_isr):
            error = ErrorCode.INELIGIBLE_REPLICA
        if error:
            return AlterPartitionResult(item.topic_id, item.partition_id, error)
        isr = tuple(sorted(broker for broker, _ in item.new_isr))
        self.commit(PartitionChangeRecord(item.topic_id, item.partition_id, isr=isr))
        now = self.partition(item.topic_id, item.partition_id)
        return AlterPartitionResult(
            item.topic_id,
            item.partition_id,
            ErrorCode.NONE,
            now.leader,
            now.leader_epoch,
            now.partition_epoch,
            now.isr,
        )

    def _eligible(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_epoch in (-1, broker.broker_epoch)


class Node:
    """One broker. `start` again after `kill` finds the files as the crash left them."""

    def __init__(
        self,
        node_id: int,
        controller: FakeController,
        *,
        listen: bool,
        rack: str | None = None,
        **keys: str,
    ) -> None:
        self.id = node_id
        self.files = FakeFiles()
        self.failures: list[BaseException] = []
        self.failed_directories: list[UUID] = []
        self.config = config(node_id, **keys, **({"broker_rack": rack} if rack else {}))
        self.deaf = False
        """Whether images do not reach it."""
        self.running = False
        self._controller = controller
        self._listen = listen
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self.runtime = FakeRuntime(self.files, seed=self.id)
        self.context = BrokerContext(
            self.config,
            self.runtime,
            "cluster",
            self._controller,
            self._broker_epoch,
            lambda: -1,
            self.failures.append,
            {path: directory_id(self.id, path) for path in self.config.log_dirs},
            self.failed_directories.append,
        )
        logs = LogManager(
            self.runtime, self.config.log_dirs, topic_defaults(self.config), self.failures.append
        )
        self.metadata = MetadataCache()
        self.replicas = ReplicaManager(self.context, logs)
        self.transactions = TransactionCoordinator(
            self.config,
            self.replicas,
            self.runtime.wall_ms,
            self.failures.append,
            self.runtime.log,
            self.replicas.connector,
        )
        self.verifier = TransactionVerifier(
            self.config,
            lambda: self.metadata.image,
            self.replicas.partitions,
            self.transactions,
            self.failures.append,
            self.replicas.connector,
        )
        self.groups = group_coordinator(self.context, self.replicas)
        await self.replicas.start()
        port = self.port = await self._bind() if self._listen else 1
        self.running = True
        self._controller.commit(
            RegisterBrokerRecord(
                self.id,
                UUID(int=self.id),
                (Endpoint("PLAINTEXT", "127.0.0.1", port),),
                self.config.broker_rack,
                fenced=False,
            )
        )
        everything = MetadataDelta.between_empty_and(self._controller.image)
        self.publish(everything, self._controller.image)

    async def stop(self) -> None:
        if self.running:
            self.running = False
            self._close_server()
            await self.verifier.stop()
            await self.transactions.stop()
            await self.groups.stop()
            await self.replicas.stop()
            assert self.failures == []

    async def kill(self) -> None:
        """Ends it without a word; what was written stays, as after kill -9."""
        self.running = False
        self._close_server()
        await self.verifier.stop()
        await self.transactions.stop()
        await self.groups.stop()
        await self.replicas._background.stop()
        self.replicas._produces.close()
        self.replicas._fetches.close()
        await self.replicas._logs.housekeeping.stop()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self.running and not self.deaf:
            self.metadata.publish(image)
            self.replicas.apply_delta(delta, image)
            self.transactions.publish(image)
            self.groups.publish(image)

    def replica(self, partition: TopicPartition = P0) -> Partition:
        return self.replicas._replicas[partition]

    def append(
        self, batch: bytes, *, acks: int = 1, timeout_ms: int = 10_000
    ) -> AppendResult | asyncio.Future[list[AppendResult]]:
        done = self.replicas.append(acks, timeout_ms, [(P0, batch)])
        return done[0] if isinstance(done, list) else done

    def _broker_epoch(self) -> int:
        broker = self._controller.image.brokers.get(self.id)
        return -1 if broker is None else broker.broker_epoch

    async def _bind(self) -> int:
        self.sessions = FetchSessions(
            self.config.max_incremental_fetch_session_cache_slots, self.runtime.random
        )
        limits = ConnectionLimits(self.config, self.failures.append, self.replicas.turn)
        context = ApiContext(
            config=self.config,
            cluster_id="cluster",
            listener="PLAINTEXT",
            replicas=self.replicas,
            prepare=self.replicas.preparing.prepare,
            metadata=self.metadata,
            controller=self._controller,
            producer_ids=ProducerIds(self._controller, self.id, self._broker_epoch),
            sessions=self.sessions,
            internal_topics=InternalTopics(self.config, self._controller, self.metadata),
            transactions=self.transactions,
            verifier=self.verifier,
            groups=self.groups,
            wall_ms=self.runtime.wall_ms,
            log=self.runtime.log,
            aside=self.runtime.worker("requests").submit,
            has_session=lambda: True,
            quotas=ClientQuotas(StoredQuotas()),
            telemetry=ClientTelemetry(
                self.config,
                Metrics(),
                self.runtime.uuid,
                self.runtime.log,
                self.runtime.wall_ms,
            ),
        )
        dispatched = partial(dispatch, context)
        local = LocalBroker(dispatched, context.listener, "PLAINTEXT", context.aside)
        serve = Envelopes(local, None).serve
        limits.begin()
        self._limits = limits
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(
                limits,
                serve,
                self.runtime.log,
                self.runtime.sender,
                ClientConnection("PLAINTEXT"),
                lambda _context: None,
            ),
            "127.0.0.1",
            0,
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._limits.close_all()
            self._server = None


class World:
    """A cluster of brokers 1..n; `async with` starts and stops it. `racks` has a letter each."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        listen: bool = False,
        racks: str = "",
        controller: FakeController | None = None,
        **keys: str,
    ) -> None:
        self.controller = controller or FakeController()
        self.controller.publish = self._publish
        self.nodes = {
            n: Node(n, self.controller, listen=listen, rack=racks[n - 1 : n], **keys)
            for n in range(1, brokers + 1)
        }

    async def __aenter__(self) -> World:
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            await node.stop()
        for _turn in range(CLOSING_TURNS):
            await asyncio.sleep(0)

    def create_topic(self, leader: int = 1, partitions: int = 1) -> None:
        replicas = tuple(self.nodes)
        self.controller.commit(
            TopicRecord("t", TOPIC_ID),
            *(
                PartitionRecord(TOPIC_ID, p, replicas, replicas, leader, 0, 0)
                for p in range(partitions)
            ),
        )

    def elect(self, leader: int, isr: tuple[int, ...] | None = None) -> None:
        self.controller.commit(PartitionChangeRecord(TOPIC_ID, 0, leader=leader, isr=isr))

    def set_isr(self, *isr: int) -> None:
        change = PartitionChangeRecord(TOPIC_ID, 0, leader=LEADER_UNCHANGED, isr=isr)
        self.controller.commit(change)

    def fence(self, broker: int) -> None:
        epoch = self.controller.image.brokers[broker].broker_epoch
        self.controller.commit(BrokerRegistrationChangeRecord(broker, epoch, fenced=True))

    def leader(self) -> Node:
        """Who leads partition 0 now."""
        return self.nodes[self.controller.partition(TOPIC_ID, 0).leader]

    def isr(self) -> tuple[int, ...]:
        return self.controller.partition(TOPIC_ID, 0).isr

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for node in self.nodes.values():
            node.publish(delta, image)


def wanted(
    offset: int,
    *,
    epoch: int = -1,
    last_epoch: int = -1,
    topic_id: UUID | None = None,
    max_bytes: int = 1 << 20,
    partition: TopicPartition = P0,
) -> FetchPartition:
    """One partition of a fetch."""
    return FetchPartition(partition, topic_id, epoch, offset, last_epoch, 0, max_bytes)


def params(
    replica: int = -1, *, wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20
) -> FetchParams:
    """A fetch of a consumer, or of the replica of this id."""
    return FetchParams(replica, -1, wait_ms, min_bytes, max_bytes, read_committed=False)


def fetch_now(node: Node, what: FetchPartition, how: FetchParams | None = None) -> FetchResult:
    """A fetch that must be answered at once."""
    found = node.replicas.fetch(how or params(), [what])
    assert isinstance(found, list)
    return found[0]


def offsets_now(node: Node, *lookups: OffsetLookup, replica: int = -1) -> list[OffsetResult]:
    """Lookups that must be answered at once."""
    found = node.replicas.list_offsets(lookups, replica)
    assert isinstance(found, list)
    return found


async def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits until the condition holds; fails after so many seconds."""
    for _ in range(int(seconds / 0.005)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it has not come to be")

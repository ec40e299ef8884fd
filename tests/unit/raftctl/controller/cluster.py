"""A controller with a log of its own and brokers that speak when told to: the tests' shell."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from uuid import UUID

from raftctl.controller import ControllerConfig, QuorumController
from raftctl.errors import ErrorCode
from raftctl.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage
from raftctl.metadata.records import Endpoint, FeatureRange, Record
from raftctl.metadata.requests.admin import AdminResponse, ItemOutcome
from raftctl.metadata.requests.cluster import (
    AlterPartitionItem,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResult,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.requests import ControllerRequest, ControllerResponse

CLUSTER_ID = "cluster"
SESSION_MS = 9_000
WALL_MS = 1_700_000_000_000
"""The wall clock when the other clock is 0."""
ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)


def incarnation(broker_id: int, number: int = 0) -> UUID:
    """A broker's n-th incarnation."""
    return UUID(int=1_000 * (broker_id + 1) + number + 1)


class Cluster:
    """The active controller of epoch 1; `records` is the log, from offset `base` on."""

    def __init__(self, config: ControllerConfig | None = None, seed: int = 1) -> None:
        config = config or ControllerConfig(
            cluster_id=CLUSTER_ID, session_timeout_ms=SESSION_MS, leader_rebalance=False
        )
        self.controller = QuorumController(
            config, random.Random(seed), wall_ms=lambda: WALL_MS + self.now_ms
        )
        self.now_ms = 0
        self.records: list[Record] = []
        self.epoch = 0
        self.claim(EMPTY_IMAGE)

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def claim(self, image: MetadataImage) -> None:
        """The controller becomes active in the next epoch."""
        self.epoch += 1
        self.append(self.controller.claim(self.epoch, image, self.now_ms))

    def append(self, records: Sequence[Record]) -> int:
        """Appends and replays; returns the offset of the first record."""
        base_offset = len(self.records)
        self.records += records
        if records:
            last = len(self.records) - 1
            self.controller.appended(records, last, self.epoch, self.now_ms)
        self.controller.invariants()
        return base_offset

    def handle(self, request: ControllerRequest) -> ControllerResponse:
        result = self.controller.handle(request, self.now_ms)
        return result.response_at(self.append(result.records))

    def tick(self, now_ms: int) -> list[Record]:
        """Time passes until then, with a tick at each deadline on the way, as the service does."""
        records: list[Record] = []
        while (deadline_ms := self.controller.deadline_ms()) is not None and deadline_ms < now_ms:
            records += self.late_tick(max(deadline_ms, self.now_ms))
        return records + self.late_tick(now_ms)

    def late_tick(self, now_ms: int) -> list[Record]:
        """One tick, whatever was due before."""
        self.now_ms = now_ms
        records = self.controller.tick(now_ms)
        self.append(records)
        return records

    def admin(self, request: ControllerRequest) -> tuple[ItemOutcome, ...]:
        """The outcome of each item of an administrator's request."""
        response = self.handle(request)
        assert isinstance(response, AdminResponse)
        assert response.error == ErrorCode.NONE, response
        assert response.offset == self.image.offset
        return response.outcomes

    # --- brokers ------------------------------------------------------------------------------

    def register(
        self,
        broker_id: int,
        number: int = 0,
        *,
        rack: str | None = None,
        cluster_id: str = CLUSTER_ID,
        endpoints: tuple[Endpoint, ...] = ENDPOINTS,
        directories: tuple[UUID, ...] = (),
        features: tuple[FeatureRange, ...] = (),
        previous_epoch: int = -1,
    ) -> RegisterBrokerResponse:
        identity = incarnation(broker_id, number)
        response = self.handle(
            RegisterBrokerRequest(
                broker_id,
                identity,
                cluster_id,
                endpoints,
                rack,
                directories,
                features,
                previous_epoch,
            )
        )
        assert isinstance(response, RegisterBrokerResponse)
        return response

    def heartbeat(
        self,
        broker_id: int,
        *,
        broker_epoch: int | None = None,
        metadata_offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
    ) -> BrokerHeartbeatResponse:
        """By default of the current incarnation, which has followed to the end of the log."""
        if broker_epoch is None:
            broker_epoch = self.image.brokers[broker_id].broker_epoch
        if metadata_offset is None:
            metadata_offset = self.image.offset
        response = self.handle(
            BrokerHeartbeatRequest(
                broker_id, broker_epoch, metadata_offset, want_fence, want_shut_down
            )
        )
        assert isinstance(response, BrokerHeartbeatResponse)
        return response

    def start(self, *broker_ids: int, rack: str | None = None) -> None:
        """Brokers that are registered and active."""
        for broker_id in broker_ids:
            assert self.register(broker_id, rack=rack).error == ErrorCode.NONE
            assert not self.heartbeat(broker_id).fenced

    def fence(self, broker_id: int) -> None:
        assert self.heartbeat(broker_id, want_fence=True).fenced

    # --- topics -------------------------------------------------------------------------------

    def create(self, *topics: NewTopic, validate_only: bool = False) -> tuple[TopicResult, ...]:
        response = self.handle(CreateTopicsRequest(topics, validate_only))
        assert isinstance(response, CreateTopicsResponse)
        assert response.error == ErrorCode.NONE
        return response.topics

    def assign(self, name: str, *replicas: tuple[int, ...]) -> TopicImage:
        """A new topic with these replicas."""
        (result,) = self.create(NewTopic(name, assignments=tuple(enumerate(replicas))))
        assert result.error == ErrorCode.NONE, result
        return self.topic(name)

    def create_topic(
        self, name: str, *replicas: tuple[int, ...], configs: tuple[tuple[str, str], ...]
    ) -> TopicImage:
        """A new topic with these replicas and configs."""
        new = NewTopic(name, assignments=tuple(enumerate(replicas)), configs=configs)
        (result,) = self.create(new)
        assert result.error == ErrorCode.NONE, result
        return self.topic(name)

    def topic(self, name: str) -> TopicImage:
        topic = self.image.topics.by_name(name)
        assert topic is not None
        return topic

    def partition(self, name: str, partition_id: int = 0) -> PartitionImage:
        return self.topic(name).partitions[partition_id]

    def state(self, name: str, partition_id: int = 0) -> tuple[int, tuple[int, ...]]:
        """(leader, ISR)"""
        partition = self.partition(name, partition_id)
        return partition.leader, partition.isr

    def delete(self, *topics: tuple[str | None, UUID | None]) -> tuple[TopicResult, ...]:
        response = self.handle(DeleteTopicsRequest(topics))
        assert isinstance(response, DeleteTopicsResponse)
        return response.topics

    def item(self, name: str, *isr: int, partition_id: int = 0) -> AlterPartitionItem:
        """A proposal in the current epochs."""
        partition = self.partition(name, partition_id)
        brokers = self.image.brokers
        return AlterPartitionItem(
            self.topic(name).topic_id,
            partition_id,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple((one, brokers[one].broker_epoch if one in brokers else -1) for one in isr),
        )

    def alter(self, sender: int, *items: AlterPartitionItem) -> tuple[AlterPartitionResult, ...]:
        broker_epoch = self.image.brokers[sender].broker_epoch
        response = self.handle(AlterPartitionRequest(sender, broker_epoch, items))
        assert isinstance(response, AlterPartitionResponse)
        assert response.error == ErrorCode.NONE
        return response.partitions

"""The controller answers when its records are committed, and takes back what never is (row C1)."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from raftctl.controller import ControllerConfig, QuorumController
from raftctl.errors import ErrorCode, InvariantViolation, KafkaError
from raftctl.loader import MetadataLoader
from raftctl.loader import _loader as loader
from raftctl.metadata.acls import CLUSTER_NAME, Operation, ResourceType
from raftctl.metadata.codec import pack_payload, unpack_records
from raftctl.metadata.records import (
    BeginTransactionRecord,
    Endpoint,
    EndTransactionRecord,
    NoOpRecord,
    Record,
    SnapshotMarkRecord,
    TopicRecord,
)
from raftctl.metadata.requests.admin import DescribeQuorumRequest
from raftctl.metadata.requests.cluster import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    NewTopic,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from raftctl.node import ControllerService
from raftctl.node import _controller_service as controller_service
from raftctl.raft.messages import Offset
from raftctl.security import Action
from tests.kit.authorizing import denying
from tests.unit.raftctl.quorum.parts import Member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.security import Authorizer
    from tests.kit.disk import FakeDisk

CLUSTER = "cluster"
NO_IDLE_MS = 0


class Marks:
    """A publisher that notes the offsets of the images which have a mark."""

    def __init__(self) -> None:
        self.marked: list[int] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.snapshot_marked:
            self.marked.append(image.offset)


class Controller(Member):
    """A member with a controller on top."""

    def __init__(
        self,
        session_timeout_ms: int = 60_000,
        idle_interval_ms: int = NO_IDLE_MS,
        disk: FakeDisk | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        super().__init__(disk=disk)
        config = ControllerConfig(cluster_id=CLUSTER, session_timeout_ms=session_timeout_ms)
        self.loader = MetadataLoader(self.driver)
        self.controller = QuorumController(config, random.Random(1))
        self.service = ControllerService(
            node_id=1,
            controller=self.controller,
            driver=self.driver,
            loader=self.loader,
            runtime=self.runtime.as_runtime,
            idle_interval_ms=idle_interval_ms,
            fail=self.failures.append,
            fence=lambda: None,
            authorizer=authorizer,
        )
        self.published: list[MetadataImage] = []
        self.loader.add_publisher(self)
        marks = Marks()
        self.marked = marks.marked
        self.loader.add_publisher(marks)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.published.append(image)

    async def activate(self) -> None:
        await self.lead()
        await self.until(lambda: self.loader.image.features)

    async def answered(self, request: ControllerRequest) -> ControllerResponse:
        """Sends the request and lets the disk work until it is answered."""
        answer = self.service.handle(request)
        await self.until(answer.done)
        return answer.result()

    async def register(self) -> int:
        """Registers and unfences broker 7; returns its epoch."""
        response = await self.answered(registration())
        assert isinstance(response, RegisterBrokerResponse)
        await self.answered(heartbeat(response.broker_epoch, response.broker_epoch))
        return response.broker_epoch


@pytest.fixture
async def active() -> AsyncIterator[Controller]:
    """An active controller, alone in its quorum."""
    controller = Controller()
    await controller.activate()
    yield controller
    controller.service.stop()
    await controller.stop()


def registration() -> RegisterBrokerRequest:
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    return RegisterBrokerRequest(7, UUID(int=7), CLUSTER, endpoints, None, ())


def heartbeat(broker_epoch: int, metadata_offset: int) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(7, broker_epoch, metadata_offset, False, False)


def creation(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest((NewTopic(name, 1, 1),))


def refusal(answer: asyncio.Future[ControllerResponse]) -> ErrorCode:
    error = answer.exception()
    assert isinstance(error, KafkaError)
    return error.code


@pytest.mark.req("C1")
async def test_an_answer_waits_for_the_commit_and_so_do_followers(active: Controller) -> None:
    await active.register()
    answer = active.service.handle(creation("orders"))
    # Replayed at once: the next operation sees it.
    assert active.controller.image.topics.by_name("orders") is not None
    for _ in range(5):
        await active.turn()
    assert not answer.done()
    assert active.loader.image.topics.by_name("orders") is None
    await active.worker.run_all()
    await active.turn()
    response = await answer
    assert isinstance(response, CreateTopicsResponse)
    assert [result.error for result in response.topics] == [ErrorCode.NONE]
    assert active.published[-1].topics.by_name("orders") is not None


@pytest.mark.req("S4")
async def test_what_the_requester_may_not_do_is_not_decided() -> None:
    denied = [
        Action(Operation.CREATE, ResourceType.TOPIC, "hidden"),
        Action(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
        Action(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME),
    ]
    controller = Controller(authorizer=denying(*denied))
    await controller.activate()
    await controller.register()
    alice = ("User:alice", "10.0.0.7")
    topics = (NewTopic("hidden", 1, 1), NewTopic("orders", 1, 1))
    response = await controller.answered(CreateTopicsRequest(topics, requester=alice))
    assert isinstance(response, CreateTopicsResponse)
    assert [(result.name, result.error) for result in response.topics] == [
        ("orders", ErrorCode.NONE),
        ("hidden", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert controller.controller.image.topics.by_name("hidden") is None
    end_offset = controller.log.end_offset
    for request in (
        CreateTopicsRequest(topics),
        CreateTopicsRequest(topics, broker_id=7),
        DescribeQuorumRequest(alice),
    ):
        with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await controller.answered(request)
    assert controller.log.end_offset == end_offset
    answers: list[object] = []
    controller.service.answer(CreateTopicsRequest(topics, broker_id=7), answers.append, 7)
    await controller.until(lambda: answers)
    assert controller.controller.image.topics.by_name("hidden") is not None
    controller.service.stop()
    await controller.stop()


@pytest.mark.req("C1")
async def test_an_answer_without_records_waits_for_what_it_was_computed_from(
    active: Controller,
) -> None:
    await active.register()
    first = active.service.handle(creation("orders"))
    second = active.service.handle(creation("orders"))
    for _ in range(5):
        await active.turn()
    assert not second.done()
    await active.until(first.done)
    response = await second
    assert isinstance(response, CreateTopicsResponse)
    assert [result.error for result in response.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_an_answer_that_depends_on_nothing_uncommitted_comes_at_once(
    active: Controller,
) -> None:
    await active.register()
    answer = active.service.handle(replace(creation("orders"), validate_only=True))
    assert answer.done()
    response = answer.result()
    assert isinstance(response, CreateTopicsResponse)
    assert [result.error for result in response.topics] == [ErrorCode.NONE]


@pytest.mark.req("C2")
async def test_a_heartbeat_is_answered_when_the_quorum_has_confirmed_the_controller(
    active: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller deposed unawares would keep the session of a broker that is fenced."""
    broker_epoch = await active.register()
    barriers: list[asyncio.Future[Offset]] = []

    def read_barrier() -> asyncio.Future[Offset]:
        barriers.append(asyncio.get_running_loop().create_future())
        return barriers[-1]

    monkeypatch.setattr(active.driver, "read_barrier", read_barrier)
    beats = [
        active.service.handle(heartbeat(broker_epoch, broker_epoch)),
        active.service.handle(heartbeat(broker_epoch - 1, broker_epoch)),
    ]
    for _ in range(5):
        await active.turn()
    assert not any(beat.done() for beat in beats)
    assert len(barriers) == 1
    barriers[0].set_result(Offset(active.log.end_offset))
    await active.turn()
    kept, stale = [beat.result() for beat in beats]
    assert isinstance(kept, BrokerHeartbeatResponse)
    assert (kept.error, kept.fenced, kept.session_timeout_ms) == (ErrorCode.NONE, False, 60_000)
    assert isinstance(stale, BrokerHeartbeatResponse)
    assert stale.error == ErrorCode.STALE_BROKER_EPOCH

    deposed = active.service.handle(heartbeat(broker_epoch, broker_epoch))
    await active.turn()
    barriers[1].set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await deposed


@pytest.mark.req("C1")
async def test_a_deposed_controller_takes_back_what_is_not_committed(active: Controller) -> None:
    await active.register()
    committed = active.controller.committed_image
    answer = active.service.handle(creation("orders"))
    proposed = active.service.handle(creation("refunds"))
    await active.driver.resign()
    await active.turn()
    assert refusal(answer) == refusal(proposed) == ErrorCode.REQUEST_TIMED_OUT
    late = active.service.handle(creation("late"))
    assert refusal(late) == ErrorCode.NOT_CONTROLLER
    await active.until(lambda: active.controller.active)
    assert active.controller.image.topics == committed.topics
    response = await active.answered(creation("orders"))
    assert isinstance(response, CreateTopicsResponse)
    assert [result.error for result in response.topics] == [ErrorCode.NONE]
    offsets = [image.offset for image in active.published]
    assert offsets == sorted(set(offsets))


@pytest.mark.req("C1")
async def test_what_a_deposed_controller_wrote_may_still_commit(active: Controller) -> None:
    """Its caller was told nothing for sure; the next controller starts from what is committed."""
    await active.register()
    answer = active.service.handle(creation("orders"))
    await active.turn()
    await active.turn()
    await active.driver.resign()
    assert refusal(answer) == ErrorCode.REQUEST_TIMED_OUT
    await active.until(lambda: active.controller.active)
    assert active.controller.image.topics.by_name("orders") is not None


@pytest.mark.req("C1")
async def test_what_is_too_large_for_a_batch_is_a_transaction(
    active: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_service, "TRANSACTION_BYTES_MIN", 200)
    await active.register()
    begin = active.log.end_offset
    before = active.service.handle(creation("small"))
    published = len(active.published)
    answer = active.service.handle(CreateTopicsRequest((NewTopic("large", 40, 1),)))
    after = active.service.handle(creation("later"))
    await active.until(after.done)
    assert before.done()
    response = answer.result()
    assert isinstance(response, CreateTopicsResponse)
    assert [result.error for result in response.topics] == [ErrorCode.NONE]
    found = [
        unpack_records(batch.payload, batch.count)
        for batch in active.driver.read(Offset(begin), 1 << 20)
    ]
    kinds = [{type(record) for record in batch} for batch in found]
    (first,) = [number for number, kind in enumerate(kinds) if BeginTransactionRecord in kind]
    (last,) = [number for number, kind in enumerate(kinds) if EndTransactionRecord in kind]
    assert last - first > 3
    assert type(found[first][0]) is BeginTransactionRecord
    assert type(found[last][-1]) is EndTransactionRecord
    for image in active.published[published:]:
        topic = image.topics.by_name("large")
        assert topic is None or len(topic.partitions) == 40
    follower = MetadataLoader(active.driver)
    follower.on_committed(active.driver.high_watermark)
    assert follower.image == active.loader.image


@pytest.mark.req("Q12")
async def test_a_controller_whose_disk_failed_does_nothing_until_its_node_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was due stayed due, so it went round without a pause; seed 3026 with full disks."""
    failed = Controller(idle_interval_ms=20)
    await failed.activate()
    append, asked = failed.driver.append_payload, 0

    def count(payload: bytes, record_count: int, *, alone: bool = False) -> Offset:
        nonlocal asked
        asked += 1
        return append(payload, record_count, alone=alone)

    monkeypatch.setattr(failed.driver, "append_payload", count)
    failed.driver.halt()
    assert failed.controller.active
    assert not failed.driver.is_leader
    await asyncio.sleep(0.1)
    assert asked <= 1
    failed.service.stop()
    await failed.stop()


@pytest.mark.req("Q6", "C13")
async def test_the_image_at_a_mark_ends_where_its_batch_does(active: Controller) -> None:
    """Else the snapshot of it would end within a batch, and whoever loads it could not go on."""
    await active.register()
    active.marked.clear()
    begin = active.log.end_offset
    before = active.service.handle(creation("before"))
    assert active.service.append_own(SnapshotMarkRecord())
    assert active.service.append_own(NoOpRecord())
    after = active.service.handle(creation("after"))
    await active.until(after.done)
    assert before.done()
    batches = active.driver.read(Offset(begin), 1 << 20)
    found = [unpack_records(batch.payload, batch.count) for batch in batches]
    number = found.index([SnapshotMarkRecord()])
    mark = batches[number].base_offset
    assert 0 < number < len(found) - 1
    assert active.marked == [mark]
    follower = Marks()
    replica = MetadataLoader(active.driver)
    replica.add_publisher(follower)
    replica.on_committed(active.driver.high_watermark)
    assert follower.marked[-1] == mark


@pytest.mark.req("C1")
async def test_the_next_controller_aborts_what_was_not_ended(active: Controller) -> None:
    await active.register()
    begun: list[Record] = [BeginTransactionRecord(), TopicRecord("never", UUID(int=9))]
    # As if the controller had died before it replicated the rest.
    active.driver.append_payload(pack_payload(begun), len(begun), alone=True)
    await active.turn()
    await active.until(lambda: active.driver.high_watermark == active.log.end_offset)
    await active.driver.resign()
    await active.until(lambda: active.controller.active)
    assert active.controller.image.topics.by_name("never") is None
    await active.answered(creation("never"))
    assert active.failures == []
    follower = MetadataLoader(active.driver)
    follower.on_committed(active.driver.high_watermark)
    assert not follower.in_transaction
    assert follower.image == active.loader.image
    topic = follower.image.topics.by_name("never")
    assert topic is not None
    assert topic.topic_id != UUID(int=9)


@pytest.mark.req("C1", "C13")
async def test_who_takes_over_with_much_to_replay_replays_it_first(
    active: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await active.register()
    for name in "abc":
        await active.answered(creation(name))
    monkeypatch.setattr(loader, "TURN_BYTES_MAX", 1)
    again = Controller(disk=active.disk)
    again.driver.start()
    meanwhile: list[tuple[ErrorCode, bool]] = []
    while not again.controller.active:
        await again.worker.run_all()
        leads = again.driver.is_leader and again.driver.high_watermark == again.log.end_offset
        if leads and not again.controller.active:
            own = again.service.append_own(NoOpRecord())
            meanwhile.append((refusal(again.service.handle(creation("early"))), own))
            assert again.loader.next_offset < again.driver.high_watermark
        await again.turn()
    assert meanwhile
    assert set(meanwhile) == {(ErrorCode.NOT_CONTROLLER, True)}
    assert {*again.controller.image.topics.ids} == {"a", "b", "c"}
    await again.until(lambda: again.driver.high_watermark == again.log.end_offset)
    last = again.driver.read(Offset(again.driver.high_watermark - 1), 1 << 20)[-1]
    assert unpack_records(last.payload, last.count)[-1] == NoOpRecord()
    assert again.failures == []
    again.service.stop()
    await again.stop()


@pytest.mark.req("C1", "C13")
async def test_who_loses_the_lead_while_it_replays_does_not_become_active(
    active: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await active.register()
    monkeypatch.setattr(loader, "TURN_BYTES_MAX", 1)
    again = Controller(disk=active.disk)
    again.driver.start()
    while not again.driver.is_leader or again.driver.high_watermark < again.log.end_offset:
        await again.worker.run_all()
        await again.turn()
    epoch = again.driver.epoch
    again.service.append_own(NoOpRecord())
    await again.driver.resign()
    assert not again.controller.active
    await again.until(lambda: again.controller.active)
    assert again.driver.epoch > epoch
    assert again.failures == []
    again.service.stop()
    await again.stop()


async def test_an_overloaded_controller_refuses_all_but_heartbeats(
    active: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker_epoch = await active.register()
    monkeypatch.setattr(controller_service, "DEFERRED_MAX", 2)
    accepted = [active.service.handle(creation(name)) for name in ("a", "b")]
    refused = active.service.handle(creation("c"))
    assert refusal(refused) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    beat = active.service.handle(heartbeat(broker_epoch, broker_epoch))
    await active.until(beat.done)
    assert [answer.exception() for answer in (*accepted, beat)] == [None] * 3
    response = await active.answered(creation("c"))
    assert isinstance(response, CreateTopicsResponse)
    assert [result.error for result in response.topics] == [ErrorCode.NONE]


async def test_records_that_cannot_be_replayed_end_the_node(
    active: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug in a delta")

    monkeypatch.setattr(active.controller, "appended", broken)
    with pytest.raises(InvariantViolation):
        active.service.handle(registration())


async def test_a_bug_behind_a_timer_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(idle_interval_ms=5)
    await controller.activate()
    bug = InvariantViolation("sessions are in order of expiry")

    def broken(now_ms: int) -> None:
        raise bug

    monkeypatch.setattr(controller.controller, "tick", broken)
    await controller.until(lambda: controller.failures)
    assert controller.failures == [bug]
    controller.service.stop()
    await controller.stop()


@pytest.mark.req("Q5")
async def test_an_idle_controller_writes_so_that_lag_can_be_told_in_time() -> None:
    controller = Controller(idle_interval_ms=5)
    await controller.activate()
    controller.runtime.now_ms += 77
    offset = controller.loader.image.offset
    await controller.until(lambda: controller.loader.image.offset >= offset + 3)
    assert controller.loader.image.timestamp_ms == controller.runtime.now_ms
    controller.service.stop()
    await controller.stop()


@pytest.mark.req("C2")
async def test_a_silent_broker_is_fenced_by_the_clock() -> None:
    controller = Controller(session_timeout_ms=100)
    await controller.activate()
    await controller.register()
    assert not controller.loader.image.brokers[7].fenced
    await controller.until(lambda: controller.loader.image.brokers[7].fenced)
    controller.service.stop()
    await controller.stop()


@pytest.mark.req("Q5")
async def test_a_restarted_replica_replays_the_log_in_chunks(
    active: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await active.register()
    for name in ("a", "b", "c"):
        await active.answered(creation(name))
    monkeypatch.setattr(loader, "TURN_BYTES_MAX", 1)
    follower = MetadataLoader(active.driver)
    offsets: list[int] = []

    class Late:
        def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
            assert set(delta.changed_topics) == set(image.topics.topics)
            offsets.append(image.offset)

    assert not follower.caught_up
    follower.on_committed(active.driver.high_watermark)
    assert not follower.caught_up
    await follower.wait_caught_up()
    assert follower.caught_up
    assert follower.image.topics == active.loader.image.topics
    assert follower.image.brokers == active.loader.image.brokers
    follower.add_publisher(Late())
    assert offsets == [follower.image.offset]


@pytest.mark.req("C1", "Q13")
async def test_the_active_controllers_image_has_the_time_that_replicas_read(
    active: Controller,
) -> None:
    """Though the clock goes on between the decision and the batch, as in a loop that stalls."""
    decided_ms = active.runtime.now_ms
    answer = active.service.handle(registration())
    active.runtime.now_ms += 7
    await active.until(answer.done)
    image = active.published[-1]
    (batch,) = active.driver.read(Offset(image.offset), 1 << 20)
    assert (image.timestamp_ms, batch.timestamp_ms) == (decided_ms, decided_ms)

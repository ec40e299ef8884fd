"""A broker registers, keeps its session, is drained when it stops, and ends when replaced (C2)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

import pytest

from jepsen.simulator.world import World
from raftctl.errors import ConfigError, ErrorCode, KafkaError
from raftctl.metadata.features import supported_ranges
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta
from raftctl.metadata.records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from raftctl.metadata.requests.cluster import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from raftctl.node._registrations import (
    CONTROLLED_SHUTDOWN_TIMEOUT_S,
    BrokerLifecycle,
    BrokerRunner,
)
from tests.unit.raftctl.quorum.parts import TestRuntime

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Record
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse

T = TypeVar("T")

BROKER = 7
EPOCH = 10
HEARTBEAT_S = 2.0
SESSION_S = 9.0
ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
CONFIG = SimpleNamespace(
    node_id=BROKER,
    broker_rack=None,
    broker_heartbeat_interval_ms=int(HEARTBEAT_S * 1000),
    broker_session_timeout_ms=int(SESSION_S * 1000),
    initial_broker_registration_timeout_ms=60_000,
    controlled_shutdown_enable=True,
    authorizer_class_name="standard",
)
ACTIVE = BrokerHeartbeatResponse(ErrorCode.NONE, True, False, False)
DRAINED = BrokerHeartbeatResponse(ErrorCode.NONE, True, True, True)


def in_virtual_time(story: Coroutine[Any, Any, T]) -> None:
    """Runs the test on a loop whose time passes only while everybody waits."""
    with World(seed=1) as world:
        world.run(story)


class Loader:
    """The loader as the lifecycle sees it."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.publishers: list[Any] = []
        self.caught_up = asyncio.Event()

    async def wait_caught_up(self) -> None:
        await self.caught_up.wait()

    def add_publisher(self, publisher: Any) -> None:
        self.publishers.append(publisher)

    def replace_publisher(self, publisher: Any, successor: Any) -> None:
        self.publishers[self.publishers.index(publisher)] = successor
        successor.publish(MetadataDelta.between_empty_and(self.image), self.image)

    def remove_publisher(self, publisher: Any) -> None:
        self.publishers = [one for one in self.publishers if one is not publisher]

    def commit(self, record: Record, offset: int) -> None:
        delta = MetadataDelta(self.image)
        delta.replay(record, offset)
        self.image = delta.apply(offset, 1, 0)
        for publisher in self.publishers:
            publisher.publish(delta, self.image)


class Plugin:
    """A broker that does nothing."""

    def __init__(self, told: list[str], error: BaseException | None = None) -> None:
        self.told = told
        self.error = error
        self.stop_s = 0.0

    async def start(self) -> tuple[Endpoint, ...]:
        self.told.append("start")
        if self.error is not None:
            raise self.error
        return ENDPOINTS

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.told.append(f"publish {image.offset}")

    async def stop(self) -> None:
        self.told.append("stop")
        await asyncio.sleep(self.stop_s)


class Broker:
    """A runner with its lifecycle; the test plays the controller and the metadata log."""

    def __init__(self, plugin_error: BaseException | None = None) -> None:
        self.told: list[str] = []
        self.failures: list[BaseException] = []
        self.requests: list[tuple[float, ControllerRequest, int]] = []
        self.registrations: list[RegisterBrokerResponse | KafkaError] = []
        self.heartbeats: list[BrokerHeartbeatResponse | KafkaError] = []
        self.late_s = 0.0
        """How long answers are on their way."""
        self.loader = Loader()
        self.loader.caught_up.set()
        test_runtime = TestRuntime()
        self.logged = test_runtime.logged
        runtime = test_runtime.as_runtime
        self.lifecycle = BrokerLifecycle(
            config=cast("Any", CONFIG),
            cluster_id="cluster",
            log_directories=(UUID(int=70),),
            controller=self,
            loader=cast("Any", self.loader),
            runtime=runtime,
            fail=self.failures.append,
        )
        self.plugin = Plugin(self.told, plugin_error)
        self.runner = BrokerRunner(
            cast("Any", self.plugin),
            self.lifecycle,
            cast("Any", self.loader),
            runtime,
            self.failures.append,
        )

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """The controller: the answers it was given, then that all is well."""
        self.requests.append((asyncio.get_running_loop().time(), request, timeout_ms))
        answer: ControllerResponse | KafkaError
        if isinstance(request, RegisterBrokerRequest):
            good = RegisterBrokerResponse(ErrorCode.NONE, "", EPOCH)
            answer = self.registrations.pop(0) if self.registrations else good
        else:
            answer = self.heartbeats.pop(0) if self.heartbeats else ACTIVE
        await asyncio.sleep(self.late_s)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    @property
    def beats(self) -> list[tuple[float, BrokerHeartbeatRequest]]:
        return [
            (at, one) for at, one, _ in self.requests if isinstance(one, BrokerHeartbeatRequest)
        ]

    @property
    def incarnation_id(self) -> UUID:
        registration = self.requests[0][1]
        assert isinstance(registration, RegisterBrokerRequest)
        return registration.incarnation_id

    async def run_for(self, seconds: float) -> None:
        """Starts the broker; as soon as it registers, the log says so."""
        self.runner.start()
        await self.follow_for(seconds)

    async def follow_for(self, seconds: float) -> None:
        await asyncio.sleep(0.01)
        if self.lifecycle.broker_epoch >= 0:
            self.commit_registration(self.incarnation_id, EPOCH)
        await asyncio.sleep(seconds)

    def commit_registration(self, incarnation_id: UUID, offset: int) -> None:
        record = RegisterBrokerRecord(BROKER, incarnation_id, ENDPOINTS, None)
        self.loader.commit(record, offset)


@pytest.mark.req("C2")
def test_it_registers_and_sends_heartbeats() -> None:
    async def story() -> None:
        broker = Broker()
        broker.lifecycle.stopped_cleanly(5)
        await broker.run_for(3.5 * HEARTBEAT_S)
        _, registration, _ = broker.requests[0]
        assert registration == RegisterBrokerRequest(
            BROKER,
            broker.incarnation_id,
            "cluster",
            ENDPOINTS,
            None,
            (UUID(int=70),),
            supported_ranges(),
            5,
            "standard",
        )
        times = [at for at, _ in broker.beats]
        assert [late - early for early, late in pairwise(times)] == [
            pytest.approx(HEARTBEAT_S, abs=0.01)
        ] * (len(times) - 1)
        assert len(times) == 4
        assert broker.beats[0][1] == BrokerHeartbeatRequest(BROKER, EPOCH, EPOCH, False, False)
        assert broker.failures == []

    in_virtual_time(story())


@pytest.mark.req("C14")
def test_a_log_directory_that_fails_is_told_at_once_and_from_then_on() -> None:
    async def story() -> None:
        broker = Broker()
        await broker.run_for(1.5 * HEARTBEAT_S)
        before = len(broker.beats)
        broker.lifecycle.directory_failed(UUID(int=70))
        broker.lifecycle.directory_failed(UUID(int=70))
        await asyncio.sleep(0.01)
        told = broker.beats[before:]
        assert [one.offline_log_directories for _, one in told] == [(UUID(int=70),)]
        await asyncio.sleep(HEARTBEAT_S)
        assert broker.beats[-1][1].offline_log_directories == (UUID(int=70),)

    in_virtual_time(story())


def test_the_plugin_starts_first_and_follows_before_it_registers() -> None:
    async def story() -> None:
        broker = Broker()
        broker.loader.caught_up.clear()
        broker.runner.start()
        await asyncio.sleep(60)
        assert (broker.told, broker.requests) == (["start"], [])
        broker.loader.caught_up.set()
        await broker.follow_for(1)
        assert broker.told == ["start", f"publish {EPOCH}"]

    in_virtual_time(story())


@pytest.mark.req("R6", "C2")
def test_a_broker_hears_nothing_from_before_its_registration() -> None:
    """Else it would go on as the leader that its former incarnation was."""

    async def story() -> None:
        broker = Broker()
        broker.commit_registration(UUID(int=71), 5)
        broker.registrations = [KafkaError(ErrorCode.REQUEST_TIMED_OUT)]
        broker.runner.start()
        await asyncio.sleep(0.01)
        broker.commit_registration(UUID(int=71), 6)
        assert broker.told == ["start"]
        await asyncio.sleep(1)
        assert broker.told == ["start"]
        broker.commit_registration(broker.incarnation_id, EPOCH)
        broker.commit_registration(broker.incarnation_id, EPOCH + 1)
        assert broker.told == ["start", f"publish {EPOCH}", f"publish {EPOCH + 1}"]

    in_virtual_time(story())


def test_a_registration_that_is_in_the_log_before_it_is_answered_is_not_missed() -> None:
    async def story() -> None:
        broker = Broker()
        broker.registrations = [KafkaError(ErrorCode.REQUEST_TIMED_OUT)]
        broker.runner.start()
        await asyncio.sleep(0.01)
        broker.commit_registration(broker.incarnation_id, EPOCH)
        assert broker.told == ["start"]
        await asyncio.sleep(1)
        assert broker.told == ["start", f"publish {EPOCH}"]

    in_virtual_time(story())


@pytest.mark.req("C2")
def test_it_waits_until_it_may_register() -> None:
    """A killed predecessor holds the id for a while; a quorum may have no leader for a while."""

    async def story() -> None:
        broker = Broker()
        broker.registrations = [
            KafkaError(ErrorCode.REQUEST_TIMED_OUT),
            RegisterBrokerResponse(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "alive", -1),
            KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        ]
        await broker.run_for(5)
        registrations = [one for _, one, _ in broker.requests if not hasattr(one, "want_fence")]
        assert len(registrations) == 4
        assert len(set(registrations)) == 1  # one incarnation, so that a repetition is recognised
        assert broker.lifecycle.broker_epoch == EPOCH
        assert broker.failures == []

    in_virtual_time(story())


@pytest.mark.req("C2")
def test_it_warns_once_of_another_process_that_keeps_its_id() -> None:
    """A predecessor that was killed holds the id for a session; whoever holds it longer lives."""

    async def story() -> None:
        broker = Broker()
        alive = RegisterBrokerResponse(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker with id 7 is alive", -1
        )
        broker.registrations = [alive] * 1000
        await broker.run_for(SESSION_S)
        assert "broker_registration_waits" in broker.logged.getvalue()
        assert "broker_id_taken" not in broker.logged.getvalue()
        await asyncio.sleep(3 * SESSION_S)
        lines = broker.logged.getvalue().splitlines()
        (line,) = [one for one in lines if "broker_id_taken" in one]
        assert "Another broker with id 7 is alive" in line
        assert "see that node.id is this node's own" in line
        assert "warning" in line

    in_virtual_time(story())


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_REGISTRATION, ErrorCode.INCONSISTENT_CLUSTER_ID]
)
def test_a_registration_that_can_never_succeed_ends_the_node(code: ErrorCode) -> None:
    async def story() -> None:
        broker = Broker()
        broker.registrations = [RegisterBrokerResponse(code, "of another cluster", -1)]
        await broker.run_for(1)
        [error] = broker.failures
        assert isinstance(error, KafkaError)
        assert (error.code, error.message) == (code, "of another cluster")
        await broker.runner.stop(drain=True)
        assert broker.told == ["start", "stop"]

    in_virtual_time(story())


def test_a_refused_or_lost_heartbeat_is_repeated() -> None:
    """A deposed controller may refuse it: only the log says whether the registration holds."""

    async def story() -> None:
        broker = Broker()
        broker.heartbeats = [
            BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH, False, True, False),
            BrokerHeartbeatResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, False, True, False),
            KafkaError(ErrorCode.REQUEST_TIMED_OUT),
        ]
        await broker.run_for(4.5 * HEARTBEAT_S)
        assert len(broker.beats) == 5
        assert broker.failures == []
        # One that gets no answer leaves time for another before the session ends.
        [timeout_ms] = {timeout for _, one, timeout in broker.requests[1:]}
        assert timeout_ms / 1000 + 2 * HEARTBEAT_S < SESSION_S

    in_virtual_time(story())


@pytest.mark.req("R6")
def test_a_session_lasts_from_a_heartbeat_that_says_so() -> None:
    """Counted from when it was sent: the controller may have had it at once."""

    async def story() -> None:
        broker = Broker()
        lost = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        fenced = BrokerHeartbeatResponse(ErrorCode.NONE, True, True, False)
        broker.heartbeats = [fenced, ACTIVE, *[lost] * 5, ACTIVE, fenced]
        assert not broker.lifecycle.has_session()
        broker.runner.start()
        kept: dict[int, bool] = {}
        while len(broker.beats) < 10:
            await broker.follow_for(0.1) if not broker.beats else await asyncio.sleep(0.1)
            kept[len(broker.beats)] = broker.lifecycle.has_session()
        assert [number for number, holds in kept.items() if holds] == [2, 3, 4, 5, 8, 10]

    in_virtual_time(story())


@pytest.mark.req("R6")
@pytest.mark.parametrize(("told_s", "lasts_s"), [(-0.001, 8.1), (3.0, 2.7), (20.0, 18.0)])
def test_a_session_lasts_as_long_as_the_controller_says(told_s: float, lasts_s: float) -> None:
    """Less a tenth, by which the two clocks may differ."""

    async def story() -> None:
        broker = Broker()
        lost = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        kept = replace(ACTIVE, session_timeout_ms=round(told_s * 1000))
        broker.heartbeats = [kept, *[lost] * 20]
        await broker.run_for(0.1)
        [(sent_s, _)] = broker.beats
        loop = asyncio.get_running_loop()
        await asyncio.sleep(sent_s + lasts_s - loop.time() - 0.01)
        assert broker.lifecycle.has_session()
        await asyncio.sleep(0.02)
        assert not broker.lifecycle.has_session()

    in_virtual_time(story())


@pytest.mark.req("R6")
def test_a_session_is_counted_from_the_question() -> None:
    """The answer may have been on its way for long."""

    async def story() -> None:
        broker = Broker()
        await broker.run_for(0.1)
        broker.late_s = 5.0
        await asyncio.sleep(HEARTBEAT_S + 5.0)
        sent_s = broker.beats[-1][0]
        assert asyncio.get_running_loop().time() - sent_s >= 5.0
        broker.late_s = SESSION_S
        await asyncio.sleep(sent_s + 0.9 * SESSION_S - asyncio.get_running_loop().time() + 0.01)
        assert not broker.lifecycle.has_session()

    in_virtual_time(story())


@pytest.mark.req("R6")
def test_a_session_goes_on_to_end_while_the_machine_is_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Timers stand still then, and the loop's time with them."""

    async def story() -> None:
        broker = Broker()
        await broker.run_for(0.1)
        assert broker.lifecycle.has_session()
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "lease_time", lambda: loop.time() + 60.0)
        assert not broker.lifecycle.has_session()
        await asyncio.sleep(HEARTBEAT_S)
        assert broker.lifecycle.has_session(), "a heartbeat after it begins it anew"

    in_virtual_time(story())


@pytest.mark.req("R6")
def test_a_session_is_none_before_the_broker_has_seen_what_the_controller_had() -> None:
    """It may have been fenced and its leaders moved, all between two heartbeats."""

    async def story() -> None:
        broker = Broker()
        await broker.run_for(0.5 * HEARTBEAT_S)
        assert broker.lifecycle.has_session()
        broker.heartbeats = [replace(ACTIVE, metadata_offset=EPOCH + 2)]
        await asyncio.sleep(HEARTBEAT_S)
        assert not broker.lifecycle.has_session()
        fenced = BrokerRegistrationChangeRecord(BROKER, EPOCH, fenced=True)
        broker.loader.commit(fenced, EPOCH + 1)
        assert not broker.lifecycle.has_session()
        broker.loader.commit(replace(fenced, fenced=False), EPOCH + 2)
        assert broker.lifecycle.has_session()

    in_virtual_time(story())


@pytest.mark.req("C2")
def test_a_broker_that_was_replaced_ends() -> None:
    async def story() -> None:
        broker = Broker()
        await broker.run_for(5)
        assert broker.failures == []
        broker.commit_registration(UUID(int=99), EPOCH + 10)
        [error] = broker.failures
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.STALE_BROKER_EPOCH
        assert "node.id" in error.message

    in_virtual_time(story())


def test_a_broker_that_was_unregistered_ends() -> None:
    async def story() -> None:
        broker = Broker()
        await broker.run_for(5)
        broker.loader.commit(UnregisterBrokerRecord(BROKER, EPOCH), EPOCH + 10)
        assert [type(error) for error in broker.failures] == [KafkaError]

    in_virtual_time(story())


def test_the_registration_of_a_predecessor_is_no_replacement() -> None:
    async def story() -> None:
        broker = Broker()
        broker.runner.start()
        await asyncio.sleep(0.01)
        broker.commit_registration(UUID(int=99), EPOCH - 5)
        await asyncio.sleep(5)
        assert broker.failures == []

    in_virtual_time(story())


@pytest.mark.req("C2")
def test_a_stop_asks_to_be_drained_and_waits_for_leave() -> None:
    async def story() -> None:
        broker = Broker()
        await broker.run_for(5)
        before = len(broker.beats)
        broker.heartbeats = [ACTIVE, ACTIVE, DRAINED]
        await broker.runner.stop(drain=True)
        beats = broker.beats[before:]
        assert [one.want_shut_down for _, one in beats] == [True] * 3
        assert broker.told[-1] == "stop"
        await asyncio.sleep(60)
        assert len(broker.beats) == before + 3

    in_virtual_time(story())


@pytest.mark.req("C2")
def test_a_broker_does_not_hand_its_leaders_over_where_that_is_disabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        broker = Broker()
        await broker.run_for(5)
        monkeypatch.setattr(CONFIG, "controlled_shutdown_enable", False)
        before = len(broker.beats)
        await broker.runner.stop(drain=True)
        assert broker.told[-1] == "stop"
        assert len(broker.beats) == before

    in_virtual_time(story())


@pytest.mark.req("C2", "R6")
def test_a_broker_that_stops_hears_of_no_more_images() -> None:
    """What it took up while its logs close would stay open, and be fetched for."""

    async def story() -> None:
        broker = Broker()
        await broker.run_for(5)
        broker.plugin.stop_s = 1.0
        stopping = asyncio.ensure_future(broker.runner.stop(drain=False))
        await asyncio.sleep(0.5)
        broker.commit_registration(broker.incarnation_id, EPOCH + 1)
        await stopping
        assert broker.told == ["start", f"publish {EPOCH}", "stop"]

    in_virtual_time(story())


def test_a_stop_without_leave_takes_a_bounded_time() -> None:
    async def story() -> None:
        broker = Broker()
        await broker.run_for(5)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await broker.runner.stop(drain=True)
        assert loop.time() - began == pytest.approx(CONTROLLED_SHUTDOWN_TIMEOUT_S, abs=0.1)
        assert broker.told[-1] == "stop"

    in_virtual_time(story())


@pytest.mark.parametrize("registered", [False, True])
def test_a_stop_does_not_wait_when_there_is_nothing_to_wait_for(registered: bool) -> None:
    """Before the registration, or on a node that has failed."""

    async def story() -> None:
        broker = Broker()
        if not registered:
            broker.registrations = [KafkaError(ErrorCode.REQUEST_TIMED_OUT)] * 1000
        await broker.run_for(5)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await broker.runner.stop(drain=not registered)
        assert loop.time() == began
        assert broker.told[-1] == "stop"

    in_virtual_time(story())


def test_a_plugin_that_cannot_start_ends_the_node() -> None:
    async def story() -> None:
        error = ConfigError("listeners: 127.0.0.1:9092 cannot be bound; choose another")
        broker = Broker(error)
        await broker.run_for(1)
        assert broker.failures == [error]

    in_virtual_time(story())

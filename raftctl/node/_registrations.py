"""Registrations of a node with the quorum's leader, and their upkeep (row C2).

- `BrokerLifecycle` registers a broker, follows the log to its registration and sends heartbeats;
  `BrokerRunner` runs the plug-in between. To shut down, the broker asks to be drained of leaders
  until the controller lets it stop.
- `ControllerRegistrar` registers a controller's feature levels, and `VoterEndpoint` corrects a
  voter's address.

The log alone decides if a registration holds: a refused heartbeat may come from a controller that
has been deposed and does not know it yet. A broker whose registration is gone from the log must
end, since another process has its id by now.
Sources: KIP-631, KIP-841; KIP-858 for log directories that fail; KIP-919, KIP-853.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from raftctl.errors import ErrorCode, KafkaError
from raftctl.failures import HandingTo
from raftctl.metadata.features import (
    CONTROLLERS_LEVEL,
    METADATA_VERSION_FEATURE,
    level_of,
    supported_ranges,
)
from raftctl.metadata.image.types import ControllerImage
from raftctl.metadata.requests.cluster import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RegisterControllerRequest,
    RegisterControllerResponse,
)
from raftctl.raft.messages import UpdateVoterRequest
from raftctl.rpc import RpcError
from raftctl.runtime.lease_clock import counts_suspension, lease_ends, lease_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from raftctl.config import NodeConfig
    from raftctl.loader import MetadataLoader
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.records import Endpoint, FeatureRange
    from raftctl.metadata.requests import ControllerRequest
    from raftctl.plugins import Broker, ControllerClient
    from raftctl.quorum import RaftDriver
    from raftctl.raft.messages import Offset, Voter
    from raftctl.rpc import RpcClient
    from raftctl.runtime.api import Runtime

ResponseT = TypeVar("ResponseT")

REGISTRATION_RETRY_MS = 100
CONTROLLED_SHUTDOWN_TIMEOUT_S = 10.0
TIMEOUT_MS = 5_000
RETRY_MS = 200
RETRY_MS_MAX = 10_000
"""An older controller drops the connection of a peer that sends what it does not know."""


class BrokerLifecycle:
    """Registers one incarnation and keeps its session."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        cluster_id: str,
        log_directories: tuple[UUID, ...],
        controller: ControllerClient,
        loader: MetadataLoader,
        runtime: Runtime,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._log_directories = log_directories
        self._controller = controller
        self._loader = loader
        self._fail = fail
        self._incarnation_id = runtime.uuid()
        self._log = runtime.log.bind(logger="raftctl.registration")
        if not counts_suspension:
            self._log.warning("session_ignores_suspension", why="the system has no CLOCK_BOOTTIME")
        self._shutting_down = False
        self._wake = asyncio.Event()
        self._published = asyncio.Event()
        self._fenced = True
        self._session_ends_s = 0.0
        """The end of the session by the clock of leases, counted from the sending of the
        heartbeat."""
        self._session_offset = -1
        """The controller's last offset when it granted the session, which may follow a lost one."""
        self._offline_directories: tuple[UUID, ...] = ()
        self._previous_broker_epoch = -1
        self.broker_epoch = -1
        """The offset of the registration; -1 before it."""

    async def run(self) -> None:
        """Once registered, sends heartbeats until the controller lets the broker go."""
        await self._follow_to_registration()
        while not await self._heartbeat():
            await self._sleep(self._config.broker_heartbeat_interval_ms)

    @property
    def may_be_drained(self) -> bool:
        """True if the broker is registered and may ask the controller to take its leaders."""
        return self.broker_epoch >= 0 and self._config.controlled_shutdown_enable

    def shut_down(self) -> None:
        """Ask from now on to be drained of leaders; `run` returns when that is done."""
        self._shutting_down = True
        self._wake.set()

    def directory_failed(self, directory_id: UUID) -> None:
        """Report it to the controller at once, and in every heartbeat from now on."""
        if directory_id not in self._offline_directories:
            self._offline_directories += (directory_id,)
            self._wake.set()

    def has_session(self) -> bool:
        """Return True if this broker is unfenced and has replayed all changes up to its unfencing.

        While it returns True no controller may have fenced the broker (`decisions/0016-leases.md`).
        """
        lasts = lease_time(asyncio.get_running_loop()) < self._session_ends_s
        return lasts and self._loader.image.offset >= self._session_offset

    def stopped_cleanly(self, broker_epoch: int) -> None:
        """Note that the incarnation of this epoch stopped cleanly; called before `register`."""
        self._previous_broker_epoch = broker_epoch

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Wake waiters for a newer image; end a node that was replaced."""
        self._published.set()
        if self.broker_epoch < 0 or image.offset < self.broker_epoch or self._shutting_down:
            return
        broker = image.brokers.get(self._config.node_id)
        if broker is None or broker.incarnation_id != self._incarnation_id:
            self._fail(
                KafkaError(
                    ErrorCode.STALE_BROKER_EPOCH,
                    f"another process has taken the place of broker {self._config.node_id}, or it "
                    "was unregistered; see that node.id is this node's own and start it again",
                )
            )

    async def _follow_to_registration(self) -> None:
        """Wait a moment until the image holds the registration: no earlier heartbeat unfences."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.broker_heartbeat_interval_ms / 1000):
                while self._loader.image.offset < self.broker_epoch:
                    self._published.clear()
                    await self._published.wait()

    async def _sleep(self, milliseconds: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(milliseconds / 1000):
                await self._wake.wait()
                self._wake.clear()

    async def register(self, endpoints: Sequence[Endpoint]) -> None:
        """Register this incarnation; retry as long as there is hope.

        Raises KafkaError if the controller refuses the registration for good.
        """
        request = RegisterBrokerRequest(
            broker_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            cluster_id=self._cluster_id,
            endpoints=tuple(endpoints),
            rack=self._config.broker_rack,
            log_directories=self._log_directories,
            features=supported_ranges(),
            previous_broker_epoch=self._previous_broker_epoch,
            authorizer=self._config.authorizer_class_name,
        )
        began_s = asyncio.get_running_loop().time()
        complained = warned = False
        while True:
            error, message = await self._try_to_register(request)
            if error == ErrorCode.NONE:
                self._log.info("broker_registered", broker_epoch=self.broker_epoch)
                return
            if not error.retriable and error != ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                raise KafkaError(error, message)
            if not complained:
                # A predecessor that was killed holds the id until its session expires.
                self._log.info("broker_registration_waits", error=error.name, message=message)
                complained = True
            waits_s = asyncio.get_running_loop().time() - began_s
            taken = error == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            if taken and not warned and waits_s >= self._predecessor_s:
                self._log.warning(
                    "broker_id_taken",
                    node_id=self._config.node_id,
                    waits_s=round(waits_s),
                    why=f"{message}: longer than a predecessor's session lasts; see that node.id "
                    "is this node's own, and stop whichever process is not to be this broker",
                )
                warned = True
            await asyncio.sleep(REGISTRATION_RETRY_MS / 1000)

    @property
    def _predecessor_s(self) -> float:
        """So long one that was killed may hold the id; twice, since controllers may change."""
        return 2 * self._config.broker_session_timeout_ms / 1000

    async def _try_to_register(self, request: RegisterBrokerRequest) -> tuple[ErrorCode, str]:
        timeout_ms = self._config.initial_broker_registration_timeout_ms
        try:
            response = await self._call(request, timeout_ms, RegisterBrokerResponse)
        except KafkaError as error:
            return error.code, error.message
        if response.error == ErrorCode.NONE:
            self.broker_epoch = response.broker_epoch
        return response.error, response.message

    async def _heartbeat(self) -> bool:
        """Send one heartbeat; return whether the broker may stop now."""
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            metadata_offset=self._loader.image.offset,
            want_fence=False,
            want_shut_down=self._shutting_down,
            offline_log_directories=self._offline_directories,
        )
        # Should it get lost, there is time for the next one before the session ends.
        timeout_ms = self._config.broker_session_timeout_ms // 2
        sent_s = lease_time(asyncio.get_running_loop())
        try:
            response = await self._call(request, timeout_ms, BrokerHeartbeatResponse)
        except KafkaError as error:
            self._log.warning("heartbeat_failed", error=error.code.name)
            return False
        if response.error != ErrorCode.NONE:
            self._log.warning("heartbeat_refused", error=response.error.name)
            return False
        self._session_ends_s = (
            sent_s if response.fenced else lease_ends(sent_s, self._lease_s(response))
        )
        self._session_offset = response.metadata_offset
        if response.fenced != self._fenced:
            self._fenced = response.fenced
            self._log.info("broker_fenced" if self._fenced else "broker_unfenced")
        return response.should_shut_down

    def _lease_s(self, response: BrokerHeartbeatResponse) -> float:
        """The controller's timeout, which may differ from what is configured here."""
        own_ms, granted_ms = self._config.broker_session_timeout_ms, response.session_timeout_ms
        return (own_ms if granted_ms < 0 else granted_ms) / 1000

    async def _call(
        self, request: ControllerRequest, timeout_ms: int, expected: type[ResponseT]
    ) -> ResponseT:
        response = await self._controller.call(request, timeout_ms)
        if not isinstance(response, expected):
            kind = type(response).__name__
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller answered {kind}")
        return response


class BrokerRunner:
    """Runs a broker plug-in from `start` to `stop`.

    A broker is given no metadata before its own registration is in it. Images before that speak of
    its former incarnation: a broker that came back without the records it had not flushed would
    go on leading where that one stopped, and its followers would cut their logs to match.
    Source: KIP-631 and Kafka's BrokerServer, which publishes after the initial catch-up.
    """

    def __init__(
        self,
        broker: Broker,
        lifecycle: BrokerLifecycle,
        loader: MetadataLoader,
        runtime: Runtime,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._broker = broker
        self._lifecycle = lifecycle
        self._loader = loader
        self._log = runtime.log.bind(logger="raftctl.registration")
        self._fail = fail
        self._task: asyncio.Task[None] | None = None
        self._publishes = False
        """True once the loader publishes to the broker."""
        self._hurried = asyncio.Event()

    def start(self) -> None:
        """Start the broker in the background: it registers when it has caught up."""
        self._task = asyncio.create_task(self._run())

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Have the loader publish to the broker from the image on that holds its registration."""
        self._publish_if_registered(image)

    def _publish_if_registered(self, image: MetadataImage) -> None:
        if not self._publishes and 0 <= self._lifecycle.broker_epoch <= image.offset:
            self._publishes = True
            self._loader.replace_publisher(self, self._broker)

    async def stop(self, *, drain: bool) -> None:
        """Stop the broker; to `drain`, let the controller move its leaders away before.

        Not to be cancelled, since what is open would stay so: `hurry` ends the wait.
        """
        if self._task is None:
            return
        if drain and self._lifecycle.may_be_drained:
            self._lifecycle.shut_down()
            hurried = asyncio.create_task(self._hurried.wait())
            await asyncio.wait(
                [self._task, hurried],
                timeout=CONTROLLED_SHUTDOWN_TIMEOUT_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            hurried.cancel()
            if not self._task.done():
                why = "asked again to end" if self._hurried.is_set() else "timed out"
                self._log.warning("controlled_shutdown_ended_early", why=why)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        # A broker that closes its logs must take up nothing new: what it opens then stays open.
        self._loader.remove_publisher(self._broker if self._publishes else self)
        await self._broker.stop()

    def hurry(self) -> None:
        """Let `stop` wait no longer for the controller."""
        self._hurried.set()

    async def _run(self) -> None:
        with HandingTo(self._fail, but=(asyncio.CancelledError,)):
            endpoints = await self._broker.start()
            await self._loader.wait_caught_up()
            self._loader.add_publisher(self)
            self._loader.add_publisher(self._lifecycle)
            await self._lifecycle.register(endpoints)
            # The registration may be in the newest image already, and nothing new come for long.
            self._publish_if_registered(self._loader.image)
            await self._lifecycle.run()


# --- records that the leader keeps of this controller ---------------------------------------------


class _Upkeep(ABC):
    """Repeats a request to the leader until the metadata log shows its effect.

    It is silent while the log does, and begins again when that changes. A listener of the driver.
    """

    def __init__(
        self, driver: RaftDriver, runtime: Runtime, fail: Callable[[BaseException], None]
    ) -> None:
        self._driver = driver
        self._random = runtime.random
        self._fail = fail
        self._task: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Cancel the request under way."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether the log shows what was asked for."""

    @abstractmethod
    async def _ask_until_done(self) -> None:
        """Ask the leader until `is_done`; an exception ends the node."""

    def on_committed(self, high_watermark: Offset) -> None:
        """Look again: the records in force may have changed."""
        self._look()

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """Look again: there may be a leader to ask."""
        self._look()

    def on_snapshot(self, image: MetadataImage) -> None:
        """Look again: the records in force may have changed."""
        self._look()

    def _look(self) -> None:
        if self._task is None and not self.is_done:
            self._task = asyncio.get_running_loop().create_task(self._ask_until_done())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    async def _pause(self, milliseconds: int) -> None:
        """Wait before the next attempt; also after a good answer, which the log shows later."""
        await asyncio.sleep(self._random.uniform(0.5, 1) * milliseconds / 1000)


class ControllerRegistrar(_Upkeep):
    """Registers the feature levels of this controller with the active one (KIP-919).

    Every controller does, voter or standby, the active one included. At a level of
    `metadata.version` without such records it registers with each new active controller. A
    controller that cannot work with the levels in force ends: it would not understand what is
    written.
    """

    def __init__(
        self,
        *,
        controller_id: int,
        cluster_id: str,
        features: tuple[FeatureRange, ...],
        settings: tuple[str, ...],
        controller: ControllerClient,
        driver: RaftDriver,
        runtime: Runtime,
        fail: Callable[[BaseException], None],
    ) -> None:
        """Make a registrar to add to the loader, which publishes images to it, and to the driver.

        `settings` (`ControllerConfig.settings`) are held against those of the active controller.
        """
        super().__init__(driver, runtime, fail)
        self._request = RegisterControllerRequest(
            controller_id, runtime.uuid(), cluster_id, features, settings
        )
        self._controller = controller
        self._log = runtime.log.bind(logger="raftctl.registration")
        self._image: MetadataImage | None = None
        self._registered_with: tuple[int, int] | None = None
        """(leader epoch, level of the metadata) at which it was acknowledged last."""
        self._warned = ""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Look again if controllers or feature levels have changed."""
        self._image = image
        if delta.changed_controllers or delta.changed_features:
            self._look()

    def on_committed(self, high_watermark: Offset) -> None:
        """Do nothing: registrations are read from the image."""

    def on_snapshot(self, image: MetadataImage) -> None:
        """Do nothing: the loader publishes the image."""

    @property
    def is_done(self) -> bool:
        """True if the active controller knows of this one, and will not forget it."""
        image, asked = self._image, self._request
        if image is None:
            return True  # one is published as soon as there is a level at all
        level = level_of(image, METADATA_VERSION_FEATURE)
        if level < CONTROLLERS_LEVEL:
            return self._registered_with == (self._driver.epoch, level)
        own = ControllerImage(asked.controller_id, asked.incarnation_id, asked.features)
        return image.controllers.get(asked.controller_id) == own

    async def _ask_until_done(self) -> None:
        retry_ms = RETRY_MS
        while not self.is_done:
            image, epoch = self._image, self._driver.epoch
            level = 0 if image is None else level_of(image, METADATA_VERSION_FEATURE)
            error, message = await self._ask()
            if error is ErrorCode.NONE:
                self._registered_with = (epoch, level)
                self._warn(message)
            elif not error.retriable and error is not ErrorCode.INVALID_REQUEST:
                remedy = f"{message}: upgrade this node, or have the level lowered"
                raise KafkaError(error, remedy)
            await self._pause(retry_ms)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)
        self._log.info("controller_registered")

    def _warn(self, message: str) -> None:
        """Warn once: to change such a config, controllers restart one after the other."""
        if message and message != self._warned:
            self._log.warning("controllers_configured_differently", message=message)
        self._warned = message

    async def _ask(self) -> tuple[ErrorCode, str]:
        try:
            response = await self._controller.call(self._request, TIMEOUT_MS)
        except KafkaError as error:
            return error.code, error.message
        if not isinstance(response, RegisterControllerResponse):
            return ErrorCode.INVALID_REQUEST, f"the answer is a {type(response).__name__}"
        return response.error, response.message


class VoterEndpoint(_Upkeep):
    """Keeps the address of this voter in the voters' record right (KIP-853)."""

    def __init__(
        self,
        *,
        voter: Voter,
        driver: RaftDriver,
        peers: Mapping[int, RpcClient],
        runtime: Runtime,
        timeout_ms: int,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`voter` is this replica and the address where others reach it."""
        super().__init__(driver, runtime, fail)
        self._voter = voter
        self._peers = peers
        self._log = runtime.log.bind(logger="raftctl.registration")
        self._timeout_ms = timeout_ms

    @property
    def is_done(self) -> bool:
        """True if the record has this address, or is not about this very replica."""
        voters = self._driver.core.voters
        recorded = voters.voter(self._voter.replica.node_id)
        same_replica = recorded is not None and recorded.replica == self._voter.replica
        return not voters.dynamic or not same_replica or recorded == self._voter

    async def _ask_until_done(self) -> None:
        while not self.is_done:
            leader_id = self._driver.leader_id
            request = UpdateVoterRequest(self._voter)
            try:
                if self._driver.is_leader:
                    await self._driver.receive(request)
                elif leader_id in self._peers:
                    await self._peers[leader_id].call(request, self._timeout_ms)
            except RpcError as error:
                self._log.info("voter_update_failed", leader_id=leader_id, why=str(error))
            await self._pause(RETRY_MS)
        self._log.info("voter_updated", host=self._voter.host, port=self._voter.port)

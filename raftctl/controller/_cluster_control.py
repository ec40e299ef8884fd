"""Brokers and controllers of the cluster: registration, heartbeats, fencing, shutdown (C2, C11).

A broker is fenced when it registers. A heartbeat makes it active once it has replayed its own
registration. It is fenced again when it asks for that or is silent for the session timeout. In a
controlled shutdown its leaders move away first. It may stop when every active broker has replayed
that, so that no broker directs clients to it any more:

    fenced ──caught up──▶ active ──wants to stop, leads──▶ shutting down
      ▲  ◀──wants it, silent──┘ │                                │
      └────────────── wants to stop, leads nothing ──────────────┘

Sessions are soft state: they are never written to the log, start again with each active controller
and are not rolled back. A broker has a session from its registration or first heartbeat until it
has been silent for the session timeout.

A controller that was itself held up (by a paused process, by a long computation) cannot tell which
brokers were silent: heartbeats may wait unread. So it checks several times in a session timeout. A
check that is late means that it was held up; every broker then gets a fresh session instead of
being fenced (KAFKA-15019).

A broker has one current incarnation, named by its epoch, which is the offset of its registration.
A request in another epoch is refused. A broker is neither unfenced nor replaced while partitions
have yet to follow its last change: this module starts a pass of the partition reconciler and waits
until that is over. How a partition elects its leader it does not know.

Controllers, voters and standbys, register the feature levels they support and the settings by which
they decide. Their registration is a record, from the `metadata.version` on that knows such records.
Below it the active controller keeps the registrations that it received since it became active as
soft state. Otherwise the step to that level would be the only one that is not checked. A voter that
has not registered is of an older release.

Sources: KIP-631, KIP-841; KIP-858 for log directories that fail; KIP-730 for producer ids; KIP-966
for unclean shutdowns; KIP-919 for controllers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from raftctl.controller._config import SESSION_TIMEOUT_KEY
from raftctl.controller._result import ControllerResult, admin_result, check_broker_epoch
from raftctl.errors import ErrorCode, KafkaError, invariant
from raftctl.integers import LONG_MAX
from raftctl.metadata.features import (
    CONTROLLERS_LEVEL,
    METADATA_VERSION_FEATURE,
    directories_enabled,
    eligible_leaders_enabled,
    level_of,
    unsupported,
)
from raftctl.metadata.image.types import ControllerImage, supports
from raftctl.metadata.records import (
    LEADER_UNCHANGED,
    BrokerRegistrationChangeRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from raftctl.metadata.requests.admin import AdminResponse
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RegisterControllerResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from uuid import UUID

    from raftctl.controller._config import ControllerConfig
    from raftctl.controller.partitions import PartitionReconciler
    from raftctl.metadata.image import BrokerImage, MetadataImage
    from raftctl.metadata.records import FeatureRange
    from raftctl.metadata.requests.admin import UnregisterBrokerRequest
    from raftctl.metadata.requests.cluster import RegisterControllerRequest


CONTROLLERS_MAX = 1_000
"""Controllers registered at once: far more than any cluster has, so no client fills the log."""
FEATURES_MAX = 100
SETTINGS_MAX = 100
SETTING_SHOWN = 40
"""Characters of another controller's value that a warning shows."""
CHECK_SHARE = 4
"""A check is due after this part of the session timeout. One that is later by as much again means
that the controller was held up."""


class _Heartbeat(NamedTuple):
    """Result of a heartbeat; the response lacks the session timeout."""

    records: tuple[Record, ...]
    response: BrokerHeartbeatResponse


@dataclass(slots=True)
class Session:
    """Session of one broker."""

    contact_ms: int
    metadata_offset: int = -1
    """Last offset of the metadata that the broker has published."""
    drained_offset: int | None = None
    """In a controlled shutdown: an offset from which on no partition is led by this broker."""


class Sessions:
    """Sessions by broker id, the longest silent first."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._check_ms = max(1, timeout_ms // CHECK_SHARE)
        self._checked_ms: int | None = None
        # The timeout is the same for all, so the order of the last contacts is that of expiry.
        self._sessions: dict[int, Session] = {}

    def open(self, broker_id: int, now_ms: int) -> None:
        """Start a session; it replaces an earlier one."""
        self._sessions.pop(broker_id, None)
        self._sessions[broker_id] = Session(now_ms)

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int) -> Session:
        """Extend the session at a heartbeat; start one if there is none."""
        session = self._sessions.pop(broker_id, None) or Session(now_ms)
        session.contact_ms = now_ms
        session.metadata_offset = metadata_offset
        self._sessions[broker_id] = session
        return session

    def close(self, broker_id: int) -> None:
        """End the session, if there is one."""
        self._sessions.pop(broker_id, None)

    def clear(self) -> None:
        """End all sessions."""
        self._sessions.clear()
        self._checked_ms = None

    def broker_ids(self) -> set[int]:
        """Return the brokers that have a session, expired or not."""
        return {*self._sessions}

    def invariants(self, offset: int) -> None:
        """Check the order of the sessions; `offset` is that of the newest image."""
        contacts = [session.contact_ms for session in self._sessions.values()]
        invariant(contacts == sorted(contacts), "sessions are in the order of their last contact")
        drained = [held.drained_offset for held in self._sessions.values()]
        logged = all(at is None or at <= offset for at in drained)
        invariant(logged, "a broker is drained at an offset of the log")

    def lives(self, broker_id: int, now_ms: int) -> bool:
        """Return whether the broker has a session that has not expired."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ms < session.contact_ms + self._timeout_ms

    def expired(self, now_ms: int) -> list[int]:
        """Return the brokers whose sessions have expired, the longest silent first.

        To be called at `deadline_ms`. Called much later, it restarts every session.
        """
        deadline_ms = self.deadline_ms()
        if deadline_ms is not None and now_ms - deadline_ms > self._check_ms:
            for session in self._sessions.values():
                session.contact_ms = now_ms
        self._checked_ms = now_ms
        found = []
        for broker_id, session in self._sessions.items():
            if now_ms < session.contact_ms + self._timeout_ms:
                break
            found.append(broker_id)
        return found

    def deadline_ms(self) -> int | None:
        """Return when to check next (ms): at the next expiry, or after a share of the timeout."""
        for session in self._sessions.values():
            checked_ms = session.contact_ms if self._checked_ms is None else self._checked_ms
            return min(session.contact_ms + self._timeout_ms, checked_ms + self._check_ms)
        return None

    def all_have_reached(self, offset: int, broker_ids: Iterable[int]) -> bool:
        """Return whether each of these brokers has published the metadata up to `offset`."""
        sessions = map(self._sessions.get, broker_ids)
        return all(held is not None and held.metadata_offset >= offset for held in sessions)


class ClusterControl:
    """Registrations and heartbeats of nodes on the active controller."""

    def __init__(
        self,
        config: ControllerConfig,
        reconciler: PartitionReconciler,
        voter_ids: Callable[[], Collection[int]],
    ) -> None:
        """`voter_ids` returns the present voters, registered as controllers or not."""
        self.controllers = ControllerRegistrations(config.cluster_id, config.settings(), voter_ids)
        self._config = config
        self._reconciler = reconciler
        self._sessions = Sessions(config.session_timeout_ms)

    def claim(self, image: MetadataImage, now_ms: int) -> None:
        """Start a session for every broker that is not fenced.

        Without one, a broker that died together with the last active controller would never be
        fenced (KAFKA-18138). A fenced broker that sends no heartbeat is gone and needs no session.
        """
        self._sessions.clear()
        for broker_id in sorted(image.brokers):
            if not image.brokers[broker_id].fenced:
                self._sessions.open(broker_id, now_ms)

    def renounce(self) -> None:
        """Drop all sessions, and the registrations that are not in the log."""
        self._sessions.clear()
        self.controllers.clear()

    def invariants(self, image: MetadataImage) -> None:
        """Check the sessions against the brokers of the newest image."""
        watched = self._sessions.broker_ids()
        invariant(watched <= {*image.brokers}, "only a registered broker has a session")
        unfenced = {broker_id for broker_id, broker in image.brokers.items() if not broker.fenced}
        # Without a session nothing would ever fence a broker that has died (KAFKA-18138).
        invariant(unfenced <= watched, "a broker that is not fenced has a session")
        self._sessions.invariants(image.offset)
        self.controllers.invariants(image)

    def deadline_ms(self) -> int | None:
        """Return when `fence_expired` has something to do (ms); None without any session."""
        return self._sessions.deadline_ms()

    def fence_expired(self, image: MetadataImage, now_ms: int) -> list[Record]:
        """End the sessions that have expired; return the records that fence their brokers.

        All at once, so that a partition does not move its leader from one dead broker to the next.
        """
        expired = self._sessions.expired(now_ms)
        for broker_id in expired:
            self._sessions.close(broker_id)
        brokers = [image.brokers[broker_id] for broker_id in expired if broker_id in image.brokers]
        return self._fence(image, [broker for broker in brokers if not broker.fenced])

    # --- registration ---------------------------------------------------------------------------

    def register(
        self, image: MetadataImage, request: RegisterBrokerRequest, now_ms: int
    ) -> ControllerResult:
        """Register an incarnation of a broker; its epoch is the offset of its record.

        The same incarnation again changes its registration and keeps its epoch. Errors in the
        response: INCONSISTENT_CLUSTER_ID; INVALID_REGISTRATION; UNSUPPORTED_VERSION if the broker
        cannot work with a feature's level; DUPLICATE_BROKER_REGISTRATION while another incarnation
        of the broker has a session, or while partitions may still name it.
        """
        broker = image.brokers.get(request.broker_id)
        try:
            self._check_registration(image, request, broker, now_ms)
        except KafkaError as error:
            return ControllerResult((), RegisterBrokerResponse(error.code, error.message, -1))
        if broker is not None and broker.incarnation_id == request.incarnation_id:
            self._sessions.open(request.broker_id, now_ms)
            return self._amend(request, broker)
        fencing = (
            []
            if broker is None
            else self._end_incarnation(image, broker, clean=_is_clean(request, broker))
        )
        if self._reconciler.is_pending(request.broker_id):
            # The last incarnation's session. The next one gets its own when it is registered: a
            # session of an unregistered incarnation would never be closed.
            self._sessions.close(request.broker_id)
            return ControllerResult(tuple(fencing), _not_yet(request.broker_id))
        self._sessions.open(request.broker_id, now_ms)
        record = RegisterBrokerRecord(
            request.broker_id,
            request.incarnation_id,
            request.endpoints,
            request.rack,
            request.log_directories,
            features=request.features,
        )
        return ControllerResult(
            (*fencing, record),
            lambda base_offset: RegisterBrokerResponse(
                ErrorCode.NONE, "", base_offset + len(fencing)
            ),
        )

    def _check_registration(
        self,
        image: MetadataImage,
        request: RegisterBrokerRequest,
        broker: BrokerImage | None,
        now_ms: int,
    ) -> None:
        if request.cluster_id != self._config.cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"The broker is of cluster {request.cluster_id}, not {self._config.cluster_id}",
            )
        _check_contents(request)
        if request.authorizer and not self._config.authorizer:
            # The broker leaves to the controller what it forwards, and nobody would decide on it.
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION,
                f"The broker has authorizer.class.name={request.authorizer}, and the controller "
                "none: set the key on all controllers first",
            )
        _check_directories(image, request)
        _check_features(image, request)
        if broker is None or broker.incarnation_id == request.incarnation_id:
            return
        if self._sessions.lives(broker.broker_id, now_ms) and not broker.in_controlled_shutdown:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker with id {broker.broker_id} is alive, or was until a moment ago",
            )

    def _amend(self, request: RegisterBrokerRequest, broker: BrokerImage) -> ControllerResult:
        record = RegisterBrokerRecord(
            request.broker_id,
            request.incarnation_id,
            request.endpoints,
            request.rack,
            # Those of the image: a directory that failed stays offline for the incarnation's life.
            broker.log_directories,
            broker.fenced,
            broker.in_controlled_shutdown,
            broker.broker_epoch,
            request.features,
        )
        present = (broker.endpoints, broker.rack, broker.features)
        same = present == (request.endpoints, request.rack, request.features)
        response = RegisterBrokerResponse(ErrorCode.NONE, "", broker.broker_epoch)
        return ControllerResult(() if same else (record,), response)

    def unregister(
        self, image: MetadataImage, request: UnregisterBrokerRequest
    ) -> ControllerResult:
        """Unregister a broker, a controller, or a node that has both roles.

        It may be alive; a node that is still running registers again. Error in the response:
        BROKER_ID_NOT_REGISTERED.
        """
        of_controller = self.controllers.unregister(image, request.broker_id)
        broker = image.brokers.get(request.broker_id)
        if broker is None and of_controller is not None:
            return admin_result(of_controller, [])
        if broker is None:
            message = f"Broker {request.broker_id} is not registered"
            response = AdminResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, message, ())
            return ControllerResult((), response)
        self._sessions.close(broker.broker_id)
        gone = UnregisterBrokerRecord(broker.broker_id, broker.broker_epoch)
        records = [
            *(of_controller or ()),
            *self._end_incarnation(image, broker, clean=False),
            gone,
        ]
        return admin_result(records, [])

    # --- heartbeats -----------------------------------------------------------------------------

    def heartbeat(
        self, image: MetadataImage, request: BrokerHeartbeatRequest, now_ms: int
    ) -> ControllerResult:
        """Extend the session and move the broker to the state that it wants and may have.

        The response is confirmed: otherwise a deposed controller would make the broker believe in
        a session that the present one has ended. Errors in the response:
        BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
        """
        records, response = self._heartbeat(image, request, now_ms)
        response = replace(response, session_timeout_ms=self._config.session_timeout_ms)
        return ControllerResult(records, response, confirm=True)

    def _heartbeat(
        self, image: MetadataImage, request: BrokerHeartbeatRequest, now_ms: int
    ) -> _Heartbeat:
        error = check_broker_epoch(image, request.broker_id, request.broker_epoch)
        if error != ErrorCode.NONE:
            return _Heartbeat((), BrokerHeartbeatResponse(error, False, True, False))
        broker = image.brokers[request.broker_id]
        session = self._sessions.touch(request.broker_id, request.metadata_offset, now_ms)
        if failed := _failed_directories(image, broker, request):
            return self._directories_failed(image, broker, failed)
        if broker.fenced:
            return self._heartbeat_of_fenced(image, broker, request)
        if broker.in_controlled_shutdown:
            return self._heartbeat_in_shutdown(image, broker, session)
        return self._heartbeat_of_active(image, broker, request)

    def _directories_failed(
        self, image: MetadataImage, broker: BrokerImage, failed: Sequence[UUID]
    ) -> _Heartbeat:
        """Take the replicas in these directories out of leadership and ISRs (KIP-858).

        The broker's wish to be unfenced or to stop waits for its next heartbeat.
        """
        left = tuple(directory for directory in broker.log_directories if directory not in failed)
        change = BrokerRegistrationChangeRecord(
            broker.broker_id, broker.broker_epoch, log_directories=left
        )
        changes = self._reconciler.directories_failed(image, broker.broker_id, failed)
        return _response(
            image, [change, *changes], caught_up=not broker.fenced, fenced=broker.fenced
        )

    def _heartbeat_of_fenced(
        self, image: MetadataImage, broker: BrokerImage, request: BrokerHeartbeatRequest
    ) -> _Heartbeat:
        # The epoch is the offset of the registration. A broker behind it has not seen itself
        # registered and would act on leaderships that its last incarnation had.
        caught_up = request.metadata_offset >= broker.broker_epoch
        if request.want_shut_down:
            return self._allow_shutdown(image, broker)
        if request.want_fence or not caught_up or self._reconciler.is_pending(broker.broker_id):
            return _response(image, [], caught_up=caught_up, fenced=True)
        change = BrokerRegistrationChangeRecord(
            broker.broker_id, broker.broker_epoch, fenced=False, in_controlled_shutdown=False
        )
        changes = self._reconciler.begin(image, {broker.broker_id: True})
        return _response(image, [change, *changes], caught_up=True, fenced=False)

    def _heartbeat_of_active(
        self, image: MetadataImage, broker: BrokerImage, request: BrokerHeartbeatRequest
    ) -> _Heartbeat:
        if request.want_shut_down:
            return self._drain(image, broker)
        if request.want_fence:
            return _response(image, self._fence(image, [broker]), caught_up=True, fenced=True)
        return _response(image, [], caught_up=True, fenced=False)

    def _heartbeat_in_shutdown(
        self, image: MetadataImage, broker: BrokerImage, session: Session
    ) -> _Heartbeat:
        if self._reconciler.is_pending(broker.broker_id):
            return _response(image, [], caught_up=True, fenced=False)
        if session.drained_offset is None:
            session.drained_offset = image.offset
        active = [other for other in sorted(image.brokers) if image.brokers[other].active]
        if self._sessions.all_have_reached(session.drained_offset, active):
            return self._allow_shutdown(image, broker)
        return _response(image, [], caught_up=True, fenced=False)

    def _drain(self, image: MetadataImage, broker: BrokerImage) -> _Heartbeat:
        """Move the broker's leaders away; without any it may stop at once."""
        changes = self._reconciler.begin(image, {broker.broker_id: False})
        led = any(change.leader != LEADER_UNCHANGED for change in changes)
        if not led and not self._reconciler.is_pending(broker.broker_id):
            return self._allow_shutdown(image, broker)
        change = BrokerRegistrationChangeRecord(
            broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True
        )
        return _response(image, [change, *changes], caught_up=True, fenced=False)

    def _allow_shutdown(self, image: MetadataImage, broker: BrokerImage) -> _Heartbeat:
        """Allow the broker to stop; end its session, so that its next incarnation may register."""
        self._sessions.close(broker.broker_id)
        records = [] if broker.fenced else self._fence(image, [broker])
        return _response(image, records, caught_up=True, fenced=True, should_shut_down=True)

    def _fence(self, image: MetadataImage, brokers: Sequence[BrokerImage]) -> list[Record]:
        if not brokers:
            return []
        fencing = [
            BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=True)
            for broker in brokers
        ]
        leaving = {broker.broker_id: False for broker in brokers}
        return [*fencing, *self._reconciler.begin(image, leaving)]

    def _end_incarnation(
        self, image: MetadataImage, broker: BrokerImage, *, clean: bool
    ) -> list[Record]:
        """Fence an incarnation that another one replaces, and move its leaders away first.

        After an unclean shutdown the next incarnation may lack records that this one had not
        flushed, so the broker is no eligible leader replica any more (KIP-966).
        """
        loses_eligibility = eligible_leaders_enabled(image) and not clean
        done = not loses_eligibility or self._reconciler.has_ended_uncleanly(broker)
        if broker.fenced and done:
            return []  # A pass over all its partitions would change nothing.
        epoch = broker.broker_epoch
        fencing = [BrokerRegistrationChangeRecord(broker.broker_id, epoch, fenced=True)]
        unclean = None if clean else broker
        leaving = {broker.broker_id: False}
        changes = self._reconciler.begin(image, leaving, unclean_shutdown=unclean)
        return [*([] if broker.fenced else fencing), *changes]


def _failed_directories(
    image: MetadataImage, broker: BrokerImage, request: BrokerHeartbeatRequest
) -> list[UUID]:
    """Return the broker's online directories that the request reports offline."""
    if not request.offline_log_directories or not directories_enabled(image):
        return []
    return [
        directory
        for directory in broker.log_directories
        if directory in request.offline_log_directories
    ]


def _check_contents(request: RegisterBrokerRequest) -> None:
    names = [endpoint.listener for endpoint in request.endpoints]
    problem = None
    if request.broker_id < 0:
        problem = f"{request.broker_id} is no broker id"
    elif not names:
        problem = "The broker names no listener"
    elif len(set(names)) < len(names):
        problem = "The broker names a listener twice"
    elif len(set(request.log_directories)) < len(request.log_directories):
        problem = "The broker names a log directory twice"
    elif len({feature.name for feature in request.features}) < len(request.features):
        problem = "The broker names a feature twice"
    elif any(feature.lowest > feature.highest for feature in request.features):
        problem = "The lowest level of a feature is above its highest"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, problem)


def _check_directories(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    """Refuse a directory of another broker: it was copied or moved between machines."""
    directories = frozenset(request.log_directories)
    for other in sorted(image.brokers):
        if other == request.broker_id:
            continue
        if not directories.isdisjoint(image.brokers[other].log_directories):
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION, f"Broker {other} has one of the log directories"
            )


def _check_features(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    """Refuse a broker that cannot read the records of the levels in force (KIP-584)."""
    if not request.features:
        return
    lacks = unsupported(f"broker {request.broker_id}", request.features, image.features)
    if lacks is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, lacks)


def _is_clean(request: RegisterBrokerRequest, broker: BrokerImage) -> bool:
    """Return whether the broker stopped cleanly and so has all records of `broker`."""
    return request.previous_broker_epoch == broker.broker_epoch


def _not_yet(broker_id: int) -> RegisterBrokerResponse:
    message = f"Partitions still have to give up the last incarnation of broker {broker_id}"
    return RegisterBrokerResponse(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message, -1)


def _response(
    image: MetadataImage,
    records: Sequence[Record],
    *,
    caught_up: bool,
    fenced: bool,
    should_shut_down: bool = False,
) -> _Heartbeat:
    response = BrokerHeartbeatResponse(
        ErrorCode.NONE, caught_up, fenced, should_shut_down, image.offset
    )
    return _Heartbeat(tuple(records), response)


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest, block: int
) -> ControllerResult:
    """Allocate the next `block` producer ids to a broker, never to be allocated again (KIP-730).

    Errors in the response: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR if
    none are left.
    """
    error = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    first = image.next_producer_id
    if error == ErrorCode.NONE and first + block > LONG_MAX:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    if error != ErrorCode.NONE:
        return ControllerResult((), AllocateProducerIdsResponse(error, -1, 0))
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, first + block)
    return ControllerResult((record,), AllocateProducerIdsResponse(ErrorCode.NONE, first, block))


# --- controllers ----------------------------------------------------------------------------------


class ControllerRegistrations:
    """Registered controllers, as the active one knows them."""

    def __init__(
        self, cluster_id: str, settings: tuple[str, ...], voter_ids: Callable[[], Collection[int]]
    ) -> None:
        """`settings`: see `ControllerConfig.settings`."""
        self._cluster_id = cluster_id
        self._settings = settings
        self._voter_ids = voter_ids
        self._unlogged: dict[int, tuple[FeatureRange, ...]] = {}
        """Feature ranges by controller id, at a `metadata.version` whose log cannot hold them."""

    def clear(self) -> None:
        """Drop registrations that are not in the log."""
        self._unlogged.clear()

    def register(
        self, image: MetadataImage, request: RegisterControllerRequest
    ) -> ControllerResult:
        """Register a controller; the same registration again writes no record.

        Errors in the response: INCONSISTENT_CLUSTER_ID; INVALID_REGISTRATION; UNSUPPORTED_VERSION
        if it does not support a level in force. A warning names settings that differ.
        """
        try:
            self._check(image, request)
        except KafkaError as error:
            return ControllerResult((), RegisterControllerResponse(error.code, error.message))
        warning = _difference(self._settings, request.settings)
        response = RegisterControllerResponse(ErrorCode.NONE, warning)
        number, incarnation_id, features = (
            request.controller_id,
            request.incarnation_id,
            request.features,
        )
        if level_of(image, METADATA_VERSION_FEATURE) < CONTROLLERS_LEVEL:
            self._unlogged[number] = features
            return ControllerResult((), response)
        if image.controllers.get(number) == ControllerImage(number, incarnation_id, features):
            return ControllerResult((), response)
        record = RegisterControllerRecord(number, incarnation_id, features)
        return ControllerResult((record,), response)

    def _check(self, image: MetadataImage, request: RegisterControllerRequest) -> None:
        if request.cluster_id != self._cluster_id:
            why = f"The controller is of cluster {request.cluster_id}, not {self._cluster_id}"
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, why)
        names = {feature.name for feature in request.features}
        known = {*image.controllers, *self._unlogged}
        problem = None
        if request.controller_id < 0:
            problem = f"{request.controller_id} is no controller id"
        elif METADATA_VERSION_FEATURE not in names:
            problem = f"The controller does not tell of {METADATA_VERSION_FEATURE}"
        elif len(names) < len(request.features) or len(names) > FEATURES_MAX:
            problem = "The controller names a feature twice, or too many"
        elif any(feature.lowest > feature.highest for feature in request.features):
            problem = "The lowest level of a feature is above its highest"
        elif request.controller_id not in known and len(known) >= CONTROLLERS_MAX:
            problem = f"There are {CONTROLLERS_MAX} controllers already: unregister some"
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, problem)
        node = f"controller {request.controller_id}"
        lacks = unsupported(node, request.features, image.features)
        if lacks is not None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, lacks)

    def invariants(self, image: MetadataImage) -> None:
        """Check the registrations that are not in the log."""
        known = {*image.controllers, *self._unlogged}
        invariant(len(known) <= CONTROLLERS_MAX, "no client fills the log with controllers")
        logged = self._unlogged.keys() & image.controllers.keys()
        newest = level_of(image, METADATA_VERSION_FEATURE) >= CONTROLLERS_LEVEL
        invariant(newest or not logged, "a registration is in the log or in memory")

    def unable(self, image: MetadataImage, feature: str, level: int) -> list[str]:
        """Return the controllers that do not support this level, or may not, for a message."""
        known = self._unlogged | {
            number: controller.features for number, controller in image.controllers.items()
        }
        found = [
            str(number) for number in sorted(known) if not supports(known[number], feature, level)
        ]
        silent = sorted(set(self._voter_ids()) - known.keys())
        return [*found, *(f"{number} (has not registered)" for number in silent)]

    def unregister(self, image: MetadataImage, controller_id: int) -> list[Record] | None:
        """Return the records that unregister a controller; None if it is not registered."""
        unlogged = self._unlogged.pop(controller_id, None)
        if controller_id in image.controllers:
            return [UnregisterControllerRecord(controller_id)]
        return None if unlogged is None else []


def _difference(ours: tuple[str, ...], theirs: tuple[str, ...]) -> str:
    """Return a sentence that names each setting that differs; '' if none does.

    A setting that only one side has is ignored: the other may be of another release.
    """
    given = dict(setting.partition("=")[::2] for setting in theirs[:SETTINGS_MAX])
    pairs = (setting.partition("=")[::2] for setting in ours)
    differing = [
        f"{key}={given[key][:SETTING_SHOWN]} (the active controller has {value})"
        for key, value in pairs
        if given.get(key, value) != value
    ]
    if not differing:
        return ""
    remedy = "give all controllers the same, then restart those that differ, one at a time"
    lease = f"; until then a fenced broker may still answer reads, as {SESSION_TIMEOUT_KEY} differs"
    why = lease if any(each.startswith(SESSION_TIMEOUT_KEY) for each in differing) else ""
    return f"{', '.join(differing)}: {remedy}{why}"


def unregister_all(image: MetadataImage) -> list[Record]:
    """Return the records that unregister all controllers, for a level that does not know them."""
    return [UnregisterControllerRecord(number) for number in sorted(image.controllers)]

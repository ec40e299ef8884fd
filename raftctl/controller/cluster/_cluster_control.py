"""The brokers of the cluster: who may register, who is fenced, who may stop (row C2).

A broker is FENCED when it registers, becomes active by a heartbeat once it has replayed its own
registration, and is fenced again when it asks for it or is silent for the session timeout. In a
controlled shutdown it gives up its leaders first, and may stop when every active broker has
replayed that, so that nobody sends clients to it any more:

    fenced ──caught up──▶ active ──wants to stop, leads──▶ shutting down
      ▲  ◀──wants it, silent──┘ │                                │
      └────────────── wants to stop, leads nothing ──────────────┘

Sources: KIP-631, KIP-841; KIP-858 for log directories that fail.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from raftctl.controller._result import ControllerResult, admin_result
from raftctl.controller.cluster._sessions import Sessions
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.features import directories_enabled, eligible_leaders_enabled, unsupported
from raftctl.metadata.records import (
    LEADER_UNCHANGED,
    BrokerRegistrationChangeRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from raftctl.metadata.requests.admin import AdminResponse
from raftctl.metadata.requests.cluster import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from raftctl.controller._config import ControllerConfig
    from raftctl.controller.cluster._sessions import Session
    from raftctl.controller.partitions import PartitionSettler
    from raftctl.metadata.image import BrokerImage, MetadataImage
    from raftctl.metadata.requests.admin import UnregisterBrokerRequest


class _Heartbeat(NamedTuple):
    """What a heartbeat comes to, before it is told how long the session lasts."""

    records: tuple[Record, ...]
    response: BrokerHeartbeatResponse


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> ErrorCode:
    """NONE if this is the broker's current incarnation."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED
    return ErrorCode.NONE if broker.broker_epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH


class ClusterControl:
    """Registrations and heartbeats of brokers on the active controller."""

    def __init__(self, config: ControllerConfig, settler: PartitionSettler) -> None:
        self._config = config
        self._settler = settler
        self._sessions = Sessions(config.session_timeout_ms)

    def claim(self, image: MetadataImage, now_ms: int) -> None:
        """Gives every broker that is not fenced a fresh session.

        Otherwise one that died together with the last active controller would never be fenced
        (KAFKA-18138). A fenced broker without a heartbeat is gone and needs no session.
        """
        self._sessions.clear()
        for broker_id in sorted(image.brokers):
            if not image.brokers[broker_id].fenced:
                self._sessions.open(broker_id, now_ms)

    def renounce(self) -> None:
        """Forgets all sessions."""
        self._sessions.clear()

    def deadline_ms(self) -> int | None:
        """When `fence_silent` has something to do."""
        return self._sessions.deadline_ms()

    def fence_silent(self, image: MetadataImage, now_ms: int) -> list[Record]:
        """Ends the sessions that have expired; their brokers are fenced, all at once."""
        expired = self._sessions.expired(now_ms)
        for broker_id in expired:
            self._sessions.close(broker_id)
        brokers = [image.brokers[broker_id] for broker_id in expired if broker_id in image.brokers]
        return self._fence(image, [broker for broker in brokers if not broker.fenced])

    # --- registration ---------------------------------------------------------------------------

    def register(
        self, image: MetadataImage, request: RegisterBrokerRequest, now_ms: int
    ) -> ControllerResult:
        """Registers an incarnation; its epoch is the offset of its record.

        The same incarnation again changes its registration and keeps its epoch. Errors:
        INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, UNSUPPORTED_VERSION if the broker cannot work
        with a feature's level, and DUPLICATE_BROKER_REGISTRATION while another incarnation of the
        broker has a session, or partitions have not given it up yet.
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
            [] if broker is None else self._bury(image, broker, clean=_is_clean(request, broker))
        )
        if self._settler.is_pending(request.broker_id):
            self._sessions.close(request.broker_id)  # that of the last incarnation
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
            # One that failed stays so as long as the incarnation lives.
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
        self,
        image: MetadataImage,
        request: UnregisterBrokerRequest,
        of_controller: Sequence[Record],
    ) -> ControllerResult:
        """Forgets a broker, whether it lives or not; BROKER_ID_NOT_REGISTERED if there is none.

        `of_controller` are the records that forget the controller of a node that is both.
        """
        broker = image.brokers.get(request.broker_id)
        if broker is None:
            message = f"Broker {request.broker_id} is not registered"
            response = AdminResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, message, ())
            return ControllerResult((), response)
        self._sessions.close(broker.broker_id)
        gone = UnregisterBrokerRecord(broker.broker_id, broker.broker_epoch)
        records = [*of_controller, *self._bury(image, broker, clean=False), gone]
        return admin_result(records, [])

    # --- heartbeats -----------------------------------------------------------------------------

    def heartbeat(
        self, image: MetadataImage, request: BrokerHeartbeatRequest, now_ms: int
    ) -> ControllerResult:
        """Keeps the session and moves the broker to the state it wants and may have.

        The answer is confirmed: on the word of a deposed controller the broker would believe in a
        session that the present one has ended. Errors: BROKER_ID_NOT_REGISTERED,
        STALE_BROKER_EPOCH.
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
            return self._heartbeat_of_leaving(image, broker, session)
        return self._heartbeat_of_active(image, broker, request)

    def _directories_failed(
        self, image: MetadataImage, broker: BrokerImage, failed: Sequence[UUID]
    ) -> _Heartbeat:
        """Leaders and ISRs do without what was there. The next heartbeat may ask for more."""
        left = tuple(one for one in broker.log_directories if one not in failed)
        change = BrokerRegistrationChangeRecord(
            broker.broker_id, broker.broker_epoch, log_directories=left
        )
        changes = self._settler.directories_failed(image, broker.broker_id, failed)
        return _answer(image, [change, *changes], caught_up=not broker.fenced, fenced=broker.fenced)

    def _heartbeat_of_fenced(
        self, image: MetadataImage, broker: BrokerImage, request: BrokerHeartbeatRequest
    ) -> _Heartbeat:
        # The epoch is the offset of the registration: a broker behind it would serve stale leaders.
        caught_up = request.metadata_offset >= broker.broker_epoch
        if request.want_shut_down:
            return self._let_go(image, broker)
        if request.want_fence or not caught_up or self._settler.is_pending(broker.broker_id):
            return _answer(image, [], caught_up=caught_up, fenced=True)
        change = BrokerRegistrationChangeRecord(
            broker.broker_id, broker.broker_epoch, fenced=False, in_controlled_shutdown=False
        )
        changes = self._settler.begin(image, {broker.broker_id: True})
        return _answer(image, [change, *changes], caught_up=True, fenced=False)

    def _heartbeat_of_active(
        self, image: MetadataImage, broker: BrokerImage, request: BrokerHeartbeatRequest
    ) -> _Heartbeat:
        if request.want_shut_down:
            return self._drain(image, broker)
        if request.want_fence:
            return _answer(image, self._fence(image, [broker]), caught_up=True, fenced=True)
        return _answer(image, [], caught_up=True, fenced=False)

    def _heartbeat_of_leaving(
        self, image: MetadataImage, broker: BrokerImage, session: Session
    ) -> _Heartbeat:
        if self._settler.is_pending(broker.broker_id):
            return _answer(image, [], caught_up=True, fenced=False)
        if session.drained_offset is None:
            session.drained_offset = image.offset
        active = [one for one in sorted(image.brokers) if image.brokers[one].active]
        if self._sessions.all_have_reached(session.drained_offset, active):
            return self._let_go(image, broker)
        return _answer(image, [], caught_up=True, fenced=False)

    def _drain(self, image: MetadataImage, broker: BrokerImage) -> _Heartbeat:
        """Takes its leaders from the broker; if there are none, it may stop at once."""
        changes = self._settler.begin(image, {broker.broker_id: False})
        led = any(change.leader != LEADER_UNCHANGED for change in changes)
        if not led and not self._settler.is_pending(broker.broker_id):
            return self._let_go(image, broker)
        change = BrokerRegistrationChangeRecord(
            broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True
        )
        return _answer(image, [change, *changes], caught_up=True, fenced=False)

    def _let_go(self, image: MetadataImage, broker: BrokerImage) -> _Heartbeat:
        """The broker may stop. Its session ends, so that it may come back at once."""
        self._sessions.close(broker.broker_id)
        records = [] if broker.fenced else self._fence(image, [broker])
        return _answer(image, records, caught_up=True, fenced=True, should_shut_down=True)

    def _fence(self, image: MetadataImage, brokers: Sequence[BrokerImage]) -> list[Record]:
        if not brokers:
            return []
        fencing = [
            BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=True)
            for broker in brokers
        ]
        leaving = {broker.broker_id: False for broker in brokers}
        return [*fencing, *self._settler.begin(image, leaving)]

    def _bury(self, image: MetadataImage, broker: BrokerImage, *, clean: bool) -> list[Record]:
        """The end of an incarnation: it is perhaps not fenced yet, and what it led must move first.

        Unless it stopped cleanly, the next one may lack what this one had not flushed, so it is no
        eligible leader any more (KIP-966).
        """
        forgets = eligible_leaders_enabled(image) and not clean
        forgotten = not forgets or self._settler.has_forgotten(broker)
        if broker.fenced and forgotten:
            return []  # To look at all partitions would find nothing.
        epoch = broker.broker_epoch
        fencing = [BrokerRegistrationChangeRecord(broker.broker_id, epoch, fenced=True)]
        forgetful = None if clean else broker
        changes = self._settler.begin(image, {broker.broker_id: False}, forgetful=forgetful)
        return [*([] if broker.fenced else fencing), *changes]


def _failed_directories(
    image: MetadataImage, broker: BrokerImage, request: BrokerHeartbeatRequest
) -> list[UUID]:
    """The directories of the broker that are known from now on to have failed."""
    if not request.offline_log_directories or not directories_enabled(image):
        return []
    return [one for one in broker.log_directories if one in request.offline_log_directories]


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
    elif len({one.name for one in request.features}) < len(request.features):
        problem = "The broker names a feature twice"
    elif any(one.lowest > one.highest for one in request.features):
        problem = "The lowest level of a feature is above its highest"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, problem)


def _check_directories(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    """A directory that another broker has registered was copied or moved between machines."""
    directories = frozenset(request.log_directories)
    for other in sorted(image.brokers):
        if other == request.broker_id:
            continue
        if not directories.isdisjoint(image.brokers[other].log_directories):
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION, f"Broker {other} has one of the log directories"
            )


def _check_features(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    """A broker that cannot read what the cluster writes must not follow it (KIP-584)."""
    if not request.features:
        return
    lacks = unsupported(f"broker {request.broker_id}", request.features, image.features)
    if lacks is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, lacks)


def _is_clean(request: RegisterBrokerRequest, broker: BrokerImage) -> bool:
    """Whether the broker has all that this incarnation of it had."""
    return request.previous_broker_epoch == broker.broker_epoch


def _not_yet(broker_id: int) -> RegisterBrokerResponse:
    message = f"Partitions still have to give up the last incarnation of broker {broker_id}"
    return RegisterBrokerResponse(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message, -1)


def _answer(
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

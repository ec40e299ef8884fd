"""The active controller: turns operations into records, and holds what is not committed yet.

The controller's state is the newest image. An operation reads it and answers with records; these
are appended to the log and at once replayed into the next image, so that the next operation sees
them; they are published and answered when they commit. What is not committed stands on a stack of
(last offset, delta, image), so that losing leadership is going back to the committed image (row C1,
decision 0003). Writes of keys and values are many and small: those that follow each other gather in
one open delta, which becomes an image when somebody asks for it or `seal` is called. Nothing but
`appended` changes the state; the managers only compute.

    claim ─▶ handle | tick ─▶ (records are appended to the log) ─▶ appended ─▶ committed ─▶ …
      ▲                                                                                     │
      └──────────────────────────────────── renounce ◀──────────────────────────────────────┘

Sources: KIP-500, KIP-631.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from raftctl.controller._config import ControllerConfig
from raftctl.controller._config_control import alter_configs
from raftctl.controller._directory_control import assign_replicas
from raftctl.controller._feature_control import no_quorum, update_features
from raftctl.controller._replication_control import alter_partitions
from raftctl.controller._result import ControllerResult, admin_result
from raftctl.controller.cluster import (
    ClusterControl,
    ControllerRegistrations,
    allocate_producer_ids,
)
from raftctl.controller.kv import KvCoordination, handle_kv, handle_puts
from raftctl.controller.partitions import (
    LeaderBalancer,
    PartitionSettler,
    TopicControl,
    alter_reassignments,
    elect_leaders,
)
from raftctl.controller.security import alter_client_quotas, alter_scram, create_acls, delete_acls
from raftctl.errors import invariant
from raftctl.metadata.features import METADATA_VERSION_FEATURE, first_levels
from raftctl.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from raftctl.metadata.records import (
    AbortTransactionRecord,
    FeatureLevelRecord,
    KvRecord,
    NoOpRecord,
    Record,
)
from raftctl.metadata.requests.admin import (
    AlterConfigsRequest,
    AlterReassignmentsRequest,
    CreatePartitionsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    ControllerRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    KvCasRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvPutRequest,
    RegisterBrokerRequest,
    RegisterControllerRequest,
)
from raftctl.metadata.requests.kv import CoordinationRequest
from raftctl.metadata.requests.security import (
    AlterClientQuotasRequest,
    AlterScramRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping, Sequence

    from raftctl.errors import KafkaError
    from raftctl.metadata.configs.topic import TopicConfig

__all__ = ["ControllerConfig", "ControllerResult", "QuorumController"]


_ADMINISTRATION: Mapping[type, Callable[[MetadataImage, Any, TopicConfig], ControllerResult]] = {
    AlterClientQuotasRequest: alter_client_quotas,
    AlterPartitionRequest: alter_partitions,
    AlterReassignmentsRequest: alter_reassignments,
    AlterScramRequest: alter_scram,
    AssignReplicasToDirsRequest: assign_replicas,
    CreateAclsRequest: create_acls,
    DeleteAclsRequest: delete_acls,
    DescribeQuorumRequest: no_quorum,
    ElectLeadersRequest: elect_leaders,
}


_AT_ONCE_MS = 0


class _Uncommitted(NamedTuple):
    """The records up to `last_offset`, replayed."""

    last_offset: int
    delta: MetadataDelta
    image: MetadataImage


class QuorumController:
    """One node's controller; active between `claim` and `renounce`."""

    def __init__(
        self,
        config: ControllerConfig,
        rng: random.Random,
        voter_ids: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`voter_ids` tells who votes now: of them it must be known which levels they support."""
        self._config = config
        self._controllers = ControllerRegistrations(config.cluster_id, config.settings(), voter_ids)
        self._settler = PartitionSettler(config)
        self._cluster = ClusterControl(config, self._settler)
        self._topics = TopicControl(config, rng)
        self._decisions: Mapping[type, Callable[[MetadataImage, Any], ControllerResult]] = {
            CreateTopicsRequest: self._topics.create,
            DeleteTopicsRequest: self._topics.delete,
            CreatePartitionsRequest: self._topics.create_partitions,
            RegisterControllerRequest: self._controllers.register,
        }
        self._balancer = LeaderBalancer(config)
        self._coordination = KvCoordination(config.kv_bytes_max)
        self._active = False
        self._epoch = 0
        self._committed_image = EMPTY_IMAGE
        self._uncommitted: deque[_Uncommitted] = deque()
        """In offset order; each entry's delta starts from the image before it."""
        self._open: MetadataDelta | None = None
        """What was replayed since, up to `_open_last_offset`, and is not an image yet."""
        self._open_last_offset = -1
        self._open_timestamp_ms = 0

    @property
    def active(self) -> bool:
        """Whether operations may be handled."""
        return self._active

    @property
    def image(self) -> MetadataImage:
        """The newest state, committed or not."""
        self.seal()
        return self._uncommitted[-1].image if self._uncommitted else self._committed_image

    @property
    def committed_image(self) -> MetadataImage:
        """The newest state that no failure takes back, as far as this controller was active."""
        return self._committed_image

    def claim(
        self, epoch: int, image: MetadataImage, now_ms: int, *, in_transaction: bool = False
    ) -> list[Record]:
        """Becomes active in the quorum's `epoch`, from the image of all that is committed.

        A transaction that has begun since, and not ended, is aborted: nobody can end it. Returns
        the records to append first.
        """
        invariant(not self._active, "a controller renounces before it claims again")
        self._active = True
        self._epoch = epoch
        self._committed_image = image
        self._cluster.claim(image, now_ms)
        self._balancer.start(now_ms)
        self._coordination.claim(image, now_ms)
        first: list[Record] = [AbortTransactionRecord()] if in_transaction else []
        if METADATA_VERSION_FEATURE not in image.features:
            first += [FeatureLevelRecord(*feature) for feature in first_levels().items()]
        return [*first, *self._settler.start(image)]

    def renounce(self) -> None:
        """Gives up being active and everything that is not committed."""
        self._active = False
        self._uncommitted.clear()
        self._open = None
        self._cluster.renounce()
        self._settler.stop()
        self._balancer.stop()
        self._coordination.renounce()
        self._controllers.clear()

    def handle(self, request: ControllerRequest, now_ms: int) -> ControllerResult:
        """What becomes of a request. Its records must be appended before the next call."""
        invariant(self._active, "only the active controller handles requests")
        match request:
            case KvPutRequest() | KvGetRequest() | KvCasRequest() | KvDeleteRequest():
                # Not `self.image`: an image for each write would cost more than all the rest.
                return handle_kv(self._open or self.image, request, self._config.kv_bytes_max)
            case _ if isinstance(request, CoordinationRequest):
                return self._coordination.handle(self.image, request, now_ms)
            case BrokerHeartbeatRequest():
                return self._cluster.heartbeat(self.image, request, now_ms)
            case RegisterBrokerRequest():
                return self._cluster.register(self.image, request, now_ms)
            case UnregisterBrokerRequest():
                return self._unregister(self.image, request)
            case UpdateFeaturesRequest():
                defaults = self._config.topic_defaults
                return update_features(self.image, request, defaults, self._controllers)
            case AlterConfigsRequest():
                return alter_configs(self.image, request, self._config, self._settler)
            case AllocateProducerIdsRequest():
                return allocate_producer_ids(self.image, request, self._config.producer_id_block)
            case _ if (decide := self._decisions.get(type(request))) is not None:
                return decide(self.image, request)
            case _:
                return _ADMINISTRATION[type(request)](
                    self.image, request, self._config.topic_defaults
                )

    def _unregister(
        self, image: MetadataImage, request: UnregisterBrokerRequest
    ) -> ControllerResult:
        """A node may be both; one that lives registers anew."""
        records = self._controllers.unregister(image, request.broker_id)
        if records is None or request.broker_id in image.brokers:
            return self._cluster.unregister(image, request, records or ())
        return admin_result(records, [])

    def handle_puts(self, requests: Sequence[KvPutRequest]) -> list[KvRecord | KafkaError]:
        """What becomes of each of many puts; see `handle_kv`, and `handle` for what it asks."""
        invariant(self._active, "only the active controller handles requests")
        return handle_puts(self._open or self.image, requests, self._config.kv_bytes_max)

    def tick(self, now_ms: int) -> list[Record]:
        """What is due by now, the first of: silent brokers are fenced, silent sessions closed,

        partitions settled, leaders balanced. One at a time: each starts from the image, which shows
        nothing of the other yet.
        """
        invariant(self._active, "only the active controller has deadlines")
        silent = self._cluster.fence_silent(self.image, now_ms) or self._coordination.expire(
            self.image, now_ms
        )
        if silent or self._settler.busy:
            return silent or [*self._settler.go_on(self.image)]
        return [*self._balancer.tick(self.image, now_ms)]

    def deadline_ms(self) -> int | None:
        """When to call `tick`; None while nothing can become due."""
        if self._settler.busy:
            return _AT_ONCE_MS
        deadlines = (
            self._cluster.deadline_ms(),
            self._coordination.deadline_ms(),
            self._balancer.deadline_ms(),
        )
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def idle_records(self) -> list[Record]:
        """What to append when nothing else happens, so that lag can be told in time."""
        return [NoOpRecord()]

    def appended(
        self, records: Sequence[Record], last_offset: int, epoch: int, timestamp_ms: int
    ) -> None:
        """Replays records that now stand in the log, the last of them at `last_offset`."""
        invariant(self._active and epoch == self._epoch, "only the active controller appends")
        delta = self._open
        if delta is None:
            image = self.image
            delta = self._open = MetadataDelta(image)
            self._open_last_offset = image.offset
        base_offset = last_offset - len(records) + 1
        invariant(base_offset > self._open_last_offset, "records are appended in offset order")
        delta.replay_all(records, base_offset)
        self._open_last_offset = last_offset
        self._open_timestamp_ms = timestamp_ms

    def seal(self) -> None:
        """Makes an image of what was replayed since the last one.

        To be called at least once for each batch of the log, since images end where batches end.
        """
        delta, self._open = self._open, None
        if delta is None:
            return
        last_offset = self._open_last_offset
        image = delta.apply(last_offset, self._epoch, self._open_timestamp_ms)
        self._uncommitted.append(_Uncommitted(last_offset, delta, image))

    def committed(self, offset: int) -> list[tuple[MetadataDelta, MetadataImage]]:
        """Takes note that the log up to `offset` (inclusive) is committed.

        Returns what is to be published, in order.
        """
        if self._open_last_offset <= offset:
            self.seal()
        published = []
        while self._uncommitted and self._uncommitted[0].last_offset <= offset:
            entry = self._uncommitted.popleft()
            self._committed_image = entry.image
            published.append((entry.delta, entry.image))
        return published

"""Active controller: decides requests and keeps what is not committed yet.

The controller's state is the newest image. A request is decided on it and gives records. The caller
appends these to the log and hands them back at once; they are replayed into the next image, so the
next request sees them. They are published, and the response is sent, when they commit. Uncommitted
changes form a queue of (last offset, delta, image). Losing leadership drops the queue and so goes
back to the committed image (row C1, decision 0003).

Writes of keys and values are many and small. Those that follow each other share one open delta. It
becomes an image when a request needs one, or when `seal` is called at the end of a batch.

    claim ─▶ handle | tick ─▶ (records are appended to the log) ─▶ appended ─▶ committed ─▶ …
      ▲                                                                                     │
      └──────────────────────────────────── renounce ◀──────────────────────────────────────┘

Nothing but `appended` changes the state; the aspects only compute records.

Sources: KIP-500, KIP-631; Kafka's `QuorumController`, whose snapshot registry the queue replaces.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from raftctl.controller._cluster_control import ClusterControl, allocate_producer_ids
from raftctl.controller.configs import config_decisions
from raftctl.controller.kv import KvCoordination, handle_kv, handle_puts
from raftctl.controller.partitions import LeaderBalancer, PartitionReconciler, partition_decisions
from raftctl.controller.security import SECURITY_DECISIONS, TokenControl
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
from raftctl.metadata.requests.admin import UnregisterBrokerRequest
from raftctl.metadata.requests.cluster import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    RegisterBrokerRequest,
    RegisterControllerRequest,
)
from raftctl.metadata.requests.kv import (
    CoordinationRequest,
    KvCasRequest,
    KvDeleteRequest,
    KvGetRequest,
    KvPutRequest,
)
from raftctl.metadata.requests.security import TokenRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping, Sequence

    from raftctl.controller._config import ControllerConfig
    from raftctl.controller._result import ControllerResult, Decision
    from raftctl.errors import KafkaError
    from raftctl.metadata.requests import ControllerRequest

    _TimedDecision = Callable[[MetadataImage, Any, int], ControllerResult]
    """Decision of a request that starts or extends a session; the last argument is now (ms)."""

_AT_ONCE_MS = 0


class _Uncommitted(NamedTuple):
    """Image after the records up to `last_offset`, and the delta that leads to it."""

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
        first_records: Sequence[Record] = (),
        wall_ms: Callable[[], int] = int,
    ) -> None:
        """Create an inactive controller.

        `rng` makes the ids of topics and tokens and spreads replicas. `voter_ids` returns the
        present voters: a feature level is raised only once the levels that each of them supports
        are known.
        `first_records` go into a log that has no features yet, after these. `wall_ms` returns the
        time of the wall clock, by which delegation tokens are valid.
        """
        self._config = config
        self._first_records = first_records
        self._reconciler = PartitionReconciler(config)
        self._cluster = ClusterControl(config, self._reconciler, voter_ids)
        self._balancer = LeaderBalancer(config)
        self._coordination = KvCoordination(config.kv_bytes_max)
        self._tokens = TokenControl(config, rng, wall_ms)
        block = config.producer_id_block
        self._decisions: Mapping[type, Decision] = {
            AllocateProducerIdsRequest: partial(allocate_producer_ids, block=block),
            RegisterControllerRequest: self._cluster.controllers.register,
            UnregisterBrokerRequest: self._cluster.unregister,
            **partition_decisions(config, rng),
            **config_decisions(config, self._reconciler, self._cluster.controllers),
            **SECURITY_DECISIONS,
            **dict.fromkeys(get_args(TokenRequest), self._tokens.decide),
        }
        self._timed_decisions: Mapping[type, _TimedDecision] = {
            BrokerHeartbeatRequest: self._cluster.heartbeat,
            RegisterBrokerRequest: self._cluster.register,
            **dict.fromkeys(get_args(CoordinationRequest), self._coordination.handle),
        }
        self._active = False
        self._epoch = 0
        self._committed_image = EMPTY_IMAGE
        self._uncommitted: deque[_Uncommitted] = deque()
        """In offset order; the delta of each entry starts from the image before it."""
        self._open: MetadataDelta | None = None
        """Records up to `_open_last_offset` that were replayed and are in no image yet."""
        self._open_last_offset = -1
        self._open_timestamp_ms = 0

    @property
    def active(self) -> bool:
        """True if requests may be handled."""
        return self._active

    @property
    def image(self) -> MetadataImage:
        """Newest state, committed or not."""
        self.seal()
        return self._uncommitted[-1].image if self._uncommitted else self._committed_image

    @property
    def committed_image(self) -> MetadataImage:
        """Newest state that no failure takes back, as far as this controller was active."""
        return self._committed_image

    def claim(
        self, epoch: int, image: MetadataImage, now_ms: int, *, in_transaction: bool = False
    ) -> list[Record]:
        """Become active in the quorum's `epoch`, from the image of all committed records.

        Return the records to append first. `in_transaction`: the log ends within a metadata
        transaction. It is aborted, since the controller that began it can no longer end it.
        """
        invariant(not self._active, "a controller renounces before it claims again")
        self._active = True
        self._epoch = epoch
        self._committed_image = image
        self._cluster.claim(image, now_ms)
        self._balancer.start(now_ms)
        self._tokens.start(now_ms)
        self._coordination.claim(image, now_ms)
        first: list[Record] = [AbortTransactionRecord()] if in_transaction else []
        if METADATA_VERSION_FEATURE not in image.features:
            first += [FeatureLevelRecord(*feature) for feature in first_levels().items()]
            first += self._first_records
        return [*first, *self._reconciler.reconcile_all(image)]

    def renounce(self) -> None:
        """Become inactive; drop everything that is not committed, and all soft state."""
        self._active = False
        self._uncommitted.clear()
        self._open = None
        self._cluster.renounce()
        self._reconciler.clear()
        self._balancer.stop()
        self._tokens.stop()
        self._coordination.renounce()

    def handle(self, request: ControllerRequest, now_ms: int) -> ControllerResult:
        """Decide a request. Its records must be appended before the next call.

        Raises KafkaError for a request about keys that is invalid; other errors are part of the
        response.
        """
        invariant(self._active, "only the active controller handles requests")
        if isinstance(request, KvPutRequest | KvGetRequest | KvCasRequest | KvDeleteRequest):
            # Not `self.image`: to make an image for each write would cost more than all the rest.
            return handle_kv(self._open or self.image, request, self._config.kv_bytes_max)
        if (decide := self._timed_decisions.get(type(request))) is not None:
            return decide(self.image, request, now_ms)
        return self._decisions[type(request)](self.image, request)

    def handle_puts(self, requests: Sequence[KvPutRequest]) -> Sequence[KvRecord | KafkaError]:
        """Decide many puts; return the record or the error of each, in order.

        The records must be appended before the next call.
        """
        invariant(self._active, "only the active controller handles requests")
        return handle_puts(self._open or self.image, requests, self._config.kv_bytes_max)

    def tick(self, now_ms: int) -> list[Record]:
        """Return the records of what is due by `now_ms`, to be appended before the next call.

        The first of these that gives any: fence silent brokers, close expired sessions, the next
        slice of the reconciler, remove expired tokens, the leader balancer. One at a time, since
        each starts from the image, which does not show the records of the others yet.
        """
        invariant(self._active, "only the active controller has deadlines")
        silent = self._cluster.fence_expired(self.image, now_ms) or self._coordination.expire(
            self.image, now_ms
        )
        if silent or self._reconciler.busy:
            return silent or [*self._reconciler.next_slice(self.image)]
        over = self._tokens.sweep(self.image, now_ms)
        return over or [*self._balancer.tick(self.image, now_ms)]

    def deadline_ms(self) -> int | None:
        """Return when to call `tick` (ms); None while nothing can become due."""
        if self._reconciler.busy:
            return _AT_ONCE_MS
        deadlines = (
            self._cluster.deadline_ms(),
            self._coordination.deadline_ms(),
            self._balancer.deadline_ms(),
            self._tokens.deadline_ms(),
        )
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def idle_records(self) -> list[Record]:
        """Return the records to append to an idle log, so that lag can be measured in time."""
        return [NoOpRecord()]

    def appended(
        self, records: Sequence[Record], last_offset: int, epoch: int, timestamp_ms: int
    ) -> None:
        """Replay records that were appended to the log, the last of them at `last_offset`.

        `timestamp_ms` is that of their batch.
        """
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
        """Make an image of the records that were replayed since the last one.

        To be called at least once for each batch of the log, since images end where batches end.
        """
        delta, self._open = self._open, None
        if delta is None:
            return
        last_offset = self._open_last_offset
        image = delta.apply(last_offset, self._epoch, self._open_timestamp_ms)
        delta.invariants(image)
        self._uncommitted.append(_Uncommitted(last_offset, delta, image))

    def invariants(self) -> None:
        """Check the whole state; for tests and simulations, after each call of another method.

        What costs only as much as a change is checked by `seal`, in every process.
        """
        image = self._committed_image
        for entry in self._uncommitted:
            invariant(entry.delta.image is image, "each image is made from the one before it")
            grows = entry.image.offset == entry.last_offset > image.offset
            invariant(grows, "an image stands at the offset of its last record")
            image = entry.image
        if not self._active:
            invariant(not self._uncommitted, "a controller that is not active has committed all")
            invariant(self.deadline_ms() is None, "a controller that is not active has no deadline")
            return
        if (delta := self._open) is not None:
            invariant(delta.image is image, "the open delta starts from the newest image")
            # Not sealed: looking must not change when images are made.
            image = delta.apply(self._open_last_offset, self._epoch, self._open_timestamp_ms)
            delta.invariants(image)
        image.invariants()
        self._cluster.invariants(image)
        self._reconciler.invariants(image)
        self._coordination.invariants(image)
        self._balancer.invariants()

    def committed(self, offset: int) -> list[tuple[MetadataDelta, MetadataImage]]:
        """Note that the log is committed up to `offset` (inclusive).

        Return the changes to publish, in order.
        """
        if self._open_last_offset <= offset:
            self.seal()
        published = []
        while self._uncommitted and self._uncommitted[0].last_offset <= offset:
            entry = self._uncommitted.popleft()
            self._committed_image = entry.image
            published.append((entry.delta, entry.image))
        return published

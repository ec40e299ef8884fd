"""The context that every handler is given, and the forms of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from broker.apis.handler._internal_topics import InternalTopics
from broker.apis.handler._metadata_cache import MetadataCache
from broker.apis.handler._producer_ids import ProducerIds
from broker.apis.handler._refusal import refuse
from broker.apis.handler._reply import Reply
from broker.apis.handler.fetch_sessions import FetchSessions
from broker.coordinator import Coordinator
from broker.protocol.codec import Message, Request
from broker.quotas import ClientQuotas
from broker.telemetry import ClientTelemetry
from broker.transactions import TransactionCoordinator, TransactionVerifier
from raftctl.config import NodeConfig
from raftctl.plugins import ControllerClient
from raftctl.security import Authorizer
from raftctl.security.delegation_tokens import TokenSecret
from raftctl.tracing import Tracer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from broker.replication.partition import FetchSessionIndex
    from broker.request_context import RequestContext
    from broker.types import (
        Appendable,
        AppendResult,
        DeletedRecords,
        EpochEndOffset,
        FetchParams,
        FetchPartition,
        FetchResult,
        LogDirectoryFacts,
        OffsetLookup,
        OffsetResult,
        ProducerFacts,
        TopicPartition,
    )
    from raftctl.errors import ErrorCode, KafkaError
    from raftctl.runtime.api import Buffer


class Replicas(Protocol):
    """The part of the ReplicaManager that the apis use.

    What a call does to the logs is done when it returns; only the answer may come later.
    """

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Sequence[tuple[TopicPartition, Appendable]],
        request: RequestContext | None = None,
    ) -> list[AppendResult] | asyncio.Future[list[AppendResult]]:
        """Append to each partition; results in order of the entries.

        The `request` notes what it waited for.
        """

    def fetch(
        self,
        params: FetchParams,
        partitions: list[FetchPartition],
        dirty: FetchSessionIndex | None = None,
    ) -> list[FetchResult] | asyncio.Future[list[FetchResult]]:
        """Read from each partition; results in order of the partitions.

        With `dirty`, of a fetch session, the list may grow by partitions that change meanwhile.
        """

    def note_answered(
        self, replica_id: int, partitions: Iterable[FetchPartition], results: Iterable[FetchResult]
    ) -> None:
        """Count what a fetch is answered with."""

    def list_offsets(
        self, lookups: Sequence[OffsetLookup], replica_id: int
    ) -> list[OffsetResult] | asyncio.Future[list[OffsetResult]]:
        """Look offsets up; results in order of the lookups."""

    def offsets_for_leader_epoch(
        self, lookups: Sequence[tuple[TopicPartition, int, int]]
    ) -> list[tuple[ErrorCode, EpochEndOffset]]:
        """Look up the ends of (partition, current leader epoch, leader epoch), in order."""

    def delete_records(
        self, timeout_ms: int, entries: Sequence[tuple[TopicPartition, int]]
    ) -> list[DeletedRecords] | asyncio.Future[list[DeletedRecords]]:
        """Hide the records below each offset; results in order of the entries."""

    def producers(self, partition: TopicPartition) -> tuple[ErrorCode, list[ProducerFacts]]:
        """Return the producers of a partition, or the error if this broker does not lead it."""

    def move_log(self, partition: TopicPartition, path: str) -> ErrorCode:
        """Begin to move this broker's replica to that one of `log.dirs`; return the error."""

    async def log_directories(self) -> list[LogDirectoryFacts]:
        """Describe each of `log.dirs`: its size, and the replicas it holds."""


class Prepare(Protocol):
    """`Preparing.prepare`."""

    def __call__(
        self, entries: Sequence[tuple[TopicPartition, Buffer]]
    ) -> list[Appendable] | asyncio.Future[list[Appendable]]:
        """Validate each produced batch and return it as it is appended, later if that takes long.

        Nothing is done to the logs yet.
        """


class ConfigCheck(Protocol):
    """Knows which configs of listeners can be in force on this broker."""

    async def check(self, proposed: Mapping[str, str], *, one_broker: bool) -> None:
        """Raise KafkaError(INVALID_REQUEST) if those of this broker, or of all, cannot."""


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The broker as the handlers of one listener see it."""

    config: NodeConfig
    cluster_id: str
    listener: str
    replicas: Replicas
    metadata: MetadataCache
    prepare: Prepare
    controller: ControllerClient
    producer_ids: ProducerIds
    sessions: FetchSessions
    internal_topics: InternalTopics
    transactions: TransactionCoordinator
    verifier: TransactionVerifier
    groups: Coordinator
    wall_ms: Callable[[], int]
    log: FilteringBoundLogger
    aside: Callable[[Callable[[], Any]], asyncio.Future[Any]]
    """Does on a worker what would keep the event loop too long."""
    has_session: Callable[[], bool]
    """See `raftctl.plugins.BrokerContext`."""
    quotas: ClientQuotas
    listener_configs: ConfigCheck | None = None
    """Without it nothing is checked before it is forwarded."""
    tracer: Tracer | None = None
    """None while traces are off."""
    authorizer: Authorizer | None = None
    """Without one everybody may do everything."""
    token_secret: TokenSecret | None = None
    """Without one there are no delegation tokens."""
    telemetry: ClientTelemetry | None = None
    """Without it clients are not asked for their metrics."""

    @property
    def wait_ms_max(self) -> int:
        """The longest time that a request may wait, whatever it asks for.

        A client that has gone is not noticed before its request is answered.
        """
        return self.config.connections_max_idle_ms


@dataclass(frozen=True, slots=True)
class Encoded:
    """The body of an answer, already encoded for the version of the request."""

    body: bytes


class HangUpError(Exception):
    """Closes the connection instead of an answer: the protocol has no other way to say it."""


Answer = Message | Encoded | None
"""The body of the response; None if the client expects none."""

Handler = Callable[[ApiContext, Request[Any]], Answer | Reply[Answer] | Coroutine[Any, Any, Answer]]
"""Answers a request, at once or later; raises KafkaError to refuse all of it."""


class Api(NamedTuple):
    """One kind of request and its handler: a row of the table of its family."""

    handle: Handler
    refuse: Callable[[ApiContext, Request[Any], KafkaError], Answer] = refuse
    """The response that says the error wherever it has room for one, such as in each partition."""

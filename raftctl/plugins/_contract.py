"""The broker contract (row P1): what the node does for a broker, and what it asks of one.

The node (`raftctl.node`) owns the observer of the metadata log, registration, heartbeats and
fencing. A broker plug-in is found by entry point `raftctl.brokers`; it binds its listeners, follows
the images it is given and calls back through a `ControllerClient`. raftctl imports no broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from raftctl.config import NodeConfig
from raftctl.errors import ConfigError
from raftctl.metrics import Metrics
from raftctl.runtime.api import Runtime
from raftctl.security import Authorizer, Requester
from raftctl.tracing import Tracer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.records import Endpoint
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.runtime.api import FileSystem

BROKER_GROUP = "raftctl.brokers"

MakeClient = Callable[
    ["NodeConfig", "Runtime", "Callable[[], MetadataImage]", "Broker | None"], "BrokerClient"
]
"""From a node's configuration, its runtime, its newest image, and its own broker, if it has one."""


class ControllerClient(Protocol):
    """The way to the active controller; finds it and retries until the timeout."""

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """Return the active controller's answer. Raises KafkaError(REQUEST_TIMED_OUT).

        A `ForwardedRequest` names its `requester`: an authorizer denies what it may not do, either
        by CLUSTER_AUTHORIZATION_FAILED of all or by the errors of its items.
        """


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """Parts of the node that a broker gets when it starts."""

    config: NodeConfig
    runtime: Runtime
    cluster_id: str
    controller: ControllerClient
    broker_epoch: Callable[[], int]
    """The epoch of this incarnation; -1 before it is registered."""
    active_controller_id: Callable[[], int]
    """The node id of the active controller as far as known, or -1."""
    fail: Callable[[BaseException], None]
    """Ends the node: for errors in background work that leave it unable to serve."""
    directory_ids: Mapping[str, UUID] = field(default_factory=dict)
    """The id of each of `log.dirs`, by its path."""
    directory_failed: Callable[[UUID], None] = lambda _directory_id: None
    """Report to the controller that a log directory has failed, while others serve."""
    stopped_cleanly: Callable[[int], None] = lambda _broker_epoch: None
    """To be called before `start` returns if the disks hold all that the incarnation of this broker
    epoch had: then it stays eligible to lead (KIP-966)."""
    authorizer: Authorizer | None = None
    """Who decides what clients may do; it has each image before the broker has. Without one
    everybody may do everything."""
    metrics: Metrics = field(default_factory=Metrics)
    """Where the plug-in registers what it measures; the node serves it as `/metrics`."""
    tracer: Tracer | None = None
    """Who records spans of requests; None while traces are off."""
    has_session: Callable[[], bool] = lambda: True
    """True if the controller cannot have fenced this broker, as far as it heard. Else others may
    lead by now what it led, and it must not tell clients what only a leader knows."""


ANY_BROKER = -1
"""The id of whichever broker can be asked: brokers hand on what the controller decides."""


class Payload(NamedTuple):
    """The key or the value of a record, or of one of its headers."""

    data: bytes
    """As much of its beginning as was asked for."""
    size: int
    """Bytes of the whole."""


class ReadRecord(NamedTuple):
    """A record as people look at it."""

    offset: int
    timestamp_ms: int
    key: Payload | None
    value: Payload | None
    """None: a tombstone."""
    headers: tuple[tuple[Payload, Payload | None], ...]


class ReadBatch(NamedTuple):
    """A batch of records in the answer to a FETCH."""

    base_offset: int
    last_offset: int
    size: int
    producer_id: int
    """-1: of a producer without an id, as are epoch and sequence."""
    producer_epoch: int
    base_sequence: int
    codec: str
    is_transactional: bool
    marker: str | None
    """What brokers wrote: `commit` or `abort` of a transaction, or another `control`; None for the
    records of clients."""
    records: tuple[ReadRecord, ...]
    """None of a marker."""
    has_more: bool
    """Whether it may have records after these, which were not asked for."""
    problem: str | None
    """Why records are missing; None: all that were asked for are there."""


class BrokerClient(Protocol):
    """The way to brokers, for a node that shows or changes something for somebody.

    A plug-in that has one gives what makes it as its attribute `broker_client`, a `MakeClient`.
    """

    async def ask(
        self,
        broker_id: int,
        api: str,
        body: Mapping[str, Any],
        requester: Requester,
        timeout_ms: int,
    ) -> Mapping[str, Any]:
        """Ask a broker, or `ANY_BROKER`, as the requester; return its response.

        `api` is Kafka's name of a request, such as LIST_GROUPS. Body and response have Kafka's
        fields in snake case, times as integers whose names end in `_ms`, of the newest version that
        the plug-in knows. What the requester may not do the broker says in its response, as it
        would to the requester's own connection.

        Raises KafkaError: BROKER_NOT_AVAILABLE if the broker has certainly not been asked, with the
        key to set where that is the reason; NETWORK_EXCEPTION or REQUEST_TIMED_OUT if it may have
        done it; THROTTLING_QUOTA_EXCEEDED while a quota has the requester wait; MESSAGE_TOO_LARGE;
        UNSUPPORTED_VERSION if the broker is of another release.
        """

    async def read(
        self, records: bytes, from_offset: int, records_max: int, payload_bytes_max: int
    ) -> Sequence[ReadBatch]:
        """Open the records of a partition in the answer to a FETCH, not on the event loop.

        The last batch may be incomplete. At most `records_max` records from the offset on are read,
        of each payload at most so many bytes. What a batch unpacks to is bounded.
        """

    async def close(self) -> None:
        """Close the connections."""


class Broker(Protocol):
    """A broker plug-in. All methods are called on the node's event loop."""

    def __init__(self, context: BrokerContext) -> None: ...

    async def start(self) -> Sequence[Endpoint]:
        """Recover what is on disk, bind the listeners, return what to register.

        Until the first `publish` clients must be refused or kept waiting.
        """

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A newer committed image. In offset order; the first delta is from the empty image.

        Must not block: it starts work and returns.
        """

    async def stop(self) -> None:
        """Close listeners, end tasks, flush and close the logs (a clean shutdown).

        Nothing is published once this has been called.
        """


class LogTool(Protocol):
    """Reader of the files of a broker's partitions for people; it changes nothing (row L10).

    A plug-in that has one gives it as its attribute `log_tool`.
    """

    def recognises(self, path: str) -> bool:
        """Return whether an absolute path is a partition's directory, or a file in one."""

    def partition_files(self, files: FileSystem, path: str) -> list[str]:
        """Return the files to read: one, a partition's, or those of all below `path`."""

    def dump(
        self, files: FileSystem, path: str, *, with_records: bool
    ) -> Iterator[dict[str, Any] | LogProblem]:
        """Yield the content of a file, in order; a problem ends it."""

    def verify(self, files: FileSystem, path: str) -> Iterator[LogProblem]:
        """Yield the problems of a file."""


class LogProblem(NamedTuple):
    """Something in a partition's files that is not as it must be."""

    path: str
    position: int
    """The byte at which it begins."""
    why: str


def log_tools() -> list[LogTool]:
    """Return the tools of all installed brokers that have one."""
    points = sorted(entry_points(group=BROKER_GROUP), key=lambda point: point.name)
    tools = [getattr(point.load(), "log_tool", None) for point in points]
    return [tool for tool in tools if tool is not None]


def load_broker(name: str) -> type[Broker]:
    """Find the broker plug-in `name`; ConfigError lists those installed if there is none."""
    found = {point.name: point for point in entry_points(group=BROKER_GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"broker.plugin: no plug-in {name!r}; installed: {known}")
    plugin: type[Broker] = found[name].load()
    return plugin


def preload_broker(name: str) -> None:
    """Load a plug-in, and what it makes ready once for all brokers of a process.

    For a process that forks nodes. A plug-in that has such things gives a function without
    arguments as its attribute `preload`. ConfigError as with `load_broker`.
    """
    preload = getattr(load_broker(name), "preload", None)
    if preload is not None:
        preload()

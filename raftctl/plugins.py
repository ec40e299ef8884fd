"""The broker contract (row P1): what the node does for a broker, and what it asks of one.

The node (`raftctl.server`) owns the observer of the metadata log, registration, heartbeats and
fencing. A broker plug-in is found by entry point `raftctl.brokers`; it binds its listeners, follows
the images it is given and calls back through a `ControllerClient`. raftctl imports no broker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

from raftctl.config import NodeConfig
from raftctl.errors import ConfigError
from raftctl.runtime.api import Runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.metadata.delta import MetadataDelta
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Endpoint
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse

BROKER_GROUP = "raftctl.brokers"


class ControllerClient(Protocol):
    """The way to the active controller; finds it and retries until the timeout."""

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """The active controller's answer; KafkaError(REQUEST_TIMED_OUT) when none answers."""


@dataclass(frozen=True, slots=True)
class BrokerContext:
    """What a broker is given when it starts."""

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


class Broker(Protocol):
    """A broker plug-in. All methods are called on the node's event loop."""

    def __init__(self, context: BrokerContext) -> None: ...

    async def start(self) -> Sequence[Endpoint]:
        """Recovers what is on disk, binds the listeners, returns what to register.

        Until the first `publish` clients must be refused or kept waiting.
        """

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A newer committed image. In offset order; the first delta is from the empty image.

        Must not block: it starts work and returns.
        """

    async def stop(self) -> None:
        """Closes listeners, ends tasks, flushes and closes the logs (a clean shutdown)."""


def load_broker(name: str) -> type[Broker]:
    """Finds the broker plug-in `name`; ConfigError lists those installed if there is none."""
    found = {point.name: point for point in entry_points(group=BROKER_GROUP)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"broker.plugin: no plug-in {name!r}; installed: {known}")
    plugin: type[Broker] = found[name].load()
    return plugin

"""The telemetry of one broker's clients: instances, what they push, and its families."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.telemetry._instances import Instances
from broker.telemetry._points import can_decode, read_points
from broker.telemetry._series import ClientSeries
from raftctl.errors import ErrorCode, KafkaError
from raftctl.ids import uuid_text
from raftctl.metadata.configs.client_metrics import read_subscription
from raftctl.metadata.records import CLIENT_METRICS_RESOURCE
from raftctl.metrics import Family, Sample, counter, gauge, single

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from broker.telemetry._instances import ClientFacts, Instance, Push
    from broker.telemetry._points import Points
    from raftctl.config import NodeConfig
    from raftctl.metadata.configs.client_metrics import Subscription
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metrics import Metrics

Aside = Callable[[Callable[[], Any]], "asyncio.Future[Any]"]
"""Runs a call on a worker."""

INSTANCES = gauge(
    "raftctl_telemetry_instances", "Client instances that ask what they shall push, or push it."
)
PUSHES = counter(
    "raftctl_telemetry_pushes_total",
    "Pushes of clients' metrics by outcome: NONE, or the error.",
    "error",
)
DROPPED = counter(
    "raftctl_telemetry_points_dropped_total",
    "Points of clients' metrics that are of an unknown kind, or have no place.",
)


class ClientTelemetry:
    """What the clients of this broker are asked to push, and what they have pushed."""

    def __init__(
        self,
        config: NodeConfig,
        metrics: Metrics,
        new_id: Callable[[], UUID],
        log: FilteringBoundLogger,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms` is of a clock that never jumps."""
        self.bytes_max = config.telemetry_max_bytes
        """Of the metrics of one push, packed and unpacked."""
        self._series = ClientSeries(config.telemetry_series_max, config.telemetry_instances_max)
        self._instances = Instances(new_id, self._series.forget, self.bytes_max)
        self._log = log
        self._now_ms = now_ms
        self._pushes: dict[ErrorCode, int] = {}
        self._dropped = 0
        metrics.add(self._collect)
        metrics.keep(self)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take up the subscriptions that have changed."""
        names = [name for kind, name in delta.changed_configs if kind == CLIENT_METRICS_RESOURCE]
        if names:
            self._instances.subscribe({name: self._subscription(image, name) for name in names})

    def tick(self) -> None:
        """End what is of instances that have been silent for too long."""
        self._instances.expire(self._now_ms())

    def ask(self, instance_id: UUID | None, facts: ClientFacts) -> Instance:
        """Return what a client shall push. Raises what `Instances.ask` raises."""
        instance = self._instances.ask(instance_id, facts, self._now_ms())
        self._log.debug(
            "client_subscribed",
            instance=uuid_text(instance.id),
            client_id=facts.client_id,
            metrics=instance.metrics,
            interval_ms=instance.interval_ms,
        )
        return instance

    async def push(self, push: Push, facts: ClientFacts, aside: Aside) -> None:
        """Take up what a client pushes; its metrics are read on a worker.

        Raises KafkaError: what `Instances.push` raises, and TELEMETRY_TOO_LARGE or INVALID_RECORD
        for metrics that cannot be read, after the latter of which clients push no more.
        """
        error = ErrorCode.NONE
        try:
            await self._push(push, facts, aside)
        except KafkaError as refusal:
            error = refusal.code
            self._log.debug("client_metrics_refused", error=error.name, client_id=facts.client_id)
            raise
        finally:
            self._pushes[error] = self._pushes.get(error, 0) + 1

    async def _push(self, push: Push, facts: ClientFacts, aside: Aside) -> None:
        instance = self._instances.push(push, facts, self._now_ms())
        if len(push.metrics):
            try:
                read = partial(read_points, push.codec, push.metrics, self.bytes_max)
                points: Points = await aside(read)
            except KafkaError as error:
                instance.error = error.code
                raise
            self._take(instance, points)
        if push.terminating:
            self._series.forget(instance.id)
        instance.error = ErrorCode.NONE

    def _take(self, instance: Instance, points: Points) -> None:
        self._dropped += points.dropped
        # It may have been forgotten while its metrics were read, and would never be again.
        if instance.id in self._instances:
            software = instance.facts.software
            self._dropped += self._series.add(instance.id, software, points.points)

    def invariants(self) -> None:
        """Check what is kept of instances."""
        self._instances.invariants()
        self._series.invariants()

    def _subscription(self, image: MetadataImage, name: str) -> Subscription | None:
        overrides = image.config(CLIENT_METRICS_RESOURCE, name)
        if not overrides:
            return None
        try:
            return read_subscription(overrides)
        except KafkaError as error:
            # A newer controller may allow what this release does not understand.
            self._log.warning("client_metrics_not_understood", name=name, why=error.message)
            return None

    def _collect(self) -> Iterator[Family]:
        yield single(INSTANCES, len(self._instances))
        yield Family(
            PUSHES, [Sample((error.name,), count) for error, count in self._pushes.items()]
        )
        yield single(DROPPED, self._dropped)
        yield from self._series.families()


def client_telemetry(
    config: NodeConfig,
    metrics: Metrics,
    new_id: Callable[[], UUID],
    log: FilteringBoundLogger,
    now_ms: Callable[[], int],
) -> ClientTelemetry | None:
    """Return the telemetry of a broker; None where the extra `telemetry` is not installed."""
    return ClientTelemetry(config, metrics, new_id, log, now_ms) if can_decode() else None

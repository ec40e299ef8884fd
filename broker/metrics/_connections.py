"""Connections of clients by listener: Apache Kafka's socket-server-metrics (row O1).

All connections of a broker are of one event loop, the network processor `0`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.metrics import Family, Meter, Sample, counter, gauge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from raftctl.metrics import Metric, Metrics

_PREFIX = "kafka_server_socket_server_metrics"
_LABELS = ("listener", "networkProcessor")
_PROCESSOR = "0"
OPEN = gauge(f"{_PREFIX}_connection_count", "Connections that are open.", *_LABELS)
TOTALS = {
    "created": counter(
        f"{_PREFIX}_connection_creation_total", "Connections that were let in.", *_LABELS
    ),
    "closed": counter(f"{_PREFIX}_connection_close_total", "Connections that ended.", *_LABELS),
    "authenticated": counter(
        f"{_PREFIX}_successful_authentication_total",
        "Logins that succeeded, renewals of sessions too, and handshakes of TLS without logins.",
        *_LABELS,
    ),
    "refused": counter(
        f"{_PREFIX}_failed_authentication_total",
        "Logins that failed, and handshakes of TLS that did not end well.",
        *_LABELS,
    ),
}
"""By the meter that has them, as are the rates."""
RATES = {
    name: gauge(
        f"{metric.name.removesuffix('_total')}_rate",
        f"{metric.says[:-1]}, a second, over a minute.",
        *_LABELS,
    )
    for name, metric in TOTALS.items()
}


class ListenerCounts:
    """What is counted of one listener."""

    __slots__ = ("authenticated", "closed", "created", "refused")

    def __init__(self) -> None:
        self.created, self.closed = Meter(), Meter()
        self.authenticated, self.refused = Meter(), Meter()

    def logged_in(self, *, succeeded: bool) -> None:
        """Count a login."""
        (self.authenticated if succeeded else self.refused).count += 1

    @property
    def open(self) -> int:
        """How many connections are open."""
        return self.created.count - self.closed.count

    @property
    def meters(self) -> dict[str, Meter]:
        """By the names of `TOTALS`."""
        return {name: getattr(self, name) for name in TOTALS}


class ConnectionCounts(dict[str, ListenerCounts]):
    """The counts of each listener of a broker."""

    def __init__(self, listeners: Iterable[str]) -> None:
        super().__init__({name: ListenerCounts() for name in listeners})

    def serve(self, metrics: Metrics) -> None:
        """Be asked at each scrape."""
        for counts in self.values():
            metrics.keep(*counts.meters.values())
        metrics.add(self._collect)

    def _collect(self) -> Iterator[Family]:
        yield self._family(OPEN, {name: counts.open for name, counts in self.items()})
        for which, metric in TOTALS.items():
            meters = {name: counts.meters[which] for name, counts in self.items()}
            yield self._family(metric, {name: one.count for name, one in meters.items()})
            yield self._family(RATES[which], {name: one.rates[1] for name, one in meters.items()})

    def _family(self, metric: Metric, values: dict[str, float]) -> Family:
        samples = [Sample((name, _PROCESSOR), value) for name, value in values.items()]
        return Family(metric, samples)

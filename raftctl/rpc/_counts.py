"""What passes over connections to other nodes: Apache Kafka's raft-channel-metrics.

Both ends of a connection know its bytes, and only the one that opened it counts them. So a sum over
all nodes counts nothing twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.metrics import Meter, counter, gauge, single

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raftctl.metrics import Family, Metrics

_PREFIX = "kafka_server_raftchannelmetrics"
TOTALS = {
    "incoming": counter(
        f"{_PREFIX}_incoming_byte_total", "Bytes of messages from nodes that this one asks."
    ),
    "outgoing": counter(
        f"{_PREFIX}_outgoing_byte_total", "Bytes of messages to nodes that this one asks."
    ),
    "requests": counter(f"{_PREFIX}_request_total", "Requests sent to other nodes."),
    "responses": counter(f"{_PREFIX}_response_total", "Responses of other nodes, refusals too."),
}
"""By the meter that has them, as are the rates."""
RATES = {
    name: gauge(
        f"{metric.name.removesuffix('_total')}_rate",
        f"{metric.says[:-1]}, a second, over a minute.",
    )
    for name, metric in TOTALS.items()
}


class ChannelCounts:
    """The counts of one node."""

    __slots__ = ("incoming", "outgoing", "requests", "responses")

    def __init__(self) -> None:
        self.incoming, self.outgoing = Meter(), Meter()
        self.requests, self.responses = Meter(), Meter()

    def serve(self, metrics: Metrics) -> None:
        """Be asked at each scrape."""
        metrics.keep(*(meter for _, meter in self._meters()))
        metrics.add(self._collect)

    def _meters(self) -> Iterator[tuple[str, Meter]]:
        for name in TOTALS:
            yield name, getattr(self, name)

    def _collect(self) -> Iterator[Family]:
        for name, meter in self._meters():
            yield single(TOTALS[name], meter.count)
            yield single(RATES[name], meter.rates[1])

"""What a broker is, and in which state: its series are there on every broker."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from raftctl.metrics import Family, Sample, gauge, single

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from raftctl.metadata.image import MetadataImage
    from raftctl.metrics import Metrics

STATE = gauge(
    "kafka_server_kafkaserver_brokerstate",
    "1: it starts, 2: it waits to be unfenced, 3: it runs, 7: it shuts down.",
)
INFO = gauge("kafka_broker_info", "1; labels are id and address of this broker.", "id", "address")
BROKERS = gauge("kafka_brokers", "Brokers that are registered and not fenced; all say the same.")


class State(enum.IntEnum):
    """Numbers of Apache Kafka."""

    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    SHUTTING_DOWN = 7


class BrokerState:
    """The state of one broker."""

    def __init__(
        self,
        broker_id: int,
        listener: str,
        image: Callable[[], MetadataImage],
        has_session: Callable[[], bool],
        metrics: Metrics,
    ) -> None:
        """`listener` is the one whose address is shown."""
        self.is_stopping = False
        """For its owner to set."""
        self._broker_id = broker_id
        self._listener = listener
        self._image = image
        self._has_session = has_session
        metrics.add(self._collect)

    @property
    def state(self) -> State:
        """The state now."""
        if self.is_stopping:
            return State.SHUTTING_DOWN
        if self._broker_id not in self._image().brokers:
            return State.STARTING
        return State.RUNNING if self._has_session() else State.RECOVERY

    def _collect(self) -> Iterator[Family]:
        brokers = self._image().brokers
        yield single(STATE, self.state)
        own = brokers.get(self._broker_id)
        endpoint = None if own is None else own.endpoint(self._listener)
        address = "" if endpoint is None else f"{endpoint.host}:{endpoint.port}"
        yield Family(INFO, [Sample((str(self._broker_id), address), 1)])
        yield single(BROKERS, sum(not broker.fenced for broker in brokers.values()))

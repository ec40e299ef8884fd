"""The other brokers, as the newest image has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftctl.metadata.image import EMPTY_IMAGE

if TYPE_CHECKING:
    from raftctl.metadata.image import MetadataImage
    from raftctl.metadata.records import Endpoint


class BrokerDirectory:
    """Answers from `image`, which its owner keeps up to date."""

    def __init__(self, inter_broker_listener: str) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._listener = inter_broker_listener

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """Return the address for other brokers; None if it is unknown."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoint(self._listener)

    def lives(self, broker_id: int) -> bool:
        """Return whether the broker is registered and not fenced."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether an ISR may include the broker; -1 for a follower without an epoch
        (KIP-841).
        """
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_epoch in (-1, broker.broker_epoch)

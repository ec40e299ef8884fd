"""A broker whose controller is the real one, in the same process: what a client is told of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from raftctl.codec import Codec
from raftctl.metadata.requests import ControllerRequest, ControllerResponse
from tests.unit.broker_server.fakes import FakeBroker
from tests.unit.controller.cluster import Cluster

if TYPE_CHECKING:
    from raftctl.controller.config import ControllerConfig

REQUESTS: Codec[ControllerRequest] = Codec.tagged(*get_args(ControllerRequest))
RESPONSES: Codec[ControllerResponse] = Codec.tagged(*get_args(ControllerResponse))


class ControlledBroker(FakeBroker):
    """Broker 1 of a cluster of brokers 1, 2 and 3."""

    def __init__(self, config: ControllerConfig | None = None, **keys: str) -> None:
        super().__init__(**keys)
        self.cluster = Cluster(config)
        self.cluster.start(1, 2, 3)
        self.context = replace(self.context, controller=self)
        self.publish()

    def publish(self) -> None:
        """Everything is committed and known to this broker."""
        self.cluster.controller.committed(self.cluster.image.offset)
        self.metadata.publish(self.cluster.image)

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """As `raftctl.plugins.ControllerClient`; request and answer go through bytes."""
        del timeout_ms
        await asyncio.sleep(0)
        (asked,) = REQUESTS.unpack_all(REQUESTS.pack(request))
        (answer,) = RESPONSES.unpack_all(RESPONSES.pack(self.cluster.handle(asked)))
        self.publish()
        return answer

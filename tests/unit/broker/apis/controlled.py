"""A broker whose controller is the real one, in the same process: what a client is told of it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from broker.server import Listeners
from raftctl.codec import Codec
from raftctl.metadata.requests import ControllerRequest, ControllerResponse
from raftctl.node import screen
from raftctl.runtime.real import RealRuntime, make_sender
from raftctl.security.tls import NodeTls
from tests.kit.authorizing import denying
from tests.unit.broker.server.fakes import FakeBroker, close
from tests.unit.raftctl.controller.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from raftctl.controller import ControllerConfig
    from raftctl.security import Authorizer

REQUESTS: Codec[ControllerRequest] = Codec.tagged(*get_args(ControllerRequest))
RESPONSES: Codec[ControllerResponse] = Codec.tagged(*get_args(ControllerResponse))


class ControlledBroker(FakeBroker):
    """Broker 1 of a cluster of brokers 1, 2 and 3."""

    def __init__(
        self, config: ControllerConfig | None = None, *, authorizes: bool = True, **keys: str
    ) -> None:
        """`authorizes`: with an authorizer, which allows everything."""
        super().__init__(**keys)
        self.cluster = Cluster(config)
        self.cluster.start(1, 2, 3)
        self.controller_authorizer = denying() if authorizes else None
        self.context = replace(self.context, controller=self, authorizer=self.controller_authorizer)
        self.publish()

    def authorize_by(self, authorizer: Authorizer) -> None:
        """This broker and the controller ask this authorizer from now on."""
        self.controller_authorizer = authorizer
        self.context = replace(self.context, authorizer=authorizer)

    def publish(self) -> None:
        """Everything is committed and known to this broker."""
        self.cluster.controller.committed(self.cluster.image.offset)
        self.metadata.publish(self.cluster.image)

    async def call(self, request: ControllerRequest, timeout_ms: int) -> ControllerResponse:
        """As `raftctl.plugins.ControllerClient`; request and answer go through bytes."""
        del timeout_ms
        await asyncio.sleep(0)
        (asked,) = REQUESTS.unpack_all(REQUESTS.pack(request))
        allowed = screen(
            self.controller_authorizer, asked, self.config.node_id, lambda: self.cluster.image
        )
        response = allowed.complete(self.cluster.handle(allowed.request))
        (answer,) = RESPONSES.unpack_all(RESPONSES.pack(response))
        self.publish()
        return answer


@asynccontextmanager
async def listening(
    config: ControllerConfig | None = None, **keys: str
) -> AsyncIterator[ControlledBroker]:
    """A broker that clients reach on a free port, also under the names of its fellows."""
    broker = ControlledBroker(config, authorizes=True, **keys)
    tls = NodeTls(RealRuntime(), broker.log)
    listeners = Listeners(broker.config, broker.limits, broker.log, make_sender, tls)
    (endpoint,) = await listeners.bind(broker.serve_on)
    broker.port = endpoint.port
    for broker_id in (1, 2, 3):
        broker.cluster.register(broker_id, endpoints=(endpoint,))
    broker.publish()
    broker.limits.begin()
    try:
        yield broker
    finally:
        await close(listeners)
        for runtime in broker.runtimes:
            runtime.close()
        broker.context.producer_ids.close()

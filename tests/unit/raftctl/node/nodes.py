"""Whole nodes in the deterministic world, and an operator who asks them things over the network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import aiohttp

from jepsen.simulator.cluster import CONTROLLER_PORT, SimCluster
from raftctl.controller_channel import QuorumControllerClient
from raftctl.errors import ErrorCode
from raftctl.metadata.records import Endpoint
from raftctl.metadata.requests.cluster import RegisterBrokerRequest, RegisterBrokerResponse
from raftctl.rpc import RpcClient
from raftctl.runtime.connector import LoopConnector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jepsen.simulator.world import SimRuntime, World
    from raftctl.metadata.image import MetadataDelta, MetadataImage
    from raftctl.metadata.requests import ControllerRequest, ControllerResponse
    from raftctl.plugins import BrokerContext

PATIENCE_S = 60.0
CALL_TIMEOUT_MS = 20_000
OPERATOR_ID = 999


class Operator:
    """A program on a node of its own. Ask it only inside `tell`."""

    def __init__(self, cluster: SimCluster, runtime: SimRuntime) -> None:
        self._cluster = cluster
        self._session = aiohttp.ClientSession(connector=LoopConnector())
        self.voters = {
            int(name.partition("-")[2]): RpcClient(
                runtime,
                name,
                CONTROLLER_PORT,
                cluster_id=cluster.cluster_id,
                node_id=OPERATOR_ID,
            )
            for name in cluster.controller_names
        }
        self._client = QuorumControllerClient(self.voters, lambda: -1, runtime)

    async def close(self) -> None:
        await self._session.close()
        for voter in self.voters.values():
            await voter.close()

    async def get(self, name: str, path: str) -> tuple[int, Any]:
        """The status and JSON of an answer; (0, {}) if there is none."""
        url = f"http://{name}:{CONTROLLER_PORT}{path}"
        try:
            async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=1)) as answer:
                return answer.status, await answer.json()
        except (aiohttp.ClientError, TimeoutError):
            return 0, {}

    async def read(self, name: str, path: str) -> bytes:
        """The bytes of an answer."""
        async with self._session.get(f"http://{name}:{CONTROLLER_PORT}{path}") as answer:
            assert answer.status == 200
            return await answer.read()

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """What each controller that answers says of the cluster."""
        found = {}
        for name in self._cluster.controller_names:
            status, document = await self.get(name, "/api/v1/status")
            if status == 200:
                found[name] = document
        return found

    async def until(
        self, holds: Callable[[dict[str, dict[str, Any]]], object]
    ) -> dict[str, dict[str, Any]]:
        """The first statuses of which that holds."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                statuses = await self.statuses()
                if statuses and holds(statuses):
                    return statuses
                await asyncio.sleep(0.05)

    async def leader(self, *, after_epoch: int = 0, other_than: str = "") -> str:
        """The name of the controller that leads an epoch after that one."""

        def leading(statuses: dict[str, dict[str, Any]]) -> list[str]:
            return [
                name
                for name, one in statuses.items()
                if one["role"] == "leader"
                and one["epoch"] > after_epoch
                and name != other_than
                and one["metadata_offset"] + 1 == one["high_watermark"] > 0
            ]

        return leading(await self.until(leading))[0]

    async def ask(self, request: ControllerRequest) -> ControllerResponse:
        """The active controller's answer, wherever that is."""
        return await self._client.call(request, CALL_TIMEOUT_MS)

    async def register(self, broker_id: int) -> int:
        """Registers a broker, wherever the active controller is; returns its epoch."""
        return epoch_of(await self.ask(registration(self._cluster, broker_id)))


def registration(cluster: SimCluster, broker_id: int) -> RegisterBrokerRequest:
    """A broker introduces itself."""
    endpoints = (Endpoint("PLAINTEXT", "somewhere", 9092),)
    identity = UUID(int=broker_id)
    return RegisterBrokerRequest(broker_id, identity, cluster.cluster_id, endpoints, None, ())


def epoch_of(response: object) -> int:
    """The broker epoch of a registration that succeeded."""
    assert isinstance(response, RegisterBrokerResponse)
    assert response.error == ErrorCode.NONE, response.message
    return response.broker_epoch


def broker_ids(status: dict[str, Any]) -> list[int]:
    """The brokers that a controller knows."""
    return [broker["broker_id"] for broker in status["brokers"]]


def tell(world: World, cluster: SimCluster, story: Callable[[Operator], Awaitable[None]]) -> None:
    """Runs the story of an operator to its end."""

    async def main(runtime: SimRuntime) -> None:
        operator = Operator(cluster, runtime)
        await story(operator)
        await operator.close()

    async def scenario() -> None:
        await world.start("operator", main).done

    world.run(scenario())


class PluginBroker:
    """A broker that serves nobody and notes what it is told."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.images: list[MetadataImage] = []
        self.stopped = False

    async def start(self) -> Sequence[Endpoint]:
        return (Endpoint("PLAINTEXT", "somewhere", 9092),)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.images.append(image)

    async def stop(self) -> None:
        self.stopped = True

"""Brokers that are only heard of: they register, send heartbeats and leave when they are told to.

They replay nothing and say that they are up to date, so what is measured is the controllers alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from raftctl.controller_channel import CLIENT_ID, QuorumControllerClient
from raftctl.errors import ErrorCode, KafkaError
from raftctl.metadata.records import Endpoint
from raftctl.metadata.requests.admin import DescribeQuorumRequest
from raftctl.metadata.requests.cluster import BrokerHeartbeatRequest, RegisterBrokerRequest
from raftctl.rpc import RpcClient, RpcError
from raftctl.runtime.real import RealRuntime

if TYPE_CHECKING:
    from collections.abc import Mapping

HEARTBEAT_S = 0.5
SESSION_MS = 3_000
CALL_MS = 300_000
"""Nobody waits so long, but where thirty observers share two processors with the controllers."""
RETRY_S = 0.02
UP_TO_DATE = 2**62
"""An offset that no log reaches."""
PING_S = 0.01


class Controllers:
    """The way to the controllers, and which of them is active."""

    def __init__(self, addresses: Mapping[int, str], cluster_id: str) -> None:
        runtime = RealRuntime(log_level="error")
        self.cluster_id = cluster_id
        self.active = -1
        self._clients: dict[int, RpcClient] = {}
        for node_id, address in addresses.items():
            host, _, port = address.rpartition(":")
            self._clients[node_id] = RpcClient(
                runtime, host, int(port), cluster_id=cluster_id, node_id=CLIENT_ID
            )
        self._client = QuorumControllerClient(self._clients, lambda: self.active, runtime)

    async def call(self, request: Any, timeout_ms: int = CALL_MS) -> Any:
        """The active controller's answer. Raises KafkaError."""
        return await self._client.call(request, timeout_ms)

    async def find_active(self) -> int:
        """Asks until a controller says that it is active, and remembers it; its node id."""
        asking = [asyncio.create_task(self._until_active(one)) for one in self._clients.values()]
        done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        self.active = done.pop().result()
        return self.active

    async def _until_active(self, client: RpcClient) -> int:
        while True:
            with contextlib.suppress(RpcError):
                answer = await client.call(DescribeQuorumRequest(), 500)
                return int(answer.leader_id)
            await asyncio.sleep(RETRY_S)

    async def ping(self) -> None:
        """Has the event loop of the active controller answer something that takes no time."""
        await self._clients[self.active].call(DescribeQuorumRequest(), CALL_MS)

    async def close(self) -> None:
        """Ends the connections."""
        for client in self._clients.values():
            await client.close()


class SilentBroker:
    """One broker; its partitions are of no concern to it."""

    def __init__(self, controllers: Controllers, broker_id: int) -> None:
        self._controllers = controllers
        self.broker_id = broker_id
        self._epoch = -1
        self._leaves = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.heard_s = 0.0
        """When the controller heard of it last, or a moment before."""
        self.fenced_s: list[float] = []
        """When it was told that it is fenced although it is alive: never, if all is well."""

    async def start(self) -> None:
        """Registers a new incarnation, as soon as the controller takes it, and comes into use."""
        self._leaves.clear()
        request = RegisterBrokerRequest(
            self.broker_id,
            uuid4(),
            self._controllers.cluster_id,
            (Endpoint("PLAINTEXT", "127.0.0.1", 20_000 + self.broker_id),),
            f"rack-{self.broker_id % 3}",
            (uuid4(),),
        )
        while True:
            answer = await self._controllers.call(request)
            if answer.error == ErrorCode.NONE:
                break
            await asyncio.sleep(RETRY_S)
        self._epoch = answer.broker_epoch
        self._unfenced.clear()
        self._task = asyncio.create_task(self._live())
        await self._unfenced.wait()

    async def _heartbeat(self) -> Any:
        return await self._controllers.call(
            BrokerHeartbeatRequest(
                self.broker_id, self._epoch, UP_TO_DATE, False, self._leaves.is_set()
            )
        )

    async def _live(self) -> None:
        while True:
            with contextlib.suppress(KafkaError):
                sent_s = perf_counter()
                answer = await self._heartbeat()
                self.heard_s = sent_s
                if answer.should_shut_down:
                    return
                self._heard(fenced=answer.fenced)
            if self._leaves.is_set() or not self._unfenced.is_set():
                await asyncio.sleep(RETRY_S)
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._leaves.wait(), HEARTBEAT_S)

    def _heard(self, *, fenced: bool) -> None:
        if not fenced:
            self._unfenced.set()
        elif self._unfenced.is_set() and not self._leaves.is_set():
            self.fenced_s.append(perf_counter())

    async def leave(self) -> None:
        """Shuts down in order; returns when the controller lets it go."""
        self._leaves.set()
        if self._task is not None:
            await self._task

    async def crash(self) -> None:
        """Falls silent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class Pings:
    """How long the active controller's event loop keeps somebody waiting, while it works."""

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers
        self._taken_ms: list[float] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            began = perf_counter()
            with contextlib.suppress(RpcError):
                await self._controllers.ping()
                self._taken_ms.append((perf_counter() - began) * 1000)
            await asyncio.sleep(PING_S)

    def longest_ms(self) -> float:
        """The longest since this was asked last."""
        longest = max(self._taken_ms, default=0.0)
        self._taken_ms.clear()
        return longest

    async def stop(self) -> None:
        """Ends."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

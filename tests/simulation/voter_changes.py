"""An operator who changes the voters of a simulated quorum, and does not give up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jepsen.simulator.cluster import CONTROLLER_PORT, SimCluster, node_id
from raftctl.controller_channel import CLIENT_ID
from raftctl.errors import ErrorCode
from raftctl.raft.messages import (
    AddVoterRequest,
    ChangeVotersRequest,
    ChangeVotersResponse,
    RemoveVoterRequest,
    ReplicaKey,
)
from raftctl.rpc import RpcClient, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jepsen.simulator.world import SimRuntime
    from raftctl.raft.messages import Voter

TIMEOUT_MS = 2_000
PAUSE_S = 0.1
BIRTH_S = 30.0
DONE = (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)
"""The last two: an earlier request, of which nobody heard, has been done."""


class VoterOperator:
    """Works through changes one after the other, on a node of its own."""

    def __init__(
        self,
        cluster: SimCluster,
        active: Callable[[], tuple[Voter, ...] | None],
        may_lose_disk: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`active` tells the voters as the leader has them; None while there is none.

        `may_lose_disk` tells whether a controller's disk may be replaced now.
        """
        self._cluster = cluster
        self._active = active
        self._may_lose_disk = may_lose_disk
        self.replacing: str | None = None
        """Whose disk is lost, until the new one is a voter."""
        self.done: list[str] = []
        """What has been changed."""

    async def carry_out(self, changes: Iterable[tuple[str, str]], runtime: SimRuntime) -> None:
        """`(add | remove | replace, name of a controller)`, each until it is done."""
        clients = [
            RpcClient(
                runtime,
                name,
                CONTROLLER_PORT,
                cluster_id=self._cluster.cluster_id,
                node_id=CLIENT_ID,
            )
            for name in self._cluster.controller_names
        ]
        for what, name in changes:
            match what:
                case "add":
                    await self._ask(clients, AddVoterRequest(self._cluster.voter(name)))
                case "remove":
                    await self._remove(clients, name)
                case "replace":
                    await self._replace(clients, name)
            self.done.append(f"{what} {name}")
        for client in clients:
            await client.close()

    async def _remove(self, clients: list[RpcClient], name: str) -> None:
        voters = await self._voters()
        for voter in voters:
            number = voter.replica.node_id
            if number == node_id(name):
                # A static quorum does not know yet which disk it is.
                directory_id = voter.replica.directory_id or self._cluster.directory_ids[number]
                replica = ReplicaKey(number, directory_id)
                await self._ask(clients, RemoveVoterRequest(replica))

    async def _replace(self, clients: list[RpcClient], name: str) -> None:
        """Its disk is lost; the new one is another voter, and takes the place of the old one."""
        cluster = self._cluster
        while True:
            if self._may_lose_disk(name):
                break
            await asyncio.sleep(PAUSE_S)
        self.replacing = name
        old = cluster.directory_ids[node_id(name)]
        if cluster.world.node(name).process is not None:
            cluster.world.kill(name)
        cluster.wipe(name)
        cluster.start(name)
        await self._remove(clients, name)
        async with asyncio.timeout(BIRTH_S):
            while True:
                if cluster.directory_ids[node_id(name)] != old:
                    break
                await asyncio.sleep(PAUSE_S)
        await self._ask(clients, AddVoterRequest(cluster.voter(name)))
        self.replacing = None

    async def _voters(self) -> tuple[Voter, ...]:
        while True:
            voters = self._active()
            if voters is not None:
                return voters
            await asyncio.sleep(PAUSE_S)

    async def _ask(self, clients: list[RpcClient], request: ChangeVotersRequest) -> None:
        turn = 0
        while True:
            try:
                response = await clients[turn % len(clients)].call(request, TIMEOUT_MS)
                if isinstance(response, ChangeVotersResponse) and response.error in DONE:
                    return
            except RpcError:
                pass
            turn += 1
            await asyncio.sleep(PAUSE_S)

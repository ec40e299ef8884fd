"""Corrects the address of this voter in the record of the voters (KIP-853).

A listener of the driver: whenever there is another leader or more is committed, it compares, and
asks the leader for the change until the record is right.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.raft.messages import UpdateVoterRequest
from raftctl.rpc import RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from raftctl.metadata.image import MetadataImage
    from raftctl.quorum._driver import RaftDriver
    from raftctl.raft.messages import NodeId, Offset, Response, Voter
    from raftctl.rpc import RpcClient
    from raftctl.runtime.api import Runtime

RETRY_MS = 200


class VoterEndpoint:
    """Keeps the address in the own entry of the voters' record right."""

    def __init__(
        self,
        *,
        voter: Voter,
        driver: RaftDriver,
        peers: Mapping[int, RpcClient],
        runtime: Runtime,
        timeout_ms: int,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`voter` is this replica and where others reach it."""
        self._voter = voter
        self._driver = driver
        self._peers = peers
        self._random = runtime.random
        self._log = runtime.log.bind(part="voter_endpoint")
        self._timeout_ms = timeout_ms
        self._fail = fail
        self._task: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Give up what is under way."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- RaftListener -----------------------------------------------------------------------------

    def on_committed(self, high_watermark: Offset) -> None:
        """The voters may have changed."""
        self._look()

    def on_leader_changed(self, epoch: int, leader_id: int) -> None:
        """There may be somebody to ask."""
        self._look()

    def on_snapshot(self, image: MetadataImage) -> None:
        """The voters may have changed."""
        self._look()

    # --- internals --------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._task is None and self._differs():
            self._task = asyncio.get_running_loop().create_task(self._update())
            self._task.add_done_callback(self._done)

    def _differs(self) -> bool:
        """Whether this very replica votes, and the record has another address for it."""
        voters = self._driver.core.voters
        recorded = voters.voter(self._voter.replica.node_id)
        same_replica = recorded is not None and recorded.replica == self._voter.replica
        return voters.dynamic and same_replica and recorded != self._voter

    async def _update(self) -> None:
        while self._differs():
            leader_id = self._driver.leader_id
            try:
                if self._driver.is_leader:
                    await self._driver.receive(UpdateVoterRequest(self._voter))
                elif leader_id in self._peers:
                    await self._ask(leader_id)
            except RpcError as error:
                self._log.info("voter_update_failed", leader_id=leader_id, why=str(error))
            await asyncio.sleep(self._random.uniform(0.5, 1) * RETRY_MS / 1000)
        self._log.info("voter_updated", host=self._voter.host, port=self._voter.port)

    async def _ask(self, leader_id: NodeId) -> Response:
        request = UpdateVoterRequest(self._voter)
        response: Response = await self._peers[leader_id].call(request, self._timeout_ms)
        return response

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

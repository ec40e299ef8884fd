"""Who votes in a raftctl quorum is changed as an operator does it, where an environment has one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from raftctl.controller_channel import CLIENT_ID
from raftctl.errors import ErrorCode
from raftctl.raft.messages import ChangeVotersResponse
from raftctl.rpc import RpcClient, RpcError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raftctl.raft.messages import ChangeVotersRequest
    from raftctl.runtime.api import Runtime

PATIENCE_S = 8.0
TIMEOUT_MS = 2_000
PAUSE_S = 0.1
DONE = (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)
"""The last two: an earlier request, of which nobody heard, has been done."""


async def change_voters(
    runtime: Runtime,
    controllers: Sequence[tuple[str, int]],
    cluster_id: str,
    request: ChangeVotersRequest,
) -> bool:
    """Asks one controller after the other, by host and port, until it is done.

    False if it was not in PATIENCE_S; then it may come about yet.
    """
    clients = [
        RpcClient(runtime, host, port, cluster_id=cluster_id, node_id=CLIENT_ID)
        for host, port in controllers
    ]
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await _one_does(clients, request):
                    return True
                await asyncio.sleep(PAUSE_S)
    except TimeoutError:
        return False
    finally:
        for client in clients:
            await client.close()


async def _one_does(clients: Sequence[RpcClient], request: ChangeVotersRequest) -> bool:
    for client in clients:
        try:
            response = await client.call(request, TIMEOUT_MS)
        except RpcError:
            continue
        if isinstance(response, ChangeVotersResponse) and response.error in DONE:
            return True
    return False

"""The way to every other node of the quorum, by node id, wherever it listens now (KIP-853).

Addresses come from the voters' record, from what a leader or a peer says of the leader, and for
nodes whose ids are not known, from `controller.quorum.bootstrap.servers`. The newest word counts: a
record that says the same as the one before it changes nothing. Once known, a node stays known: one
that votes no more may still be the leader until its removal is committed.

While the set is static, a voter is where this node's own configuration has it: each node's file may
name the others by other addresses. The address in answers of peers is tried when it cannot be
reached there, since the log may have moved it meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from raftctl.raft import is_endpoint, messages
from raftctl.raft.messages import LeaderEndpoint
from raftctl.rpc import RpcClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from raftctl.raft.messages import NodeId, Request, Response
    from raftctl.raft.voters import VoterSet

    Connect = Callable[[NodeId, LeaderEndpoint], RpcClient]

NAMES_LEADER = (
    messages.VoteResponse,
    messages.BeginQuorumEpochResponse,
    messages.EndQuorumEpochResponse,
    messages.FetchResponse,
    messages.FetchSnapshotResponse,
)
"""The answers that name a leader."""
PEERS_MAX = 1024
"""Nodes known at once; of more, the addresses are not taken from hearsay."""


class Peers(dict[int, RpcClient]):
    """A client for each node that is known, this one among them: a broker in it asks it too."""

    def __init__(
        self,
        connect: Connect,
        own: tuple[NodeId, LeaderEndpoint] | None,
        bootstrap: Mapping[NodeId, LeaderEndpoint],
    ) -> None:
        """`own` is this controller and where others reach it; None for one that never leads."""
        super().__init__()
        self._connect = connect
        self._own = own
        self._endpoints: dict[NodeId, LeaderEndpoint] = {}
        self._recorded: dict[NodeId, LeaderEndpoint] = {}
        self._reported: dict[NodeId, LeaderEndpoint] = {}
        """The addresses of voters that peers report, where the configuration has others."""
        self._bootstrap = tuple(bootstrap)
        self._voters: VoterSet | None = None
        self._closing: dict[asyncio.Task[None], None] = {}
        for node_id, endpoint in bootstrap.items():
            self._know(node_id, endpoint)

    @property
    def in_turn(self) -> tuple[int, ...]:
        """Whom to ask for the active controller while it is not known: voters, then bootstrap."""
        voters = () if self._voters is None else self._voters.ids
        return (*voters, *self._bootstrap)

    def voters_are(self, voters: VoterSet) -> None:
        """Take the voters in effect, with their addresses from the log or the configuration."""
        self._voters = voters
        for voter in voters.voters:
            node_id = voter.replica.node_id
            endpoint = LeaderEndpoint(voter.host, voter.port)
            if self._recorded.get(node_id) != endpoint:
                self._recorded[node_id] = endpoint
                self._know(node_id, endpoint)
        if voters.dynamic:
            self._reported.clear()

    def learn_leader(self, message: Request | Response) -> None:
        """Take note of where the leader is that the message names."""
        if isinstance(message, (*NAMES_LEADER, messages.BeginQuorumEpochRequest)):
            endpoint, node_id = message.leader_endpoint, message.leader_id
            own_id = self._own[0] if self._own else messages.NO_NODE
            if endpoint is None or node_id < 0 or node_id == own_id or not is_endpoint(endpoint):
                return
            if self._is_configured(node_id):
                self._reported[node_id] = endpoint
            elif node_id in self._endpoints or len(self) < PEERS_MAX:
                self._know(node_id, endpoint)

    def unreachable(self, node_id: NodeId) -> None:
        """Note that no answer came: the next request goes to the other address known, if any."""
        reported, current = self._reported.get(node_id), self._endpoints.get(node_id)
        if reported is not None and reported != self._recorded[node_id]:
            self._know(node_id, reported if current != reported else self._recorded[node_id])

    def _is_configured(self, node_id: NodeId) -> bool:
        """Whether the configuration says where this node is, and the log nothing yet."""
        voters = self._voters
        return voters is not None and not voters.dynamic and node_id in voters.ids

    def with_leader_address(self, response: Response) -> Response:
        """Return the response with the address of the leader that it names, if that is known."""
        if isinstance(response, NAMES_LEADER) and response.leader_id != messages.NO_NODE:
            endpoint = self._endpoint(response.leader_id)
            if endpoint is not None:
                return replace(response, leader_endpoint=endpoint)
        return response

    def with_own_address(self, request: Request) -> Request:
        """Return the request with the own address if this node presents itself as the leader."""
        if isinstance(request, messages.BeginQuorumEpochRequest):
            return replace(request, leader_endpoint=self._endpoint(request.leader_id))
        return request

    def _endpoint(self, node_id: NodeId) -> LeaderEndpoint | None:
        """Return where others find this node; known even without a list of voters."""
        if self._is_configured(node_id):
            return self._recorded[node_id]
        if self._own is not None and self._own[0] == node_id:
            return self._own[1]
        return self._endpoints.get(node_id)

    def _know(self, node_id: NodeId, endpoint: LeaderEndpoint) -> None:
        if self._endpoints.get(node_id) == endpoint:
            return
        self._endpoints[node_id] = endpoint
        outdated = self.get(node_id)
        self[node_id] = self._connect(node_id, endpoint)
        if outdated is not None:
            closing = asyncio.get_running_loop().create_task(outdated.close())
            self._closing[closing] = None
            closing.add_done_callback(self._closing.pop)

    async def close(self) -> None:
        """End all connections."""
        for peer in self.values():
            await peer.close()
        await asyncio.gather(*self._closing)

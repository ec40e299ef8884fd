"""Remote calls between nodes: typed messages over one WebSocket for each pair of them.

    RpcClient   calls one peer: many at a time, each with a deadline
    RpcServer   answers peers: one handler for each class of requests
    ChannelCounts   what passes over the connections that a node opens
    codec       frames, the table of message types, and the limits of a message

A frame is `[correlation id, type id, field, ...]` in MessagePack. Frames of one turn of the
event loop share a WebSocket message, except those of the quorum, which leave at once.

The package decides connections, backoff, deadlines and backpressure. It must not know who
leads, which requests may be repeated, or what an answer means: its callers do.

Invariants:

- A call ends exactly once: with the response, or with an `RpcError` by its deadline.
- `RpcNotConnected` is raised only if the peer cannot have received the request. After any
  other error but `RpcRefused` the outcome is unknown.
- A malformed message costs the peer its connection and this node one log line, nothing else.
- While too much waits for a peer that does not read, nothing more is read from it.

Sources: RFC 6455 (WebSocket); `docs/decisions/0008-messages-without-tasks.md`.
"""

from raftctl.rpc._channel import Channel
from raftctl.rpc._client import (
    RpcClient,
    RpcError,
    RpcNotConnected,
    RpcRefused,
    RpcUnreachable,
    open_channel,
)
from raftctl.rpc._counts import ChannelCounts
from raftctl.rpc._server import RpcServer, start_http

__all__ = [
    "Channel",
    "ChannelCounts",
    "RpcClient",
    "RpcError",
    "RpcNotConnected",
    "RpcRefused",
    "RpcServer",
    "RpcUnreachable",
    "open_channel",
    "start_http",
]

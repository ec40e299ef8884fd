"""Simulated network: TCP between nodes, over links that can be slowed, cut and reset.

A link is directed. It delays each segment by a seeded latency and, if it has a bandwidth, by
the bytes before it. A blocked link holds segments back, as TCP does by retransmission, and
delivers them some time after the heal. Connecting over a blocked link waits for the heal or a
time-out.

Endpoints and flows are what the operating systems at both ends keep of a connection. They
outlive a paused process and die with a killed one. The transport and the server are what
asyncio shows of them to production code, which cannot tell them from those of a selector event
loop.

The network knows nodes and processes by name and state alone. It must not know what they run.

Invariants:
* Bytes of a flow arrive once and in order, or the connection is reset.
* `connection_lost` comes exactly once, and never from within a call that the protocol makes.
* Segments are never lost singly: for TCP a loss is a delay.

Sources: RFC 9293 (segments, resets, half-closed connections); asyncio's selector transports for
flow control.
"""

from jepsen.simulator.network._connection import Flow, Link, sockets_of
from jepsen.simulator.network._network import Network
from jepsen.simulator.network._transport import SimSender, SimTransport

__all__ = [
    "Flow",
    "Link",
    "Network",
    "SimSender",
    "SimTransport",
    "sockets_of",
]

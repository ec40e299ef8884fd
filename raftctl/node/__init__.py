"""One node: puts its parts together for its roles, starts them, and stops them in order.

    Node, run_node       the parts of a running node and their order
    ControllerService    the active controller's shell: appends what it decides, answers on commit
    screen               what a client may have done of a request that a broker forwards
    _http_listener       what stands before handlers of HTTP: TLS, logins, rules
    _http_access         who may ask what of a controller over HTTP
    _health_checks       what keeps a node from being ready
    _process_metrics     what the node's process uses, how late its event loop is
    _logins              logins of nodes and clients at a controller by SASL
    _registrations       registers a broker or controller, sends heartbeats, runs the plug-in

A node with the controller role is a voter if the quorum says so; every other node is an
observer. A node with both roles has one replica of the metadata log for both.

The package decides composition and lifetimes, and asks the authorizer before the controller, which
knows no principals. It must not decide what a part may do: that is in the part. Nothing below
imports it.

Invariants:

- Requests are decided one after the other on the event loop (the single writer, row C1), and
  answered only when the result is committed.
- Nothing is decided for a client that the authorizer denies it, by the newest committed rules.
- A broker is given no metadata before its own registration is in it.
- A broker whose registration is gone from the log ends: its id may be another's now.
- The first failure of a part ends the node, with its newest events in the report.

Sources: Kafka's `ControllerServer`, `BrokerServer` and `BrokerLifecycleManager`; KIP-631,
KIP-841, KIP-919.
"""

from raftctl.node._controller_service import DEFERRED_MAX, WAITING_BYTES_MAX, ControllerService
from raftctl.node._forwarded_requests import screen
from raftctl.node._node import Node, run_node

__all__ = [
    "DEFERRED_MAX",
    "WAITING_BYTES_MAX",
    "ControllerService",
    "Node",
    "run_node",
    "screen",
]

"""The broker contract: what a node does for a broker plug-in, and what it asks of one (row P1).

    Broker             the plug-in: start, publish, drain, stop
    BrokerContext      what it is given: config, runtime, controller client, fencing state
    ControllerClient   its way to the active controller
    BrokerClient       a node's way to brokers: requests of their protocol, as somebody
    LazyBrokerClient   the same, by the plug-in of the configuration, loaded when it is needed
    LogTool            how it shows the files of its partitions, read-only (row L10)
    testkit            checks that any plug-in can be put to (row P2)

A plug-in is found by the entry point `raftctl.brokers`. The node owns the observer of the
metadata log, registration, heartbeats and fencing; the plug-in binds its listeners, follows the
images it is given and calls back through the `ControllerClient`.

The package decides the protocol between the two. It must not import a broker, nor the node.

Invariants, which `testkit.violations` checks:

- All methods are called on the node's event loop, `publish` in offset order.
- A broker answers nothing from leader-only state while its session may have ended.
- A stopped broker has closed its listeners and files.

Source: `docs/how-to/write-a-broker.md`.
"""

from raftctl.plugins._contract import (
    ANY_BROKER,
    BROKER_GROUP,
    Broker,
    BrokerClient,
    BrokerContext,
    ControllerClient,
    LogProblem,
    LogTool,
    Payload,
    ReadBatch,
    ReadRecord,
    load_broker,
    log_tools,
    preload_broker,
)
from raftctl.plugins._lazy_client import LazyBrokerClient

__all__ = [
    "ANY_BROKER",
    "BROKER_GROUP",
    "Broker",
    "BrokerClient",
    "BrokerContext",
    "ControllerClient",
    "LazyBrokerClient",
    "LogProblem",
    "LogTool",
    "Payload",
    "ReadBatch",
    "ReadRecord",
    "load_broker",
    "log_tools",
    "preload_broker",
]

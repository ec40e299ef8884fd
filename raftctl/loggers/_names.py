"""The loggers of the program: a tree by the words of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = "root"
"""The logger above all others."""

LOGGERS: Mapping[str, str] = {
    ROOT: "what has no logger of its own, and all others that have no level",
    "broker": "the broker as a whole",
    "broker.apis": "requests that fail, and slow ones",
    "broker.groups": "members that join and leave, rebalances",
    "broker.log": "segments, recovery, compaction, log directories",
    "broker.replication": "leaders and followers, in-sync replicas",
    "broker.replication.fetcher": "what followers fetch, truncation",
    "broker.server": "connections of clients, listeners",
    "broker.telemetry": "metrics that clients push",
    "broker.transactions": "transactions, their ends and expiry",
    "raftctl": "the node as a whole",
    "raftctl.authentication": "logins, and the keys of token issuers",
    "raftctl.authorizer": "the audit log: what was denied at INFO, what was allowed at DEBUG",
    "raftctl.console": "the audit log of the console: actions and their results",
    "raftctl.controller": "the active controller, and what it decides",
    "raftctl.http": "requests over HTTP",
    "raftctl.quorum": "elections, leaders, and epochs of the metadata log",
    "raftctl.registration": "registration, heartbeats and fencing of this node",
    "raftctl.rpc": "connections between nodes",
    "raftctl.snapshots": "snapshots of the metadata, and hashes of its state",
    "raftctl.tls": "certificates and handshakes",
}
"""Each logger by name, with what it writes."""

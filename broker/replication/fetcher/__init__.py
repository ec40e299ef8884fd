"""Fetchers: followers copy the logs of their leaders, one task and connection for each leader.

A fetcher sends the ordinary Fetch for all partitions that follow one leader, in a fetch
session that names only the partitions that changed, and applies the response. With
`num.replica.fetchers` above 1, a leader has several fetchers, and each partition belongs to
exactly one.

Decides what to ask a leader for, when to retry, and when to cut a log. Must not know how a
leader is elected, or what its response means for the waiting requests: the ReplicaManager is
notified of partitions that have more to read.

Invariants:

- a response counts only for the leader epoch in which its partition was requested;
- a log is truncated only where leader epochs diverge, or where the leader's log ends;
- a partition follows through at most one fetcher;
- after any doubt about the session, the next Fetch names every partition again;
- a follower in sync is never throttled, because clients wait for it.

`BrokerConnection` is the client side of one connection to another broker. A `Connector` opens
those of a broker by the security protocol of the brokers' listener, and logs in.

Source: KIP-227 (fetch sessions), KIP-595 (diverging epochs in Fetch), KIP-73 (throttling), KIP-368.
"""

from broker.replication.fetcher._connection import BrokerConnection, Connector, connect
from broker.replication.fetcher._fetcher import Fetchers

__all__ = [
    "BrokerConnection",
    "Connector",
    "Fetchers",
    "connect",
]

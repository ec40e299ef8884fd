"""Metrics of a broker, under the names that Apache Kafka's have in Strimzi's dashboards.

    RequestTimes       requests by API: how many, how large, how long in each stage
    RequestSpans       spans of the requests that are traced
    BrokerState        what the broker is, and in which state
    ConnectionCounts   connections and logins of each listener
    TopicMetrics       what topics are produced and fetched; `TopicCounts` has the integers of one
    Counts             those of the broker
    OTHERS             the label of topics and partitions without series of their own

Each class counts in plain integers where requests pass, and yields its families when a scrape asks
(`raftctl.metrics`). Values that the broker has anyway are read then, by collectors that stand
beside them: replicas in `broker.replication`, logs in `broker.log`.

Decides: names and units, and which topics have series. Must not know: HTTP, how a scrape is
written, replicas and logs.

Invariants: no total falls when a topic gets a series or loses it, and each record is counted in one
series of a topic at most. Series of topics take half of the room at most that other metrics leave
of `metrics.series.max`.

Source: Apache Kafka's monitoring documentation; KIP-188.
"""

from broker.metrics._broker_state import BrokerState
from broker.metrics._connections import ConnectionCounts
from broker.metrics._requests import RequestTimes
from broker.metrics._spans import RequestSpans
from broker.metrics._topics import BROKER, OTHERS, Counts, TopicCounts, TopicMetrics

__all__ = [
    "BROKER",
    "OTHERS",
    "BrokerState",
    "ConnectionCounts",
    "Counts",
    "RequestSpans",
    "RequestTimes",
    "TopicCounts",
    "TopicMetrics",
]

"""Metrics of a broker, under the names that Apache Kafka's have in Strimzi's dashboards.

    RequestTimes   requests by API: how many, how large, how long in each stage

Each class counts in plain integers where requests pass, and yields its families when a scrape asks
(`raftctl.metrics`). Values that the broker has anyway are read then.

Decides: names and units. Must not know: HTTP, and how a scrape is written.

Source: Apache Kafka's monitoring documentation; KIP-188.
"""

from broker.metrics._requests import RequestTimes

__all__ = ["RequestTimes"]

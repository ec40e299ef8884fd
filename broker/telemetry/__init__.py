"""Metrics that clients push to this broker (KIP-714): who pushes what, and what comes of it.

    ClientTelemetry   subscriptions of client instances, and what they have pushed
    ClientFacts       what a subscription's patterns look at
    Push              the metrics of one request
    client_telemetry  makes it; None where what decodes the metrics is not installed

A client asks what it shall push and how often, and pushes it until it learns of other
subscriptions. Its metrics are those of OpenTelemetry's protocol; `/metrics` has them under names
that begin with `raftctl_client_`.

Decides: who may push now, and which series there are. Must not know: connections, and how a
scrape is written.

Invariants:

- What clients can make grow is bounded: instances, series, names, and the bytes that a push may
  unpack to. What is beyond is counted and dropped.
- No label has a value that a client chooses freely: software of more than a few kinds is `other`.
- The series of an instance end when it says that it terminates, or when it is silent for three
  intervals; those of a kind of software with its last instance.
- A total never falls while its series is there.

Source: KIP-714; Apache Kafka's ClientMetricsManager; OpenTelemetry's metrics data model.
"""

from broker.telemetry._instances import ClientFacts, Push
from broker.telemetry._telemetry import ClientTelemetry, client_telemetry

__all__ = ["ClientFacts", "ClientTelemetry", "Push", "client_telemetry"]

"""Metrics of a node: definitions, counts on hot paths, and the text that Prometheus scrapes.

    Metric, counter, gauge, summary   a definition: name, kind, help, labels
    Family, Sample, Summary, single   a metric with its series at one moment
    Meter, Distribution               a count with rates; values with quantiles
    Metrics, Details                  the collectors of one node; those of series that may be many

A component counts in plain integers where requests pass, and has a collector that yields families
when a scrape asks. Names are those of the dashboards that operators of Apache Kafka have: what
Strimzi's rules make of its MBeans. What is of this project alone begins with `raftctl_`.

Decides: what a definition must be, how rates and quantiles are kept, how a scrape is written. Must
not know: what is measured, and HTTP.

Invariants: a name has one collector, and no series comes twice. A total never falls. The number of
series does not depend on what clients name, and is bounded by `metrics.series.max`. A scrape gives
the event loop its turn every few milliseconds.

Source: Prometheus' text format 0.0.4; rules and dashboards of Strimzi 0.4x; KIP-188 for the
stages of a request.
"""

from raftctl.metrics._definition import (
    Family,
    Metric,
    Sample,
    Summary,
    counter,
    gauge,
    single,
    summary,
)
from raftctl.metrics._meter import QUANTILES, Distribution, Meter
from raftctl.metrics._registry import Details, Metrics

__all__ = [
    "QUANTILES",
    "Details",
    "Distribution",
    "Family",
    "Meter",
    "Metric",
    "Metrics",
    "Sample",
    "Summary",
    "counter",
    "gauge",
    "single",
    "summary",
]

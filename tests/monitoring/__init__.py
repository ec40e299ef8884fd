"""What operators get made from the metrics: reference, dashboard, alert rules.

    definitions   every `Metric` of the code, by name, with who serves it
    reference     docs/reference/metrics.md
    panels        what the dashboard draws; `dashboard` is the document for Grafana
    alerts        when alerts fire and what to do; rules for Prometheus, and the runbook
    strimzi       which series the dashboards and rules of Strimzi read; `boards` reads them
    promql        which series an expression reads
    prometheus    a Prometheus that scrapes nodes, for tests

It stands here since raftctl does not import the broker. Whatever names a metric asks `definitions`
for it, so no page, panel or alert names what no node serves.
"""

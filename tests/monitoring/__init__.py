"""What operators get made from the metrics: reference, dashboard, alert rules.

    definitions   every `Metric` of the code, by name, with who serves it
    reference     docs/reference/metrics.md

It stands here since raftctl does not import the broker. Whatever names a metric asks `definitions`
for it, so no page, panel or alert names what no node serves.
"""

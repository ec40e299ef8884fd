"""Reports of runs: self-contained HTML pages with SVG plots.

`report_page` shows one run: verdict, latencies, rates, faults, anomalies with their operations,
and the command that repeats it. `index_page` lists all runs. `steps` plots series that
were aggregated elsewhere, for histories too large to draw each operation.

The package is pure: it gets a specification, verdicts and a history, and returns text. It must
not know folders, servers or Spark.

Invariants: a page loads nothing from the network. Every text from a history is escaped. The
size of a page is bounded by counts of what is shown; results.json has everything.
"""

from jepsen.report._page import (
    document,
    index_page,
    index_row,
    report_page,
)
from jepsen.report._tables import readable_time

__all__ = [
    "document",
    "index_page",
    "index_row",
    "readable_time",
    "report_page",
]

"""Small edits of what nodes serve to Prometheus, each with the test that notices it."""

from __future__ import annotations

from tests.mutants.edit import Edit

_TABLE = "test_definitions.py::test_the_table_has_what_nodes_serve_and_nothing_else"
_NODES = "unit/raftctl/node/test_nodes.py"

EDITS = (
    Edit(
        "metric_that_nobody_serves",
        "admin._controller_metrics:ControllerMetrics._collect",
        "    yield single(FENCED, active * fenced)\n",
        "",
        f"unit/monitoring/{_TABLE}",
    ),
    Edit(
        "cluster_counted_by_every_controller",
        "admin._controller_metrics:ControllerMetrics._collect",
        "active * (len(image.brokers) - fenced)",
        "len(image.brokers) - fenced",
        f"{_NODES}::test_a_sum_over_controllers_counts_the_cluster_once",
    ),
    Edit(
        "observer_that_says_it_follows",
        "quorum._metrics:RaftMetrics._collect",
        " if self._driver.core.is_voter else _OBSERVER",
        "",
        f"{_NODES}::test_a_broker_is_ready_once_it_is_not_fenced_and_serves_its_metrics",
    ),
)

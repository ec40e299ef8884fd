"""What an expression reads, and what is wrong with it."""

from __future__ import annotations

import pytest

from tests.monitoring.promql import problems, selectors

EPOCH = "kafka_server_raftmetrics_current_epoch"
LATENCY = "raftctl_raft_commit_latency_ms"


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        (EPOCH, [EPOCH]),
        (f"sum by (instance) (rate({EPOCH}[5m])) > 0", [EPOCH]),
        (f'max(a{{b="c)d",e=~"f"}}) by (g) / on (h) {EPOCH}', ['a{b="c)d",e=~"f"}', EPOCH]),
        ("a and b or c unless d", ["a", "b", "c", "d"]),
        ("topk(10, max by (x) (a{}))", ["a{}"]),
        ('label_replace(a, "to", "$1", "from", "(.+)") offset 5m', ["a"]),
        ("rate(a[$__rate_interval]) < bool 1e3", ["a"]),
        ('count_values by (x) ("id", a) * time()', ["a"]),
        ("sum without (x) (a) * on (y) group_left (z) b", ["a", "b"]),
    ],
)
def test_selectors_are_what_an_expression_reads(expression: str, read: list[str]) -> None:
    assert [f"{one.name}{one.conditions}" for one in selectors(expression)] == read


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        (f'{EPOCH}{{cluster="a"}}', []),
        (f'rate({LATENCY}_count[5m]) + {LATENCY}{{quantile="0.99"}}', []),
        ("up == 0", []),
        (f"{EPOCH}_count", [f"no node serves {EPOCH}_count"]),
        (f"sum({EPOCH}s)", [f"no node serves {EPOCH}s"]),
        (f'{EPOCH}{{topic!=""}}', [f"{EPOCH} has no label topic"]),
        (f'{LATENCY}_sum{{quantile="0.99"}}', [f"{LATENCY}_sum has no label quantile"]),
        (f"sum by (topic) ({EPOCH})", [f"topic is a label of nothing in sum by (topic) ({EPOCH})"]),
    ],
)
def test_what_no_node_serves_is_a_problem(expression: str, found: list[str]) -> None:
    assert problems(expression) == found

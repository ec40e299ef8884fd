"""Which node is restarted next, and what keeps it from going down."""

from __future__ import annotations

from typing import Any

import pytest

from raftctl.localcluster.cluster import next_node, what_lacks
from raftctl.localcluster.layout import make_layout
from raftctl.localcluster.status import ClusterStatus
from tests.unit.raftctl.localcluster.stub_controller import answer, broker

LAYOUT = make_layout("cluster", [1101, 1102, 1103], [1001, 1002], {})
BROKERS = [broker(1), broker(2)]
LIVES_MS = {one.node_id: 5_000.0 for one in LAYOUT.nodes}


def voter(node_id: int, last_fetch_age_ms: int | None = 10) -> dict[str, Any]:
    """A voter as the leader sees it."""
    return {"node_id": node_id, "last_fetch_age_ms": last_fetch_age_ms}


VOTERS = [voter(101), voter(102, None), voter(103)]


def status(leader_id: int = 102, **changed: Any) -> ClusterStatus:
    """Every controller answers and agrees; `changed` is in the leader's answer."""
    answers: dict[str, dict[str, Any] | None] = {}
    for one in LAYOUT.controllers:
        leads = one.node_id == leader_id
        role = "leader" if leads else "follower"
        told = answer(one.node_id, role=role, brokers=BROKERS, voters=VOTERS)
        answers[one.address] = {
            **told,
            "under_replicated_partitions": 0,
            **(changed if leads else {}),
        }
    return ClusterStatus(answers)


def test_the_active_controller_goes_after_the_others_and_brokers_last() -> None:
    waiting = list(reversed(LAYOUT.nodes))
    order = []
    while waiting:
        order.append(next_node(waiting, status(leader_id=102)))
        waiting.remove(order[-1])
    assert [one.node_id for one in order] == [101, 103, 102, 1, 2]


def test_a_healthy_cluster_lacks_nothing() -> None:
    assert what_lacks(LAYOUT, status(), LIVES_MS) == ""


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"role": "follower"}, "no controller leads"),
        ({"high_watermark": 10**6}, "records behind"),
        ({"brokers": [broker(1)]}, "broker-2 is not active yet"),
        ({"brokers": [broker(1), broker(2, fenced=True)]}, "broker-2 is not active yet"),
        (
            {"brokers": [{**broker(1), "in_controlled_shutdown": True}, broker(2)]},
            "broker-1 is not active yet",
        ),
        ({"offline_partitions": 2}, "2 offline partitions"),
        ({"under_replicated_partitions": 3}, "3 under-replicated partitions"),
    ],
)
def test_what_lacks(changed: dict[str, Any], told: str) -> None:
    assert told in what_lacks(LAYOUT, status(**changed), LIVES_MS)


def test_a_controller_that_does_not_answer() -> None:
    now = status()
    now.answers[LAYOUT.controllers[0].address] = None
    assert what_lacks(LAYOUT, now, LIVES_MS) == "controller-101 does not answer"


def test_a_controller_that_has_not_fetched_since_it_started() -> None:
    for voters in ([voter(103)], [voter(101, None), voter(103)], [voter(101, 5_000), voter(103)]):
        told = what_lacks(LAYOUT, status(voters=voters), LIVES_MS)
        assert told == "controller-101 does not follow yet"

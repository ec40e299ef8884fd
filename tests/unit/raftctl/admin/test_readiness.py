"""A node that was ready does not go back and forth."""

from __future__ import annotations

import asyncio

import pytest

from raftctl.admin import Problem, Readiness
from raftctl.admin._readiness import GRACE_S, PATIENCE_S

pytestmark = pytest.mark.req("O3")
BEHIND = Problem("behind", "3 records")
FENCED = Problem("fenced", "it is fenced", at_once=True)
OUT_OF_SYNC = Problem("out_of_sync", "2 replicas")


class Node:
    """A node whose problems a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.now: list[Problem] = []
        self.before_first: list[Problem] = []
        self.looked = 0
        self.readiness = Readiness(lambda: self.now, lambda: self.now_s, self.look)

    async def look(self) -> list[Problem]:
        self.looked += 1
        return self.before_first

    @property
    def problems(self) -> list[str]:
        return [one.name for one in asyncio.run(self.readiness.problems())]


def test_every_problem_counts_before_the_first_time() -> None:
    node = Node()
    node.now = [BEHIND]
    assert node.problems == ["behind"]
    assert not node.looked, "it costs a look at all partitions"
    node.now, node.before_first = [], [OUT_OF_SYNC]
    assert node.problems == ["out_of_sync"]
    node.before_first = []
    assert node.problems == []


def test_replicas_that_lag_later_take_no_broker_out_of_service() -> None:
    node = Node()
    assert node.problems == []
    node.before_first = [OUT_OF_SYNC]
    node.now_s += GRACE_S + 1
    assert node.problems == []


def test_replicas_that_never_come_keep_a_broker_no_longer_than_is_bounded() -> None:
    node = Node()
    node.before_first = [OUT_OF_SYNC]
    assert node.problems == ["out_of_sync"]
    node.now_s += PATIENCE_S - 1
    assert node.problems == ["out_of_sync"]
    node.now_s += 1
    assert node.problems == []


def test_a_short_problem_changes_nothing_and_a_long_one_does() -> None:
    node = Node()
    assert node.problems == []
    node.now = [BEHIND]
    node.now_s += GRACE_S - 1
    assert node.problems == []
    node.now_s += 1
    assert node.problems == ["behind"]
    node.now = []
    assert node.problems == []


def test_the_grace_begins_when_all_was_well_last_though_nobody_asked() -> None:
    node = Node()
    assert node.problems == []
    node.now_s += 1_000
    node.readiness.tick()
    node.now = [BEHIND]
    node.now_s += GRACE_S - 1
    node.readiness.tick()
    assert node.problems == []
    node.now_s += 1
    assert node.problems == ["behind"]


def test_a_broker_that_clients_do_not_find_is_not_ready_at_once() -> None:
    node = Node()
    assert node.problems == []
    node.now = [BEHIND, FENCED]
    assert node.problems == ["behind", "fenced"]

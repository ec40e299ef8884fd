"""What a benchmark of groups leaves behind when a figure of it fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.bench.groups.coordinators import _Move
from tests.bench.groups.main import PARTS
from tests.bench.groups.wire import Place

if TYPE_CHECKING:
    from tests.bench.groups.wire import Wire
    from tests.bench.kafka.clusters import Cluster


class Brokers:
    """Notes what is done to them."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []

    def kill_broker(self, node_id: int) -> None:
        self.done.append(("kill", node_id))

    def start_broker(self, node_id: int) -> None:
        self.done.append(("start", node_id))


class Nobody:
    """Takes a commit, and is never heard of again."""

    async def commit(self, *_: Any) -> Place:
        return Place(2, "127.0.0.1", 1)

    async def coordinators(self, _: Any) -> list[Place]:
        raise TimeoutError("nobody answers")


def test_a_coordinator_that_nobody_replaces_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.bench.groups.coordinators.SETTLE_S", 0.0)
    brokers = Brokers()
    move = _Move(cast("Wire", Nobody()), "g", "t", 1)
    # Such an error is told of the figure, and the next one is measured.
    with pytest.raises(TimeoutError):
        asyncio.run(move.run(cast("Cluster", brokers)))
    assert brokers.done == [("kill", 2), ("start", 2)]


def test_each_figure_is_a_part_of_its_own() -> None:
    assert {"rebalance_classic", "rebalance_consumer", "commits", "loading"} <= set(PARTS)

"""Who does not follow the leader after all is healed is named, with what it believes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.liveness import FOLLOWS_S, astray, every_node_follows
from jepsen.simulator.properties import Violation
from jepsen.simulator.world import World
from raftctl.ids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("J1", "Q4", "Q7")


def run(seed: int, go_wrong: Callable[[SimCluster], None], *, watch: bool = True) -> None:
    """A cluster is whole, something happens to it, and is not healed."""
    with World(seed) as world:
        cluster = SimCluster(world, brokers=1, spares=1, watch=watch)

        async def scenario() -> None:
            cluster.start_all()
            await every_node_follows(cluster)
            go_wrong(cluster)
            await asyncio.sleep(3.0)
            await every_node_follows(cluster)

        world.run(scenario())


def cut_off(cluster: SimCluster, name: str) -> None:
    for other in cluster.controller_names:
        if other != name:
            cluster.world.partition(name, other)


def pause_a_moment(cluster: SimCluster) -> None:
    cluster.world.pause("broker-1")
    cluster.world.loop.call_later(FOLLOWS_S, cluster.world.resume, "broker-1")


def test_nodes_that_come_back_in_time_are_left_alone() -> None:
    run(1, pause_a_moment)


@pytest.mark.parametrize("name", ["broker-1", "controller-101", "controller-104"])
def test_a_node_of_any_role_that_hears_no_leader_is_named(name: str) -> None:
    with pytest.raises(Violation, match=rf"every_node_follows: .*{name} is \w+ of") as raised:
        run(2, lambda cluster: cut_off(cluster, name))
    assert str(raised.value).count("is follower of") <= 1


def test_a_node_that_is_down_is_named() -> None:
    with pytest.raises(Violation, match="does not run: broker-1"):
        run(3, lambda cluster: cluster.world.kill("broker-1"))


def test_a_quorum_without_a_leader_is_told_with_what_each_believes() -> None:
    def kill_two(cluster: SimCluster) -> None:
        for name in cluster.controller_names[:2]:
            cluster.world.kill(name)

    with pytest.raises(Violation, match=r"nobody leads: .*controller-103 is"):
        run(4, kill_two)


def test_a_voter_whose_disk_is_gone_is_named() -> None:
    def forget(cluster: SimCluster) -> None:
        cluster.directory_ids[102] = ZERO_UUID

    with pytest.raises(Violation, match="102 votes with the disk"):
        run(5, forget, watch=False)  # Else what it does not keep any more is missed first.


def test_metadata_that_a_node_has_not_published_is_missed() -> None:
    def ask_for_more(cluster: SimCluster) -> None:
        wrong = list(astray(cluster, 1_000))
        assert len(wrong) == len(cluster.controller_names) + 1
        assert all("lacks metadata that is committed to 1000" in one for one in wrong)

    run(6, ask_for_more)

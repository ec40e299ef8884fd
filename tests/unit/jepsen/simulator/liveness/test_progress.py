"""The two properties of progress tell a quorum that works from one that does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jepsen.simulator.cluster import SimCluster
from jepsen.simulator.liveness import Progress
from jepsen.simulator.properties import Violation
from jepsen.simulator.world import World
from raftctl.quorum._driver import Effects
from raftctl.raft._leader import Leader
from raftctl.raft.events import Effect, SendRequest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.req("J1", "Q4")

LONG_S = 15.0
_perform = Effects.perform


def run(world: World, go_wrong: Callable[[SimCluster, str], None], count: int = 3) -> Progress:
    """A quorum elects, something happens to it (the leader's name is told), and time goes by."""
    cluster = SimCluster(world, controllers=count, brokers=0)
    progress = Progress(cluster)

    async def scenario() -> None:
        cluster.start_all()
        await asyncio.sleep(5.0)
        (leader,) = (n for n in cluster.controller_names if leads(cluster, n))
        go_wrong(cluster, leader)
        watching = asyncio.create_task(progress.watch())
        await asyncio.wait([watching], timeout=LONG_S)
        if watching.done():
            await watching
        watching.cancel()

    world.run(scenario())
    return progress


def leads(cluster: SimCluster, name: str) -> bool:
    driver = cluster.nodes[name].driver
    return driver is not None and driver.is_leader


def cut_off(cluster: SimCluster, name: str, keeping: int = 0) -> None:
    others = [one for one in cluster.controller_names if one != name]
    for other in others[keeping:]:
        cluster.world.partition(name, other)


def test_a_quorum_that_works_is_left_alone() -> None:
    with World(1) as world:
        progress = run(world, lambda cluster, leader: None)
        assert 0 < progress.waits_s < progress.timeout_s / 2


@pytest.mark.parametrize("keeping", [0, 1])
def test_a_leader_that_is_cut_off_gives_up_in_time_and_others_lead(keeping: int) -> None:
    with World(2) as world:
        run(world, lambda cluster, leader: cut_off(cluster, leader, keeping), 5)


def test_a_minority_owes_nothing() -> None:
    def kill_two(cluster: SimCluster, leader: str) -> None:
        for name in cluster.controller_names[:2]:
            cluster.world.kill(name)

    with World(3) as world:
        run(world, kill_two)


def test_who_is_cut_short_in_the_midst_of_a_vote_owes_nothing_until_it_is_over() -> None:
    def kill_and_reset(cluster: SimCluster, leader: str) -> None:
        cluster.world.kill(leader)
        one, other = (name for name in cluster.controller_names if name != leader)
        cluster.world.network.link(one, other).reset_every(40)

    with World(6) as world:
        progress = run(world, kill_and_reset)
        assert progress.waits_s < progress.timeout_s / 2


def test_a_leader_in_the_minority_that_stays_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_one_will_do(leader: Leader) -> int:
        return 1 << 60

    monkeypatch.setattr(Leader, "check_quorum_deadline_ms", any_one_will_do)
    with World(4) as world, pytest.raises(Violation, match="nobody_leads_without_a_majority"):
        run(world, lambda cluster, leader: cut_off(cluster, leader, keeping=1), 5)


def all_but_sends(effects: Effects, effect: Effect) -> None:
    if not isinstance(effect, SendRequest):
        _perform(effects, effect)


def test_a_majority_that_elects_nobody_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def loses_its_tongue(cluster: SimCluster, leader: str) -> None:
        cut_off(cluster, leader)
        monkeypatch.setattr(Effects, "perform", all_but_sends)

    with World(5) as world, pytest.raises(Violation, match="a_connected_majority_commits"):
        run(world, loses_its_tongue)
